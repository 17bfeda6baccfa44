// SPDX-License-Identifier: Apache-2.0
// One instruction at a time: single steps, interrupt shadows, enabled breakpoints, IGNNE#. What the
// architecture says of debug exceptions around an instruction is vcpu/debug_step.h.
#include <cstring>
#include <utility>

#include "runtime/engine_impl.h"
#include "vcpu/breakpoints.h"
#include "vcpu/exceptions.h"

namespace alibi::runtime {

using isa::Instr;
using isa::Op;
using translator::Ccf;

namespace {

constexpr u64 kXsaveHeader = 512;
constexpr u16 kX87Exceptions = 0x3f, kX87Summary = 0x8080;  // the status word's ES and B

}  // namespace

// The XSAVE area begins with x87's control and status words.
bool EngineImpl::NumericErrorPending() const {
  u16 words[2];
  u64 components;
  std::memcpy(words, state_.xsave_area, sizeof(words));
  std::memcpy(&components, state_.xsave_area + kXsaveHeader, sizeof(components));
  return (components & 1) != 0 && (words[1] & ~words[0] & kX87Exceptions) != 0;
}

void EngineImpl::HideNumericError() {
  u16 words[2];
  std::memcpy(words, state_.xsave_area, sizeof(words));
  hidden_control_ = words[0];
  hidden_exceptions_ = words[1] & ~words[0] & kX87Exceptions;
  words[0] |= kX87Exceptions;
  words[1] &= static_cast<u16>(~(hidden_exceptions_ | kX87Summary));
  std::memcpy(state_.xsave_area, words, sizeof(words));
}

void EngineImpl::ShowNumericError(const Instr* instr) {
  if (instr != nullptr && instr->Is(isa::kLoadsControlWord)) return;
  u16 words[2];
  std::memcpy(words, state_.xsave_area, sizeof(words));
  words[0] = (words[0] & ~kX87Exceptions) | (hidden_control_ & kX87Exceptions);
  words[1] |= hidden_exceptions_ | kX87Summary;
  std::memcpy(state_.xsave_area, words, sizeof(words));
}

// What the guest's debug registers ask for.
void EngineImpl::ArmBreakpoints() {
  armed_ = ArmedRegisters::Of(state_);
  watching_ = vcpu::BreakpointsEnabled(state_);
  port_breakpoints_ = false;
  static_assert(vcpu::kBreakpoints == DebugPoints::kMaxGuestBreakpoints);
  points_.ForgetGuestBreakpoints();
  for (unsigned i = 0; i < vcpu::kBreakpoints; ++i) {
    const vcpu::Breakpoint breakpoint = BreakpointOf(state_, i);
    if (breakpoint.size == 0) continue;
    port_breakpoints_ |= breakpoint.kind == vcpu::BreakpointAccess::kPort;
    if (breakpoint.kind != vcpu::BreakpointAccess::kExecute) continue;
    points_.AddGuestBreakpoint(LinearAddr(breakpoint.first), breakpoint.size);
    for (u64 byte = 0; byte < breakpoint.size; ++byte) {
      fragments_->InvalidateAt(LinearAddr(breakpoint.first + byte));
    }
  }
  WatchPages();
}

void EngineImpl::WatchPages() {
  static_assert(vcpu::kBreakpoints + DebugPoints::kMaxWatches <= mmu::WatchedPages::kMax);
  mmu_.ForgetWatchedPages();
  for (unsigned i = 0; i < vcpu::kBreakpoints; ++i) {
    const vcpu::Breakpoint breakpoint = BreakpointOf(state_, i);
    const bool loads = breakpoint.kind == vcpu::BreakpointAccess::kRead;
    if (breakpoint.size == 0 || !(loads || breakpoint.kind == vcpu::BreakpointAccess::kWrite)) {
      continue;
    }
    const LinearAddr first(breakpoint.first);
    mmu_.WatchPages(first, first + breakpoint.size - 1, loads);
  }
  points_.ForEachWatch([&](const Watch& watch) {
    const LinearAddr last = watch.address + watch.size - 1;
    mmu_.WatchPages(watch.address, last < watch.address ? LinearAddr(~u64{0}) : last, watch.reads);
  });
}

bool EngineImpl::Step() {
  const bool hide = std::exchange(hide_numeric_error_, false);  // whatever comes now: others follow
  const vcpu::DebugException first =
      debug_step_.Begin(state_, LinearPc(), options_.cpuid->vendor());
  if (first.dr6 != 0) {
    DeliverDebug(first);
    return true;
  }
  const u64 delivered = counters_.exceptions_delivered;
  in_single_ = true;
  watch_hits_ = 0;
  const HostAddr entry = PrepareEntry();
  if (!entry) {
    in_single_ = false;
    if (counters_.exceptions_delivered == delivered) return false;
    DeliverDebug(debug_step_.Faulted(state_));
    return true;
  }
  const Ccf& ccf = *fragments_->FindByHost(entry);
  const Instr instr = ccf.instrs().front();
  const vcpu::SteppedInstruction step = DescribeStep(instr, ccf.mode);
  const u8 shadow = state_.interrupt_shadow;
  state_.interrupt_shadow = 0;  // it covers exactly this instruction
  if (instr.op == Op::kInt1) debug_step_.BeginInt1(state_);
  if (hide) HideNumericError();
  Enter(entry);
  in_single_ = false;
  const bool faulted = counters_.exceptions_delivered != delivered;
  const bool again = pending_.undone && !faulted;
  if (hide) ShowNumericError(again || faulted ? nullptr : &instr);
  if (again) {
    if (!state_.halted) state_.interrupt_shadow = shadow;
    return false;
  }
  if (faulted) points_.Forget();  // it has not touched anything after all
  DeliverDebug(faulted ? debug_step_.Faulted(state_)
                       : debug_step_.Completed(state_, step, watch_hits_));
  return true;
}

}  // namespace alibi::runtime
