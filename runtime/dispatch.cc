// SPDX-License-Identifier: Apache-2.0
// Where the guest goes on: the mode its code is in, the translation of it, and the links that spare
// the next time. Compiled for general registers only: guest vector state is live.
#include <immintrin.h>
#include <x86intrin.h>

#include "abi/contract.h"
#include "runtime/engine_impl.h"
#include "translator/unit_rules.h"
#include "vcpu/breakpoints.h"
#include "vcpu/descriptors.h"
#include "vcpu/exceptions.h"
#include "vcpu/outcome.h"
#include "vcpu/segments.h"

namespace alibi::runtime {

using translator::Ccf;
using translator::CodeMode;
using translator::ExitDesc;
using translator::kNoPage;
using translator::SiteDesc;
using vcpu::GuestFault;

CodeMode EngineImpl::CurrentMode() {
  CodeMode mode;
  mode.code_bits = static_cast<u8>(state_.CodeBits());
  mode.user = state_.cpl == 3;
  mode.cpl_1_or_2 = state_.cpl == 1 || state_.cpl == 2;
  if (mode.code_bits != 64) {
    SettleLegacyState();
    const vcpu::Segment& code = state_.segment[vcpu::kCs];
    mode.code_base = static_cast<u32>(code.base);
    mode.code_limit = code.limit;
    mode.flat = mode.code_bits == 32 && SegmentsAreFlat();
    mode.wide_stack = state_.segment[vcpu::kSs].Big();
  }
  mode.careful = state_.ChecksAlignment() || (in_single_ && Watches());
  mode.unit_rules = translator::UnitRules(state_);
  return mode;
}

// Those of 32-bit code. FS and GS have their checks in either case.
bool EngineImpl::SegmentsAreFlat() const {
  constexpr i64 kWhole = i64{1} << 32;
  const auto flat = [&](vcpu::SegmentIndex index, bool write) {
    return state_.segment[index].base == 0 && state_.segment_fast_limit[write][index] == kWhole;
  };
  return flat(vcpu::kCs, false) && flat(vcpu::kDs, true) && flat(vcpu::kEs, true) &&
         flat(vcpu::kSs, true) && state_.segment[vcpu::kSs].Big() &&
         !vcpu::RealOrVirtual8086(state_);
}

bool EngineImpl::NoticeMode(const CodeMode& mode) {
  if (!mode.UsesJumpTable()) return false;
  // Alignment checks are armed or not whoever runs: kernels do not disarm them, and come back.
  // Under SMAP AC has another meaning for kernels; an open view has no peer, so that they come back
  // by ways that look here.
  const bool for_smap = !mode.user && (state_.cr4 & vcpu::kCr4Smap);
  const u32 alignment = for_smap                  ? mode_key_ & kAlignmentKey
                        : state_.AlignmentArmed() ? kAlignmentKey
                                                  : 0;
  const u32 key = mode.unit_rules | alignment;
  if (key == mode_key_) return false;
  mode_key_ = key;
  mmu_.ResetAllJumpTables();
  return true;
}

void EngineImpl::SyncGs() {
  const HostAddr gs = mmu_.gs_base();
  if (gs != gs_) {
    gs_ = gs;
    _writegsbase_u64(gs.value);
  }
}

bool EngineImpl::MustLeave() const {
  return __atomic_load_n(&state_.stop_requested, __ATOMIC_RELAXED) != 0 ||
         (state_.irq_pending != 0 && state_.if_flag != 0) || state_.halted != 0 ||
         state_.shutdown != 0 || state_.interrupt_shadow != 0 ||
         (state_.system_flags & vcpu::kTf) != 0 || port_breakpoints_ || BreakpointsChanged();
}

bool EngineImpl::LeavesForDirect(const CodeMode& mode) const {
  return direct_ != nullptr && mode.user && mmu_.current_view().runs_directly();
}

Ccf* EngineImpl::Lookup(LinearAddr pc, const CodeMode& mode, PhysAddr* phys, GuestFault* fault,
                        bool* faulted) {
  *faulted = false;
  if (mode.code_bits == 64 && !IsCanonical(pc)) {
    *fault = GuestFault::WithCode(vcpu::kGeneralProtection, 0);
    *faulted = true;
    return nullptr;
  }
  if (mode.RipOf(pc) > mode.code_limit) {
    *fault = GuestFault::WithCode(vcpu::kGeneralProtection, 0);
    *faulted = true;
    return nullptr;
  }
  if (!mmu_.Fetch(pc, phys, fault)) {
    *faulted = true;
    return nullptr;
  }
  Ccf* ccf = fragments_->Find(pc, phys->InPage(), mode);
  if (ccf != nullptr && ccf->phys_page2 != kNoPage) {
    const u64 epoch = mmu_.machine_epoch();
    PhysAddr second;
    LinearAddr next_pc = pc.PageBase() + kPageSize;
    if (mode.code_bits != 64) next_pc = LinearAddr(static_cast<u32>(next_pc.value));
    if (!mmu_.Fetch(next_pc, &second, fault)) {
      *faulted = true;
      return nullptr;
    }
    if (mmu_.machine_epoch() != epoch) return Lookup(pc, mode, phys, fault, faulted);
    if (second.InPage() != ccf->phys_page2) {
      return fragments_->Find(pc, phys->InPage(), mode, second.InPage());
    }
  }
  return ccf;
}

void EngineImpl::Deliver(const GuestFault& fault) {
  ++counters_.exceptions_delivered;
  if (events_.Wants(RecordKind::kFault)) events_.Fault(LinearPc(), fault);
  vcpu::DeliverFault(state_, mmu_, fault);
}

Next EngineImpl::DeliverAndDispatch(const GuestFault& fault) {
  Deliver(fault);
  return DispatchThroughTable();
}

// What translations of code that is not 64-bit rely on: rooms, and registers without upper halves
// (which are undefined after a mode change, SDM vol. 1, 3.4.1.1).
void EngineImpl::SettleLegacyState() {
  vcpu::UpdateFastLimits(state_);
  for (unsigned reg = 0; reg < 8; ++reg) state_.gpr[reg] = static_cast<u32>(state_.gpr[reg]);
}

Next EngineImpl::Dispatch(LinearAddr pc, const Pending& how) {
  CodeMode mode = CurrentMode();
  state_.rip = mode.RipOf(pc);
  SyncGs();
  const auto leave = [&] {
    pending_ = how;
    return Next{{}, how.undone};
  };
  if (MustLeave() || in_single_) return leave();
  if (points_.IsBreakpoint(pc)) return leave();
  // Code that must be translated stays so in its page, and what has been begun is ended.
  if (how.exit == nullptr && !how.simulate && !how.undone && LeavesForDirect(mode)) return leave();
  mode.simulate = how.simulate;
  NoticeMode(mode);
  ForgetResumeFlag();
  PhysAddr phys;
  GuestFault fault;
  bool faulted = false;
  const u64 epoch = mmu_.machine_epoch();
  Ccf* ccf = Lookup(pc, mode, &phys, &fault, &faulted);
  if (faulted) return leave();  // the run loop delivers it
  // Another VCPU may have stored to the code.
  if (mmu_.machine_epoch() != epoch && MustLeave()) return leave();
  if (ccf == nullptr) {
    ++counters_.tc_misses;
    return leave();
  }
  if (!mode.simulate) {
    if (how.by_table && mode.UsesJumpTable()) LinkJumpTable(ccf, how.jump_kinds);
    if (how.exit != nullptr) fragments_->Chain(how.exit, ccf);
  }
  return {ccf->entry, how.undone};
}

// Behind an instruction of code that is not 64-bit, which a segment register load may change.
bool EngineImpl::ModeHasChanged(const CodeMode& before) {
  CodeMode now = CurrentMode();
  now.single = before.single;
  now.simulate = before.simulate;
  return !(now == before);
}

bool EngineImpl::FlatnessHasChanged(const CodeMode& before, unsigned loaded) {
  vcpu::UpdateFastLimit(state_, loaded);
  return before.code_bits == 32 && loaded < vcpu::kFs && SegmentsAreFlat() != before.flat;
}

// Whoever has changed the mode of 64-bit code has looked at it.
bool EngineImpl::HasJumpTable() {
  if (state_.CodeBits() == 64) return IsCanonical(state_.rip);
  const CodeMode mode = CurrentMode();
  NoticeMode(mode);
  return mode.UsesJumpTable();
}

Next EngineImpl::DispatchThroughTable(const Pending& how) {
  SyncGs();
  // RF lasts up to a breakpoint that is the next instruction.
  if (MustLeave() || in_single_ || how.simulate || points_.IsBreakpoint(LinearPc()) ||
      !HasJumpTable()) {
    return Dispatch(LinearPc(), how);
  }
  ForgetResumeFlag();
  state_.scratch.r11 = state_.rip;  // the stub loads it into r11
  return {stubs_.jump, how.undone};
}

void EngineImpl::LinkJumpTable(Ccf* ccf, u8 jump_kinds) {
  if (mmu_.current_view().runs_directly()) return;
  const HostAddr entry = fragments_->IndirectEntry(ccf);
  if (!entry) return;
  // An entry check that failed does not tell whose it was: a jump of the kind that has led here
  // before and whose entry is lost.
  mmu::View& view = mmu_.current_view();
  u8 kinds = jump_kinds;
  ccf->reached_by |= kinds;
  const bool conflict = kinds == 0;
  if (conflict) {
    for (const JumpKind kind : kJumpKinds) {
      if (view.Jump(ccf->pc, kind) != entry) kinds |= KindBit(kind);
    }
    if ((kinds & ccf->reached_by) != 0) kinds &= ccf->reached_by;
  }
  for (const JumpKind kind : kJumpKinds) {
    if (kinds & KindBit(kind)) view.SetJump(ccf->pc, kind, entry);
  }
  if (conflict) view.SetConflict(ccf->pc, ccf->entry);
  if (ccf->leaf && (kinds & KindBit(JumpKind::kCrossPage))) NoticeLeaf(*ccf);
}

// Who has called it first has been translated before it: once more, and with it.
void EngineImpl::NoticeLeaf(const Ccf& leaf) {
  const LeafCaller caller = leaf_caller_;
  if (caller.ccf == nullptr || caller.target != leaf.pc || !(caller.ccf->mode == leaf.mode)) return;
  leaf_caller_ = {};
  fragments_->Retire(caller.ccf);
}

// --- The callouts that dispatch ---

Next EngineImpl::OnLookup(NoDescriptor, u64 pc) { return LookUp(LinearAddr(pc), 0); }
Next EngineImpl::OnLookupComputed(NoDescriptor, u64 pc) {
  return LookUp(LinearAddr(pc), KindBit(JumpKind::kComputed));
}
Next EngineImpl::OnLookupCrossPage(NoDescriptor, u64 pc) {
  return LookUp(LinearAddr(pc), KindBit(JumpKind::kCrossPage));
}

Next EngineImpl::OnReplaced(Ccf* ccf, u64) { return LookUp(ccf->Pc(), 0); }

Next EngineImpl::LookUp(LinearAddr pc, u8 jump_kinds) {
  ++counters_.lookups;
  if (UndoBranch(pc)) return DeliverAndDispatch(vcpu::GeneralProtection().fault());
  return Dispatch(pc, {.by_table = true, .jump_kinds = jump_kinds});
}

Next EngineImpl::OnStop(NoDescriptor, u64 r11) {
  const LinearAddr pc(r11);
  if (UndoBranch(pc)) {
    Deliver(vcpu::GeneralProtection().fault());
  } else {
    state_.rip = CurrentMode().RipOf(pc);
  }
  return {};
}

Next EngineImpl::OnExit(ExitDesc* exit, u64) {
  ++counters_.exit_callouts;
  return Dispatch(exit->Target(), {.exit = exit});
}

Next EngineImpl::Continue(SiteDesc* site, LinearAddr next_pc) {
  SyncGs();
  if (!site->resume || state_.rip != site->ccf->mode.RipOf(next_pc) || !site->ccf->valid ||
      MustLeave()) {
    return DispatchThroughTable();
  }
  return {site->resume};
}

Next EngineImpl::OnProbe(HostAddr resume, u64) { return {resume}; }

HostAddr EngineImpl::StopSoon(HostAddr resume) {
  if (resume == stubs_.jump) {
    state_.resume_host_pc = stubs_.at(Callout::kStop);  // r11 will be the target
  } else if (Ccf* ccf = fragments_->FindByHost(resume)) {
    fragments_->UnlinkExits(ccf);
  }
  return resume;
}

}  // namespace alibi::runtime
