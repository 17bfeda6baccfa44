// SPDX-License-Identifier: Apache-2.0
// When an external interrupt or NMI may be taken at an instruction boundary.
#ifndef ALIBI_VCPU_INTERRUPTS_H_
#define ALIBI_VCPU_INTERRUPTS_H_

#include "base/types.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

// The shadow of STI and MOV/POP SS holds back interrupts for one instruction: whoever completes
// the following instruction clears interrupt_shadow (Simulate does it itself).
inline bool CanTakeInterrupt(const VcpuState& state) {
  return state.if_flag != 0 && state.interrupt_shadow == 0 && state.shutdown == 0;
}

inline bool CanTakeNmi(const VcpuState& state) {
  return state.nmi_blocked == 0 && state.interrupt_shadow == 0 && state.shutdown == 0;
}

// An APIC interrupt's priority class (vector[7:4]) must exceed the task priority in CR8.
inline bool AboveTaskPriority(const VcpuState& state, u8 vector) {
  return (vector >> 4) > (state.cr8 & 0xf);
}

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_INTERRUPTS_H_
