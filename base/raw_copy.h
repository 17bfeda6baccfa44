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

// One access, which others may make at the same time.
template <class T>
void CopyAtOnce(void* to, const void* from) {
  const T value = __atomic_load_n(static_cast<const T*>(from), __ATOMIC_RELAXED);
  __atomic_store_n(static_cast<T*>(to), value, __ATOMIC_RELAXED);
}

// The small powers of two are single accesses, as guests expect of aligned ones.
inline void RawCopy(void* to, const void* from, u64 size) {
  switch (size) {
    case 1:
      return CopyAtOnce<u8>(to, from);
    case 2:
      return CopyAtOnce<AnyU16>(to, from);
    case 4:
      return CopyAtOnce<AnyU32>(to, from);
    case 8:
      return CopyAtOnce<AnyU64>(to, from);
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
