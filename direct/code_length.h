// SPDX-License-Identifier: Apache-2.0
// How long an instruction is, and nothing else, for those who ask at every byte of a page: some ten
// cycles, where isa::GlanceAt takes a hundred.
#ifndef ALIBI_DIRECT_CODE_LENGTH_H_
#define ALIBI_DIRECT_CODE_LENGTH_H_

#include <array>

#include "base/types.h"

namespace alibi::direct {

// Bytes at `bytes` that may be read.
inline constexpr unsigned kCodeLengthReads = 20;

// A legacy prefix, or in 64-bit code REX.
bool IsPrefix(u8 byte, unsigned code_bits);

// Its length, which is right for every instruction that the decoder knows (code_length_test); other
// bytes get a length, too, or 0 where the opcode map of this code size has nothing. It may be more
// than the 15 bytes of an instruction. code_bits: 32 or 64.
unsigned CodeLength(const u8* bytes, unsigned code_bits);

// The same for code of one size, faster for the most common instructions.
class CodeLengths {
 public:
  explicit CodeLengths(unsigned code_bits);
  unsigned At(const u8* bytes) const {
    const u8 fixed = fixed_[bytes[0]];
    if (fixed == 0) return CodeLength(bytes, code_bits_);
    if (!(fixed & kHasModrm)) return fixed;
    const u8 operand = operand_[bytes[1]];
    return (fixed & ~kHasModrm) + (operand != 0 ? operand : OperandWithSib(bytes + 1));
  }

 private:
  static constexpr u8 kHasModrm = 0x80;
  static unsigned OperandWithSib(const u8* modrm);

  unsigned code_bits_;
  // Of the opcode and its immediate, by its only byte; 0: not so simple.
  std::array<u8, 256> fixed_;
  // Of the operand, by ModRM; 0: not so simple.
  std::array<u8, 256> operand_;
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_CODE_LENGTH_H_
