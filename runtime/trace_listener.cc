// SPDX-License-Identifier: Apache-2.0
// What the Mmu tells the engine of code: it is written to, or runs at another place. Compiled for
// general registers only: guest vector state is live.
#include "runtime/engine_impl.h"

namespace alibi::runtime {

void EngineImpl::CodeWritten(PhysAddr address, u64 size) {
  const u64 first = address.value, last = address.value + size;
  for (u64 page = first >> 12; page <= (last - 1) >> 12; ++page) {
    const u64 start = page << 12;
    const u64 from = first > start ? first - start : 0;
    const u64 to = last - start < kPageSize ? last - start : kPageSize;
    const bool code_left = fragments_->InvalidateBytes(page, from, to, [&](const Ccf* ccf) {
      ++counters_.ccf_invalidations;
      if (events_.Wants(RecordKind::kOverwritten)) events_.Overwritten(*ccf, address, size);
    });
    // Memory that held code becomes data: programs end, and their pages go to others.
    if (!code_left) {
      mmu_.UntraceCode(PhysAddr(start));
      sites_->ForgetPage(start);
    }
  }
}

// What is translated already need not be looked up piece by piece: new address spaces mostly run
// code that others ran before.
void EngineImpl::PageExecuted(u64 linear_page, PhysAddr page) {
  const translator::CodeMode mode = CurrentMode();
  if (!mode.UsesJumpTable()) return;
  fragments_->ForEachInMapping(linear_page, page.PageNumber(), mode, [&](const Ccf* ccf) {
    if (ccf->indirect_entry == 0) return;
    const void* entry = reinterpret_cast<const void*>(ccf->indirect_entry);
    for (const JumpKind kind : kJumpKinds) {
      if (ccf->reached_by & KindBit(kind)) mmu_.current_view().OfferJump(ccf->pc, kind, entry);
    }
  });
}

}  // namespace alibi::runtime
