// alibi cpu: what the guest is told it runs on.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <memory>
#include <string>

#include "vcpu/cpuid.h"
#include "vcpu/reset.h"
#include "vcpu/state.h"
#include "vmm/cli.h"
#include "vmm/host_check.h"

namespace alibi::vmm {
namespace {

std::string Text(std::initializer_list<u32> registers) {
  std::string text;
  for (u32 value : registers) {
    for (unsigned i = 0; i < 4; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  }
  return text;
}

}  // namespace

int CmdCpu(int argc, char** argv) {
  CLI::App app("Shows the CPU that guests see: every CPUID leaf, as right after reset.");
  if (const auto status = ParseArguments(app, "cpu", argc, argv)) return *status;
  const vcpu::CpuidPolicy policy = vcpu::CpuidPolicy::ForHost();
  auto state = std::make_unique<vcpu::VcpuState>();
  vcpu::ResetToPowerUp(*state, policy);
  auto query = [&](u32 leaf, u32 subleaf) { return policy.Query(*state, leaf, subleaf); };

  const vcpu::CpuidRegisters vendor = query(0, 0);
  const u32 max_extended = query(0x80000000, 0).eax;
  fmt::print("vendor     {}\n", Text({vendor.ebx, vendor.edx, vendor.ecx}));
  if (max_extended >= 0x80000004) {
    std::string brand;
    for (u32 leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
      const vcpu::CpuidRegisters part = query(leaf, 0);
      brand += Text({part.eax, part.ebx, part.ecx, part.edx});
    }
    fmt::print("brand      {}\n", brand.c_str());
  }
  fmt::print("CR4 bits   {:#x}\nEFER bits  {:#x}\nXCR0 bits  {:#x}\n", policy.cr4_valid(),
             policy.efer_valid(), policy.xcr0_valid());
  const Status host = CheckHost(ReadHostFeatures());
  fmt::print("this host  {}\n\n", host.ok() ? "can run guests" : host.error().message);

  fmt::print("{:<8} {:>3}  {:<8} {:<8} {:<8} {:<8}\n", "leaf", "sub", "eax", "ebx", "ecx", "edx");
  auto print_leaf = [&](u32 leaf) {
    constexpr u32 kMostSubleaves = 16;
    vcpu::CpuidRegisters before;
    for (u32 subleaf = 0; subleaf < kMostSubleaves; ++subleaf) {
      const vcpu::CpuidRegisters r = query(leaf, subleaf);
      // Leaves without subleaves answer the same to all of them, others end in zeros.
      if (subleaf != 0 && (r == before || r == vcpu::CpuidRegisters())) break;
      before = r;
      fmt::print("{:08x} {:>3}  {:08x} {:08x} {:08x} {:08x}\n", leaf, subleaf, r.eax, r.ebx, r.ecx,
                 r.edx);
    }
  };
  for (u32 leaf = 0; leaf <= vendor.eax; ++leaf) print_leaf(leaf);
  for (u32 leaf = 0x80000000; leaf <= max_extended; ++leaf) print_leaf(leaf);
  return kSuccess;
}

}  // namespace alibi::vmm
