// SPDX-License-Identifier: Apache-2.0
#include "direct/trial.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "direct/child_signal.h"
#include "direct/retried.h"

namespace alibi::direct {
namespace {

constexpr int kSignals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP};

// Of the child, whose handler can be told by globals only.
sigjmp_buf after_signal;
u64 rip_of_signal = 0;

void OnSignal(int signal, siginfo_t*, void* context) {
  rip_of_signal = static_cast<u64>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  siglongjmp(after_signal, signal);
}

}  // namespace

std::vector<u8> TryInChild(std::size_t answers, void (*run)(u8* answers)) {
  std::vector<u8> result(answers);
  void* const shared =
      mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return result;
  u8* const written = static_cast<u8*>(shared);
  const pid_t child = fork();
  if (child == 0) {
    for (const int signal : kSignals) HandleInChild(signal, OnSignal);
    run(written);
    _exit(0);
  }
  if (child > 0) Retried([&] { return waitpid(child, nullptr, 0); });
  result.assign(written, written + answers);
  munmap(shared, kPageSize);
  return result;
}

Raised Try(void (*execute)(const void*), const void* argument) {
  if (const int signal = sigsetjmp(after_signal, 1); signal != 0) return {signal, rip_of_signal};
  execute(argument);
  return {};
}

}  // namespace alibi::direct
