// SPDX-License-Identifier: Apache-2.0
// What benches say of their samples.
#ifndef ALIBI_FROBOS_BENCH_QUANTILES_H_
#define ALIBI_FROBOS_BENCH_QUANTILES_H_

#include "frobos/common/console.h"
#include "frobos/lib/types.h"

namespace alibi::frobos {

// The rest of a line that began with `{"name":"...",`. Sorts them. At least one.
inline void PrintQuantiles(u64* samples, u64 number, const char* unit) {
  for (u64 gap = number / 2; gap > 0; gap /= 2) {
    for (u64 i = gap; i < number; i++) {
      const u64 value = samples[i];
      u64 at = i;
      for (; at >= gap && samples[at - gap] > value; at -= gap) samples[at] = samples[at - gap];
      samples[at] = value;
    }
  }
  Print("\"median\":%lu,\"p99\":%lu,\"max\":%lu,\"unit\":\"%s\",\"samples\":%lu}\n",
        samples[number / 2], samples[number * 99 / 100], samples[number - 1], unit, number);
}

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_BENCH_QUANTILES_H_
