// SPDX-License-Identifier: Apache-2.0
// What is said by an instruction's bytes alone, for those few that ask: no Instr carries it.
#ifndef ALIBI_ISA_RAW_H_
#define ALIBI_ISA_RAW_H_

#include "base/types.h"
#include "isa/ir.h"

namespace alibi::isa {

// The x87's "last instruction opcode" (FOP; SDM vol. 1, 8.1.9) of the instruction at [code, end),
// the guest's or its translation: 11 bits, behind prefixes. False: it is none of the x87's.
inline bool X87Opcode(const u8* code, const u8* end, u16* opcode) {
  constexpr u8 kFirst = 0xd8, kLast = 0xdf;
  while (code < end && (*code < kFirst || *code > kLast)) ++code;
  if (end - code < 2) return false;
  *opcode = static_cast<u16>((code[0] & 7) << 8 | code[1]);
  return true;
}

// Has it the prefix 66, whatever that selects?
inline bool HasPrefix66(const Instr& instr) {
  for (unsigned i = 0; i < instr.layout.opcode; ++i) {
    if (instr.bytes[i] == 0x66) return true;
  }
  return false;
}

}  // namespace alibi::isa

#endif  // ALIBI_ISA_RAW_H_
