// SPDX-License-Identifier: Apache-2.0
// Named CPU models: CPUs that are the same on every host. A model is a table of raw CPUID leaves,
// which the policy (cpuid.h) treats as it treats a host's. Once published a model never changes:
// a better one gets the next version.
#ifndef ALIBI_VCPU_CPU_MODELS_H_
#define ALIBI_VCPU_CPU_MODELS_H_

#include <string_view>

#include "vcpu/cpuid.h"

namespace alibi::vcpu {

struct CpuModel {
  std::string_view name;
  CpuidPolicy::RawCpuid raw;
  u64 xcr0;
};

// nullptr: no such model; "host" is none. Aliases: "intel" and "amd" are the newest versions.
const CpuModel* FindCpuModel(std::string_view name);

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_CPU_MODELS_H_
