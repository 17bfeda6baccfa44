// SPDX-License-Identifier: Apache-2.0
// Stops the engine by the host's clock: at a deadline, and again when a stop has not been obeyed.
//
// Both are timers that signal the engine's own thread: another thread would first have to be
// scheduled, which a busy host may take milliseconds for. Why again: a signal finds translated code
// wherever it happens to be, and there are places (in stubs, in forwarding jumps) from which it
// cannot tell which translation runs next; one of the following attempts finds a better one.
#ifndef ALIBI_MACHINE_STOP_TIMER_H_
#define ALIBI_MACHINE_STOP_TIMER_H_

#include <time.h>

#include <atomic>

#include "base/types.h"

namespace alibi::runtime {
class Engine;
}

namespace alibi::vmm {

class StopTimer {
 public:
  StopTimer() = default;
  ~StopTimer();
  StopTimer(const StopTimer&) = delete;
  StopTimer& operator=(const StopTimer&) = delete;

  // On the thread that is going to run the engine, around it. A host without timers does without.
  void Enter(runtime::Engine* engine);
  void Leave();

  // RequestStop() is called at this time (CLOCK_MONOTONIC, ns) and until there is another deadline.
  // On the engine's thread. Cheap when it has not changed. A later one than before waits for
  // Settle(), because setting the host's timer costs up to 16,000 cycles in a VM, and an interrupt
  // has just come due; at worst the timer rings once for nothing.
  static constexpr u64 kNever = ~u64{0};
  void SetDeadline(u64 monotonic_ns) {
    if (monotonic_ns > deadline_ns_) {
      deadline_ns_ = monotonic_ns;
      late_ = true;
      rang_.store(false, std::memory_order_relaxed);
    } else if (monotonic_ns < deadline_ns_) {
      deadline_ns_ = monotonic_ns;
      SetDeadlineTimer();
    } else if (late_ && rang_.load(std::memory_order_relaxed)) {
      SetDeadlineTimer();
    }
  }
  // The guest has had its interrupt: it writes to a device.
  void Settle() {
    if (late_) SetDeadlineTimer();
  }

  // Around a sleep that ends at the deadline by itself: the signal would cost more than the tick.
  void Suspend() {
    if (suspended_ || (deadline_ns_ == kNever && !late_)) return;
    suspended_ = true;
    SetHostTimer(kNever);
  }
  void Resume() {
    if (suspended_) SetDeadlineTimer();
  }

  // After each Engine::Run(). The host's timer is left ringing: once more for nothing, if it is not
  // wanted again before that. Setting it at each of a VCPU's interrupts would cost more.
  void Disarm() {
    if (wanted_.load(std::memory_order_relaxed)) wanted_.store(false, std::memory_order_seq_cst);
  }
  // From any thread or signal handler: RequestStop() is called on the engine's thread until
  // Disarm().
  void Arm();

  // From the signal's handler, on the engine's thread. False: the ring was for nothing.
  bool Rang(int which);

 private:
  void Create();
  void Delete();
  bool CreateTimer(int which, timer_t* timer) const;
  void StartRetrying();
  void StopRetrying();
  void SetDeadlineTimer();
  void SetHostTimer(u64 monotonic_ns);

  timer_t retry_timer_{};
  timer_t deadline_timer_{};
  u64 deadline_ns_ = kNever;
  bool suspended_ = false;          // the host's timer has none
  bool late_ = false;               // the host's timer still has an earlier one
  std::atomic<bool> rang_ = false;  // it has rung since `late_` became true
  std::atomic<bool> exists_ = false;
  std::atomic<bool> entered_ = false;
  std::atomic<bool> wanted_ = false;    // armed
  std::atomic<bool> retrying_ = false;  // the host's timer rings
  int thread_id_ = 0;
};

}  // namespace alibi::vmm

#endif  // ALIBI_MACHINE_STOP_TIMER_H_
