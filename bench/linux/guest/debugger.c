// SPDX-License-Identifier: Apache-2.0
// A program under a debugger that watches one of its variables with a debug register.
#define _GNU_SOURCE
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/linux/guest/linuxbench.h"

enum { kNumbers = 4096 };

static volatile unsigned watched;  // sorts so far
static unsigned numbers[kNumbers];

static void ShellSort(void) {
  for (unsigned gap = kNumbers / 2; gap > 0; gap /= 2) {
    for (unsigned i = gap; i < kNumbers; ++i) {
      const unsigned number = numbers[i];
      unsigned at = i;
      for (; at >= gap && numbers[at - gap] > number; at -= gap) numbers[at] = numbers[at - gap];
      numbers[at] = number;
    }
  }
}

static _Noreturn void RunDebugged(unsigned sorts) {
  if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) Die("ptrace");
  raise(SIGSTOP);
  uint64_t random = 1, sum = kSumStart;
  for (unsigned i = 0; i < sorts; ++i) {
    for (unsigned n = 0; n < kNumbers; ++n) numbers[n] = NextRandom(&random);
    ShellSort();
    sum = Sum(sum, numbers, sizeof(numbers));
    watched = i + 1;
  }
  _exit((int)(sum & 0x7f));
}

uint64_t RunWatchpoint(const struct Run* run) {
  const pid_t child = fork();
  if (child < 0) Die("fork");
  if (child == 0) RunDebugged(run->count);
  uint64_t hits = 0;
  int status;
  if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) Die("a debugged process");
  // DR7: DR0 is enabled, for writes of 4 bytes.
  const size_t registers = offsetof(struct user, u_debugreg);
  const size_t size = sizeof(((struct user*)0)->u_debugreg[0]);
  if (ptrace(PTRACE_POKEUSER, child, registers, &watched) != 0 ||
      ptrace(PTRACE_POKEUSER, child, registers + 7 * size, 0xd0001) != 0) {
    Die("a debug register");
  }
  for (;;) {
    if (ptrace(PTRACE_CONT, child, 0, 0) != 0 || waitpid(child, &status, 0) != child) Die("ptrace");
    if (WIFEXITED(status)) return hits << 8 | (uint64_t)WEXITSTATUS(status);
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) Die("a debugged process");
    ++hits;
  }
}
