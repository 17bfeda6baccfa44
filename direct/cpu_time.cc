// SPDX-License-Identifier: Apache-2.0
#include "direct/cpu_time.h"

#include <x86intrin.h>

#include <algorithm>

#include "base/host_clock.h"

namespace alibi::direct {
namespace {

// Linux's name for the scheduler's time of a process (its posix-timers.h). The C library's
// clock_getcpuclockid() makes the same, but asks for the clock's resolution first: one system call
// more that the sandbox would have to allow.
clockid_t ClockOf(pid_t process) {
  constexpr unsigned kIdShift = 3, kSchedulerTime = 2;
  return static_cast<clockid_t>(~static_cast<unsigned>(process) << kIdShift | kSchedulerTime);
}

}  // namespace

u64 CpuTimeNs(pid_t process) { return ClockNs(ClockOf(process)); }

CpuTime::CpuTime() : begin_ns_(MonotonicNs()), begin_tsc_(__rdtsc()) {}

u64 CpuTime::CyclesOf(pid_t process) const {
  const auto ns = static_cast<double>(CpuTimeNs(process));
  const auto passed = static_cast<double>(std::max<u64>(MonotonicNs() - begin_ns_, 1));
  return static_cast<u64>(ns * (static_cast<double>(__rdtsc() - begin_tsc_) / passed));
}

}  // namespace alibi::direct
