// SPDX-License-Identifier: Apache-2.0
#include "direct/host_traits.h"

#include <asm/prctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "direct/feature_probe.h"
#include "isa/glance.h"

namespace alibi::direct {
namespace {

TEST_CASE("The host is as its CPUID and its kernel say", "[host_traits]") {
  const HostTraits host = DetectHostTraits();
  WARN("vendor " << (host.vendor == vcpu::Vendor::kAmd ? "AMD" : "Intel") << ", XCR0 " << host.xcr0
                 << ", CPUID faults: " << host.cpuid_traps << ", RDTSC faults: " << host.tsc_traps
                 << ", UMIP: " << host.umip << ", shadow stacks: " << host.shadow_stacks);
  CHECK(host.xcr0 == vcpu::HostXcr0());
  CHECK(host.features.Has(isa::Feature::kAvx));
  CHECK(!host.features.Has(isa::Feature::kPadlock));
  std::string hidden;
  for (unsigned i = 1; i < static_cast<unsigned>(isa::Feature::kCount); ++i) {
    const auto feature = static_cast<isa::Feature>(i);
    const isa::FeatureBit& bit = isa::FeatureBitOf(feature);
    const vcpu::CpuidRegisters r = vcpu::HostCpuid(bit.leaf, bit.subleaf);
    const u32 registers[] = {r.eax, r.ebx, r.ecx, r.edx};
    const bool shown = registers[static_cast<unsigned>(bit.reg)] >> bit.bit & 1;
    if (host.features.Has(feature) && !shown) hidden += std::string(" ") + bit.text;
  }
  WARN("works although CPUID hides it:" << (hidden.empty() ? " nothing" : hidden));
}

TEST_CASE("Probes are instructions of their feature", "[host_traits]") {
  for (const FeatureProbe& probe : FeatureProbes()) {
    const isa::Glance glance = isa::GlanceAt(probe.bytes, probe.size, 64);
    CAPTURE(isa::FeatureBitOf(probe.feature).text);
    // New ones are not known; LZCNT has another's.
    if (glance.status != isa::DecodeStatus::kOk || probe.feature == isa::Feature::kLzcnt) continue;
    CHECK(glance.length == probe.size);
    CHECK(glance.feature == probe.feature);
  }
}

TEST_CASE("Detecting takes milliseconds", "[host_traits]") {
  const auto begin = std::chrono::steady_clock::now();
  DetectHostTraits();
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  WARN("took " << taken.count() << " ms");
  CHECK(taken.count() < 2000);
}

TEST_CASE("Detecting leaves this process as it was", "[host_traits]") {
  DetectHostTraits();
  int tsc = 0;
  REQUIRE(prctl(PR_GET_TSC, &tsc) == 0);
  CHECK(tsc == PR_TSC_ENABLE);
  CHECK(syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0) == 1);
}

}  // namespace
}  // namespace alibi::direct
