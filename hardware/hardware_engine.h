// SPDX-License-Identifier: Apache-2.0
// The engine that runs the guest on the host's CPU, through the KVM API. Interrupt controllers,
// timers and devices stay those of the machine: KVM has the VCPU and its memory, no more.
#ifndef ALIBI_HARDWARE_HARDWARE_ENGINE_H_
#define ALIBI_HARDWARE_HARDWARE_ENGINE_H_

#include <memory>

#include "base/result.h"
#include "hardware/kvm.h"
#include "runtime/engine.h"
#include "vcpu/cpuid.h"

namespace alibi::hardware {

// Takes from the guest's CPUID what `kvm` cannot run. The engine and its machine go by what is
// left.
void LimitCpuid(const Kvm& kvm, vcpu::CpuidPolicy* policy);

// Made for the memory's and the state's lifetime. The Mmu is used between runs, for what software
// does with guest memory; its coherence must be mmu::Coherence::kDropped, since stores of the guest
// come without traces.
Result<std::unique_ptr<runtime::Engine>> CreateHardwareEngine(
    std::unique_ptr<Kvm> kvm, const runtime::EngineOptions& options);

}  // namespace alibi::hardware

#endif  // ALIBI_HARDWARE_HARDWARE_ENGINE_H_
