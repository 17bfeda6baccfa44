// SPDX-License-Identifier: Apache-2.0
#include "machine/cpu_model.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

namespace alibi::vmm {
namespace {

constexpr CpuFeatureName kNames[] = {
#define ALIBI_CPU_FEATURE(leaf, subleaf, output, bit, name) {leaf, subleaf, output, bit, name},
#include "machine/cpu_features.inc"
#undef ALIBI_CPU_FEATURE
};

std::string NamesOf(const std::vector<vcpu::CpuidPolicy::Missing>& missing) {
  std::string text;
  for (const auto& [leaf, subleaf, bits] : missing) {
    const u32 outputs[] = {bits.eax, bits.ebx, bits.ecx, bits.edx};
    for (const CpuFeatureName& row : kNames) {
      if (row.leaf != leaf || row.subleaf != subleaf) continue;
      if (outputs[row.output] >> row.bit & 1)
        text += (text.empty() ? "" : ", ") + std::string(row.name);
    }
  }
  return text;
}

}  // namespace

std::span<const CpuFeatureName> CpuFeatureNames() { return kNames; }

std::string CpuModelList() {
  std::string text;
  for (std::string_view name : vcpu::CpuidPolicy::ModelNames()) {
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

Result<ChosenCpu> ChooseCpu(const std::string& text) {
  constexpr std::string_view kEnforce = ",enforce";
  ChosenCpu chosen;
  std::string model = text;
  if (model.ends_with(kEnforce)) {
    chosen.enforce = true;
    model.resize(model.size() - kEnforce.size());
  }
  if (const std::size_t comma = model.find(','); comma != std::string::npos) {
    return Error{
        fmt::format("behind the model only ',enforce' may stand, not '{}'", model.substr(comma))};
  }
  std::vector<vcpu::CpuidPolicy::Missing> missing;
  if (!vcpu::CpuidPolicy::ForModel(model, &chosen.policy, &missing)) {
    return Error{fmt::format("there is no CPU model '{}'; known are {}", model, CpuModelList())};
  }
  if (!missing.empty()) {
    chosen.lacking =
        fmt::format("this host's CPU lacks {} of the model '{}'", NamesOf(missing), model);
  }
  return chosen;
}

}  // namespace alibi::vmm
