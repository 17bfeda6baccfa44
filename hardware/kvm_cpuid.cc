// SPDX-License-Identifier: Apache-2.0
#include "hardware/kvm_cpuid.h"

namespace alibi::hardware {

void LimitCpuid(const std::vector<kvm_cpuid_entry2>& supported, vcpu::CpuidPolicy* policy) {
  policy->LimitTo([&supported](u32 leaf, u32 subleaf) {
    for (const kvm_cpuid_entry2& entry : supported) {
      const bool indexed = entry.flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
      if (entry.function == leaf && (!indexed || entry.index == subleaf)) {
        return vcpu::CpuidRegisters{entry.eax, entry.ebx, entry.ecx, entry.edx};
      }
    }
    return vcpu::CpuidRegisters{};
  });
}

std::vector<kvm_cpuid_entry2> CpuidEntriesOf(const vcpu::CpuidPolicy& policy) {
  std::vector<kvm_cpuid_entry2> entries;
  for (const vcpu::CpuidPolicy::Entry& entry : policy.entries()) {
    kvm_cpuid_entry2 e = {};
    e.function = entry.leaf;
    e.index = entry.subleaf;
    if (!entry.any_subleaf) e.flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
    e.eax = entry.registers.eax;
    e.ebx = entry.registers.ebx;
    e.ecx = entry.registers.ecx;
    e.edx = entry.registers.edx;
    entries.push_back(e);
  }
  return entries;
}

}  // namespace alibi::hardware
