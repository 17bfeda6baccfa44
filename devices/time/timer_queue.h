// SPDX-License-Identifier: Apache-2.0
// Deadline-ordered callbacks, run by their owner: no threads, no signals, no host timers inside.
#ifndef ALIBI_DEVICES_TIME_TIMER_QUEUE_H_
#define ALIBI_DEVICES_TIME_TIMER_QUEUE_H_

#include <functional>
#include <vector>

#include "base/types.h"

namespace alibi::devices {

// A guest may program a timer of a few nanoseconds; serving it as asked would leave the guest no
// time to run. Periodic device timers do not fire more often than this, and coalesce the rest.
inline constexpr u64 kShortestTimerPeriodNs = 20'000;

// The owner (the VCPU loop) asks NextDeadlineNs(), runs the guest at most until then, and calls
// RunExpired(). A device registers each of its timers once and then arms and cancels it at will,
// also from inside a callback.
class TimerQueue {
 public:
  using TimerId = std::size_t;
  using Callback = std::function<void(u64 now_ns)>;
  static constexpr u64 kNever = ~u64{0};

  TimerId Register(Callback callback);

  // Replaces the timer's deadline. kNever cancels.
  void Arm(TimerId timer, u64 deadline_ns);
  void Cancel(TimerId timer) { Arm(timer, kNever); }
  bool IsArmed(TimerId timer) const { return timers_[timer].deadline_ns != kNever; }
  u64 DeadlineOf(TimerId timer) const { return timers_[timer].deadline_ns; }

  u64 NextDeadlineNs() const { return next_deadline_ns_; }

  // Runs every timer that is due at `now_ns`, earliest deadline first (then first registered).
  // Each runs at most once per call, even if it arms itself in the past again: the call ends.
  void RunExpired(u64 now_ns);

  // Called when the earliest deadline moves to an earlier time, so that an owner that is about to
  // run the guest (or already armed a host timer) can adjust.
  void OnEarlierDeadline(std::function<void(u64 deadline_ns)> callback) {
    on_earlier_ = std::move(callback);
  }

 private:
  struct Timer {
    Callback callback;
    u64 deadline_ns = kNever;
    u64 last_pass = 0;
  };

  void FindNext();

  // A machine has about ten timers: scanning them beats any ordered structure.
  std::vector<Timer> timers_;
  u64 next_deadline_ns_ = kNever;
  u64 pass_ = 0;
  std::function<void(u64)> on_earlier_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_TIME_TIMER_QUEUE_H_
