// SPDX-License-Identifier: Apache-2.0
// Values of fewer than 64 bits in 64.
#ifndef ALIBI_BASE_BITS_H_
#define ALIBI_BASE_BITS_H_

#include "base/types.h"

namespace alibi {

// `bits`: 0 to 64.
constexpr u64 LowBits(u64 value, unsigned bits) {
  return bits >= 64 ? value : value & ((u64{1} << bits) - 1);
}
// `bits`: 1 to 64.
constexpr u64 SignExtend(u64 value, unsigned bits) {
  return static_cast<u64>(static_cast<i64>(value << (64 - bits)) >> (64 - bits));
}

}  // namespace alibi

#endif  // ALIBI_BASE_BITS_H_
