// SPDX-License-Identifier: Apache-2.0
// The timer of a paravirtual guest (VMI, docs/vmi.md): counters of real, available and stolen time,
// all in cycles of its TSC, and an alarm against one of them.
#ifndef ALIBI_DEVICES_TIME_VMI_TIMER_H_
#define ALIBI_DEVICES_TIME_VMI_TIMER_H_

#include <functional>

#include "base/types.h"
#include "devices/time/clock.h"
#include "devices/time/timer_queue.h"

namespace alibi::devices {

class VmiTimer {
 public:
  enum Counter : u8 {
    kReal,       // always goes on
    kAvailable,  // ... while the VCPU runs or is halted
    kStolen,     // ... while it could run, and the host runs somebody else
    kCounters
  };
  // Of an alarm.
  static constexpr u32 kCounterMask = 0xff;
  static constexpr u32 kPeriodic = 0x100;
  static constexpr u32 kLocalTimer = 0x10000;  // the local APIC's timer entry; else IRQ 0

  // `stolen` is the counter's value when the TSC shows `now`; it never decreases, and grows by no
  // more than the TSC.
  // `fire` raises the interrupt.
  VmiTimer(Clock& clock, TscSource& tsc, TimerQueue& timers, std::function<u64(u64 now)> stolen,
           std::function<void(bool local)> fire);

  // 0 for counters that there are not.
  u64 Read(u32 counter);
  // Replaces the alarm there is. It goes off at once if the counter has reached `expiry`, and then,
  // if it is periodic, after each `period`, but not more often than kShortestTimerPeriodNs says.
  // Without a period, it is not periodic; for a counter that there is not, nothing happens.
  void SetAlarm(u32 flags, u64 expiry, u64 period);
  void CancelAlarm() { timers_.Cancel(timer_); }
  // Real time was set anew: where a one-shot or periodic alarm is due is another moment now.
  void OnTscChanged();

 private:
  void Arm(u64 earliest_ns);
  void OnTimer(u64 now_ns);

  Clock& clock_;
  TscSource& tsc_;
  TimerQueue& timers_;
  std::function<u64(u64)> stolen_;
  std::function<void(bool)> fire_;
  TimerQueue::TimerId timer_;
  u32 flags_ = 0;
  u64 expiry_ = 0, period_ = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_TIME_VMI_TIMER_H_
