// SPDX-License-Identifier: Apache-2.0
#include "direct/stop_watcher.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/sandbox/denied_call.h"
#include "base/worker_thread.h"

namespace alibi::direct {

Result<std::unique_ptr<StopWatcher>> StopWatcher::Create(std::function<void()> stopped) {
  std::unique_ptr<StopWatcher> watcher(new StopWatcher);
  watcher->stopped_ = std::move(stopped);
  watcher->stops_.Reset(epoll_create1(EPOLL_CLOEXEC));
  watcher->quit_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event quit{.events = EPOLLIN, .data = {.fd = watcher->quit_.get()}};
  if (watcher->stops_.get() < 0 || watcher->quit_.get() < 0 ||
      epoll_ctl(watcher->stops_.get(), EPOLL_CTL_ADD, watcher->quit_.get(), &quit) != 0) {
    return Error{std::string("direct execution: ") + std::strerror(errno) +
                 "; raise the limit on open files (ulimit -n)"};
  }
  auto worker = StartWorker([raw = watcher.get()] { raw->Wait(); });
  if (!worker.ok()) {
    return Error{"direct execution: cannot start a thread: " + worker.error().message};
  }
  watcher->thread_ = std::move(*worker);
  return watcher;
}

StopWatcher::~StopWatcher() {
  if (!thread_.joinable()) return;
  eventfd_write(quit_.get(), 1);
  thread_.join();
}

void StopWatcher::Wait() {
  sandbox::UnblockDeniedCalls();
  for (;;) {
    epoll_event event;
    if (epoll_wait(stops_.get(), &event, 1, -1) != 1) continue;
    if (event.data.fd == quit_.get()) return;
    stopped_();
  }
}

void StopWatcher::Watch(int stop_fd) {
  epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.fd = stop_fd}};
  if (epoll_ctl(stops_.get(), EPOLL_CTL_MOD, stop_fd, &event) != 0 && errno == ENOENT) {
    // Without memory for it the stop is found at the end of the turn.
    (void)epoll_ctl(stops_.get(), EPOLL_CTL_ADD, stop_fd, &event);
  }
}

}  // namespace alibi::direct
