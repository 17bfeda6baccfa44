// SPDX-License-Identifier: Apache-2.0
// Integer names of FrobOS. The guest shares no code with the VMM that runs it: a bug in one must
// not hide the same bug in the other. Not <cstdint>: the host's C++ headers are 64-bit only.
#ifndef ALIBI_FROBOS_COMMON_TYPES_H_
#define ALIBI_FROBOS_COMMON_TYPES_H_

namespace alibi::frobos {

using u8 = __UINT8_TYPE__;
using u16 = __UINT16_TYPE__;
using u32 = __UINT32_TYPE__;
using u64 = __UINT64_TYPE__;
using i32 = __INT32_TYPE__;
using i64 = __INT64_TYPE__;
// As wide as a general register of the code it is compiled for; 32 bits in 16-bit code.
using Word = unsigned long;

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_COMMON_TYPES_H_
