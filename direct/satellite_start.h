// SPDX-License-Identifier: Apache-2.0
// The first moments of a satellite, between fork and stub.
#ifndef ALIBI_DIRECT_SATELLITE_START_H_
#define ALIBI_DIRECT_SATELLITE_START_H_

#include <linux/filter.h>
#include <sys/types.h>

#include "base/types.h"

namespace alibi::direct {

// Made before the fork: the child allocates nothing.
struct SatelliteStart {
  u64 base;  // where the stub's pages shall lie
  int memory_fd, pages_fd, watch_fd, socket;
  int stop_signal;
  bool trapping_cpuid, trapping_tsc;
  sock_fprog listener_filter, user_filter;
};

// In the forked child: makes it a satellite, sends the listener through the socket, and stops. Ends
// the process if the host refuses something. debugger: who may set breakpoints; 0: nobody.
[[noreturn]] void BecomeSatellite(const SatelliteStart& start, pid_t debugger);

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_SATELLITE_START_H_
