// SPDX-License-Identifier: Apache-2.0
// The other side of VMCALL: what a paravirtual guest asks its platform for.
#ifndef ALIBI_VCPU_HYPERCALL_H_
#define ALIBI_VCPU_HYPERCALL_H_

#include "base/types.h"

namespace alibi::vcpu {

enum class Hypercall : u32 {
#define ALIBI_HYPERCALL(name, number, width, what) k##name = number,
#include "vcpu/hypercalls.inc"
};

// Nothing in it has been looked at: it is what the guest's registers and stack held. Of 32-bit code
// each is a word, unless the hypercall takes wide arguments.
struct HypercallArguments {
  Hypercall number;  // one of the above
  u64 rax, rdx, rcx;
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_HYPERCALL_H_
