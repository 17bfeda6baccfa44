// SPDX-License-Identifier: Apache-2.0
#include "pc/host_events.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/host_clock.h"
#include "base/sandbox/denied_call.h"
#include "base/worker_thread.h"

namespace alibi::vmm {
namespace {

// Input that the guest has not taken: with more than this we stop reading, as a terminal does.
constexpr std::size_t kMaxInput = 1 << 16;

timespec ToTimespec(u64 ns) {
  timespec time;
  time.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  time.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return time;
}

void Drain(int fd) {
  eventfd_t count;
  eventfd_read(fd, &count);
}

void Signal(int fd) {
  // It can only fail because the counter is at its limit, and then the reader wakes anyway.
  eventfd_write(fd, 1);
}

}  // namespace

Result<std::unique_ptr<HostEvents>> HostEvents::Create(int input_fd, std::function<void()> poke) {
  std::unique_ptr<HostEvents> events(new HostEvents);
  events->poke_ = std::move(poke);
  events->input_fd_ = input_fd;
  events->quit_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  events->room_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  events->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (events->quit_fd_ < 0 || events->wake_fd_ < 0 || events->room_fd_ < 0) {
    return Error{std::string("host events: ") + std::strerror(errno) +
                 "; raise the limit on open files (ulimit -n)"};
  }
  auto worker = StartWorker([raw = events.get()] { raw->Wait(); });
  if (!worker.ok()) {
    return Error{"host events: cannot start a thread: " + worker.error().message +
                 "; raise the limit on processes (ulimit -u)"};
  }
  events->thread_ = std::move(*worker);
  return events;
}

HostEvents::~HostEvents() {
  if (thread_.joinable()) {
    Signal(quit_fd_);
    thread_.join();
  }
  for (int fd : {quit_fd_, room_fd_, wake_fd_}) {
    if (fd >= 0) close(fd);
  }
}

void HostEvents::Wait() {
  sandbox::UnblockDeniedCalls();
  pollfd fds[] = {
      {quit_fd_, POLLIN, 0},
      {room_fd_, POLLIN, 0},
      {input_fd_, POLLIN, 0},
  };
  for (;;) {
    if (poll(fds, 3, -1) < 0) continue;  // every signal is blocked: only a debugger interrupts
    if (fds[0].revents != 0) return;
    if (fds[1].revents != 0) {
      Drain(room_fd_);
      if (!ended_) fds[2].fd = input_fd_;
    }
    if (fds[2].fd < 0 || fds[2].revents == 0) continue;
    char bytes[4096];
    const ssize_t count = read(input_fd_, bytes, sizeof(bytes));
    if (count > 0) {
      {
        std::lock_guard lock(mutex_);
        input_.append(bytes, static_cast<std::size_t>(count));
        if (input_.size() >= kMaxInput) fds[2].fd = -1;  // until TakeInput() has made room
      }
      has_input_.store(true, std::memory_order_release);
      poke_();
      Wake();
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      ended_ = true;  // the end of the input is not the end of the machine
      fds[2].fd = -1;
    }
  }
}

std::string HostEvents::TakeInput() {
  if (!has_input_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  has_input_.store(false, std::memory_order_relaxed);
  if (input_.size() >= kMaxInput) Signal(room_fd_);
  return std::exchange(input_, {});
}

void HostEvents::Sleep(u64 deadline_ns) {
  pollfd fd{wake_fd_, POLLIN, 0};
  timespec left{};
  if (deadline_ns != kNever) {
    const u64 now = MonotonicNs();
    if (deadline_ns <= now) return;
    left = ToTimespec(deadline_ns - now);
  }
  // Either Wake() sees this, or we see what it has stored before.
  sleeps_.store(true);
  if (!woken_.load()) ppoll(&fd, 1, deadline_ns == kNever ? nullptr : &left, nullptr);
  sleeps_.store(false);
  // What was stored in front of a Wake() that saw us asleep is seen from here on.
  woken_.exchange(false);
  if (fd.revents != 0) Drain(wake_fd_);
}

bool HostEvents::Wake() {
  if (signal_always_) {
    Signal(wake_fd_);
    return false;
  }
  woken_.store(true);
  if (!sleeps_.load()) return false;
  Signal(wake_fd_);
  return true;
}

}  // namespace alibi::vmm
