// SPDX-License-Identifier: Apache-2.0
// Which memory accesses of a TU share a look-up.
//
// A group is a run of accesses off one base register, or off registers that were derived from it by
// MOV, LEA, additions of constants, PUSH, POP and LEAVE. Its leader looks the whole range up, and
// the displacement stays in r10 up to the last follower. What comes in between must do without r10:
// such accesses are folded, which means that they find their host address in r11 alone, and needs
// the arithmetic flags to be dead.
#ifndef ALIBI_TRANSLATOR_ACCESS_GROUPS_H_
#define ALIBI_TRANSLATOR_ACCESS_GROUPS_H_

#include <array>

#include "base/types.h"
#include "isa/ir.h"
#include "translator/ccf.h"
#include "translator/translation_unit.h"

namespace alibi::translator {

// A stolen register: its guest value lives in the VCPU block.
constexpr bool IsStolen(u8 reg) { return reg == vcpu::kR10 || reg == vcpu::kR11; }

// Can the operand be addressed as [base + disp] off a live host register, in 64 bits? In flat
// 32-bit code the upper halves of registers are zero, so the sum is right unless it wraps; then it
// is no 32-bit address, no inline TLB entry holds its page, and the runtime simulates the access.
bool IsBaseDisp(const isa::Instr& instr, const CodeMode& mode);
bool UsesHighByte(const isa::Instr& instr);
bool UsesStolenOperand(const isa::Instr& instr);

struct AccessPlan {
  bool leader = false;
  bool follower = false;
  bool folded = false;  // while a group's displacement waits in r10
  // Leaders: the byte range relative to the base register's value there, and whether it is stored
  // to.
  bool stores = false;
  i32 low = 0, high = 0;
};

using AccessPlans = std::array<AccessPlan, kMaxTuInstructions>;

void PlanAccesses(const TranslationUnit& tu, const CodeMode& mode,
                  const std::array<SitePlan, kMaxTuInstructions>& sites, AccessPlans* plans);

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_ACCESS_GROUPS_H_
