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
  bool user_only = false;    // CPL 0 behaves differently
  bool shows_flags = false;  // stores the flag image: TF must not be added
};

struct GeneratedCase {
  TestCase test;
  Traits traits;
};

class Generator {
 public:
  explicit Generator(u64 seed);

  // A sequence of everything. `code_bits`: 64, 32, or 0 for any.
  GeneratedCase Make(unsigned code_bits = 0);
  // One instruction of the form, `variant` times varied, alone.
  GeneratedCase MakeOne(const InstructionForm& form);

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

  void Begin(bool compat);
  void MakeState();
  void MakeVector();
  GeneratedCase Finish();

  u64 Here() const { return pc_; }
  void Emit(Bytes bytes);
  void Forget(const Bytes& bytes);

  // --- Parts of an instruction ---
  u8 PickGpr(bool destination);
  u64 PickTarget(unsigned size, bool align);
  // Registers of the code's mode.
  u8 AnyGpr() { return static_cast<u8>(random_.Below(compat_ ? 8 : 16)); }
  unsigned CodeBits() const { return compat_ ? 32 : 64; }
  bool Encodable(const InstructionForm& form) const;
  const InstructionForm& PickForm();
  Address MakeAddress32(unsigned size, bool align);
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
  // Emits `jump` with a rel8/rel32 to be bound, returns what Bind needs.
  std::size_t EmitJump(Bytes opcode, bool wide);
  void Bind(std::size_t jump);

  Random random_;
  u64 seed_;
  GeneratedCase made_;
  u64 pc_ = 0;
  bool compat_ = false;  // 32-bit code
  bool tame_ = false;    // few operands that fault
  // Values of registers, as far as they are known (rsp approximately).
  std::array<std::optional<u64>, 16> known_;
  struct Jump {
    std::size_t instr;
    bool wide;
    u64 end;
  };
  std::vector<Jump> jumps_;
};

}  // namespace alibi::oracle

#endif  // ALIBI_TESTSUITE_ORACLE_GENERATOR_H_
