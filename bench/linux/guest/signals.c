/* SPDX-License-Identifier: Apache-2.0 */
// Signals: sent to oneself, and caused by a fault.
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "bench/linux/guest/linuxbench.h"

static volatile unsigned handled;

static void Count(int signal_number) {
  (void)signal_number;
  ++handled;
}

uint64_t RunSignal(const struct Run* run) {
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_handler = Count;
  if (sigaction(SIGUSR1, &action, NULL) != 0) Die("sigaction");
  handled = 0;
  const int self = getpid();
  for (unsigned i = 0; i < run->count; ++i) kill(self, SIGUSR1);
  return handled;
}

#if defined(__x86_64__)
enum { kProgramCounter = REG_RIP };
#else
enum { kProgramCounter = REG_EIP };
#endif

// The store below is three bytes long: c6 00 01, MOV byte [rAX], 1.
static void StepOver(int signal_number, siginfo_t* info, void* context) {
  (void)signal_number;
  (void)info;
  ++handled;
  ((ucontext_t*)context)->uc_mcontext.gregs[kProgramCounter] += 3;
}

uint64_t RunSegv(const struct Run* run) {
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_sigaction = StepOver;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(SIGSEGV, &action, NULL) != 0) Die("sigaction");
  char* page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) Die("mmap");
  handled = 0;
  for (unsigned i = 0; i < run->count; ++i) {
    __asm__ volatile("movb $1, (%0)" : : "a"(page) : "memory");
  }
  munmap(page, 4096);
  signal(SIGSEGV, SIG_DFL);
  return handled;
}
