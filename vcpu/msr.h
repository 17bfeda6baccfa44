// SPDX-License-Identifier: Apache-2.0
// Model-specific registers: one table, see msr.cc.
#ifndef ALIBI_VCPU_MSR_H_
#define ALIBI_VCPU_MSR_H_

#include "base/types.h"
#include "vcpu/cpuid.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/platform.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

inline constexpr u32 kMsrTsc = 0x10, kMsrApicBase = 0x1b, kMsrTscAdjust = 0x3b, kMsrSpecCtrl = 0x48,
                     kMsrPredCmd = 0x49, kMsrMtrrCap = 0xfe, kMsrArchCapabilities = 0x10a,
                     kMsrSysenterCs = 0x174, kMsrSysenterEsp = 0x175, kMsrSysenterEip = 0x176,
                     kMsrMiscEnable = 0x1a0, kMsrMtrrBase0 = 0x200, kMsrMtrrFix64K = 0x250,
                     kMsrPat = 0x277, kMsrMtrrDefType = 0x2ff, kMsrTscDeadline = 0x6e0,
                     kMsrX2apicFirst = 0x800, kMsrX2apicCount = 0x100, kMsrEfer = 0xc0000080,
                     kMsrStar = 0xc0000081, kMsrLstar = 0xc0000082, kMsrCstar = 0xc0000083,
                     kMsrSfmask = 0xc0000084, kMsrFsBase = 0xc0000100, kMsrGsBase = 0xc0000101,
                     kMsrKernelGsBase = 0xc0000102, kMsrTscAux = 0xc0000103;

// RDMSR/WRMSR after the CPL check; an unknown index or a reserved bit is #GP(0).
Outcome ReadMsr(const VcpuState& state, const CpuidPolicy& policy, Platform& platform, u32 index,
                u64* value);
Outcome WriteMsr(VcpuState& state, LinearMemory& memory, const CpuidPolicy& policy,
                 Platform& platform, u32 index, u64 value);

// The instructions: CPL check, ECX, EDX:EAX.
Outcome ExecuteRdmsr(VcpuState& state, const CpuidPolicy& policy, Platform& platform);
Outcome ExecuteWrmsr(VcpuState& state, LinearMemory& memory, const CpuidPolicy& policy,
                     Platform& platform);

// Power-up values of stored_msr.
void ResetStoredMsrs(VcpuState& state);
// MTRRs as firmware leaves them: on, everything write-back but the display's memory and the ROMs.
void SetMtrrsAsBiosLeavesThem(VcpuState& state);

// The guest's time-stamp counter now, for the guest.
u64 ReadTsc(const VcpuState& state, Platform& platform);
Outcome ExecuteRdtsc(VcpuState& state, Platform& platform);  // #GP(0) when CR4.TSD and CPL > 0
Outcome ExecuteRdtscp(VcpuState& state, Platform& platform);
// After CR4 or tsc_watched changed: where emitted code may read the TSC by itself.
void UpdateRdtsc(VcpuState& state);

// The name a person knows it by, for traces; "?" when unknown.
const char* MsrName(u32 index);

// One row of the table as this CPU shows it, for `alibi cpu` and the docs.
struct MsrDescription {
  u32 first, count;
  const char* name;
  const char* rule;  // what writes do
  u64 mask;          // see `rule`
};
// Row by row; false: there are no more. `*position` starts at 0. Rows this CPU does not have are
// left out.
bool NextMsr(const CpuidPolicy& policy, unsigned* position, MsrDescription* row);

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_MSR_H_
