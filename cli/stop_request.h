// SPDX-License-Identifier: Apache-2.0
// Ctrl-C for commands that make run after run.
#ifndef ALIBI_CLI_STOP_REQUEST_H_
#define ALIBI_CLI_STOP_REQUEST_H_

#include <signal.h>

#include <atomic>

namespace alibi::vmm {

// True once SIGINT or SIGTERM came, behind StopAfterThisRun.
inline std::atomic<bool>& Stopped() {
  static std::atomic<bool> stopped = false;
  return stopped;
}

// The first Ctrl-C lets the current run end, so that its record is whole; the second one is final.
inline void StopAfterThisRun() {
  struct sigaction action {};
  action.sa_handler = [](int) { Stopped() = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (int number : {SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
}

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_STOP_REQUEST_H_
