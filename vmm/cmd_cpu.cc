// alibi cpu: what the guest is told it runs on.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <memory>
#include <string>

#include "vcpu/cpuid.h"
#include "vcpu/msr.h"
#include "vcpu/reset.h"
#include "vcpu/state.h"
#include "vmm/cli.h"
#include "vmm/cpu_model.h"
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

struct FeatureRow {
  u32 leaf, subleaf;
  u8 output;  // 0 to 3: eax, ebx, ecx, edx
  u8 bit;
  const char* name;  // as in Linux's /proc/cpuinfo
};
constexpr FeatureRow kFeatures[] = {
#define ALIBI_CPU_FEATURE(leaf, subleaf, output, bit, name) {leaf, subleaf, output, bit, name},
#include "vmm/cpu_features.inc"
#undef ALIBI_CPU_FEATURE
};

void PrintFeatures(const vcpu::CpuidPolicy& policy, const vcpu::VcpuState& state) {
  constexpr std::size_t kWidth = 88;
  std::string line = "features  ";
  for (const FeatureRow& row : kFeatures) {
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

}  // namespace

int CmdCpu(int argc, char** argv) {
  CLI::App app(
      "Shows the CPU that guests see: features, model-specific registers, and every CPUID leaf,\n"
      "as right after reset.");
  std::string model = "host";
  app.add_option("--model", model, "which: " + CpuModelList() + " (host)");
  if (const auto status = ParseArguments(app, "cpu", argc, argv)) return *status;
  vcpu::CpuidPolicy policy;
  if (!vcpu::CpuidPolicy::ForModel(model, &policy)) {
    return Fail(kUsage, fmt::format("--model: there is no CPU model '{}'; known are {}", model,
                                    CpuModelList()));
  }
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
  vcpu::CpuidPolicy unused;
  const Status runs = host.ok() ? ChooseCpu(model, &unused) : host;
  fmt::print("this host  {}\n", runs.ok() ? "can run guests" : runs.error().message);
  PrintFeatures(policy, *state);
  PrintMsrs(policy);

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
