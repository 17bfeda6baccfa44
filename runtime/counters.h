// SPDX-License-Identifier: Apache-2.0
#ifndef ALIBI_RUNTIME_COUNTERS_H_
#define ALIBI_RUNTIME_COUNTERS_H_

#include "base/types.h"

namespace alibi::runtime {

// Plain counters of an engine; see counters.inc for what each means.
struct Counters {
#define ALIBI_COUNTER(name, what) u64 name = 0;
#include "runtime/counters.inc"
#undef ALIBI_COUNTER
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_COUNTERS_H_
