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

int RetrySignal() { return SIGRTMIN + 4; }

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
void OnRetry(int, siginfo_t*, void* context) {
  const int saved_errno = errno;
  const ThisThread& thread = OfThisThread();
  if (thread.timer != nullptr) NoteRing(thread.timer);
  if (thread.engine != nullptr) thread.engine->StopInHandler(context);
  errno = saved_errno;
}

int ThreadId() {
  static thread_local const int id = static_cast<int>(syscall(SYS_gettid));
  return id;
}

}  // namespace

void NoteRing(StopTimer* timer) { timer->rang_.store(true, std::memory_order_relaxed); }

StopTimer::~StopTimer() { Delete(); }

void StopTimer::Delete() {
  if (!exists_.exchange(false)) return;
  timer_delete(timer_);
  timer_delete(deadline_timer_);
}

void StopTimer::Enter(runtime::Engine* engine) {
  OfThisThread() = {engine, this};
  if (thread_id_ != ThreadId()) Create();
}

void StopTimer::Leave() { OfThisThread() = {}; }

void StopTimer::Create() {
  Delete();
  thread_id_ = ThreadId();
  struct sigaction action {};
  action.sa_sigaction = OnRetry;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigfillset(&action.sa_mask);
  sigaction(RetrySignal(), &action, nullptr);
  sigevent event;
  memset(&event, 0, sizeof(event));
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = RetrySignal();
  event._sigev_un._tid = thread_id_;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) return;
  if (timer_create(CLOCK_MONOTONIC, &event, &deadline_timer_) != 0) {
    timer_delete(timer_);
    return;
  }
  exists_.store(true, std::memory_order_release);
  if (deadline_ns_ != kNever) SetDeadlineTimer();
}

void StopTimer::Arm() {
  if (!exists_.load(std::memory_order_acquire)) return;
  armed_.store(true, std::memory_order_relaxed);
  const itimerspec time = {{0, kIntervalNs}, {0, kIntervalNs}};
  timer_settime(timer_, 0, &time, nullptr);
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

void StopTimer::Stop() {
  armed_.store(false, std::memory_order_relaxed);
  const itimerspec never{};
  timer_settime(timer_, 0, &never, nullptr);
}

}  // namespace alibi::vmm
