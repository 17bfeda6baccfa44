// SPDX-License-Identifier: Apache-2.0
#include "testsuite/coverage/features.h"

#include <cpuid.h>

#include <memory>
#include <string>

#include "testsuite/host_cpu.h"
#include "vcpu/cpuid.h"
#include "vcpu/reset.h"
#include "vcpu/state.h"

namespace alibi::coverage {
namespace {

using isa::CpuidRegister;
using isa::Feature;
using isa::FeatureBit;

bool HasBit(const FeatureBit& feature, const vcpu::CpuidRegisters& r) {
  const u32 registers[] = {r.eax, r.ebx, r.ecx, r.edx};
  return (registers[static_cast<unsigned>(feature.reg)] >> feature.bit) & 1;
}

}  // namespace

bool HostHas(Feature feature) {
  if (feature == Feature::kBase) return true;
  const FeatureBit& bit = FeatureBitOf(feature);
  vcpu::CpuidRegisters r;
  if (!__get_cpuid_count(bit.leaf, bit.subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return false;
  return HasBit(bit, r);
}

bool GuestIsShown(Feature feature) {
  if (feature == Feature::kBase) return true;
  const vcpu::CpuidPolicy& policy = vcpu::CpuidPolicy::ForHost();
  static const std::unique_ptr<vcpu::VcpuState> state = [&] {
    auto s = std::make_unique<vcpu::VcpuState>();
    vcpu::ResetToPowerUp(*s, policy);
    s->efer = vcpu::kEferLme | vcpu::kEferLma;
    s->segment[vcpu::kCs].attributes |= 0x2000;
    return s;
  }();
  const FeatureBit& bit = FeatureBitOf(feature);
  return HasBit(bit, policy.Query(*state, bit.leaf, bit.subleaf));
}

void SayWhatHostLacks(const char* what) {
  std::string lacking;
  for (unsigned i = 1; i < static_cast<unsigned>(Feature::kCount); ++i) {
    const auto feature = static_cast<Feature>(i);
    if (!HostHas(feature))
      lacking += std::string(lacking.empty() ? "" : ", ") + FeatureBitOf(feature).text;
  }
  testsuite::CanCheck(lacking.empty(), what, lacking);
}

}  // namespace alibi::coverage
