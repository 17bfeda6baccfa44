// SPDX-License-Identifier: Apache-2.0
// Copies that leave the vector registers alone: guest vector state is live in them while fast
// callouts run, and the C library's memcpy uses them.
#ifndef ALIBI_BASE_RAW_COPY_H_
#define ALIBI_BASE_RAW_COPY_H_

#include "base/types.h"

namespace alibi {

// May alias anything: guest memory has no C++ type.
using AnyU64 __attribute__((may_alias, aligned(1))) = u64;
using AnyU32 __attribute__((may_alias, aligned(1))) = u32;
using AnyU16 __attribute__((may_alias, aligned(1))) = u16;

// The small powers of two are single accesses, as guests expect of aligned ones.
inline void RawCopy(void* to, const void* from, u64 size) {
  switch (size) {
    case 1:
      *static_cast<u8*>(to) = *static_cast<const u8*>(from);
      return;
    case 2:
      *static_cast<AnyU16*>(to) = *static_cast<const AnyU16*>(from);
      return;
    case 4:
      *static_cast<AnyU32*>(to) = *static_cast<const AnyU32*>(from);
      return;
    case 8:
      *static_cast<AnyU64*>(to) = *static_cast<const AnyU64*>(from);
      return;
    default:
      asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size)::"memory");
  }
}

inline void RawFill(u64* to, u64 value, u64 count) {
  asm volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(value) : "memory");
}

inline void RawFillBytes(void* to, u8 value, u64 count) {
  asm volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(value) : "memory");
}

}  // namespace alibi

#endif  // ALIBI_BASE_RAW_COPY_H_
