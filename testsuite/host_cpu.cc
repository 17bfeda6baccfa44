// SPDX-License-Identifier: Apache-2.0
#include "testsuite/host_cpu.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
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

namespace {

constexpr bool IsPrefix(u8 byte) {
  constexpr u8 kPrefixes[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3};
  return std::find(std::begin(kPrefixes), std::end(kPrefixes), byte) != std::end(kPrefixes);
}

}  // namespace

const char* RunsReservedEncoding(std::span<const u8> bytes) {
  using vcpu::HostDifference, vcpu::HostHasIntelsWay;
  std::size_t at = 0;
  bool lock = false;
  while (at < bytes.size() && IsPrefix(bytes[at])) lock |= bytes[at++] == 0xf0;
  const std::span<const u8> code = bytes.subspan(at);
  if (code.size() < 4) return nullptr;
  if (!HostHasIntelsWay(HostDifference::kIgnoredVexW) && code[0] == 0xc4 && (code[1] & 0x1f) == 3 &&
      (code[2] & 0x87) == 0x05 && code[3] <= 1) {
    return "VPERMQ and VPERMPD with VEX.W = 0: reserved (SDM, APM)";
  }
  if (!HostHasIntelsWay(HostDifference::kBroadcastOfRegister) && code.size() > 5 &&
      code[0] == 0x62 && (code[3] & 0x10) != 0 && code[5] >= 0xc0) {
    return "EVEX.b with a register operand: reserved (SDM, APM)";
  }
  if (!HostHasIntelsWay(HostDifference::kLockedVerw) && lock && code[0] == 0x0f && code[1] == 0 &&
      (code[2] >> 3 & 7) == 5) {
    return "LOCK VERW: reserved (SDM, APM)";
  }
  return nullptr;
}

bool FxsaveAlwaysHasX87Pointers() {
  constexpr unsigned kInstructionAt = 8;
  alignas(16) unsigned char image[512] = {};
  asm volatile("fninit; fld1; fxsave64 %0; fninit" : "+m"(image) : : "memory");
  unsigned long long instruction;
  std::memcpy(&instruction, image + kInstructionAt, sizeof(instruction));
  return instruction != 0;
}

}  // namespace alibi::testsuite
