// SPDX-License-Identifier: Apache-2.0
// A thread that waits for stops of satellites, for a thread that has something better to do.
#ifndef ALIBI_DIRECT_STOP_WATCHER_H_
#define ALIBI_DIRECT_STOP_WATCHER_H_

#include <functional>
#include <memory>
#include <thread>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace alibi::direct {

class StopWatcher {
 public:
  // `stopped` is called on the waiting thread. An error says in a line what this host lacks.
  static Result<std::unique_ptr<StopWatcher>> Create(std::function<void()> stopped);
  ~StopWatcher();
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;

  // `stopped` is called once when this can be read, or its other end is gone. Forgotten when it is
  // closed.
  void Watch(int stop_fd);

 private:
  StopWatcher() = default;
  void Wait();

  std::function<void()> stopped_;
  FileDescriptor stops_{-1};  // an epoll
  FileDescriptor quit_{-1};
  std::thread thread_;
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_STOP_WATCHER_H_
