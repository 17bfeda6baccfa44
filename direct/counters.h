// SPDX-License-Identifier: Apache-2.0
// Counters of direct execution; the list is direct/counters.inc.
#ifndef ALIBI_DIRECT_COUNTERS_H_
#define ALIBI_DIRECT_COUNTERS_H_

#include "base/types.h"

namespace alibi::direct {

struct Counters {
#define ALIBI_DIRECT_COUNTER(name, meaning) u64 name = 0;
#include "direct/counters.inc"
#undef ALIBI_DIRECT_COUNTER
};

// callback(const char* name, const char* meaning, u64 value), in the order of the list.
template <class Callback>
void ForEachCounter(const Counters& counters, Callback&& callback) {
#define ALIBI_DIRECT_COUNTER(name, meaning) callback(#name, meaning, counters.name);
#include "direct/counters.inc"
#undef ALIBI_DIRECT_COUNTER
}

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_COUNTERS_H_
