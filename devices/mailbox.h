// SPDX-License-Identifier: Apache-2.0
// How worker threads hand results to the VCPU's thread, which alone touches what the guest sees.
#ifndef ALIBI_DEVICES_MAILBOX_H_
#define ALIBI_DEVICES_MAILBOX_H_

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

namespace alibi::devices {

class Mailbox {
 public:
  // `poke` is called on the posting thread: the owner is to Drain() soon, even if its guest runs or
  // is halted.
  explicit Mailbox(std::function<void()> poke);
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // From any thread. What is posted runs in the order of posting; what is left when the mailbox
  // ends never runs. Who posts bounds what it has posted: the mailbox does not.
  void Post(std::function<void()> work);

  // On the owner's thread: whether there is something to drain.
  bool has_work() const { return has_work_.load(std::memory_order_acquire); }
  // On the owner's thread: runs what was posted before the call.
  void Drain();

 private:
  std::function<void()> poke_;
  std::atomic<bool> has_work_ = false;
  std::mutex mutex_;  // of work_
  std::vector<std::function<void()>> work_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_MAILBOX_H_
