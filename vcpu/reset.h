// SPDX-License-Identifier: Apache-2.0
// The states a VCPU starts in. Both set everything except the VMM's own fields (masks, windows,
// scratch, host_rsp): those belong to whoever runs the VCPU.
#ifndef ALIBI_VCPU_RESET_H_
#define ALIBI_VCPU_RESET_H_

#include "base/types.h"
#include "vcpu/cpuid.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

// Power-up (SDM vol. 3, table 9-1): real mode at f000:fff0 with a CS base of ffff0000h. VCPUs but
// number 0 then wait for a startup IPI.
void ResetToPowerUp(VcpuState& state, const CpuidPolicy& policy);

// An INIT (the same table): as power-up, but the x87 and vector registers, XCR0, CR0.CD and NW and
// the MSRs but EFER, DEBUGCTL and the segment bases are kept. The VCPU waits for a startup IPI.
void ResetToInit(VcpuState& state, const CpuidPolicy& policy);

// A startup IPI reaches a VCPU that waits for one: it begins at `vector` * 1000h in real mode (SDM
// vol. 3, 9.4.3). Others ignore it.
void StartUp(VcpuState& state, u8 vector);

// What a multiboot loader leaves: 32-bit flat protected mode, paging and interrupts off, EAX and
// EBX as given; GDTR is empty, so the guest must load its own before any segment register.
void ResetToMultiboot(VcpuState& state, const CpuidPolicy& policy, u32 entry, u32 magic,
                      u32 info_address);

// The entries of the Linux/x86 boot protocol (Documentation/x86/boot.rst): flat segments with the
// selectors 10h and 18h, interrupts off, struct boot_params in ESI/RSI. The caller has put a table
// with these two descriptors at `gdt`; `page_tables` map what the kernel needs onto itself.
inline constexpr u16 kLinuxBootCs = 0x10, kLinuxBootDs = 0x18;
void ResetToLinux32(VcpuState& state, const CpuidPolicy& policy, u32 entry, u32 boot_params,
                    u32 gdt);
void ResetToLinux64(VcpuState& state, const CpuidPolicy& policy, u64 entry, u64 boot_params,
                    u32 gdt, u64 page_tables);

// The PVH entry (Xen's docs/misc/pvh.pandoc): 32-bit flat protected mode, a busy TSS in TR, struct
// hvm_start_info in EBX.
void ResetToPvh(VcpuState& state, const CpuidPolicy& policy, u32 entry, u32 start_info);

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_RESET_H_
