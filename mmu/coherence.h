// SPDX-License-Identifier: Apache-2.0
// How the shadow is kept coherent with the guest's page tables: the three-way trade-off of the
// paper's section 2.4 between the cost of traces, hidden faults, and the guest's TLB flushes.
#ifndef ALIBI_MMU_COHERENCE_H_
#define ALIBI_MMU_COHERENCE_H_

#include <string>

#include "base/result.h"
#include "base/types.h"

namespace alibi::mmu {

enum class Coherence : u8 {
  kEager,     // every table is traced: a store to it changes the shadow at once
  kDeferred,  // a store to a leaf table ends its trace; a TLB flush compares, and traces again
  kDropped    // no table is traced: the shadow is a TLB, which the guest's TLB flushes empty
};

inline constexpr const char* kCoherenceNames[] = {"eager", "deferred", "dropped"};

inline const char* NameOf(Coherence coherence) {
  return kCoherenceNames[static_cast<unsigned>(coherence)];
}
// Fails with the names there are.
Result<Coherence> ParseCoherence(const std::string& name);

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_COHERENCE_H_
