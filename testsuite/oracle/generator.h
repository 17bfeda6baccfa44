// SPDX-License-Identifier: Apache-2.0
// Makes sequences: from the table of encodings with directed operands, from blocks with control
// flow, strings and stack traffic, and from random bytes that decode to harmless instructions.
#ifndef ALIBI_TESTSUITE_ORACLE_GENERATOR_H_
#define ALIBI_TESTSUITE_ORACLE_GENERATOR_H_

#include <array>
#include <optional>
#include <vector>

#include "testsuite/oracle/encodings.h"
#include "testsuite/oracle/random.h"
#include "testsuite/oracle/test_case.h"

namespace alibi::oracle {

// What must be said of a sequence besides its code.
struct Traits {
  bool user_only = false;  // CPL 0 behaves differently
  // TF must not be added: the flag image is stored, or a 16-bit stack shows what a handler's IRET
  // does to the upper half of ESP.
  bool unsteppable = false;
};

struct GeneratedCase {
  TestCase test;
  Traits traits;
};

class Generator {
 public:
  explicit Generator(u64 seed);

  // A sequence of everything. `code_bits` of its beginning: 64, 32, 16, or 0 for any.
  GeneratedCase Make(unsigned code_bits = 0);
  // One instruction of the form, varied, alone. Null: this code does not have it.
  std::optional<GeneratedCase> MakeOne(const InstructionForm& form, unsigned code_bits);

 private:
  using Bytes = std::vector<u8>;

  // A memory operand as it is to be encoded.
  struct Address {
    Bytes prefixes;
    u8 modrm = 0;  // without the reg field
    bool has_sib = false;
    u8 sib = 0;
    unsigned disp_size = 0;
    u64 disp = 0;
    bool rex_x = false, rex_b = false;
    bool rip_relative = false;  // disp is the target; to be made relative at the end
  };

  void Begin(unsigned code_bits);
  void MakeState();
  void MakeNarrowState();
  void MakeVector();
  GeneratedCase Finish();

  u64 Here() const { return pc_; }
  void Emit(Bytes bytes);
  void Forget(const Bytes& bytes);

  // --- Parts of an instruction ---
  u8 PickGpr(bool destination);
  u64 PickTarget(unsigned size, bool align);
  // Registers of the code's mode.
  u8 AnyGpr() { return static_cast<u8>(random_.Below(eight_ ? 8 : 16)); }
  bool Narrow() const { return bits_ != 64; }
  // Operand size prefix, if an operand of `size` bits (16 or 32) needs one.
  Bytes Sized(unsigned size, Bytes bytes) const;
  bool Encodable(const InstructionForm& form) const;
  const InstructionForm& PickForm();
  u32 PickOffset(unsigned segment, unsigned size, bool align, bool wide);
  Address MakeNarrowAddress(unsigned size, bool align, bool no_disp8);
  void MakeAddress16(Address* address, unsigned size, bool align, bool no_disp8, int segment);
  void MakeAddress32(Address* address, unsigned size, bool align, bool no_disp8, int segment);
  Address MakeAddress(unsigned size, bool align, bool evex);
  Bytes Encode(const InstructionForm& form);
  void EmitForm(const InstructionForm& form);

  // --- Blocks ---
  void EmitAny(unsigned depth);
  void EmitInner(unsigned depth);
  void EmitMovImmediate(u8 reg, u64 value);
  void EmitLeaRip(u8 reg, u64 target);
  void BlockIf(unsigned depth);
  void BlockLoop(unsigned depth);
  void BlockCall(unsigned depth);
  void BlockIndirect(unsigned depth);
  void BlockString();
  void BlockDivide();
  void BlockFlags();
  void BlockRmwRun();
  void BlockStackRun();
  void BlockGather();
  void BlockXsave();
  void BlockSelfModify(unsigned depth);
  void EmitRandomBytes();
  // --- generator_segments.cc ---
  u16 PickSelector(unsigned segment);
  u16 PickWildSelector();
  u64 SegmentSetStack();
  void EmitSized(unsigned size, Bytes bytes) { Emit(Sized(size, std::move(bytes))); }
  void EmitPush(unsigned size, u32 value);
  void EmitStore(unsigned segment, u32 offset, unsigned size, u32 value);
  void EmitAbsolute(unsigned size, Bytes opcode, u8 reg, unsigned segment, u32 offset);
  void BlockSegmentLoad();
  void BlockInspect();
  void BlockFar(unsigned depth);
  void BlockFarCall(unsigned depth, u16 selector, unsigned size);
  void Block64(unsigned depth);
  void BlockIndirectNarrow(unsigned depth);
  void BlockRmwRunNarrow();
  void BlockStackRunNarrow();
  void BlockSelfModifyNarrow();
  // Emits `jump` with a rel8/rel32 to be bound, returns what Bind needs.
  std::size_t EmitJump(Bytes opcode, bool wide);
  void Bind(std::size_t jump);

  Random random_;
  u64 seed_;
  GeneratedCase made_;
  u64 pc_ = 0;
  unsigned bits_ = 64;             // of the code that is being written
  bool eight_ = false;             // eight registers only
  bool segmented_ = false;         // segments that are not flat
  bool tame_ = false;              // few operands that fault
  std::array<u16, 6> selector_{};  // as far as known
  // Values of registers, as far as they are known (rsp approximately).
  std::array<std::optional<u64>, 16> known_;
  struct Jump {
    std::size_t instr;
    unsigned size;
    u64 end;
  };
  std::vector<Jump> jumps_;
};

}  // namespace alibi::oracle

#endif  // ALIBI_TESTSUITE_ORACLE_GENERATOR_H_
