// SPDX-License-Identifier: Apache-2.0
// Host code as it is written: jumps within it, jumps out of it, and what the assembler library does
// not know about the emitted code's contract (abi/contract.h).
//
// Besides the rewriter of guest instructions (rewrite.h) and the entry checks that callouts write
// (entry_check.h), nothing else spells out bytes.
#ifndef ALIBI_TRANSLATOR_HOST_CODE_H_
#define ALIBI_TRANSLATOR_HOST_CODE_H_

#include <asmjit/x86.h>

#include <cstring>
#include <initializer_list>

#include "abi/callouts.h"
#include "base/types.h"
#include "translator/code_references.h"
#include "vcpu/state.h"

namespace alibi::translator {

namespace x86 = asmjit::x86;

// As Jcc, SETcc and CMOVcc encode it.
enum class Condition : u8 { kEqual = 4, kNotEqual = 5, kBelowOrEqual = 6, kAbove = 7, kLess = 12 };

// The arithmetic flags to AH (all but OF) and AL (OF), without a stack and without the 20 cycles of
// POPF; and back. Every other bit of rax is lost.
inline void TakeFlagsToRax(x86::Assembler& a) {
  constexpr u8 kCode[] = {0x9f, 0x0f, 0x90, 0xc0};  // lahf; seto al
  a.embed(kCode, sizeof(kCode));
}
inline void LoadFlagsFromRax(x86::Assembler& a) {
  constexpr u8 kCode[] = {0x04, 0x7f, 0x9e};  // add al, 0x7f (OF); sahf
  a.embed(kCode, sizeof(kCode));
}

// Notes whether it has been asked to write r10, where a group's displacement waits for the next
// access. What names r10 as its first operand, or exchanges it, is taken for a write.
class WatchingAssembler final : public x86::Assembler {
 public:
  bool wrote_r10() const { return wrote_r10_; }
  void set_wrote_r10(bool wrote) { wrote_r10_ = wrote; }
  asmjit::Error _emit(asmjit::InstId id, const asmjit::Operand_& o0, const asmjit::Operand_& o1,
                      const asmjit::Operand_& o2, const asmjit::Operand_* more) override {
    wrote_r10_ = wrote_r10_ || IsR10(o0) || (id == x86::Inst::kIdXchg && IsR10(o1));
    return x86::Assembler::_emit(id, o0, o1, o2, more);
  }
  // Most of the emitted code comes this way, a few bytes at a time.
  asmjit::Error embed(const void* bytes, size_t size) override {
    if (remainingSpace() < size) return x86::Assembler::embed(bytes, size);
    std::memcpy(_bufferPtr, bytes, size);
    _bufferPtr += size;
    return asmjit::kErrorOk;
  }

 private:
  static bool IsR10(const asmjit::Operand_& operand) {
    return operand.isReg() && operand.as<asmjit::BaseReg>().isGp() && operand.id() == vcpu::kR10;
  }
  bool wrote_r10_ = false;
};

// One linear buffer of code that will run at a known host address.
class HostCode {
 public:
  // A jump forward in the same buffer, over less than 128 bytes: where it ends.
  struct ShortJump {
    u32 end = 0;
  };
  // A jump to a host address that is not known yet, such as one in the cold buffer: where its rel32
  // is.
  struct FarJump {
    u32 rel32 = 0;
  };
  // Jumps that look at rcx instead of the flags; all but the last decrement it. The values are
  // opcodes.
  enum class CountJump : u8 { kLoopne = 0xe0, kLoope = 0xe1, kLoop = 0xe2, kJrcxz = 0xe3 };

  HostCode();
  void Start(HostAddr host) {
    host_ = host;
    assembler.setOffset(0);
    references.Clear();
  }
  u32 Offset() const { return static_cast<u32>(assembler.offset()); }
  HostAddr Here() const { return host_ + Offset(); }
  const u8* Bytes() { return assembler.bufferData(); }

  // --- Jumps whose target is bound later ---
  ShortJump JmpShort() { return Short(0xeb); }
  ShortJump JccShort(u8 condition) { return Short(static_cast<u8>(0x70 | condition)); }
  ShortJump Jrcxz() { return Count(CountJump::kJrcxz, false); }
  ShortJump Count(CountJump kind, bool in_ecx) {
    if (in_ecx) Raw({0x67});
    return Short(static_cast<u8>(kind));
  }
  FarJump Jmp();
  FarJump Jcc(u8 condition);
  FarJump Jcc(Condition condition) { return Jcc(static_cast<u8>(condition)); }
  // cmp reg, limit; ja.
  FarJump JumpIfAbove(const x86::Gp& reg, u32 limit);
  // Preserves the flags and every register but r10.
  FarJump JumpIfR10NonZero();
  // They lead here.
  void Bind(ShortJump jump);
  // It leads there.
  void Bind(FarJump jump, HostAddr target);

  // --- Jumps to known host addresses ---
  void JmpTo(HostAddr target) { Bind(Jmp(), target); }
  // mov r10, word; jmp target: how every stub is reached.
  static constexpr unsigned kJmpWithWordBytes = 15;
  void JmpWithMiss(MissWord miss, HostAddr target) {
    JmpWithWord(miss.word, &references.misses, target);
  }
  void JmpWithDescriptor(const void* descriptor, HostAddr target) {
    JmpWithWord(reinterpret_cast<u64>(descriptor), &references.descriptors, target);
  }

  // --- What was just written ends with a value that moves with the code's PC ---
  // ... and with so many bytes more.
  void NotePc32(unsigned behind = 0) { Note(&references.pcs32, 4 + behind); }
  void NotePc64(unsigned behind = 0) { Note(&references.pcs64, 8 + behind); }
  void NoteBranchNote() { Note(&references.branch_notes, 4); }

  // --- The parts of a look-up: with live flags they are most of the code, and never vary ---
  void MovR10Gs(i32 displacement) {
    assembler.set_wrote_r10(true);
    RawGs({0x65, 0x4c, 0x8b, 0x14, 0x25}, displacement);
  }
  void AddR11Gs(i32 displacement) { RawGs({0x65, 0x4c, 0x03, 0x1c, 0x25}, displacement); }
  void MovGsRax(i32 displacement) { RawGs({0x65, 0x48, 0x89, 0x04, 0x25}, displacement); }
  void MovRaxGs(i32 displacement) { RawGs({0x65, 0x48, 0x8b, 0x04, 0x25}, displacement); }
  // lea r11, [base + displacement].
  void LeaR11(u8 base, i32 displacement);
  void MovR11Rax() { Raw({0x49, 0x89, 0xc3}); }
  void MovRaxR11() { Raw({0x4c, 0x89, 0xd8}); }

  // A string instruction: prefixes, and the opcode for elements of `size` bytes.
  void String(bool rep, bool repne, unsigned size, u8 byte_opcode);

 private:
  void JmpWithWord(u64 word, PlaceList* kind, HostAddr target);
  void Note(PlaceList* kind, unsigned bytes_ago) { kind->Add(Offset() - bytes_ago); }
  void Raw(std::initializer_list<u8> bytes) { assembler.embed(bytes.begin(), bytes.size()); }
  // `bytes` and, as the address they end with, a %gs displacement.
  void RawGs(std::initializer_list<u8> bytes, i32 displacement);
  ShortJump Short(u8 opcode) {
    Raw({opcode, 0});
    return {Offset()};
  }

  asmjit::CodeHolder code_;
  HostAddr host_;

 public:
  WatchingAssembler assembler;
  CodeReferences references;
};

// Where rax waits while it holds the flags.
enum class FlagsSave : u8 { kNone, kRaxInR11, kRaxInMemory };

// The flags are put away in rax, so that a compare does not disturb them, and come back: at the end
// of the hot code that may disturb them, and again wherever that code jumps to.
void SaveFlags(HostCode& code, FlagsSave save);
void RestoreFlags(HostCode& code, FlagsSave save);

// The same around a block that emits.
class KeptFlags {
 public:
  KeptFlags(HostCode& code, FlagsSave save) : code_(code), save_(save) { SaveFlags(code, save); }
  ~KeptFlags() { RestoreFlags(code_, save_); }
  KeptFlags(const KeptFlags&) = delete;
  KeptFlags& operator=(const KeptFlags&) = delete;

 private:
  HostCode& code_;
  const FlagsSave save_;
};

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_HOST_CODE_H_
