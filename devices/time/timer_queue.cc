// SPDX-License-Identifier: Apache-2.0
#include "devices/time/timer_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace alibi::devices {

TimerQueue::TimerId TimerQueue::Register(Callback callback) {
  timers_.push_back(Timer{std::move(callback)});
  return timers_.size() - 1;
}

void TimerQueue::FindNext() {
  next_deadline_ns_ = kNever;
  for (const Timer& timer : timers_) {
    next_deadline_ns_ = std::min(next_deadline_ns_, timer.deadline_ns);
  }
}

void TimerQueue::Arm(TimerId timer, u64 deadline_ns) {
  ALIBI_CHECK(timer < timers_.size(), "a timer is registered before it is armed");
  const u64 before = next_deadline_ns_;
  timers_[timer].deadline_ns = deadline_ns;
  FindNext();
  if (next_deadline_ns_ < before && on_earlier_) on_earlier_(next_deadline_ns_);
}

void TimerQueue::RunExpired(u64 now_ns) {
  if (next_deadline_ns_ > now_ns) return;
  ++pass_;
  for (;;) {
    Timer* due = nullptr;
    for (Timer& timer : timers_) {
      if (timer.deadline_ns > now_ns || timer.last_pass == pass_) continue;
      if (due == nullptr || timer.deadline_ns < due->deadline_ns) due = &timer;
    }
    if (due == nullptr) break;
    due->last_pass = pass_;
    due->deadline_ns = kNever;
    // Kept current so that a callback which arms an earlier timer is reported by Arm().
    FindNext();
    // A copy: the callback may register a timer and so move the vector.
    const Callback callback = due->callback;
    callback(now_ns);
  }
  FindNext();
}

}  // namespace alibi::devices
