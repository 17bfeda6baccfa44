// SPDX-License-Identifier: Apache-2.0
// What the host lets programs see of itself, and which of it can be made to trap: what the table
// host_visible.inc asks of a host.
#ifndef ALIBI_DIRECT_HOST_TRAITS_H_
#define ALIBI_DIRECT_HOST_TRAITS_H_

#include "base/types.h"
#include "isa/features.h"
#include "vcpu/cpuid.h"

namespace alibi::direct {

struct HostTraits {
  vcpu::Vendor vendor = vcpu::Vendor::kIntel;
  u64 xcr0 = 0;  // 0: no XSAVE
  // arch_prctl(ARCH_SET_CPUID, 0) makes CPUID raise SIGSEGV (Linux 4.12; SDM vol. 4, MSR 140h; APM
  // vol. 2, HWCR.CpuidUserDis), and it pays: the kernel changes a register at each switch to such a
  // process and back, which a hypervisor below may want to see each time. Of one thread; inherited
  // by fork, undone by exec.
  bool cpuid_traps = false;
  // The same of prctl(PR_SET_TSC, PR_TSC_SIGSEGV), for RDTSC and RDTSCP, by CR4.
  bool tsc_traps = false;
  // A hypervisor below reports INT1's #DB in front of the instruction instead of behind it.
  bool int1_faults = false;
  // Code of 32 bits can be entered, by Linux's selector.
  bool code32 = false;
  bool x87_selectors = false;  // the CPU notes those of x87 instructions (CPUID.7.EBX bit 13 clear)
  bool umip = false;  // the CPU has it: Linux then answers SGDT and its kin by dummy values
  bool shadow_stacks = false;  // this thread has a user shadow stack, as its children would
  // What CPUID shows to programs here, and what works nevertheless (feature_probes.inc): a
  // hypervisor below may hide it.
  isa::FeatureSet features = {};
};

// Tries all of it, in child processes: some 10 ms. To be called early, while a fork is cheap
// and no sandbox forbids it; what cannot be tried for want of a child counts as missing.
HostTraits DetectHostTraits();

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_HOST_TRAITS_H_
