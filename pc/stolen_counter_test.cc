// SPDX-License-Identifier: Apache-2.0
#include "pc/stolen_counter.h"

#include <sched.h>
#include <time.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

namespace alibi::vmm {
namespace {

struct Thread {
  void Work(u64 ticks) {
    now += ticks;
    work += ticks;
  }
  void Lose(u64 ticks) { now += ticks; }
  u64 Note() { return counter.Note(now, work); }

  u64 now = 5'000, work = 300;
  StolenCounter counter;
};

TEST_CASE("stolen counter: what passed without work") {
  Thread thread;
  thread.counter.Begin(thread.now, thread.work);
  thread.Work(100);
  CHECK(thread.Note() == 0);
  thread.Lose(40);
  CHECK(thread.Note() == 40);
  thread.Work(10);
  thread.Lose(2);
  CHECK(thread.Note() == 42);
}

TEST_CASE("stolen counter: a clock that is read a little later steals nothing") {
  Thread thread;
  thread.counter.Begin(thread.now, thread.work);
  for (unsigned i = 0; i < 1000; ++i) {
    thread.Work(100);
    // The CPU time is ahead at every other look.
    thread.counter.Note(thread.now, thread.work + (i % 2 == 0 ? 7 : 0));
  }
  CHECK(thread.Note() == 0);
}

TEST_CASE("stolen counter: a halted VCPU loses only what it oversleeps") {
  Thread thread;
  thread.counter.Begin(thread.now, thread.work);
  thread.Lose(5);
  CHECK(thread.Note() == 5);
  thread.Lose(1'000'000);  // asleep
  thread.counter.Overslept(20);
  thread.counter.Begin(thread.now, thread.work);
  CHECK(thread.Note() == 25);
  thread.counter.Reset();
  CHECK(thread.Note() == 0);
}

u64 Now(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<u64>(now.tv_sec) * 1'000'000'000 + static_cast<u64>(now.tv_nsec);
}

// How long the host says that this thread has waited for a CPU, in nanoseconds; 0: it does not.
u64 WaitedByTheHost() {
  std::ifstream file("/proc/thread-self/schedstat");
  u64 ran = 0, waited = 0;
  file >> ran >> waited;
  return waited;
}

TEST_CASE("stolen counter: on a busy CPU it is what the host has accounted for") {
  cpu_set_t mask, one;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return;
  int cpu = 0;
  while (!CPU_ISSET(cpu, &mask)) ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
  const u64 waited_before = WaitedByTheHost();
  std::atomic<bool> end = false;
  std::thread other([&end] {
    while (!end) {
    }
  });
  StolenCounter counter;
  const u64 begin = Now(CLOCK_MONOTONIC);
  counter.Begin(begin, Now(CLOCK_THREAD_CPUTIME_ID));
  u64 now = begin, stolen = 0;
  while (now < begin + 300'000'000) {
    now = Now(CLOCK_MONOTONIC);
    const u64 before = stolen;
    stolen = counter.Note(now, Now(CLOCK_THREAD_CPUTIME_ID));
    REQUIRE(stolen >= before);
    REQUIRE(stolen <= now - begin);
  }
  const u64 waited = WaitedByTheHost() - waited_before;
  end = true;
  other.join();
  sched_setaffinity(0, sizeof(mask), &mask);
  if (waited == 0) {
    WARN("SKIP: this host does not say how long a thread waits");
    return;
  }
  INFO("stolen " << stolen << ", waited " << waited);
  CHECK(stolen >= waited * 8 / 10);
  CHECK(stolen <= waited * 12 / 10 + 20'000'000);
}

}  // namespace
}  // namespace alibi::vmm
