// SPDX-License-Identifier: Apache-2.0
// The words of a kernel's instructions that change with the place it has chosen for itself.
//
// Kernels of the usual code model (System V ABI, AMD64 supplement, 3.5.1) live in the highest 2 GB,
// and name their own data by sign-extended 32-bit addresses. Where they choose their place at boot
// (Linux's KASLR), these words of their code change by as much as the place; a %gs-relative operand
// that is reached from the PC changes by as much the other way.
#ifndef ALIBI_ISA_MOVING_PARTS_H_
#define ALIBI_ISA_MOVING_PARTS_H_

#include "base/types.h"
#include "isa/ir.h"

namespace alibi::isa {

inline constexpr u64 kKernelBase = 0xffffffff80000000;

struct MovingWord {
  i16 offset = 0;        // bytes
  u8 size = 0;           // bytes; 0: none
  bool against = false;  // it changes by as much as the place, the other way
  bool operator==(const MovingWord&) const = default;
  explicit operator bool() const { return size != 0; }
};

// By their offset in the instruction.
struct MovingParts {
  MovingWord displacement, immediate;
};

// Of an instruction of a kernel. No other code is changed by its loader in its text.
inline MovingParts MovingPartsOf(const Instr& instr) {
  // Below it there is nothing of a kernel's; above it lie small negative numbers.
  constexpr u64 kFirst = kKernelBase + (u64{16} << 20), kEnd = 0xffffffffff000000;
  const auto names_kernel = [](u64 value) { return value >= kFirst && value < kEnd; };
  const Layout& layout = instr.layout;
  MovingParts parts;
  if (instr.mem.present && layout.disp_size >= 4 && instr.mem.address_bits == 64) {
    const u64 disp = static_cast<u64>(instr.mem.disp);
    const bool against = instr.mem.rip_relative && (instr.next_pc() + disp).value < kKernelBase;
    if (against || (!instr.mem.rip_relative && names_kernel(disp))) {
      parts.displacement = {layout.disp, layout.disp_size, against};
    }
  }
  // (Those of 32 bits are sign-extended in 64-bit operations only.)
  if (layout.imm_size >= 4 && !instr.HasRelativeTarget() && names_kernel(instr.immediate)) {
    parts.immediate = {layout.imm, layout.imm_size, false};
  }
  return parts;
}

}  // namespace alibi::isa

#endif  // ALIBI_ISA_MOVING_PARTS_H_
