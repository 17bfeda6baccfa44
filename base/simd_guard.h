// SPDX-License-Identifier: Apache-2.0
// Callouts run while the guest's vector state is live in the host's registers. Code behind this
// guard may use them as any C++ code does.
#ifndef ALIBI_BASE_SIMD_GUARD_H_
#define ALIBI_BASE_SIMD_GUARD_H_

#include "base/types.h"

namespace alibi {

// One area per owner. Guards nest (a device access may end in a platform callback); only the
// outermost saves.
class SimdState {
 public:
  SimdState() : mask_(HostXcr0() & kComponents) {}

 private:
  friend class SimdGuard;
  // x87, SSE, AVX, AVX-512: what the guest is shown. Not PKRU and not AMX.
  static constexpr u32 kComponents = 0xe7;
  static constexpr u32 kBytes = 4096;
  alignas(64) u8 area_[kBytes] = {};

  static u32 HostXcr0() {
    u32 low, high;
    asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
  }

  u32 mask_ = 0;
  u32 depth_ = 0;
};

// Saves the vector state, gives the C ABI's initial one, and restores. Integer code only, so the
// functions that declare one must be compiled with -mgeneral-regs-only.
class SimdGuard {
 public:
  explicit SimdGuard(SimdState& state) : state_(state) {
    if (state_.depth_++ == 0) Save();
  }
  ~SimdGuard() {
    if (--state_.depth_ == 0) Restore();
  }
  SimdGuard(const SimdGuard&) = delete;
  SimdGuard& operator=(const SimdGuard&) = delete;

 private:
  void Save() {
    const u32 mxcsr = 0x1f80;
    asm volatile("xsave64 %0" : "=m"(state_.area_) : "a"(state_.mask_), "d"(0) : "memory");
    asm volatile("fninit; vzeroupper; ldmxcsr %0" : : "m"(mxcsr));
  }
  void Restore() {
    asm volatile("xrstor64 %0" : : "m"(state_.area_), "a"(state_.mask_), "d"(0) : "memory");
  }
  SimdState& state_;
};

}  // namespace alibi

#endif  // ALIBI_BASE_SIMD_GUARD_H_
