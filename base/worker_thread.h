// SPDX-License-Identifier: Apache-2.0
// Threads beside the VCPU's.
#ifndef ALIBI_BASE_WORKER_THREAD_H_
#define ALIBI_BASE_WORKER_THREAD_H_

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

#include "base/result.h"

namespace alibi {

// A thread that runs `work` with all signals blocked: those of the process belong to the VCPU's
// thread, and a file that may not grow is an error of write() instead of SIGXFSZ. The error is the
// host's word.
template <typename Work>
Result<std::thread> StartWorker(Work work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<std::thread> started = [&]() -> Result<std::thread> {
    try {
      return std::thread(std::move(work));
    } catch (const std::system_error& error) {
      return Error{error.what()};
    }
  }();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace alibi

#endif  // ALIBI_BASE_WORKER_THREAD_H_
