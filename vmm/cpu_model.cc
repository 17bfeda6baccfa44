#include "vmm/cpu_model.h"

#include <fmt/format.h>

namespace alibi::vmm {

std::string CpuModelList() {
  std::string text;
  for (std::string_view name : vcpu::CpuidPolicy::ModelNames()) {
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

Status ChooseCpu(const std::string& model, vcpu::CpuidPolicy* policy) {
  if (!vcpu::CpuidPolicy::ForModel(model, policy)) {
    return Error{fmt::format("there is no CPU model '{}'; known are {}", model, CpuModelList())};
  }
  const auto missing = policy->MissingOn(vcpu::CpuidPolicy::ForHost());
  if (missing.leaf == 0) return Ok{};
  return Error{fmt::format(
      "this host's CPU lacks instructions of the model '{}' (CPUID leaf {:#x}: eax "
      "{:#x}, ebx {:#x}, ecx {:#x}, edx {:#x}); choose another",
      model, missing.leaf, missing.bits.eax, missing.bits.ebx, missing.bits.ecx, missing.bits.edx)};
}

}  // namespace alibi::vmm
