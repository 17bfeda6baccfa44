// SPDX-License-Identifier: Apache-2.0
// Signals of a child that tries what may fault.
#ifndef ALIBI_DIRECT_CHILD_SIGNAL_H_
#define ALIBI_DIRECT_CHILD_SIGNAL_H_

#include <signal.h>

namespace alibi::direct {

// Whatever the parent does with the signal, this process calls `handler`.
inline void HandleInChild(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  sigaction(signal, &action, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_CHILD_SIGNAL_H_
