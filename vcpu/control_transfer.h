// SPDX-License-Identifier: Apache-2.0
// Far control transfers: everything that loads CS (SDM vol. 2: CALL, JMP, RET, IRET, SYSCALL...).
// Each sets state.rip; operand_bits is 16, 32 or 64; next_rip is the next
// instruction's (what calls push and task switches save).
#ifndef ALIBI_VCPU_CONTROL_TRANSFER_H_
#define ALIBI_VCPU_CONTROL_TRANSFER_H_

#include "base/types.h"
#include "vcpu/cpuid.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

Outcome FarJump(VcpuState& state, LinearMemory& memory, u16 selector, u64 offset,
                unsigned operand_bits, u64 next_rip);
Outcome FarCall(VcpuState& state, LinearMemory& memory, u16 selector, u64 offset,
                unsigned operand_bits, u64 next_rip);
// release: RET imm16.
Outcome FarReturn(VcpuState& state, LinearMemory& memory, unsigned operand_bits, u16 release);
Outcome InterruptReturn(VcpuState& state, LinearMemory& memory, unsigned operand_bits,
                        u64 next_rip);

// AMD and Intel differ: SYSCALL outside 64-bit mode (#UD on Intel), SYSRET to a non-canonical RIP
// (#GP(0) at CPL 0 on Intel; a fault of the fetch at CPL 3 on AMD) and the SS it leaves behind,
// SYSENTER in long mode (#UD on AMD).
Outcome Syscall(VcpuState& state, LinearMemory& memory, Vendor vendor, u64 next_rip);
// Derives VcpuState::fast_syscall; call after STAR, SFMASK or EFER changed.
void PrepareFastSyscall(VcpuState& state);
Outcome Sysret(VcpuState& state, LinearMemory& memory, Vendor vendor, unsigned operand_bits);
Outcome Sysenter(VcpuState& state, LinearMemory& memory, Vendor vendor);
Outcome Sysexit(VcpuState& state, LinearMemory& memory, Vendor vendor, unsigned operand_bits);

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_CONTROL_TRANSFER_H_
