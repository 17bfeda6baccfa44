// SPDX-License-Identifier: Apache-2.0
// Hardware task switching (SDM vol. 3, 7.3) and the stacks that a TSS holds for inner levels.
// Legacy protected mode only: long mode has neither task gates nor back links.
#ifndef ALIBI_VCPU_TASK_SWITCH_H_
#define ALIBI_VCPU_TASK_SWITCH_H_

#include "base/types.h"
#include "vcpu/descriptors.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

enum class TaskSwitchKind : u8 { kJump, kCall, kReturn, kEvent };

struct TaskSwitchRequest {
  TaskSwitchKind kind = TaskSwitchKind::kJump;
  u16 selector = 0;  // of the new TSS
  u64 next_rip = 0;  // what the old TSS remembers
  u32 ext = 0;
  bool has_error_code = false;
  u32 error_code = 0;
  u64 flags = 0;  // the EFLAGS image that the old TSS remembers
};

// A new task with the T flag leaves VcpuState::task_trap set, for who called (DeliverTaskTrap).
// Checks of the gate (or of the TSS descriptor's privilege) are the caller's. Faults raised before
// the switch commits leave the state unchanged; those of the new task's own segments are raised,
// as on hardware, in the context of the new task.
Outcome SwitchTask(VcpuState& state, LinearMemory& memory, const TaskSwitchRequest& request);

// Reads SS:ESP of level `cpl` from the current 16- or 32-bit TSS and checks the stack segment, for
// events and call gates. The accessed bit is the caller's, after everything else is checked.
Outcome ReadInnerStack(const VcpuState& state, LinearMemory& memory, unsigned cpl, u32 ext,
                       Segment* stack, u64* pointer, Descriptor* descriptor, LinearAddr* address);

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_TASK_SWITCH_H_
