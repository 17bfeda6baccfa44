// SPDX-License-Identifier: Apache-2.0
#include "devices/net/backend.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/sandbox/denied_call.h"
#include "base/worker_thread.h"

namespace alibi::net {
namespace {

// As much as the guest may leave waiting before the host is not read any more. What is on its way
// in connections that exist fits into the rest.
constexpr std::size_t kEnoughWaiting = std::size_t{1} << 20;

}  // namespace

Backend::~Backend() { ALIBI_CHECK(!thread_.joinable(), "a backend is stopped by its own class"); }

Status Backend::Start(std::function<void()> notice) {
  notice_ = std::move(notice);
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) {
    return Error{std::string("network: ") + std::strerror(errno) +
                 "; raise the limit on open files (ulimit -n)"};
  }
  auto worker = StartWorker([this] { Work(); });
  if (!worker.ok()) {
    return Error{"network: cannot start a thread: " + worker.error().message +
                 "; raise the limit on processes (ulimit -u)"};
  }
  thread_ = std::move(*worker);
  Wake();  // for what was sent before there was a thread
  return Ok{};
}

void Backend::Stop() {
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    Wake();
    thread_.join();
  }
  if (wake_fd_ >= 0) close(std::exchange(wake_fd_, -1));
}

void Backend::Wake() {
  const u64 one = 1;
  // It can only fail because the counter is at its limit, and then the reader wakes anyway.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

bool Backend::Send(Frame& frame) {
  bool wake;
  {
    std::lock_guard lock(mutex_);
    if (to_host_bytes_ >= kMaxWaiting) {
      refused_ = true;
      return false;
    }
    wake = quiet_ ? std::exchange(asleep_, false) : to_host_.empty();
    to_host_bytes_ += frame.size();
    to_host_.push_back(std::move(frame));
  }
  if (wake) {
    ++wakes_;
    Wake();
  }
  return true;
}

bool Backend::Receive(Frame* frame) {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    if (to_guest_.empty()) return false;
    *frame = std::move(to_guest_.front());
    to_guest_.pop_front();
    to_guest_bytes_ -= frame->size();
    if (held_ && to_guest_bytes_ < kEnoughWaiting / 2) {
      held_ = false;
      wake = true;
    }
  }
  if (wake) Wake();
  return true;
}

void Backend::ToGuest(Frame frame) {
  if (capture_ != nullptr) capture_->Add(frame);
  {
    std::lock_guard lock(mutex_);
    if (to_guest_bytes_ >= kMaxWaiting) return;
    to_guest_bytes_ += frame.size();
    to_guest_.push_back(std::move(frame));
  }
  if (!noticed_.exchange(true)) notice_();
}

bool Backend::GuestHasRoom() {
  std::lock_guard lock(mutex_);
  held_ = to_guest_bytes_ >= kEnoughWaiting;
  return !held_;
}

void Backend::Work() {
  sandbox::UnblockDeniedCalls();
  std::vector<pollfd> fds;
  std::deque<Frame> frames;
  for (;;) {
    fds.assign(1, {wake_fd_, POLLIN, 0});
    int timeout_ms = -1;
    Fill(&fds, &timeout_ms);
    {
      std::lock_guard lock(mutex_);
      asleep_ = to_host_.empty();
      // Not everybody who has sent has woken us.
      if (!asleep_) timeout_ms = 0;
    }
    if (poll(fds.data(), fds.size(), timeout_ms) < 0) {
      for (pollfd& fd : fds) fd.revents = 0;
    }
    if (fds[0].revents != 0) {
      u64 count;
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof(count));
    }
    bool had_refused;
    {
      std::lock_guard lock(mutex_);
      if (ending_) return;
      asleep_ = false;
      frames.swap(to_host_);
      to_host_bytes_ = 0;
      had_refused = std::exchange(refused_, false);
    }
    if (had_refused && !noticed_.exchange(true)) notice_();
    for (Frame& frame : frames) {
      if (capture_ != nullptr) capture_->Add(frame);
      FromGuest(frame);
    }
    frames.clear();
    Served(std::span<const pollfd>(fds).subspan(1));
  }
}

}  // namespace alibi::net
