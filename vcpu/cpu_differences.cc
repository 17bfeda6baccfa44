// SPDX-License-Identifier: Apache-2.0
#include "vcpu/cpu_differences.h"

namespace alibi::vcpu {
namespace {

constexpr CpuDifferenceRow kRows[] = {
#define ALIBI_HOST_DIFFERENCE(name, what, intel, amd, source) \
  {#name, true, what, intel, amd, source},
#define ALIBI_GUEST_DIFFERENCE(name, what, intel, amd, source) \
  {#name, false, what, intel, amd, source},
#include "vcpu/cpu_differences.inc"
};

CpuIdentity ReadHost() {
  CpuIdentity cpu;
  cpu.vendor = VendorOf(HostCpuid(0, 0));
  const CpuSignature signature = DecodeSignature(HostCpuid(1, 0).eax);
  cpu.family = signature.family;
  cpu.model = signature.model;
  cpu.stepping = signature.stepping;
  if (HostCpuid(0x80000000, 0).eax >= 0x80000004) {
    for (u32 i = 0; i < 3; ++i) {
      const CpuidRegisters part = HostCpuid(0x80000002 + i, 0);
      const u32 words[] = {part.eax, part.ebx, part.ecx, part.edx};
      __builtin_memcpy(cpu.brand + 16 * i, words, sizeof(words));
    }
  }
  return cpu;
}

}  // namespace

const CpuIdentity CpuIdentity::kHost = ReadHost();

std::span<const CpuDifferenceRow> CpuDifferences() { return kRows; }

}  // namespace alibi::vcpu
