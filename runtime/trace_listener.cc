// SPDX-License-Identifier: Apache-2.0
// What the Mmu tells the engine of code: it is written to, or runs at another place. Compiled for
// general registers only: guest vector state is live.
#include "runtime/engine_impl.h"

namespace alibi::runtime {

void EngineImpl::CodeWritten(PhysAddr address, u64 size) {
  const PhysAddr last = address + size;
  for (PhysAddr start = address.PageBase(); start < last; start += kPageSize) {
    const PhysPage page = start.InPage();
    const u64 from = address > start ? address - start : 0;
    const u64 to = last - start < kPageSize ? last - start : kPageSize;
    if (direct_ != nullptr && mmu_.UntraceDirectCode(start)) {
      direct_->CodeWritten(memory_.ArenaOffset(start));
    }
    const bool code_left = fragments_->InvalidateBytes(page, from, to, [&](const Ccf* ccf) {
      ++counters_.ccf_invalidations;
      if (events_.Wants(RecordKind::kOverwritten)) events_.Overwritten(*ccf, address, size);
    });
    // Memory that held code becomes data: programs end, and their pages go to others.
    if (!code_left) {
      mmu_.UntraceCode(start);
      sites_->ForgetPage(page);
    }
  }
}

// What is translated already need not be looked up piece by piece: new address spaces mostly run
// code that others ran before.
void EngineImpl::PageExecuted(LinearAddr linear_page, PhysAddr page) {
  const translator::CodeMode mode = CurrentMode();
  if (!mode.UsesJumpTable() || mmu_.current_view().runs_directly()) return;
  fragments_->ForEachInMapping(linear_page, page.InPage(), mode, [&](const Ccf* ccf) {
    if (!ccf->indirect_entry) return;
    for (const JumpKind kind : kJumpKinds) {
      if (ccf->reached_by & KindBit(kind))
        mmu_.current_view().OfferJump(ccf->pc, kind, ccf->indirect_entry);
    }
  });
}

}  // namespace alibi::runtime
