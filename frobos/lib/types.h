// SPDX-License-Identifier: Apache-2.0
// Integer names of FrobOS. The guest shares no code with the VMM that runs it: a bug in one must
// not hide the same bug in the other.
#ifndef ALIBI_FROBOS_LIB_TYPES_H_
#define ALIBI_FROBOS_LIB_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace alibi::frobos {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_TYPES_H_
