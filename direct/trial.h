// SPDX-License-Identifier: Apache-2.0
// What may fault, or leaves the process changed, is tried in a child process: one for all trials,
// because each fork of a machine that has been made takes a millisecond.
#ifndef ALIBI_DIRECT_TRIAL_H_
#define ALIBI_DIRECT_TRIAL_H_

#include <cstddef>
#include <vector>

#include "base/types.h"

namespace alibi::direct {

// Calls run(answers) in a child, with so many bytes (at most a page), which are 0. Returns them as
// they are when it has ended; all are 0 if there can be no child.
std::vector<u8> TryInChild(std::size_t answers, void (*run)(u8* answers));

// What code did that was tried.
struct Raised {
  int signal = 0;  // SIGILL, SIGSEGV, SIGBUS, SIGFPE or SIGTRAP; 0: none
  u64 rip = 0;     // in its frame
};
// In such a child only.
Raised Try(void (*execute)(const void*), const void* argument = nullptr);

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_TRIAL_H_
