// SPDX-License-Identifier: Apache-2.0
// Counters of the memory system; the list is mmu/counters.inc.
#ifndef ALIBI_MMU_COUNTERS_H_
#define ALIBI_MMU_COUNTERS_H_

#include "base/types.h"

namespace alibi::mmu {

struct Counters {
#define ALIBI_MMU_COUNTER(name, meaning) u64 name = 0;
#include "mmu/counters.inc"
#undef ALIBI_MMU_COUNTER
};

// callback(const char* name, const char* meaning, u64 value), in the order of the list.
template <class Callback>
void ForEachCounter(const Counters& counters, Callback&& callback) {
#define ALIBI_MMU_COUNTER(name, meaning) callback(#name, meaning, counters.name);
#include "mmu/counters.inc"
#undef ALIBI_MMU_COUNTER
}

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_COUNTERS_H_
