// SPDX-License-Identifier: Apache-2.0
// How long an instruction is, and nothing else, for those who ask at every byte of a page: some ten
// cycles, where isa::GlanceAt takes a hundred.
#ifndef ALIBI_DIRECT_CODE_LENGTH_H_
#define ALIBI_DIRECT_CODE_LENGTH_H_

#include "base/types.h"

namespace alibi::direct {

// Bytes at `bytes` that may be read.
inline constexpr unsigned kCodeLengthReads = 20;

// Its length, which is right for every instruction that the decoder knows (code_length_test); other
// bytes get a length, too, or 0 where the opcode map of this code size has nothing. It may be more
// than the 15 bytes of an instruction. code_bits: 32 or 64.
unsigned CodeLength(const u8* bytes, unsigned code_bits);

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_CODE_LENGTH_H_
