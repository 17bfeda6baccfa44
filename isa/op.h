// SPDX-License-Identifier: Apache-2.0
// Operations: what the pipeline tells apart about instructions, and what is known of each. All of
// it is made from ops.inc.
#ifndef ALIBI_ISA_OP_H_
#define ALIBI_ISA_OP_H_

#include <array>
#include <cstddef>
#include <string_view>

#include "base/types.h"

namespace alibi::isa {

// How an instruction is translated. The row of an instruction in instructions.inc names it.
enum class Treatment : u8 {
  kIdent,       // same bytes; memory operand (if any) rewritten, stolen registers substituted
  kStack,       // PUSH/POP/LEAVE/...: an explicit access off rsp plus an rsp update
  kControl,     // ends the TU; direct, indirect, call, return
  kInTc,        // privileged or virtualized, with an in-TC sequence
  kSimulate,    // always a callout to the simulator; the TU goes on afterwards
  kTerminator,  // a callout to the simulator that ends the TU (mode, PC or mapping may change)
  kUndefined,   // #UD (undefined, or not shown by CPUID)
};

enum class Op : u16 {
#define ALIBI_OP(name, emit, needs, simulate, traits) name,
#include "isa/ops.inc"
  kCount
};
inline constexpr std::size_t kOpCount = static_cast<std::size_t>(Op::kCount);

// What an emitted sequence needs. Where it is missing, the simulator does the instruction.
enum OpNeed : u8 {
  kAlways = 0,
  kCode64 = 1 << 0,
  kOperand64 = 1 << 1,
  kCpl0 = 1 << 2,
  kCpl3 = 1 << 3,
  kNotCpl1Or2 = 1 << 4,
  kNotStepped = 1 << 5,
  kOneVcpu = 1 << 6,  // the machine has no other, which could run meanwhile
};

enum OpTrait : u32 {
  kPlain = 0,
  kEndsTu = 1 << 0,      // although it is IN-TC: what follows may lie in another mode or mapping
  kShowsFlags = 1 << 1,  // the sequence saves all flags, or shows them to the simulator
  // Although it is simulated, flags in front of it may be dead: only its faults would show them.
  kHidesFlags = 1 << 2,
  kDivides = 1 << 3,         // #DE, an ordinary event in programs, shows the flags
  kJumps = 1 << 4,           // always, to a target that is encoded
  kBranches = 1 << 5,        // sometimes, to a target that is encoded
  kComputesTarget = 1 << 6,  // jumps to what a register or memory says
  kChangesMode = 1 << 7,     // CR0, CR4, XCR0
  kLoadsFlags = 1 << 8,      // system flags, from memory or a register: AC among them
  kSystemCall = 1 << 9,      // SYSCALL, SYSRET: change the privilege without the stack
  kLoadsSs = 1 << 10,        // may: with the interrupt shadow that holds back #DB, too
  kSoftwareInterrupt = 1 << 11,
  kString = 1 << 12,
  kLogsMsr = 1 << 13,          // a record of kind kMsr in the event log
  kLogsControl = 1 << 14,      // a record of kind kControl
  kBitString = 1 << 15,        // its memory operand lies where a register's bit offset says
  kLoadsFarPointer = 1 << 16,  // a segment register, too
  kMasksElements = 1 << 17,    // elements that its mask leaves out are not accessed
  // Who may execute it, which is looked at in this order and before its operands.
  kProtectedOnly = 1 << 18,  // real-address and virtual-8086 mode: #UD
  // Other privilege levels than 0: #GP(0). MOV DR, XSETBV, SYSRET and SYSEXIT are privileged, too,
  // but may be #UD first: their functions look.
  kPrivileged = 1 << 19,
  kPrivilegedByUmip = 1 << 20,  // the same while CR4.UMIP is set
  kLoadsSegment = 1 << 21,      // outside 64-bit code segments may be flat no longer, or again
};

struct OpInfo {
  // How it runs in the TC, and how the simulator does it.
  enum class Emit : u8 { kNone, kCopy, kSequence };
  enum class Simulate : u8 { kBounce, kFunction };

  std::string_view name;
  Emit emit;
  u8 needs;  // OpNeed
  Simulate simulate;
  u32 traits;  // OpTrait

  constexpr bool Has(u32 any_of) const { return (traits & any_of) != 0; }
};

constexpr OpInfo MakeOpInfo(std::string_view constant, std::string_view emit, unsigned needs,
                            std::string_view simulate, u32 traits) {
  return {
      .name = constant.substr(1),
      .emit = emit == "None"   ? OpInfo::Emit::kNone
              : emit == "Copy" ? OpInfo::Emit::kCopy
                               : OpInfo::Emit::kSequence,
      .needs = static_cast<u8>(needs),
      .simulate = simulate == "Bounce" ? OpInfo::Simulate::kBounce : OpInfo::Simulate::kFunction,
      .traits = traits};
}

inline constexpr std::array<OpInfo, kOpCount> kOps = {{
#define ALIBI_OP(name, emit, needs, simulate, traits) \
  MakeOpInfo(#name, #emit, needs, #simulate, traits),
#include "isa/ops.inc"
}};

constexpr const OpInfo& InfoOf(Op op) { return kOps[static_cast<std::size_t>(op)]; }
constexpr std::string_view OpName(Op op) { return InfoOf(op).name; }

// Can instructions of this operation be treated so? The rows of instructions.inc are checked by it
// when they are compiled.
constexpr bool Offers(const OpInfo& op, Treatment treatment) {
  const bool simulated = op.simulate == OpInfo::Simulate::kFunction;
  switch (treatment) {
    case Treatment::kIdent:
      return op.emit == OpInfo::Emit::kCopy;
    case Treatment::kStack:
    case Treatment::kControl:
    case Treatment::kInTc:
      return op.emit == OpInfo::Emit::kSequence && simulated;
    case Treatment::kSimulate:
      return simulated && !op.Has(kEndsTu);
    case Treatment::kTerminator:
      return simulated;
    case Treatment::kUndefined:
      return op.emit == OpInfo::Emit::kNone && simulated;
  }
  return false;
}

// Whether a TU ends with it.
constexpr bool EndsTranslationUnit(Treatment treatment, const OpInfo& op) {
  return treatment == Treatment::kControl || treatment == Treatment::kTerminator ||
         treatment == Treatment::kUndefined || op.Has(kEndsTu);
}

// Whether all flags become visible: saved, pushed, or shown to the simulator.
constexpr bool ShowsAllFlags(Treatment treatment, const OpInfo& op) {
  const bool simulated = treatment == Treatment::kSimulate || treatment == Treatment::kTerminator ||
                         treatment == Treatment::kUndefined;
  return op.Has(kShowsFlags) || (simulated && !op.Has(kHidesFlags));
}

}  // namespace alibi::isa

#endif  // ALIBI_ISA_OP_H_
