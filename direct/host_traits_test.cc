// SPDX-License-Identifier: Apache-2.0
#include "direct/host_traits.h"

#include <asm/prctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace alibi::direct {
namespace {

TEST_CASE("The host is as its CPUID and its kernel say", "[host_traits]") {
  const HostTraits host = DetectHostTraits();
  WARN("vendor " << (host.vendor == vcpu::Vendor::kAmd ? "AMD" : "Intel") << ", XCR0 " << host.xcr0
                 << ", CPUID faults: " << host.cpuid_faults << ", RDTSC faults: " << host.tsc_faults
                 << ", UMIP: " << host.umip << ", shadow stacks: " << host.shadow_stacks);
  CHECK(host.xcr0 == vcpu::HostXcr0());
  CHECK(host.features.Has(isa::Feature::kAvx));
  CHECK(!host.features.Has(isa::Feature::kPadlock));
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
