// SPDX-License-Identifier: Apache-2.0
// CLI, STI, PUSHF and POPF, and what the virtual interrupt flag makes of them and of INT n and IRET
// in virtual-8086 mode (VME) and at CPL 3 (PVI): SDM vol. 3, 20.3 and 20.4; vol. 2, the tables of
// the instructions.
//
// Without either, RFLAGS.IF is out of reach where CPL > IOPL (POPF ignores it; the others fault).
// With VME, VIF takes its place for 16-bit code of virtual-8086 mode; with PVI, for CLI and STI.
#ifndef ALIBI_VCPU_INTERRUPT_FLAG_H_
#define ALIBI_VCPU_INTERRUPT_FLAG_H_

#include "base/types.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

Outcome ClearInterruptFlag(VcpuState& state);  // CLI
Outcome SetInterruptFlag(VcpuState& state);    // STI; casts its shadow

// Before the stack is touched: may PUSHF and POPF of this operand size run here?
Outcome CheckFlagsAccess(const VcpuState& state, unsigned operand_bits);
u64 PushedFlagsImage(const VcpuState& state);  // PUSHF's word, to be truncated
Outcome PopFlags(VcpuState& state, LinearMemory& memory, unsigned operand_bits, u64 value);

// IRET's flags in virtual-8086 mode with IOPL < 3, for 16-bit operands under VME.
Outcome ReturnVirtualFlags(VcpuState& state, unsigned operand_bits, u64 value);

// INT n in virtual-8086 mode under VME: the redirection bitmap below the I/O permission bitmap says
// who serves the vector. *redirected: the 8086 program itself, and its handler has been entered.
Outcome RedirectInterrupt(VcpuState& state, LinearMemory& memory, u8 vector, u64 next_rip,
                          bool* redirected);

// Loads RFLAGS; a change of AC is another view of memory under SMAP.
inline void LoadFlags(VcpuState& state, LinearMemory& memory, u64 value) {
  const u32 old = state.system_flags;
  state.SetRflags(value);
  if ((old ^ state.system_flags) & kAc) memory.PrivilegeChanged();
}

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_INTERRUPT_FLAG_H_
