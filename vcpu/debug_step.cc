// SPDX-License-Identifier: Apache-2.0
#include "vcpu/debug_step.h"

#include <utility>

#include "vcpu/breakpoints.h"
#include "vcpu/control_registers.h"
#include "vcpu/cpu_differences.h"

namespace alibi::vcpu {

DebugException DebugStep::Begin(const VcpuState& state, LinearAddr pc, Vendor vendor) {
  trap_ = (state.system_flags & kTf) != 0;
  only_branches_ = (state.debugctl & kDebugCtlBtf) != 0;
  general_detect_ = (state.dr[7] & kDr7Gd) != 0;
  start_ = state.rip;
  task_ = state.segment[kTr].selector;
  const bool shadowed = shadow_of_ss_ && HasIntelsWay(GuestDifference::kBreakpointInShadow, vendor);
  if (shadowed || (state.system_flags & kRf)) return {};
  const u64 hits = MatchBreakpoints(state, BreakpointAccess::kExecute, pc.value, 1);
  if (hits == 0) return {};
  // A fault, but one whose frame does not have RF set.
  shadow_of_ss_ = false;
  return {hits | std::exchange(held_, 0)};
}

void DebugStep::BeginInt1(VcpuState& state) {
  if (held_ != 0) ReportDebug(state, std::exchange(held_, 0));
}

// What MOV SS has held back waits for the boundary behind the next instruction. If that one faults,
// this is the one in front of its handler, as with INT n.
DebugException DebugStep::Faulted(VcpuState& state) {
  shadow_of_ss_ = false;
  const u64 held = std::exchange(held_, 0);
  if (held == 0 || state.shutdown) return {};
  // A #DB of its own, of MOV DR, brings it along.
  if (general_detect_ && !(state.dr[7] & kDr7Gd)) {
    state.dr[6] |= held;
    return {};
  }
  return {held};
}

DebugException DebugStep::Completed(VcpuState& state, const SteppedInstruction& instr, u64 hits) {
  shadow_of_ss_ = false;
  hits |= std::exchange(held_, 0);
  const bool unfinished = instr.repeated_string && state.rip == start_;
  const bool switched = !instr.loads_task && state.segment[kTr].selector != task_;
  if (!instr.returns && !switched && !unfinished) state.system_flags &= ~static_cast<u32>(kRf);
  if (instr.loads_ss && state.interrupt_shadow != 0) {
    shadow_of_ss_ = true;
    held_ = hits;
    return {};
  }
  // A taken INT n, INT3, INTO or INT1 has cleared TF before the trap would come.
  const bool taken = instr.software_interrupt && !(state.system_flags & kTf);
  const bool passes = only_branches_ && (unfinished || state.rip == instr.next_rip);
  // Of a task switch TF went into the old task's TSS.
  if (trap_ && !taken && !instr.steps_itself && !switched && !passes) hits |= kDr6Bs;
  return {hits, unfinished};
}

}  // namespace alibi::vcpu
