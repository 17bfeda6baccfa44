// SPDX-License-Identifier: Apache-2.0
#include "devices/time/vmi_timer.h"

#include <algorithm>
#include <utility>

namespace alibi::devices {

VmiTimer::VmiTimer(Clock& clock, TscSource& tsc, TimerQueue& timers, std::function<u64(u64)> stolen,
                   std::function<void(bool)> fire)
    : clock_(clock),
      tsc_(tsc),
      timers_(timers),
      stolen_(std::move(stolen)),
      fire_(std::move(fire)),
      timer_(timers.Register([this](u64 now_ns) { OnTimer(now_ns); })) {}

u64 VmiTimer::Read(u32 counter) {
  if (counter >= kCounters) return 0;
  const u64 now = tsc_.NowTsc();
  if (counter == kReal) return now;
  // Of one moment: what is stolen between two would be available first, and then not.
  const u64 stolen = stolen_(now);
  if (counter == kStolen) return stolen;
  // A guest may have set its TSC back.
  return now > stolen ? now - stolen : 0;
}

void VmiTimer::SetAlarm(u32 flags, u64 expiry, u64 period) {
  if ((flags & kCounterMask) >= kCounters) return;
  flags_ = period != 0 ? flags : flags & ~kPeriodic;
  expiry_ = expiry;
  period_ = period;
  Arm(0);
}

void VmiTimer::OnTscChanged() {
  if (timers_.IsArmed(timer_)) Arm(0);
}

// The other counters go no faster than real time: at that moment it is seen what is left.
void VmiTimer::Arm(u64 earliest_ns) {
  const u64 now = Read(flags_ & kCounterMask);
  const u64 wait_ns = expiry_ > now ? tsc_.TicksToNs(expiry_ - now) : 0;
  timers_.Arm(timer_, std::max(clock_.NowNs() + wait_ns, earliest_ns));
}

void VmiTimer::OnTimer(u64 now_ns) {
  const u64 earliest_ns = now_ns + kShortestTimerPeriodNs;
  const u64 now = Read(flags_ & kCounterMask);
  if (now < expiry_) {
    Arm(earliest_ns);
    return;
  }
  timers_.Cancel(timer_);
  if (flags_ & kPeriodic) {
    // Periods that nobody served in time are one interrupt.
    const u64 missed = (now - expiry_) / period_;
    expiry_ += missed * period_;
    expiry_ = expiry_ > ~period_ ? ~u64{0} : expiry_ + period_;
    Arm(earliest_ns);
  }
  fire_((flags_ & kLocalTimer) != 0);
}

}  // namespace alibi::devices
