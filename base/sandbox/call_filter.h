// SPDX-License-Identifier: Apache-2.0
// The system calls that a process may make from now on, by Linux's seccomp: a table of rules,
// compiled to the program that the kernel runs at each call.
#ifndef ALIBI_BASE_SANDBOX_CALL_FILTER_H_
#define ALIBI_BASE_SANDBOX_CALL_FILTER_H_

#include <linux/filter.h>

#include <span>
#include <vector>

#include "base/types.h"

namespace alibi::sandbox {

// One system call; rules for the same one are tried in their order. A rule without a condition is
// decided once per call number by kernels that remember (Linux 5.11), and then costs nothing.
struct CallRule {
  int call;  // SYS_...
  u32 answer = 0;
  // Only if (arguments[argument] & mask) == value, of its lower 32 bits; -1: always.
  int argument = -1;
  u32 mask = ~u32{0};
  u32 value = 0;
};

// Answers.
extern const u32 kAllow;
extern const u32 kTrap;   // SIGSYS; ignored or blocked, it ends the process
u32 FailWith(int error);  // the call returns it

// Calls in no rule, and those whose rules all have conditions that do not hold, get `otherwise`.
// Calls of another architecture (32-bit ones, x32) end the process.
std::vector<sock_filter> CompileFilter(std::span<const CallRule> rules, u32 otherwise);

// For the calling thread, and all that it makes; with `all_threads`, for the process as it is. For
// good; it sets no_new_privs. May be called between fork() and exec(). Returns 0 or errno.
int EnterFilter(std::span<const sock_filter> filter, bool all_threads);

}  // namespace alibi::sandbox

#endif  // ALIBI_BASE_SANDBOX_CALL_FILTER_H_
