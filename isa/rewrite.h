// SPDX-License-Identifier: Apache-2.0
// Operand rewriting: the guest instruction's own bytes with another memory operand and other
// registers. General over legacy, REX, VEX and EVEX encodings; output is always 64-bit code.
#ifndef ALIBI_ISA_REWRITE_H_
#define ALIBI_ISA_REWRITE_H_

#include "base/types.h"
#include "isa/ir.h"

namespace alibi::isa {

// The replacement memory operand: [base + index + disp] (scale 1, 64-bit, no segment).
struct HostMem {
  u8 base = kNoReg;   // host GPR
  u8 index = kNoReg;  // host GPR or kNoReg; never rsp
  i32 disp = 0;
};

struct Rewrite {
  bool replace_memory = false;
  HostMem memory;
  // gpr[i] replaces instr.gprs[i].reg where it is not kNoReg.
  std::array<u8, 4> gpr{kNoReg, kNoReg, kNoReg, kNoReg};
};

inline constexpr unsigned kMaxRewrittenLength = 24;

// Writes the rewritten instruction, returns its length, or 0 when it cannot be expressed (AH..BH
// together with a register that needs REX): the caller then falls back to the simulator or to a
// bounce sequence. Segment and address-size prefixes are dropped when memory is replaced; REX, VEX
// (two-byte forms grow to three) and EVEX (disp8*N undone: the new displacement is disp32) follow.
// For 16/32-bit guest code the one-byte INC/DEC (40-4F) become FF /0, FF /1.
unsigned RewriteInstr(const Instr& instr, const Rewrite& rewrite, u8* out);

// True when the instruction's own bytes mean the same in 64-bit host code, unchanged.
bool SameInHostCode(const Instr& instr);

}  // namespace alibi::isa

#endif  // ALIBI_ISA_REWRITE_H_
