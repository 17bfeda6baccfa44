// SPDX-License-Identifier: Apache-2.0
// CPU models by name, for the command line.
#ifndef ALIBI_MACHINE_CPU_MODEL_H_
#define ALIBI_MACHINE_CPU_MODEL_H_

#include <span>
#include <string>

#include "base/result.h"
#include "vcpu/cpuid.h"

namespace alibi::vmm {

// A CPUID bit's name, as in Linux's /proc/cpuinfo. `output`: 0 to 3 for EAX to EDX.
struct CpuFeatureName {
  u32 leaf, subleaf;
  u8 output;
  u8 bit;
  const char* name;
};
std::span<const CpuFeatureName> CpuFeatureNames();

// "host, base64, ...".
std::string CpuModelList();

struct ChosenCpu {
  vcpu::CpuidPolicy policy;
  // One line: which instructions of the model this host lacks, so that the guest is shown none of
  // them, for translated code uses the host's own; empty if it lacks nothing.
  std::string lacking;
  bool enforce = false;  // then the caller goes no further
};

// MODEL or MODEL,enforce. Fails if there is no such model.
Result<ChosenCpu> ChooseCpu(const std::string& text);

}  // namespace alibi::vmm

#endif  // ALIBI_MACHINE_CPU_MODEL_H_
