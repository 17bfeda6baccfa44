// SPDX-License-Identifier: Apache-2.0
#include "direct/feature_probe.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "direct/child_signal.h"
#include "direct/retried.h"

namespace alibi::direct {
namespace {

template <class... Bytes>
constexpr FeatureProbe MakeProbe(isa::Feature feature, Bytes... bytes) {
  return {feature, sizeof...(bytes), {static_cast<u8>(bytes)...}};
}

using enum isa::Feature;
constexpr FeatureProbe kProbes[] = {
#define ALIBI_PROBE(feature, ...) MakeProbe(feature, __VA_ARGS__),
#include "direct/feature_probes.inc"
};

// Where the child goes on after a signal. A handler can be told by a global only.
sigjmp_buf after_signal;

void OnSignal(int signal) { siglongjmp(after_signal, signal); }

// Does the instruction at `code`, with a return behind it, not raise #UD?
bool Works(const void* code) {
  if (const int signal = sigsetjmp(after_signal, 1); signal != 0) return signal != SIGILL;
  u64 nowhere = 1;
  asm volatile("call *%[code]"
               : "+D"(nowhere)
               : [code] "r"(code), "a"(0), "c"(0), "d"(0)
               : "rsi", "r8", "r9", "r10", "r11", "cc", "memory", "xmm0", "mm0", "st");
  asm volatile("emms");
  return true;
}

// In the child. What works is written to `works`, one byte per probe.
void TryAll(u8* works) {
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP}) {
    HandleInChild(signal, OnSignal);
  }
  void* const code =
      mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED) return;
  constexpr unsigned kDistance = 16;
  static_assert(std::size(kProbes) * kDistance <= kPageSize);
  constexpr u8 kRet = 0xc3;
  std::memset(code, kRet, kPageSize);
  u8* at = static_cast<u8*>(code);
  for (const FeatureProbe& probe : kProbes) {
    std::copy_n(probe.bytes, probe.size, at);
    at += kDistance;
  }
  if (mprotect(code, kPageSize, PROT_READ | PROT_EXEC) != 0) return;
  for (std::size_t i = 0; i < std::size(kProbes); ++i) {
    works[i] = Works(static_cast<u8*>(code) + i * kDistance);
  }
}

}  // namespace

std::span<const FeatureProbe> FeatureProbes() { return kProbes; }

std::vector<isa::Feature> ProbeFeatures() {
  std::vector<isa::Feature> features;
  void* const shared =
      mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return features;
  u8* const works = static_cast<u8*>(shared);
  const pid_t child = fork();
  if (child == 0) {
    TryAll(works);
    _exit(0);
  }
  if (child > 0) Retried([&] { return waitpid(child, nullptr, 0); });
  for (std::size_t i = 0; i < std::size(kProbes); ++i) {
    if (works[i]) features.push_back(kProbes[i].feature);
  }
  munmap(shared, kPageSize);
  return features;
}

}  // namespace alibi::direct
