// SPDX-License-Identifier: Apache-2.0
// Delivery of exceptions and interrupts through the IDT (SDM vol. 3, chapter 6; INT n in vol. 2).
#ifndef ALIBI_VCPU_EXCEPTIONS_H_
#define ALIBI_VCPU_EXCEPTIONS_H_

#include "base/types.h"
#include "vcpu/fault.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

enum class EventKind : u8 {
  kFault,     // an exception reported before the instruction: RF is set in the pushed flags
  kTrap,      // an exception reported after the instruction (#DB single step, INT1)
  kSoftware,  // INT n, INT3, INTO: gate DPL is checked, EXT is clear, faults are not contributory
  kExternal,  // INTR, NMI
};

struct Event {
  EventKind kind = EventKind::kFault;
  u8 vector = 0;
  bool has_error_code = false;
  u32 error_code = 0;
  u64 cr2 = 0;                      // #PF only: becomes CR2 when the event is delivered
  bool between_iterations = false;  // kTrap: a repeated string instruction is not at its end

  static constexpr Event Fault(const GuestFault& fault) {
    return {EventKind::kFault, fault.vector, fault.has_error_code, fault.error_code, fault.cr2};
  }
  static constexpr Event Trap(u8 vector) { return {EventKind::kTrap, vector, false, 0, 0}; }
  static constexpr Event Software(u8 vector) { return {EventKind::kSoftware, vector, false, 0, 0}; }
  static constexpr Event External(u8 vector) { return {EventKind::kExternal, vector, false, 0, 0}; }
};

// Delivers the event and whatever exceptions its delivery raises, up to a double fault or
// shutdown (VcpuState::shutdown). return_rip is what the handler's frame shows: for faults the
// faulting instruction, otherwise the next one; state.rip must be the current instruction. Leaves
// RIP at the handler, clears halted and the interrupt shadow.
void DeliverEvent(VcpuState& state, LinearMemory& memory, const Event& event, u64 return_rip);

// The usual case: an instruction at state.rip faulted.
inline void DeliverFault(VcpuState& state, LinearMemory& memory, const GuestFault& fault) {
  DeliverEvent(state, memory, Event::Fault(fault), state.rip);
}

// After an instruction: the trap of a task that it switched to (SDM vol. 3, 17.3.1.5).
void DeliverTaskTrap(VcpuState& state, LinearMemory& memory);

// One attempt without the consequences: on a fault in the delivery itself nothing has changed.
Outcome TryDeliver(VcpuState& state, LinearMemory& memory, const Event& event, u64 return_rip);

// INT n: in virtual-8086 mode redirected to the 8086 program (VME) or #GP (IOPL), else delivered.
Outcome SoftwareInterrupt(VcpuState& state, LinearMemory& memory, u8 vector, u64 next_rip);
// INT3 and INTO skip what virtual-8086 mode adds to INT n.
Outcome SoftwareTrap(VcpuState& state, LinearMemory& memory, u8 vector, u64 next_rip);
// INT1: a #DB without a gate privilege check.
Outcome DebugTrap(VcpuState& state, LinearMemory& memory, u64 next_rip);

// Vectors 8, 10-14, 17 push an error code in protected mode (SDM vol. 3, table 6-1).
constexpr bool PushesErrorCode(u8 vector) { return vector < 32 && ((0x00027d00u >> vector) & 1); }

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_EXCEPTIONS_H_
