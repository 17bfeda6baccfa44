// SPDX-License-Identifier: Apache-2.0
// Integer names and lists of 32- and 16-bit guest code.
#ifndef ALIBI_FROBOS_LIB32_TYPES_H_
#define ALIBI_FROBOS_LIB32_TYPES_H_

#include "frobos/common/types.h"

namespace alibi::frobos {

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
