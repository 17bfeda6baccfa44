// SPDX-License-Identifier: Apache-2.0
#include "machine/stop_timer.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/engine.h"

namespace alibi::vmm {
namespace {

constexpr long kIntervalNs = 1'000'000;
// The signal's value says which timer has rung.
enum Which : int { kRetry, kDeadline };

int TimerSignal() { return SIGRTMIN + 4; }

struct ThisThread {
  runtime::Engine* engine = nullptr;
  StopTimer* timer = nullptr;
};
ThisThread& OfThisThread() {
  static thread_local ThisThread state;
  return state;
}

// Every signal is blocked in here. The engine looks at the interrupted code at once: a signal of
// its own would cost another 7,000 cycles.
void OnTimer(int, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const ThisThread& thread = OfThisThread();
  if (thread.timer != nullptr && thread.timer->Rang(info->si_value.sival_int)) {
    thread.engine->StopInHandler(context);
  }
  errno = saved_errno;
}

int ThreadId() {
  static thread_local const int id = static_cast<int>(syscall(SYS_gettid));
  return id;
}

}  // namespace

StopTimer::~StopTimer() { Delete(); }

void StopTimer::Delete() {
  if (!exists_.exchange(false)) return;
  timer_delete(retry_timer_);
  timer_delete(deadline_timer_);
  retrying_ = false;
}

void StopTimer::Enter(runtime::Engine* engine) {
  OfThisThread() = {engine, this};
  if (thread_id_ != ThreadId()) Create();
  entered_.store(true, std::memory_order_seq_cst);
}

void StopTimer::Leave() {
  entered_.store(false, std::memory_order_seq_cst);
  Disarm();
  if (retrying_) StopRetrying();
  OfThisThread() = {};
}

bool StopTimer::CreateTimer(int which, timer_t* timer) const {
  sigevent event;
  memset(&event, 0, sizeof(event));
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = TimerSignal();
  event.sigev_value.sival_int = which;
  event._sigev_un._tid = thread_id_;
  return timer_create(CLOCK_MONOTONIC, &event, timer) == 0;
}

void StopTimer::Create() {
  Delete();
  thread_id_ = ThreadId();
  struct sigaction action {};
  action.sa_sigaction = OnTimer;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigfillset(&action.sa_mask);
  sigaction(TimerSignal(), &action, nullptr);
  if (!CreateTimer(kRetry, &retry_timer_)) return;
  if (!CreateTimer(kDeadline, &deadline_timer_)) {
    timer_delete(retry_timer_);
    return;
  }
  exists_.store(true, std::memory_order_release);
  if (deadline_ns_ != kNever) SetDeadlineTimer();
}

void StopTimer::Arm() {
  if (!exists_.load(std::memory_order_acquire)) return;
  // Who enters later finds what RequestStop() has left.
  if (!entered_.load(std::memory_order_seq_cst)) return;
  wanted_.store(true, std::memory_order_seq_cst);
  if (!retrying_.exchange(true, std::memory_order_seq_cst)) StartRetrying();
}

bool StopTimer::Rang(int which) {
  if (which == kDeadline) {
    rang_.store(true, std::memory_order_relaxed);
    return true;
  }
  if (wanted_.load(std::memory_order_seq_cst)) return true;
  StopRetrying();
  return false;
}

void StopTimer::StartRetrying() {
  const itimerspec time = {{0, kIntervalNs}, {0, kIntervalNs}};
  timer_settime(retry_timer_, 0, &time, nullptr);
}

// Whoever arms it meanwhile has seen it ringing, or starts it again.
void StopTimer::StopRetrying() {
  const itimerspec never{};
  timer_settime(retry_timer_, 0, &never, nullptr);
  retrying_.store(false, std::memory_order_seq_cst);
  if (wanted_.load(std::memory_order_seq_cst)) Arm();
}

void StopTimer::SetDeadlineTimer() {
  late_ = suspended_ = false;
  SetHostTimer(deadline_ns_);
}

void StopTimer::SetHostTimer(u64 monotonic_ns) {
  if (!exists_.load(std::memory_order_relaxed)) return;
  constexpr u64 kSecond = 1'000'000'000;
  itimerspec time{};
  if (monotonic_ns != kNever) {
    // Zero would disarm the timer.
    const u64 ns = monotonic_ns == 0 ? 1 : monotonic_ns;
    time = {{0, kIntervalNs}, {static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)}};
  }
  timer_settime(deadline_timer_, TIMER_ABSTIME, &time, nullptr);
}

}  // namespace alibi::vmm
