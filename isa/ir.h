// SPDX-License-Identifier: Apache-2.0
// IR: one object per guest instruction, as the decoder produces it. It says what the emitter, the
// simulator, the dumper and the fuzzer need to know, and nothing about how it will be translated
// beyond its Treatment.
#ifndef ALIBI_ISA_IR_H_
#define ALIBI_ISA_IR_H_

#include <array>

#include "base/types.h"
#include "isa/features.h"
#include "isa/op.h"

namespace alibi::isa {

// Which part of the processor an instruction uses, as far as CR0, CR4 and XCR0 can forbid it (SDM
// vol. 3, 2.5 and 13.1-13.6; vol. 2, 2.4).
enum class Unit : u8 {
  kNone,
  kX87,
  kWait,    // FWAIT has a rule of its own
  kFxsave,  // FXSAVE, FXRSTOR
  kMmx,
  kSse,
  kAvx,
  kAvx512,  // EVEX, and what names mask registers
  kVexGpr,  // VEX-encoded, on general registers (BMI)
  kXsave,
  kCount
};

inline constexpr u8 kNoReg = 0xff;

// The one explicit or implicit-but-addressable memory operand of an instruction.
struct MemOperand {
  bool present = false;
  bool read = false;
  bool written = false;
  bool rip_relative = false;   // disp is then relative to the next instruction's PC
  bool vsib = false;           // index is a vector register: gathers and scatters
  bool stack_segment = false;  // faults are #SS instead of #GP (base rsp/rbp, or SS override)
  u8 segment = 0;              // vcpu::SegmentIndex after overrides
  u8 base = kNoReg;            // guest GPR number
  u8 index = kNoReg;
  u8 scale = 1;
  u8 address_bits = 64;      // 16, 32 or 64
  u16 size = 0;              // bytes; 0: no access (LEA, NOP, prefetch)
  u8 alignment = 1;          // demanded by the instruction: else #GP(0)
  u8 checked_alignment = 1;  // else #AC, where alignment is checked (SDM vol. 3, table 6-7)
  // EVEX write masks suppress the faults of elements that they leave out: bytes per element (0: no
  // mask, or it suppresses nothing), and how many bits of the mask count.
  u8 masked_element = 0;
  u8 mask_bits = 0;
  u8 mask_register = 0;
  bool packed = false;  // compress and expand: the mask's population is accessed, from the start
  i64 disp = 0;

  bool operator==(const MemOperand&) const = default;
};

// Where a GPR is encoded, so that it can be replaced by another.
enum class RegSlot : u8 { kModRmReg, kModRmRm, kVvvv, kOpcode };

struct GprUse {
  RegSlot slot = RegSlot::kModRmReg;
  u8 reg = 0;
  u8 bits = 0;
  bool high_byte = false;  // AH, CH, DH, BH (reg is then 0-3)
  bool read = false;
  bool written = false;

  bool operator==(const GprUse&) const = default;
};

enum class Encoding : u8 { kLegacy, kVex, kEvex, kXop };

// How an immediate's bytes become Instr::immediate.
enum class ImmKind : u8 {
  kUnsigned,
  kSigned,    // extended to the operand size
  kRelative,  // of a branch: extended, and added to the next PC for Instr::branch_target
  kPair,      // two immediates
};

// Byte positions inside the instruction; 0xff: absent.
struct Layout {
  u8 rex = 0xff;
  u8 vector_prefix = 0xff;  // first byte of VEX/EVEX/XOP
  u8 opcode = 0xff;         // last opcode byte
  u8 modrm = 0xff;
  u8 sib = 0xff;
  u8 disp = 0xff, disp_size = 0;  // size in bytes
  u8 imm = 0xff, imm_size = 0;    // all immediates together
  ImmKind imm_kind = ImmKind::kUnsigned;

  bool operator==(const Layout&) const = default;
};

// What the rest of the pipeline would otherwise read out of an instruction's bytes.
enum Fact : u16 {
  // Without a memory operand it raises no exception: moves, integer arithmetic, bits.
  kCannotFault = 1 << 0,
  // It has an immediate that says more than a value: whether flags are written, or which register.
  kImmediateDecides = 1 << 1,
  // The 66 prefix, or its absence, selects the instruction and not the operand size.
  kOwnsPrefix66 = 1 << 2,
  kAddsConstant = 1 << 3,       // ADD register, immediate
  kSubtractsConstant = 1 << 4,  // SUB register, immediate
  kFlushesLine = 1 << 5,        // CLFLUSH, CLFLUSHOPT, CLWB
  kZeroesUpper = 1 << 6,        // VZEROUPPER
  kZeroesVectors = 1 << 7,      // VZEROALL
  kLoadsControlWord = 1 << 8,   // FLDCW, FLDENV, FRSTOR
  kStoresX87Control = 1 << 9,   // FNSTCW, FNSTSW, FNSTENV, FNSAVE
  kConvertsToHalf = 1 << 10,    // VCVTPS2PH
};

// What an instruction shares with those that differ from it in their constants and their place
// only.
struct InstrShape {
  u8 length = 0;
  Op op = Op::kNone;
  Treatment treatment = Treatment::kIdent;
  Encoding encoding = Encoding::kLegacy;
  Unit unit = Unit::kNone;
  Feature feature = Feature::kBase;  // what CPUID must show for it
  u16 mnemonic = 0;                  // the decoder library's number; MnemonicName() prints it
  u8 code_bits = 64;                 // 16, 32, 64: mode it was decoded in
  u8 operand_bits = 64;              // effective operand size
  u8 address_bits = 64;
  u8 condition = 0;      // low nibble of Jcc/SETcc/CMOVcc
  u8 element_bytes = 0;  // of string and port instructions
  bool lock = false, rep = false, repne = false;
  u16 facts = 0;               // Fact
  u8 segment_override = 0xff;  // vcpu::SegmentIndex or 0xff
  u8 system_reg = kNoReg;      // number of the segment, control or debug register operand
  u16 implicit_gprs_read = 0;  // bit per guest GPR, hidden operands only
  u16 implicit_gprs_written = 0;
  u32 flags_read = 0;                // subset of vcpu::kArithmeticFlags
  u32 flags_written = 0;             // certainly written, undefined results included
  u32 flags_kept_maybe = 0;          // subset of flags_written: undefined, and kept by some hosts
  bool flags_written_maybe = false;  // conditional writers (shifts by CL, REP): never kill liveness
  u8 gpr_count = 0;
  Layout layout;
  MemOperand mem;
  std::array<GprUse, 4> gprs{};  // explicit GPR operands that are encoded (not address parts)

  bool operator==(const InstrShape&) const = default;
};

struct Instr : InstrShape {
  LinearAddr pc;
  std::array<u8, 15> bytes{};
  u64 immediate = 0;   // first immediate, sign-extended to the operand size where it is signed
  u64 immediate2 = 0;  // second one (ENTER, far pointers' selector)
  LinearAddr branch_target;  // direct branches

  LinearAddr next_pc() const { return pc + length; }
  // The same instruction, so much further on.
  void Move(u64 delta) {
    pc += delta;
    if (HasRelativeTarget()) branch_target += delta;
  }
  bool HasImmediate() const { return layout.imm_size != 0; }
  unsigned immediate_bytes() const { return layout.imm_size; }
  bool HasRelativeTarget() const { return layout.imm_kind == ImmKind::kRelative; }
  // Of MOV: from or to the address that follows the opcode, and the accumulator (A0-A3).
  bool IsMoffs() const { return mem.present && layout.modrm == 0xff; }
  // One access of several to other CPUs (SDM vol. 3, 9.1.2).
  bool IsLocked() const { return lock || (op == Op::kXchg && mem.present); }
  bool Is(unsigned any_of) const { return (facts & any_of) != 0; }
  bool operator==(const Instr&) const = default;
};

}  // namespace alibi::isa

#endif  // ALIBI_ISA_IR_H_
