// SPDX-License-Identifier: Apache-2.0
// What a process ends with that aborts: 70, a bug of ours, unless who aborts says otherwise.
#ifndef ALIBI_RUNTIME_ABORT_STATUS_H_
#define ALIBI_RUNTIME_ABORT_STATUS_H_

#include <atomic>

namespace alibi {

inline constexpr int kAbortOfBug = 70, kAbortOfHostMemory = 71;  // see cli/exit_codes.inc

// Also from signal handlers.
inline std::atomic<int>& AbortStatus() {
  static constinit std::atomic<int> status{kAbortOfBug};
  return status;
}

}  // namespace alibi

#endif  // ALIBI_RUNTIME_ABORT_STATUS_H_
