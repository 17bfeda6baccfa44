// SPDX-License-Identifier: Apache-2.0
#include "direct/feature_probe.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "direct/trial.h"

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

// The instruction at `code`, with a return behind it.
void Call(const void* code) {
  u64 nowhere = 1;
  asm volatile("call *%[code]"
               : "+D"(nowhere)
               : [code] "r"(code), "a"(0), "c"(0), "d"(0)
               : "rsi", "r8", "r9", "r10", "r11", "cc", "memory", "xmm0", "mm0", "st");
  asm volatile("emms");
}

}  // namespace

std::span<const FeatureProbe> FeatureProbes() { return kProbes; }

void ProbeFeatures(u8* works) {
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
    works[i] = Try(Call, static_cast<u8*>(code) + i * kDistance).signal != SIGILL;
  }
}

}  // namespace alibi::direct
