// SPDX-License-Identifier: Apache-2.0
// The other side of VMCALL: what a paravirtual guest asks its platform for.
#ifndef ALIBI_VCPU_HYPERCALL_H_
#define ALIBI_VCPU_HYPERCALL_H_

#include "base/types.h"

namespace alibi::vcpu {

enum class Hypercall : u32 {
#define ALIBI_HYPERCALL(name, number, stack_words, what) k##name = number,
#include "vcpu/hypercalls.inc"
};

// Nothing in it has been looked at: it is what the guest's registers and stack held.
struct HypercallArguments {
  Hypercall number;  // one of the above
  u32 eax, edx, ecx;
  u32 stack[2];

  u64 EcxEdx() const { return u64{ecx} << 32 | edx; }
  u64 Stack() const { return u64{stack[1]} << 32 | stack[0]; }
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_HYPERCALL_H_
