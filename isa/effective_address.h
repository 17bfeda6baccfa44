// SPDX-License-Identifier: Apache-2.0
// Where in its segment an instruction's memory operand lies (SDM vol. 1, 3.7.5).
#ifndef ALIBI_ISA_EFFECTIVE_ADDRESS_H_
#define ALIBI_ISA_EFFECTIVE_ADDRESS_H_

#include "base/bits.h"
#include "base/types.h"
#include "isa/ir.h"

namespace alibi::isa {

// Of a bit string (kBitString) the address of its first bit.
inline u64 EffectiveAddress(const Instr& instr, const u64 (&gpr)[16]) {
  const MemOperand& mem = instr.mem;
  u64 offset = static_cast<u64>(mem.disp);
  if (mem.rip_relative) offset += instr.next_pc().value;  // 64-bit code: CS has no base
  if (mem.base != kNoReg) offset += gpr[mem.base];
  if (mem.index != kNoReg) offset += gpr[mem.index] * mem.scale;
  return LowBits(offset, mem.address_bits);
}

// How many bytes behind it the unit of `operand_bits` begins that holds the bit asked for: the bit
// offset in the register is signed.
inline u64 BitStringUnit(const Instr& instr, const u64 (&gpr)[16]) {
  const unsigned bits = instr.operand_bits;
  const i64 index = static_cast<i64>(SignExtend(gpr[instr.gprs[0].reg], bits));
  return static_cast<u64>(index >> 3) & ~(u64{bits} / 8 - 1);
}

}  // namespace alibi::isa

#endif  // ALIBI_ISA_EFFECTIVE_ADDRESS_H_
