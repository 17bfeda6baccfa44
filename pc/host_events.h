// SPDX-License-Identifier: Apache-2.0
// The host's side of a waiting VCPU: input that arrives while the guest runs (a thread waits for
// it and pokes the VCPU's), and sleep while the guest is halted.
#ifndef ALIBI_PC_HOST_EVENTS_H_
#define ALIBI_PC_HOST_EVENTS_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "base/types.h"

namespace alibi::vmm {

class HostEvents {
 public:
  static constexpr u64 kNever = ~u64{0};

  // `poke` is called on the waiting thread after input has arrived.
  // `input_fd` < 0: there is no input. The file is read as bytes come and never closed.
  static Result<std::unique_ptr<HostEvents>> Create(int input_fd, std::function<void()> poke);
  ~HostEvents();
  HostEvents(const HostEvents&) = delete;
  HostEvents& operator=(const HostEvents&) = delete;

  // --- On the VCPU's thread ---
  // Bytes that arrived since the last call. Whoever does not call makes the sender wait: some 64 KB
  // are read ahead.
  std::string TakeInput();
  // Waits until the deadline, input, or Wake().
  void Sleep(u64 deadline_ns);

  // From any thread or signal handler: ends a Sleep(), or the next one. If nobody sleeps, without a
  // system call. True: the VCPU's thread sleeps or is about to, and sees what was stored before.
  bool Wake();
  // Before there are other threads: Wake() always makes a system call, and never says true.
  void SignalAlways() { signal_always_ = true; }

 private:
  HostEvents() = default;
  void Wait();

  std::function<void()> poke_;
  int input_fd_ = -1;
  int quit_fd_ = -1;
  int wake_fd_ = -1;
  int room_fd_ = -1;    // somebody took input
  bool ended_ = false;  // the waiting thread's
  std::mutex mutex_;    // of input_
  std::string input_;
  std::atomic<bool> has_input_ = false;
  bool signal_always_ = false;
  std::atomic<bool> sleeps_ = false;  // or is about to, and then looks at:
  std::atomic<bool> woken_ = false;
  std::thread thread_;
};

}  // namespace alibi::vmm

#endif  // ALIBI_PC_HOST_EVENTS_H_
