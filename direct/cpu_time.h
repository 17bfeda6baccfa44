// SPDX-License-Identifier: Apache-2.0
// The CPU time of another process, as the host's scheduler accounts it: neither other programs nor
// cores that must be woken make it longer.
#ifndef ALIBI_DIRECT_CPU_TIME_H_
#define ALIBI_DIRECT_CPU_TIME_H_

#include <sys/types.h>

#include "base/types.h"

namespace alibi::direct {

// Of the process, from its start on, in ns. 0 if there is no such process.
u64 CpuTimeNs(pid_t process);

class CpuTime {
 public:
  // Learns the TSC's rate from the time that passes from now on: some milliseconds suffice.
  CpuTime();
  // Of the process, from its start on, in TSC cycles. 0 if there is no such process.
  u64 CyclesOf(pid_t process) const;

 private:
  u64 begin_ns_, begin_tsc_;
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_CPU_TIME_H_
