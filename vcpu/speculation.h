// SPDX-License-Identifier: Apache-2.0
// What guests are told of this machine's speculation flaws: every claim, with its reason, in one
// table. Kernels then leave away what protects nothing here and costs: page-table isolation,
// retpolines and other thunks, clearing of buffers and of the branch history.
//
// Two kinds of reason. Either the flaw needs something that is not here: hardware that walks the
// guest's page tables, virtualization extensions, devices mapped into the CPU, transactions. Or the
// remedy does not reach the host's CPU: a guest's branches are computed jumps of translated code,
// its VERW is simulated. What a guest then still cannot hide from its own programs is in
// docs/safety.md, "Outside the argument". Speculative store bypass is not claimed to be absent: it
// is as the host's, its remedy (SSBD) is not offered, and to say so costs nothing.
#ifndef ALIBI_VCPU_SPECULATION_H_
#define ALIBI_VCPU_SPECULATION_H_

#include "base/types.h"
#include "vcpu/cpuid.h"

namespace alibi::vcpu {

struct SpeculationClaim {
  enum class Place : u8 {
    kArchCapabilities,  // MSR 10ah
    kLeaf7Edx,
    kLeaf7Subleaf2Edx,
    kLeaf80000008Ebx,
    kLeaf80000021Eax,
    kLeaf80000021Ecx,
  };
  Vendor vendor;
  Place place;
  u8 bit;
  const char* name;
  const char* reason;
};

// Intel: "IA32_ARCH_CAPABILITIES" in the SDM's vol. 4, table 2-2, and CPUID in vol. 2; AMD: APM
// vol. 3, appendix E.
inline constexpr SpeculationClaim kSpeculationClaims[] = {
#define ALIBI_CLAIM(vendor, place, bit, name, reason) \
  {Vendor::vendor, SpeculationClaim::Place::place, bit, name, reason},
#include "vcpu/speculation.inc"
#undef ALIBI_CLAIM
};

constexpr u64 ClaimedBits(Vendor vendor, SpeculationClaim::Place place) {
  u64 bits = 0;
  for (const SpeculationClaim& claim : kSpeculationClaims) {
    if (claim.vendor == vendor && claim.place == place) bits |= u64{1} << claim.bit;
  }
  return bits;
}

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_SPECULATION_H_
