// SPDX-License-Identifier: Apache-2.0
// The guest's CPUID under KVM: our policy's, without what KVM cannot run.
#ifndef ALIBI_HARDWARE_KVM_CPUID_H_
#define ALIBI_HARDWARE_KVM_CPUID_H_

#include <vector>

#include "hardware/kvm_api.h"
#include "vcpu/cpuid.h"

namespace alibi::hardware {

// `supported`: as KVM_GET_SUPPORTED_CPUID lists it.
void LimitCpuid(const std::vector<kvm_cpuid_entry2>& supported, vcpu::CpuidPolicy* policy);

// For KVM_SET_CPUID2, which adds the bits that change with the VCPU's state.
std::vector<kvm_cpuid_entry2> CpuidEntriesOf(const vcpu::CpuidPolicy& policy);

}  // namespace alibi::hardware

#endif  // ALIBI_HARDWARE_KVM_CPUID_H_
