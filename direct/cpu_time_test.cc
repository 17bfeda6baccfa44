// SPDX-License-Identifier: Apache-2.0
#include "direct/cpu_time.h"

#include <poll.h>
#include <unistd.h>
#include <x86intrin.h>

#include <catch2/catch.hpp>

namespace alibi::direct {
namespace {

// Under load user code that ran directly for some microseconds seemed to have computed for
// milliseconds, in which it had not had a core.
TEST_CASE("Waiting is no CPU time, computing is", "[cpu_time]") {
  CpuTime time;
  const u64 start = __rdtsc();
  const u64 before = time.CyclesOf(getpid());
  poll(nullptr, 0, 50);
  const u64 waited = __rdtsc() - start;
  const u64 after_wait = time.CyclesOf(getpid());
  // The rate is better known now than it was.
  CHECK(after_wait - before < waited / 2);
  volatile u64 sum = 0;
  for (unsigned i = 0; i < 20'000'000; ++i) sum = sum + i;
  const u64 computed = time.CyclesOf(getpid()) - after_wait;
  CHECK(computed > 10'000'000);
  CHECK(computed < 2 * (__rdtsc() - start));
}

TEST_CASE("A process that is not there has none", "[cpu_time]") {
  constexpr pid_t kBehindLast = 0x400000 + 1;  // the most that Linux lets pid_max be
  CHECK(CpuTime().CyclesOf(kBehindLast) == 0);
}

}  // namespace
}  // namespace alibi::direct
