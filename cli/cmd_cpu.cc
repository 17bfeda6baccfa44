// SPDX-License-Identifier: Apache-2.0
// alibi cpu: what the guest is told it runs on.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <memory>
#include <string>

#include "cli/cli.h"
#include "machine/cpu_model.h"
#include "machine/host_check.h"
#include "vcpu/cpuid.h"
#include "vcpu/msr.h"
#include "vcpu/reset.h"
#include "vcpu/speculation.h"
#include "vcpu/state.h"

namespace alibi::vmm {
namespace {

std::string Text(std::initializer_list<u32> registers) {
  std::string text;
  for (u32 value : registers) {
    for (unsigned i = 0; i < 4; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  }
  return text;
}

void PrintFeatures(const vcpu::CpuidPolicy& policy, const vcpu::VcpuState& state) {
  constexpr std::size_t kWidth = 88;
  std::string line = "features  ";
  for (const CpuFeatureName& row : CpuFeatureNames()) {
    const vcpu::CpuidRegisters r = policy.Query(state, row.leaf, row.subleaf);
    const u32 outputs[] = {r.eax, r.ebx, r.ecx, r.edx};
    if (!(outputs[row.output] >> row.bit & 1)) continue;
    if (line.size() + 1 + std::strlen(row.name) > kWidth) {
      fmt::print("{}\n", line);
      line = "          ";
    }
    line += ' ';
    line += row.name;
  }
  fmt::print("{}\n\n", line);
}

void PrintMsrs(const vcpu::CpuidPolicy& policy) {
  fmt::print("{:<19} {:<18} {:<16}  writes\n", "MSR", "name", "mask");
  unsigned position = 0;
  vcpu::MsrDescription row;
  while (vcpu::NextMsr(policy, &position, &row)) {
    const std::string range =
        row.count == 1 ? fmt::format("{:08x}", row.first)
                       : fmt::format("{:08x}-{:08x}", row.first, row.first + row.count - 1);
    fmt::print("{:<19} {:<18} {:016x}  {}\n", range, row.name, row.mask, row.rule);
  }
  fmt::print("every other MSR faults: #GP(0)\n\n");
}

// What the guest is told of flaws, and why.
void PrintClaims(const vcpu::CpuidPolicy& policy) {
  fmt::print("speculation         because\n");
  for (const vcpu::SpeculationClaim& claim : vcpu::kSpeculationClaims) {
    if (claim.vendor != policy.vendor()) continue;
    fmt::print("{:<19} {}\n", claim.name, claim.reason);
  }
  fmt::print("\n");
}

}  // namespace

int CmdCpu(int argc, char** argv) {
  CLI::App app(
      "Shows the CPU that guests see: features, model-specific registers, and every CPUID leaf,\n"
      "as right after reset.");
  std::string model = "host";
  app.add_option("--cpu,--model", model, "which: " + CpuModelList() + " (host)");
  if (const auto status = ParseArguments(app, "cpu", argc, argv)) return *status;
  auto chosen = ChooseCpu(model);
  if (!chosen.ok()) return Fail(kUsage, "--cpu: " + chosen.error().message);
  const vcpu::CpuidPolicy& policy = chosen->policy;
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
  fmt::print("this host  {}\n", !host.ok()                ? host.error().message
                                : chosen->lacking.empty() ? "can run guests"
                                                          : "can run guests; " + chosen->lacking);
  PrintFeatures(policy, *state);
  PrintClaims(policy);
  PrintMsrs(policy);

  fmt::print("{:<8} {:>3}  {:<8} {:<8} {:<8} {:<8}\n", "leaf", "sub", "eax", "ebx", "ecx", "edx");
  auto print_leaf = [&](u32 leaf) {
    constexpr u32 kMaxSubleaves = 16;
    vcpu::CpuidRegisters before;
    for (u32 subleaf = 0; subleaf < kMaxSubleaves; ++subleaf) {
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
