// SPDX-License-Identifier: Apache-2.0
// What VM entry asks of the registers a VCPU is given (SDM vol. 3, 26.3.1, with "unrestricted
// guest"), for those that an embedder sets.
#ifndef ALIBI_VMM_REGISTER_CHECKS_H_
#define ALIBI_VMM_REGISTER_CHECKS_H_

#include "alibi/vcpu.h"
#include "base/result.h"
#include "vcpu/cpuid.h"

namespace alibi::vmm {

// `virtual8086`: RFLAGS.VM as it is. The message names the register and what to give it.
Status CheckSpecialRegisters(const SpecialRegisters& r, const vcpu::CpuidPolicy& cpu,
                             bool virtual8086);

}  // namespace alibi::vmm

#endif  // ALIBI_VMM_REGISTER_CHECKS_H_
