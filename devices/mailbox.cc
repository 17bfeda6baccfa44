// SPDX-License-Identifier: Apache-2.0
#include "devices/mailbox.h"

#include <utility>

namespace alibi::devices {

Mailbox::Mailbox(std::function<void()> poke) : poke_(std::move(poke)) {}

void Mailbox::Post(std::function<void()> work) {
  bool first;
  {
    std::lock_guard lock(mutex_);
    first = work_.empty();
    work_.push_back(std::move(work));
    has_work_.store(true, std::memory_order_release);
  }
  // Whoever posted before has poked, and nobody has drained since.
  if (first) poke_();
}

void Mailbox::Drain() {
  if (!has_work_.load(std::memory_order_acquire)) return;
  std::vector<std::function<void()>> work;
  {
    std::lock_guard lock(mutex_);
    work.swap(work_);
    has_work_.store(false, std::memory_order_relaxed);
  }
  for (const std::function<void()>& item : work) item();
}

}  // namespace alibi::devices
