// SPDX-License-Identifier: Apache-2.0
#include "runtime/trap_price.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <atomic>

#include "base/check.h"

namespace alibi::runtime {
namespace {

constexpr unsigned kSamples = 31;
// MOV from [RAX] to EAX: the handler goes on behind it.
constexpr unsigned kProbeBytes = 2;

struct sigaction g_before;
std::atomic<void*> g_probed;

// Faults that are not the probe's are for whoever had the signal before.
void OnProbe(int signal, siginfo_t* info, void* context) {
  if (info->si_addr == g_probed && g_probed != nullptr) {
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] += kProbeBytes;
    return;
  }
  if (g_before.sa_flags & SA_SIGINFO) return g_before.sa_sigaction(signal, info, context);
  if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN) {
    return g_before.sa_handler(signal);
  }
  sigaction(signal, &g_before, nullptr);  // the access is made again, under the old regime
}

u32 Measure() {
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ALIBI_CHECK(page != MAP_FAILED, "the host has room for one page that is not there");
  struct sigaction action {};
  action.sa_sigaction = OnProbe;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  g_probed = page;
  sigaction(SIGSEGV, &action, &g_before);
  u64 samples[kSamples];
  for (u64& sample : samples) {
    const u64 begin = __rdtsc();
    void* at = page;
    asm volatile(".byte 0x8b, 0x00" : "+a"(at) : : "memory");
    sample = __rdtsc() - begin;
  }
  sigaction(SIGSEGV, &g_before, nullptr);
  g_probed = nullptr;
  munmap(page, page_bytes);
  std::nth_element(samples, samples + kSamples / 2, samples + kSamples);
  return static_cast<u32>(std::min<u64>(samples[kSamples / 2], ~u32{0}));
}

}  // namespace

u32 TrapPrice() {
  static const u32 price = Measure();
  return price;
}

}  // namespace alibi::runtime
