// SPDX-License-Identifier: Apache-2.0
// The host's CPUs that this thread may use.
#ifndef ALIBI_BASE_HOST_CPUS_H_
#define ALIBI_BASE_HOST_CPUS_H_

#include <sched.h>

namespace alibi {

// Empty: nobody says.
inline cpu_set_t AllowedCpus() {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) CPU_ZERO(&cpus);
  return cpus;
}

inline unsigned AllowedCpuCount() {
  const cpu_set_t cpus = AllowedCpus();
  return static_cast<unsigned>(CPU_COUNT(&cpus));
}

}  // namespace alibi

#endif  // ALIBI_BASE_HOST_CPUS_H_
