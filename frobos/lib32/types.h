// SPDX-License-Identifier: Apache-2.0
// Integer names for 32- and 16-bit guest code. Not <cstdint>: the host's C++ headers are 64-bit
// only.
#ifndef ALIBI_FROBOS_LIB32_TYPES_H_
#define ALIBI_FROBOS_LIB32_TYPES_H_

namespace alibi::frobos {

using u8 = __UINT8_TYPE__;
using u16 = __UINT16_TYPE__;
using u32 = __UINT32_TYPE__;
using u64 = __UINT64_TYPE__;
using i32 = __INT32_TYPE__;

// A few values to loop over: without <initializer_list>, braces alone will not do.
template <class T, u32 n>
struct List {
  T values[n];
  const T* begin() const { return values; }
  const T* end() const { return values + n; }
};
template <class T, class... Rest>
List(T, Rest...) -> List<T, 1 + sizeof...(Rest)>;

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB32_TYPES_H_
