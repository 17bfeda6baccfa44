// SPDX-License-Identifier: Apache-2.0
#include "pc/stolen_time.h"

#include <catch2/catch.hpp>

namespace alibi::vmm {
namespace {

constexpr u64 kHz = 1'000'000'000;  // so that ticks are nanoseconds
constexpr u64 kUs = 1'000, kMs = 1'000'000;

struct Thread {
  void Work(u64 ns) {
    now += ns;
    work += ns;
  }
  void Translate(u64 ns) {
    Work(ns);
    own += ns;
  }
  void Lose(u64 ns) { now += ns; }
  u64 Note() { return stolen.Note(now); }

  u64 now = 77 * kMs, work = 3 * kMs, own = 2 * kMs;
  unsigned questions = 0;
  StolenTime stolen{kHz, [this] { return ++questions, work; }, [this] { return own; }};
};

TEST_CASE("stolen time: what the thread did not work, and what the switch costs") {
  Thread thread;
  thread.stolen.Begin(thread.now);
  thread.Work(2 * kUs);
  thread.Lose(4 * kMs);
  CHECK(thread.Note() == 4 * kMs + 2 * kUs);  // all of it: the work was the switch's
  thread.Work(3 * kMs);
  thread.Lose(4 * kMs);
  CHECK(thread.Note() == 4 * kMs + StolenTime::kSwitchNs);
}

TEST_CASE("stolen time: the guest's own work is not stolen, however long it takes") {
  Thread thread;
  thread.stolen.Begin(thread.now);
  for (const u64 ns : {1 * kUs, 50 * kUs, 9 * kMs}) {
    thread.Work(ns);
    CHECK(thread.Note() == 0);
  }
}

TEST_CASE("stolen time: translating is not the guest's work") {
  Thread thread;
  thread.stolen.Begin(thread.now);
  thread.Translate(40 * kUs);
  thread.Work(10 * kUs);
  CHECK(thread.Note() == 40 * kUs);
  thread.Work(10 * kUs);
  CHECK(thread.Note() == 0);
}

TEST_CASE("stolen time: short pauses are not looked into") {
  Thread thread;
  thread.stolen.Begin(thread.now);
  const unsigned before = thread.questions;
  for (unsigned i = 0; i < 100; ++i) {
    thread.Lose(StolenTime::kShortestNs - 1);
    CHECK(thread.Note() == 0);
  }
  CHECK(thread.questions == before);
  // They do not come back with a long one.
  thread.Work(50 * kUs);
  CHECK(thread.Note() <= 50 * kUs);
}

TEST_CASE("stolen time: sleeping on purpose is not stolen") {
  Thread thread;
  thread.stolen.Begin(thread.now);
  thread.Lose(100 * kMs);
  thread.stolen.Begin(thread.now);
  thread.Work(20 * kUs);
  CHECK(thread.Note() == 0);
}

TEST_CASE("stolen time: other ticks than nanoseconds") {
  u64 work_ns = 0;
  StolenTime stolen(
      3 * kHz, [&] { return work_ns; }, [] { return u64{0}; });
  stolen.Begin(1000);
  work_ns += 2 * kMs;
  CHECK(stolen.Note(1000 + 3 * 6 * kMs) == 3 * (4 * kMs + StolenTime::kSwitchNs));
}

}  // namespace
}  // namespace alibi::vmm
