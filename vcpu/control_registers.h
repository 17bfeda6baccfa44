// SPDX-License-Identifier: Apache-2.0
// Control, debug and extended control registers (SDM vol. 3, 2.5 and 17.2).
#ifndef ALIBI_VCPU_CONTROL_REGISTERS_H_
#define ALIBI_VCPU_CONTROL_REGISTERS_H_

#include "base/types.h"
#include "vcpu/cpuid.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/platform.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

// MOV to/from CRn. Numbers that do not exist are #UD.
Outcome ReadControlRegister(const VcpuState& state, unsigned number, u64* value);
Outcome WriteControlRegister(VcpuState& state, LinearMemory& memory, const CpuidPolicy& policy,
                             Platform& platform, unsigned number, u64 value);

// One register each.
Outcome WriteCr0(VcpuState& state, LinearMemory& memory, u64 value);
Outcome WriteCr3(VcpuState& state, LinearMemory& memory, u64 value);
Outcome WriteCr4(VcpuState& state, LinearMemory& memory, const CpuidPolicy& policy, u64 value);
Outcome WriteCr8(VcpuState& state, Platform& platform, u64 value);

Outcome LoadMachineStatus(VcpuState& state, LinearMemory& memory, u16 value);  // LMSW
u64 StoreMachineStatus(const VcpuState& state);                                // SMSW
Outcome ClearTaskSwitched(VcpuState& state, LinearMemory& memory);             // CLTS

// INVPCID; pcid is the operand's first quadword.
Outcome InvalidateContext(VcpuState& state, LinearMemory& memory, u64 type, u64 pcid,
                          LinearAddr address);

// PAE paging outside long mode, whose page-directory pointers are loaded, not walked.
constexpr bool UsesPdptes(u64 cr0, u64 cr4, u64 efer) {
  return (cr0 & kCr0Pg) && (cr4 & kCr4Pae) && !(efer & kEferLme);
}
inline bool UsesPdptes(const VcpuState& state) {
  return UsesPdptes(state.cr0, state.cr4, state.efer);
}

Outcome ReadDebugRegister(VcpuState& state, unsigned number, u64* value);
Outcome WriteDebugRegister(VcpuState& state, unsigned number, u64 value);

Outcome ExecuteXgetbv(VcpuState& state, const CpuidPolicy& policy);
Outcome ExecuteXsetbv(VcpuState& state, const CpuidPolicy& policy);

inline constexpr u64 kDr6Fixed = 0xffff0ff0, kDr6Bd = 1u << 13, kDr6Bs = 1u << 14,
                     kDr6Bt = 1u << 15;
inline constexpr u64 kDr7Fixed = 0x400, kDr7Gd = 1u << 13;

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_CONTROL_REGISTERS_H_
