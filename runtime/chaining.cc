// SPDX-License-Identifier: Apache-2.0
// Links between CCFs, and what cuts them: retranslation, overwritten code, requests to stop. Called
// while guest vector state is live: compiled for general registers only, as fast_path.cc.
#include "runtime/engine_impl.h"

namespace alibi::runtime {

using translator::Ccf;
using translator::ExitDesc;
using translator::ExitKind;
using translator::kNoPage;

namespace {

const u8* CodeAt(u64 host) { return reinterpret_cast<const u8*>(host); }

}  // namespace

void EngineImpl::PatchJump(u64 at, u8 length, u64 target) {
  const i32 rel = static_cast<i32>(target - (at + length));
  if (length == 6) {  // of a conditional jump, which it stays
    tc_->Write(at + 2, &rel, 4);
    return;
  }
  u8 jump[5] = {0xe9};
  __builtin_memcpy(jump + 1, &rel, 4);
  tc_->Write(at, jump, 5);
}

void EngineImpl::Chain(ExitDesc* exit, Ccf* target) {
  if (exit->kind != ExitKind::kDirect || exit->linked != nullptr || exit->ccf->mode.single ||
      target->phys_page2 != kNoPage || target->phys_page != exit->ccf->phys_page) {
    return;
  }
  PatchJump(exit->patch, exit->patch_length, target->entry);
  exit->linked = target;
  exit->next_incoming = target->incoming;
  target->incoming = exit;
  ++counters_.chained_exits;
}

void EngineImpl::Unchain(ExitDesc* exit) {
  if (exit->linked == nullptr) return;
  for (ExitDesc** link = &exit->linked->incoming; *link != nullptr;
       link = &(*link)->next_incoming) {
    if (*link == exit) {
      *link = exit->next_incoming;
      break;
    }
  }
  exit->linked = nullptr;
  exit->next_incoming = nullptr;
  // An elided exit has no jump: its successor's entry has been redirected instead.
  if (!exit->elided) PatchJump(exit->patch, exit->patch_length, exit->stub);
}

void EngineImpl::RedirectEntry(Ccf* ccf, u64 target) { PatchJump(ccf->entry, 5, target); }

// Whoever still enters the CCF (falling in from an elided exit, a stale jump-table entry, a chained
// predecessor) looks its PC up again.
void EngineImpl::RedirectEntryToLookup(Ccf* ccf) {
  if (ccf->entry_bytes[0] == 0) {
    CopyBytes(ccf->entry_bytes.data(), CodeAt(ccf->entry), ccf->entry_bytes.size());
  }
  RedirectEntry(ccf, ccf->redirect);
  ccf->forwards = false;
}

// Nothing may enter it again: its guest code changed, a debugger's breakpoint lies in it, or it
// loses flags that its guest is shown. Code that is running in it leaves at the next callout,
// because valid is false.
void EngineImpl::Invalidate(Ccf* ccf) {
  if (!ccf->valid) return;
  RelinkExits();
  ccf->valid = false;
  mmu_.ResetJumpEntriesForPhysPage(PhysAddr(ccf->phys_page * kPageSize));
  if (pending_exit_ != nullptr && pending_exit_->ccf == ccf) pending_exit_ = nullptr;
  while (ccf->incoming != nullptr) Unchain(ccf->incoming);
  for (ExitDesc* exit : ccf->exits()) Unchain(exit);
  RedirectEntryToLookup(ccf);
}

// A new translation of the same code will take its place. Predecessors are not visited: its entry
// becomes a forwarding jump as soon as the new one exists (until then: a look-up).
void EngineImpl::Retire(Ccf* ccf) {
  if (!ccf->valid || ccf->retired) return;
  RelinkExits();
  ccf->retired = true;
  if (pending_exit_ != nullptr && pending_exit_->ccf == ccf) pending_exit_ = nullptr;
  RedirectEntryToLookup(ccf);
}

void EngineImpl::CodeWritten(PhysAddr address, u64 size) {
  const u64 first = address.value, last = address.value + size;
  for (u64 page = first >> 12; page <= (last - 1) >> 12; ++page) {
    const u64 start = page << 12;
    const u64 from = first > start ? first - start : 0;
    const u64 to = last - start < kPageSize ? last - start : kPageSize;
    const bool code_left = tc_->index().ForEachDependent(page, from, to, [&](Ccf* ccf) {
      Invalidate(ccf);
      ++counters_.ccf_invalidations;
      if (recorder_.Wants(RecordKind::kOverwritten)) RecordOverwritten(*ccf, address, size);
    });
    counters_.index_steps = tc_->index().steps();
    // Memory that held code becomes data: programs end, and their pages go to others.
    if (!code_left) {
      mmu_.UntraceCode(PhysAddr(start));
      if (recorder_.Wants(RecordKind::kForgottenPage) && sites_.MayHaveInPage(start)) {
        RecordForgottenPage(start);
      }
      sites_.ForgetPage(start);
      policy_.OnPageForgotten(start);
    }
  }
}

// What is translated already need not be looked up piece by piece: new address spaces mostly run
// code that others ran before.
void EngineImpl::PageExecuted(u64 linear_page, PhysAddr page) {
  const translator::CodeMode mode = CurrentMode();
  if (!mode.UsesJumpTable()) return;
  tc_->index().ForEachInMapping(linear_page, page.PageNumber(), mode, [&](const Ccf* ccf) {
    if (ccf->indirect_entry == 0) return;
    const void* entry = reinterpret_cast<const void*>(ccf->indirect_entry);
    for (const JumpKind kind : kJumpKinds) {
      if (ccf->reached_by & KindBit(kind)) mmu_.current_view().OfferJump(ccf->pc, kind, entry);
    }
  });
  counters_.index_steps = tc_->index().steps();
}

// Unlinks the CCF's exits, so that running code leaves it at its end.
void EngineImpl::UnlinkExits(Ccf* ccf) {
  auto save = [&](u64 at, u8 length) {
    UnlinkedExit& patch = unlinked_exits_[unlinked_exit_count_++];
    patch.at = at;
    patch.length = length;
    const u8* code = CodeAt(at);
    for (unsigned i = 0; i < length; ++i) patch.bytes[i] = code[i];
  };
  if (unlinked_exit_count_ + ccf->exits().size() > kMaxUnlinkedExits) return;
  for (unsigned i = 0; i < unlinked_exit_count_; ++i) {
    const u64 at = unlinked_exits_[i].at;
    if (at >= ccf->hot_start && at < ccf->hot_end) return;  // done already
  }
  for (ExitDesc* exit : ccf->exits()) {
    if (exit->kind == ExitKind::kDirect) {
      if (exit->linked == nullptr) continue;  // goes to its stub anyway
      const u64 at = exit->elided ? exit->linked->entry : exit->patch;
      const u8 length = exit->elided ? 5 : exit->patch_length;
      save(at, length);
      PatchJump(at, length, exit->stub);
    } else {
      save(exit->patch, 5);
      PatchJump(exit->patch, 5, stubs_.at(Callout::kStop));
    }
  }
  ++counters_.async_stops;
}

void EngineImpl::RelinkExits() {
  while (unlinked_exit_count_ > 0) {
    const UnlinkedExit& patch = unlinked_exits_[--unlinked_exit_count_];
    tc_->Write(patch.at, patch.bytes, patch.length);
  }
}

u64 EngineImpl::StopSoon(u64 resume) {
  if (resume == stubs_.jump) {
    state_.resume_host_pc = stubs_.at(Callout::kStop);  // r11 will be the target
  } else if (Ccf* ccf = tc_->FindByHost(resume)) {
    UnlinkExits(ccf);
  }
  return resume;
}

}  // namespace alibi::runtime
