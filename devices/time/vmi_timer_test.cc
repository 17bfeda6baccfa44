// SPDX-License-Identifier: Apache-2.0
#include "devices/time/vmi_timer.h"

#include <catch2/catch.hpp>

#include "devices/test_util.h"

namespace alibi::devices {
namespace {

constexpr u64 kHz = 2'000'000'000;  // two cycles in a nanosecond
constexpr u64 kUs = 1'000, kMs = 1'000'000;

struct Bench {
  void Run(u64 ns) { RunFor(clock, timers, ns); }
  u64 Now() { return timer.Read(VmiTimer::kReal); }

  ManualClock clock;
  FixedTsc tsc{clock, kHz};
  TimerQueue timers;
  u64 stolen = 0;
  unsigned irqs = 0, local = 0;
  VmiTimer timer{clock, tsc, timers, [this](u64) { return stolen; },
                 [this](bool to_local) { ++(to_local ? local : irqs); }};
};

TEST_CASE("VMI timer: three counters that add up") {
  Bench bench;
  bench.Run(kMs);
  bench.stolen = 300;
  CHECK(bench.timer.Read(VmiTimer::kReal) == 2 * kMs);
  CHECK(bench.timer.Read(VmiTimer::kAvailable) == 2 * kMs - 300);
  CHECK(bench.timer.Read(VmiTimer::kStolen) == 300);
  for (const u32 none : {3u, 0x100u, ~0u}) CHECK(bench.timer.Read(none) == 0);
  bench.stolen = 5 * kMs;  // the guest has set its TSC back
  CHECK(bench.timer.Read(VmiTimer::kAvailable) == 0);
}

TEST_CASE("VMI timer: available time is what is not stolen, whenever the host takes the CPU away") {
  ManualClock clock;
  // After each look at the TSC somebody else runs.
  struct : TscSource {
    u64 NowTsc() override { return now += 1'000; }
    u64 TicksToNs(u64 ticks) const override { return ticks; }
    u64 now = 0;
  } tsc;
  TimerQueue timers;
  VmiTimer timer(
      clock, tsc, timers, [](u64 now) { return now - 100; }, [](bool) {});
  for (unsigned i = 0; i < 3; ++i) CHECK(timer.Read(VmiTimer::kAvailable) == 100);
}

TEST_CASE("VMI timer: a one-shot alarm, at its time or at once") {
  Bench bench;
  bench.Run(kMs);
  bench.timer.SetAlarm(0, bench.Now() + 20 * kUs, 0);
  bench.Run(9 * kUs);
  CHECK(bench.irqs == 0);
  bench.Run(2 * kUs);
  CHECK(bench.irqs == 1);
  bench.Run(kMs);
  CHECK(bench.irqs == 1);
  for (const u64 past : {u64{0}, bench.Now() - 1, bench.Now()}) {
    bench.timer.SetAlarm(VmiTimer::kLocalTimer, past, 0);
    bench.Run(1);
  }
  CHECK(bench.irqs == 1);
  CHECK(bench.local == 3);
}

TEST_CASE("VMI timer: a new alarm takes the old one's place, and cancelled is cancelled") {
  Bench bench;
  bench.timer.SetAlarm(VmiTimer::kPeriodic, 0, 2 * kMs);
  bench.Run(1);
  CHECK(bench.irqs == 1);
  bench.Run(2 * kMs);
  CHECK(bench.irqs == 3);
  bench.timer.SetAlarm(VmiTimer::kLocalTimer, bench.Now() + 2 * kMs, 0);
  bench.Run(5 * kMs);
  CHECK(bench.irqs == 3);
  CHECK(bench.local == 1);
  bench.timer.SetAlarm(0, bench.Now() + 2 * kMs, 0);
  bench.timer.CancelAlarm();
  bench.Run(5 * kMs);
  CHECK(bench.irqs == 3);
}

TEST_CASE("VMI timer: an alarm against available time waits for what is stolen") {
  Bench bench;
  bench.timer.SetAlarm(VmiTimer::kAvailable, 2 * kMs, 0);
  bench.stolen = kMs;  // half a millisecond
  bench.Run(kMs + 100 * kUs);
  CHECK(bench.irqs == 0);
  bench.Run(500 * kUs);
  CHECK(bench.irqs == 1);
}

TEST_CASE("VMI timer: whatever a guest asks for, it gets time to run, and no more than one alarm") {
  Bench bench;
  // Ends and periods of all sizes.
  bench.timer.SetAlarm(VmiTimer::kPeriodic, 0, 1);
  bench.Run(kMs);
  CHECK(bench.irqs <= kMs / kShortestTimerPeriodNs + 2);
  bench.irqs = 0;
  bench.timer.SetAlarm(VmiTimer::kPeriodic, 1, ~u64{0});
  bench.Run(kMs);
  CHECK(bench.irqs == 1);
  bench.timer.SetAlarm(VmiTimer::kPeriodic, ~u64{0}, 5);
  bench.Run(kMs);
  CHECK(bench.irqs == 1);
  bench.timer.SetAlarm(VmiTimer::kPeriodic, 0, 0);  // no period: one-shot
  bench.Run(kMs);
  CHECK(bench.irqs == 2);
  // A counter that is not there.
  bench.timer.SetAlarm(0x55, 0, 0);
  bench.Run(kMs);
  CHECK(bench.irqs == 2);
}

TEST_CASE("VMI timer: periods that nobody served in time are one interrupt") {
  Bench bench;
  bench.timer.SetAlarm(VmiTimer::kPeriodic, 2 * kMs, 2 * kMs);
  bench.clock.Advance(10 * kMs + 100);
  bench.timers.RunExpired(bench.clock.NowNs());
  CHECK(bench.irqs == 1);
  bench.Run(kMs);
  CHECK(bench.irqs == 2);
}

TEST_CASE("VMI timer: where the TSC is set, an alarm moves with it") {
  ManualClock clock;
  struct : TscSource {
    u64 NowTsc() override { return now; }
    u64 TicksToNs(u64 ticks) const override { return ticks; }
    u64 now = 0;
  } tsc;
  TimerQueue timers;
  unsigned fired = 0;
  VmiTimer timer(
      clock, tsc, timers, [](u64) { return u64{0}; }, [&](bool) { ++fired; });
  timer.SetAlarm(0, 1'000, 0);
  CHECK(timers.NextDeadlineNs() == 1'000);
  tsc.now = 900;
  timer.OnTscChanged();
  CHECK(timers.NextDeadlineNs() == 100);
  timer.CancelAlarm();
  timer.OnTscChanged();
  CHECK(timers.NextDeadlineNs() == TimerQueue::kNever);
}

}  // namespace
}  // namespace alibi::devices
