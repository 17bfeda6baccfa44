// SPDX-License-Identifier: Apache-2.0
// Time as devices see it: nanoseconds since the machine was created, and the guest's TSC.
#ifndef ALIBI_DEVICES_TIME_CLOCK_H_
#define ALIBI_DEVICES_TIME_CLOCK_H_

#include <x86intrin.h>

#include "base/host_clock.h"
#include "base/types.h"

namespace alibi::devices {

// Never goes backwards.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual u64 NowNs() = 0;
};

// Host time (CLOCK_MONOTONIC), from 0.
class MonotonicClock : public Clock {
 public:
  MonotonicClock() : start_ns_(HostNs()) {}
  u64 NowNs() override { return (stopped_ns_ != 0 ? stopped_ns_ : HostNs()) - start_ns_; }
  // The host's time is what the owner says, until Release().
  void Hold(u64 host_ns) { stopped_ns_ = host_ns; }
  // Time goes on from `held_ns`, by the host's clock, which shows `host_ns` now.
  void Release(u64 held_ns, u64 host_ns) {
    stopped_ns_ = 0;
    start_ns_ += host_ns - held_ns;
  }
  // Time stands still until Resume(), which returns for how long it did.
  void Stop() { stopped_ns_ = HostNs(); }
  u64 Resume() {
    const u64 ns = HostNs() - stopped_ns_;
    stopped_ns_ = 0;
    start_ns_ += ns;
    return ns;
  }
  // What Release() made the time fall behind by is caught up.
  void CatchUp(u64 ns) { start_ns_ -= ns; }

  static u64 HostNs() { return MonotonicNs(); }

 private:
  u64 start_ns_;
  u64 stopped_ns_ = 0;
};

// Time that moves only when told to: tests, and record/replay.
class ManualClock : public Clock {
 public:
  u64 NowNs() override { return now_ns_; }
  void Advance(u64 ns) { now_ns_ += ns; }
  void Set(u64 now_ns) { now_ns_ = now_ns; }

 private:
  u64 now_ns_ = 0;
};

// The guest's time-stamp counter, for whoever must turn its values into time.
class TscSource {
 public:
  virtual ~TscSource() = default;
  virtual u64 NowTsc() = 0;
  // Rounded up, so that a timer set from it never fires before the TSC reaches its deadline.
  // Saturates at 2^62.
  virtual u64 TicksToNs(u64 ticks) const = 0;
};

// A TSC that counts `frequency_hz` ticks per second.
class FixedTsc : public TscSource {
 public:
  FixedTsc(Clock& clock, u64 frequency_hz) : clock_(clock), frequency_hz_(frequency_hz) {}
  u64 NowTsc() override {
    return static_cast<u64>(static_cast<unsigned __int128>(clock_.NowNs()) * frequency_hz_ /
                            1'000'000'000);
  }
  u64 TicksToNs(u64 ticks) const override { return ScaleTicks(ticks, frequency_hz_); }

  static u64 ScaleTicks(u64 ticks, u64 frequency_hz) {
    constexpr u64 kMax = u64{1} << 62;
    const unsigned __int128 ns =
        (static_cast<unsigned __int128>(ticks) * 1'000'000'000 + (frequency_hz - 1)) / frequency_hz;
    return ns < kMax ? static_cast<u64>(ns) : kMax;
  }

 private:
  Clock& clock_;
  u64 frequency_hz_;
};

// The host's TSC, shifted: what a guest sees whose RDTSC runs natively or with an added offset.
class HostTsc : public TscSource {
 public:
  // `frequency_hz` as measured by MeasureFrequencyHz(); `offset` as added to the host's RDTSC.
  explicit HostTsc(u64 frequency_hz, u64 offset = 0)
      : frequency_hz_(frequency_hz), offset_(offset) {}
  u64 NowTsc() override { return __rdtsc() + offset_; }
  u64 TicksToNs(u64 ticks) const override { return FixedTsc::ScaleTicks(ticks, frequency_hz_); }
  void SetOffset(u64 offset) { offset_ = offset; }
  u64 frequency_hz() const { return frequency_hz_; }
  u64 TicksOf(u64 ns) const {
    return static_cast<u64>(static_cast<unsigned __int128>(ns) * frequency_hz_ / 1'000'000'000);
  }
  u64 NsOf(u64 ticks) const {
    return static_cast<u64>(static_cast<unsigned __int128>(ticks) * 1'000'000'000 / frequency_hz_);
  }

  // Takes about `duration_ns`; good to some ten parts per million at the default.
  static u64 MeasureFrequencyHz(u64 duration_ns = 5'000'000) {
    const Moment start = ReadBoth();
    while (MonotonicClock::HostNs() - start.ns < duration_ns) {
    }
    const Moment end = ReadBoth();
    return static_cast<u64>(static_cast<unsigned __int128>(end.tsc - start.tsc) * 1'000'000'000 /
                            (end.ns - start.ns));
  }

  struct Moment {
    u64 ns, tsc;
  };
  // Both clocks at one time: of several readings the one that took least, because a busy host may
  // run somebody else in between.
  static Moment ReadBoth() {
    Moment best{};
    u64 least = ~u64{0};
    for (int i = 0; i < 8; ++i) {
      const u64 before = __rdtsc();
      const u64 ns = MonotonicClock::HostNs();
      const u64 took = __rdtsc() - before;
      if (took >= least) continue;
      least = took;
      best = {ns, before + took / 2};
    }
    return best;
  }

 private:
  u64 frequency_hz_;
  u64 offset_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_TIME_CLOCK_H_
