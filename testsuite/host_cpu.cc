// SPDX-License-Identifier: Apache-2.0
#include "testsuite/host_cpu.h"

#include <cstdio>
#include <set>

#include "vcpu/cpu_differences.h"

namespace alibi::testsuite {

std::string DescribeHostCpu() {
  const vcpu::CpuIdentity& cpu = vcpu::CpuIdentity::kHost;
  return std::string(cpu.vendor == vcpu::Vendor::kAmd ? "AMD" : "Intel") + ", family " +
         std::to_string(cpu.family) + ", model " + std::to_string(cpu.model) + ", stepping " +
         std::to_string(cpu.stepping) + ": " + cpu.brand;
}

void AnnounceHostCpu() {
  static const bool announced = [] {
    std::printf("host CPU: %s\n", DescribeHostCpu().c_str());
    std::fflush(stdout);
    return true;
  }();
  (void)announced;
}

bool CanCheck(bool can, const std::string& what, const std::string& needs) {
  AnnounceHostCpu();
  if (can) return true;
  static std::set<std::string> told;
  if (told.insert(what).second) {
    std::printf("not checked on this host: %s (needs %s)\n", what.c_str(), needs.c_str());
    std::fflush(stdout);
  }
  return false;
}

}  // namespace alibi::testsuite
