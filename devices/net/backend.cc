// SPDX-License-Identifier: Apache-2.0
#include "devices/net/backend.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/host_clock.h"
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
  // It can only fail because the counter is at its limit, and then the reader wakes anyway.
  eventfd_write(wake_fd_, 1);
}

bool Backend::Send(Frame& frame) {
  const u64 now = MonotonicNs();
  const bool apart = now - std::exchange(last_send_ns_, now) > kApartNs;
  bool wake;
  {
    std::lock_guard lock(mutex_);
    if (to_host_bytes_ >= most_waiting_) {
      refused_ = true;
      return false;
    }
    const bool direct = apart && quiet_ && asleep_ && capture_ == nullptr && !out_.limited();
    if (direct && SendNow(frame)) {
      ++direct_;
      frame.clear();
      return true;
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

bool Backend::Receive(Frame* frame, bool* sums_hold) {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    if (to_guest_.empty()) return false;
    *frame = std::move(to_guest_.front().frame);
    if (sums_hold != nullptr) *sums_hold = to_guest_.front().sums_hold;
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

void Backend::ToGuest(Frame frame, bool sums_hold) {
  if (in_.limited()) in_.Take(frame.size(), MonotonicNs());
  if (capture_ != nullptr) capture_->Add(frame);
  {
    std::lock_guard lock(mutex_);
    if (to_guest_bytes_ >= kMaxWaiting) return;
    to_guest_bytes_ += frame.size();
    to_guest_.push_back({std::move(frame), sums_hold});
  }
  if (!noticed_.exchange(true)) notice_();
}

bool Backend::GuestHasRoom() {
  if (in_.limited() && in_.WaitNs(MonotonicNs()) != 0) return false;  // TimeoutMs() knows
  std::lock_guard lock(mutex_);
  held_ = to_guest_bytes_ >= kEnoughWaiting;
  return !held_;
}

void Backend::TakeFrames(std::deque<Frame>* frames, u64 now_ns) {
  if (!out_.limited()) {
    frames->swap(to_host_);
    to_host_bytes_ = 0;
    return;
  }
  while (!to_host_.empty() && out_.WaitNs(now_ns) == 0) {
    const std::size_t bytes = to_host_.front().size();
    out_.Take(bytes, now_ns);
    to_host_bytes_ -= bytes;
    frames->push_back(std::move(to_host_.front()));
    to_host_.pop_front();
  }
}

int Backend::TimeoutMs(int timeout_ms, bool frames_wait, u64 now_ns) const {
  const auto sooner = [&](u64 wait_ns) {
    const int ms = static_cast<int>((wait_ns + 999'999) / 1'000'000);
    if (timeout_ms < 0 || ms < timeout_ms) timeout_ms = ms;
  };
  // Not everybody who has sent has woken us.
  if (frames_wait) sooner(out_.WaitNs(now_ns));
  if (in_.WaitNs(now_ns) != 0) sooner(in_.WaitNs(now_ns));
  return timeout_ms;
}

void Backend::Work() {
  sandbox::UnblockDeniedCalls();
  std::vector<pollfd> fds;
  std::deque<Frame> frames;
  // Who has just had frames looks once more before it sleeps: to be woken costs the VCPU's thread
  // far more than this one its look.
  bool busy = false;
  for (;;) {
    fds.assign(1, {wake_fd_, POLLIN, 0});
    int timeout_ms = -1;
    Fill(&fds, &timeout_ms);
    {
      std::lock_guard lock(mutex_);
      const bool empty = to_host_.empty();
      asleep_ = empty && !busy;
      timeout_ms = busy && empty ? 0 : TimeoutMs(timeout_ms, !empty, MonotonicNs());
    }
    if (poll(fds.data(), fds.size(), timeout_ms) < 0) {
      for (pollfd& fd : fds) fd.revents = 0;
    }
    if (fds[0].revents != 0) {
      eventfd_t count;
      eventfd_read(wake_fd_, &count);
    }
    bool had_refused;
    {
      std::lock_guard lock(mutex_);
      if (ending_) return;
      asleep_ = false;
      TakeFrames(&frames, MonotonicNs());
      busy = quiet_ && !frames.empty();
      had_refused = to_host_bytes_ < most_waiting_ && std::exchange(refused_, false);
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
