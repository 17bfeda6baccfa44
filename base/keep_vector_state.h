// For the rare parts of callouts that call the C library: the guest's vector state, live in the
// host's registers, is put away for the object's lifetime.
#ifndef ALIBI_BASE_KEEP_VECTOR_STATE_H_
#define ALIBI_BASE_KEEP_VECTOR_STATE_H_

#include "base/types.h"

namespace alibi {

// Functions that declare one are compiled with -mgeneral-regs-only, and are noinline: then
// tools/check_vector_use.py knows that what they call is under its protection.
class KeepVectorState {
 public:
  KeepVectorState() {
    for (unsigned i = kLegacyBytes; i < kLegacyBytes + kHeaderBytes; ++i) area_[i] = 0;
    asm volatile("xgetbv" : "=a"(components_), "=d"(unused_) : "c"(0));
    components_ &= kComponents;
    asm volatile("xsave64 %0" : "+m"(area_) : "a"(components_), "d"(0) : "memory");
  }
  ~KeepVectorState() {
    asm volatile("xrstor64 %0" : : "m"(area_), "a"(components_), "d"(0) : "memory");
  }
  KeepVectorState(const KeepVectorState&) = delete;
  KeepVectorState& operator=(const KeepVectorState&) = delete;

 private:
  static constexpr u32 kComponents = 0xe7;  // x87, SSE, AVX, AVX-512
  static constexpr unsigned kLegacyBytes = 512, kHeaderBytes = 64;
  alignas(64) u8 area_[4096];
  u32 components_, unused_;
};

}  // namespace alibi

#endif  // ALIBI_BASE_KEEP_VECTOR_STATE_H_
