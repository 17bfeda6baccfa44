// SPDX-License-Identifier: Apache-2.0
// The guest's vector registers, which are live in the host's while the simulator runs.
//
// They are taken out by XSAVE, edited in memory, and put back by XRSTOR: the simulator is compiled
// for general registers only.
#ifndef ALIBI_SIMULATOR_VECTOR_STATE_H_
#define ALIBI_SIMULATOR_VECTOR_STATE_H_

#include "base/types.h"
#include "vcpu/state.h"

namespace alibi::simulator {

// State components of the XSAVE feature set (SDM vol. 1, 13.1).
inline constexpr u64 kX87State = 1u << 0, kSseState = 1u << 1, kAvxState = 1u << 2,
                     kOpmaskState = 1u << 5, kZmmHighState = 1u << 6, kZmm16State = 1u << 7;
inline constexpr unsigned kLegacyBytes = 512, kXsaveHeaderBytes = 64;

// Where the host's XSAVE puts things (standard format), and what its system has enabled.
struct HostXsaveLayout {
  u64 components = kSseState;
  u32 offset[8] = {};
  u32 size[8] = {};

  // Made before any guest code runs: nothing may be called here once vector state is live.
  static const HostXsaveLayout kHost;
};

inline void HostXsave(u8* area, u64 components) {
  asm volatile("xsave64 %0"
               : "+m"(*reinterpret_cast<u8(*)[vcpu::kXsaveAreaSize]>(area))
               : "a"(static_cast<u32>(components)), "d"(0)
               : "memory");
}
inline void HostXrstor(const u8* area, u64 components) {
  asm volatile("xrstor64 %0"
               :
               : "m"(*reinterpret_cast<const u8(*)[vcpu::kXsaveAreaSize]>(area)),
                 "a"(static_cast<u32>(components)), "d"(0)
               : "memory");
}

// The vector and mask registers in memory, for the lifetime of the object.
class VectorState {
 public:
  VectorState() {
    for (unsigned i = kLegacyBytes; i < kLegacyBytes + kXsaveHeaderBytes; ++i) area_[i] = 0;
    HostXsave(area_, HostXsaveLayout::kHost.components);
  }
  ~VectorState() {
    // What was in its initial configuration may have been written to.
    if (edited_) {
      const u64 present = HostXsaveLayout::kHost.components;
      __builtin_memcpy(area_ + kLegacyBytes, &present, sizeof(present));
    }
    HostXrstor(area_, HostXsaveLayout::kHost.components);
  }
  VectorState(const VectorState&) = delete;
  VectorState& operator=(const VectorState&) = delete;

  u64 Get(unsigned reg, unsigned at, unsigned size) {
    u64 value = 0;
    __builtin_memcpy(&value, Byte(reg, at), size);
    return value;
  }
  void Set(unsigned reg, unsigned at, unsigned size, u64 value) {
    edited_ = true;
    __builtin_memcpy(Byte(reg, at), &value, size);
  }
  // Everything from byte `at` up to the register's full width, as every VEX and EVEX write does.
  void ClearFrom(unsigned reg, unsigned at) {
    const unsigned width = (HostXsaveLayout::kHost.components & kZmmHighState) ? 64 : 32;
    for (; at < width; at += 4) Set(reg, at, 4, 0);
  }
  u64 Mask(unsigned k) {
    u64 value;
    __builtin_memcpy(&value, area_ + HostXsaveLayout::kHost.offset[5] + k * 8, 8);
    return value;
  }
  void SetMask(unsigned k, u64 value) {
    edited_ = true;
    __builtin_memcpy(area_ + HostXsaveLayout::kHost.offset[5] + k * 8, &value, 8);
  }

 private:
  // Byte `at` of XMM/YMM/ZMM `reg`: the register is spread over the components.
  u8* Byte(unsigned reg, unsigned at) {
    const auto& offset = HostXsaveLayout::kHost.offset;
    if (reg >= 16) return area_ + offset[7] + (reg - 16) * 64 + at;
    if (at < 16) return area_ + 160 + reg * 16 + at;
    if (at < 32) return area_ + offset[2] + reg * 16 + at - 16;
    return area_ + offset[6] + reg * 32 + at - 32;
  }

  alignas(64) u8 area_[vcpu::kXsaveAreaSize];
  bool edited_ = false;
};

}  // namespace alibi::simulator

#endif  // ALIBI_SIMULATOR_VECTOR_STATE_H_
