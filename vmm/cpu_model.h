// CPU models by name, for the command line.
#ifndef ALIBI_VMM_CPU_MODEL_H_
#define ALIBI_VMM_CPU_MODEL_H_

#include <string>

#include "base/result.h"
#include "vcpu/cpuid.h"

namespace alibi::vmm {

// "host, base64".
std::string CpuModelList();

// Fails if there is no such model, or if this host cannot run it: translated code uses the host's
// own instructions.
Status ChooseCpu(const std::string& model, vcpu::CpuidPolicy* policy);

}  // namespace alibi::vmm

#endif  // ALIBI_VMM_CPU_MODEL_H_
