// SPDX-License-Identifier: Apache-2.0
// A lock that is mostly held for less time than a thread takes to fall asleep. Where guest vector
// state is live: general registers only, and no memory is allocated.
#ifndef ALIBI_BASE_TURN_LOCK_H_
#define ALIBI_BASE_TURN_LOCK_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>

#include "base/types.h"

namespace alibi {

// Waits while the word has the value; may return early.
inline void FutexWait(std::atomic<u32>& word, u32 value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
inline void FutexWake(std::atomic<u32>& word, int threads = INT_MAX) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

class TurnLock {
 public:
  bool TryLock() {
    u32 state = kFree;
    return word_.compare_exchange_strong(state, kHeld, std::memory_order_acquire);
  }
  void Lock() {
    if (TryLock()) return;
    for (unsigned i = 0; i < kSpins; ++i) {
      __builtin_ia32_pause();
      if (word_.load(std::memory_order_relaxed) == kFree && TryLock()) return;
    }
    while (word_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
      FutexWait(word_, kAwaited);
    }
  }
  // By anybody: it was, a moment ago.
  bool IsHeld() const { return word_.load(std::memory_order_seq_cst) != kFree; }
  void Unlock() {
    if (word_.exchange(kFree, std::memory_order_release) == kAwaited) FutexWake(word_, 1);
  }

 private:
  static constexpr u32 kFree = 0, kHeld = 1, kAwaited = 2;
  // Some 20 microseconds.
  static constexpr unsigned kSpins = 1000;
  std::atomic<u32> word_ = kFree;
};

}  // namespace alibi

#endif  // ALIBI_BASE_TURN_LOCK_H_
