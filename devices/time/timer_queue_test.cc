// SPDX-License-Identifier: Apache-2.0
#include "devices/time/timer_queue.h"

#include <catch2/catch.hpp>
#include <vector>

#include "devices/time/clock.h"

namespace alibi::devices {
namespace {

TEST_CASE("timers: run in deadline order, each once") {
  TimerQueue timers;
  std::vector<int> ran;
  const auto a = timers.Register([&](u64) { ran.push_back(1); });
  const auto b = timers.Register([&](u64) { ran.push_back(2); });
  const auto c = timers.Register([&](u64) { ran.push_back(3); });
  CHECK(timers.NextDeadlineNs() == TimerQueue::kNever);
  timers.Arm(a, 30);
  timers.Arm(b, 10);
  timers.Arm(c, 20);
  CHECK(timers.NextDeadlineNs() == 10);
  timers.RunExpired(9);
  CHECK(ran.empty());
  timers.RunExpired(25);
  CHECK(ran == std::vector<int>{2, 3});
  CHECK(timers.NextDeadlineNs() == 30);
  timers.Cancel(a);
  CHECK(timers.NextDeadlineNs() == TimerQueue::kNever);
  CHECK_FALSE(timers.IsArmed(a));
}

TEST_CASE("timers: one that arms itself in the past does not hang RunExpired") {
  TimerQueue timers;
  int runs = 0;
  TimerQueue::TimerId id = 0;
  id = timers.Register([&](u64) {
    ++runs;
    timers.Arm(id, 1);
  });
  timers.Arm(id, 5);
  timers.RunExpired(100);
  CHECK(runs == 1);
  CHECK(timers.NextDeadlineNs() == 1);
  timers.RunExpired(100);
  CHECK(runs == 2);
}

TEST_CASE("timers: a callback may cancel, arm and register others") {
  TimerQueue timers;
  int late = 0;
  const auto b = timers.Register([&](u64) { ++late; });
  const auto a = timers.Register([&](u64) {
    timers.Cancel(b);
    for (int i = 0; i < 50; ++i) timers.Arm(timers.Register([&](u64) { ++late; }), 1000);
  });
  timers.Arm(a, 1);
  timers.Arm(b, 2);
  timers.RunExpired(10);
  CHECK(late == 0);
  timers.RunExpired(1000);
  CHECK(late == 50);
}

TEST_CASE("timers: an earlier deadline is announced") {
  TimerQueue timers;
  std::vector<u64> earlier;
  timers.OnEarlierDeadline([&](u64 deadline) { earlier.push_back(deadline); });
  const auto a = timers.Register([](u64) {});
  const auto b = timers.Register([](u64) {});
  timers.Arm(a, 100);
  timers.Arm(b, 200);
  timers.Arm(b, 50);
  timers.Cancel(b);
  CHECK(earlier == std::vector<u64>{100, 50});
}

TEST_CASE("clocks: monotonic time moves on, manual time obeys, TSC ticks round up") {
  MonotonicClock host;
  const u64 before = host.NowNs();
  CHECK(host.NowNs() >= before);
  ManualClock clock;
  clock.Advance(1'000'000'000);
  FixedTsc tsc(clock, 2'300'000'000);
  CHECK(tsc.NowTsc() == 2'300'000'000);
  CHECK(tsc.TicksToNs(1) == 1);
  CHECK(tsc.TicksToNs(2'300'000'001) == 1'000'000'001);
  FixedTsc slow(clock, 1);
  CHECK(slow.TicksToNs(~u64{0}) == u64{1} << 62);
  const u64 hz = HostTsc::MeasureFrequencyHz(2'000'000);
  CHECK(hz > 500'000'000);
  CHECK(hz < 10'000'000'000);
}

}  // namespace
}  // namespace alibi::devices
