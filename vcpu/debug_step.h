// SPDX-License-Identifier: Apache-2.0
// The debug exceptions around one instruction: execute breakpoints in front of it; single step,
// data and port breakpoints behind it; and what MOV SS holds back (SDM vol. 3, 6.8.3, 17.3 and
// table 6-2).
#ifndef ALIBI_VCPU_DEBUG_STEP_H_
#define ALIBI_VCPU_DEBUG_STEP_H_

#include "base/types.h"
#include "vcpu/cpuid.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

// What matters here of the instruction that was stepped.
struct SteppedInstruction {
  u64 next_rip = 0;                 // behind it
  bool loads_ss = false;            // by an instruction after which the shadow is that of SS
  bool software_interrupt = false;  // INT n, INT3, INTO, INT1
  bool steps_itself = false;        // SYSCALL, SYSRET: by the TF that they leave behind
  bool returns = false;             // IRET: RF is the one that it has loaded
  bool loads_task = false;          // LTR: the task register changes without a task switch
  bool repeated_string = false;     // may stop between two iterations
};

// A #DB to be delivered at the boundary that has been reached.
struct DebugException {
  u64 dr6 = 0;  // why; 0: there is none
  bool between_iterations = false;
};

class DebugStep {
 public:
  // Instructions have been executed that no step was made of.
  void NotStepped() { shadow_of_ss_ = false; }

  // In front of the instruction at `pc`. If this is a #DB, it is in place of the
  // instruction.
  DebugException Begin(const VcpuState& state, LinearAddr pc, Vendor vendor);
  // The instruction is INT1: its own #DB brings along what MOV SS has held back.
  void BeginInt1(VcpuState& state);
  // It was executed; `hits` are DR6 bits of the data and port breakpoints it hit. Clears RF where
  // that is over.
  DebugException Completed(VcpuState& state, const SteppedInstruction& instr, u64 hits);
  // It has faulted, and that was delivered.
  DebugException Faulted(VcpuState& state);

 private:
  bool shadow_of_ss_ = false;  // the last step loaded SS: no debug exception before the next
  u64 held_ = 0;               // DR6 bits that wait for the end of that shadow
  // As the instruction in progress has found it.
  bool trap_ = false, only_branches_ = false, general_detect_ = false;
  u64 start_ = 0;
  u16 task_ = 0;
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_DEBUG_STEP_H_
