// SPDX-License-Identifier: Apache-2.0
// The host's clocks, in nanoseconds.
#ifndef ALIBI_BASE_HOST_CLOCK_H_
#define ALIBI_BASE_HOST_CLOCK_H_

#include <time.h>

#include "base/types.h"

namespace alibi {

// 0: there is no such clock.
inline u64 ClockNs(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<u64>(time.tv_sec) * 1'000'000'000 + static_cast<u64>(time.tv_nsec);
}

// Linux reads it from the TSC, without a system call.
inline u64 MonotonicNs() { return ClockNs(CLOCK_MONOTONIC); }

}  // namespace alibi

#endif  // ALIBI_BASE_HOST_CLOCK_H_
