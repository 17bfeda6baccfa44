// SPDX-License-Identifier: Apache-2.0
// Threads under a real-time policy of Linux, as `chrt` starts them.
#ifndef ALIBI_BASE_REAL_TIME_H_
#define ALIBI_BASE_REAL_TIME_H_

#include <sched.h>

namespace alibi {

// Is the calling thread's policy one?
inline bool IsRealTime() {
  const int policy = sched_getscheduler(0);
  return policy == SCHED_FIFO || policy == SCHED_RR;
}

// The calling thread stays on the CPU from now on, if the host lets it.
inline void StayOnCpu(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof(one), &one);
}

}  // namespace alibi

#endif  // ALIBI_BASE_REAL_TIME_H_
