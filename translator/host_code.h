// SPDX-License-Identifier: Apache-2.0
// Host code as it is written: jumps within it, jumps out of it, and what the assembler library does
// not know about the emitted code's contract (abi/contract.h).
//
// Besides the rewriter of guest instructions (rewrite.h) and the entry checks that callouts write
// (entry_check.h), nothing else spells out bytes.
#ifndef ALIBI_TRANSLATOR_HOST_CODE_H_
#define ALIBI_TRANSLATOR_HOST_CODE_H_

#include <asmjit/x86.h>

#include <array>
#include <cstring>

#include "abi/callouts.h"
#include "base/types.h"
#include "isa/rewrite.h"
#include "translator/code_references.h"
#include "vcpu/state.h"

namespace alibi::translator {

namespace x86 = asmjit::x86;

// As Jcc, SETcc and CMOVcc encode it.
enum class Condition : u8 { kEqual = 4, kNotEqual = 5, kBelowOrEqual = 6, kAbove = 7, kLess = 12 };

// The arithmetic flags to AH (all but OF) and AL (OF), without a stack and without the 20 cycles of
// POPF; and back. Every other bit of rax is lost.
inline constexpr u8 kTakeFlagsToRax[] = {0x9f, 0x0f, 0x90, 0xc0};  // lahf; seto al
inline constexpr u8 kLoadFlagsFromRax[] = {0x04, 0x7f, 0x9e};      // add al, 0x7f (OF); sahf
inline void TakeFlagsToRax(x86::Assembler& a) { a.embed(kTakeFlagsToRax, sizeof(kTakeFlagsToRax)); }
inline void LoadFlagsFromRax(x86::Assembler& a) {
  a.embed(kLoadFlagsFromRax, sizeof(kLoadFlagsFromRax));
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
  // Most of the emitted code is written in place, a few bytes at a time: where the next ones go
  // (there is room for kRoom), and where they end.
  static constexpr unsigned kRoom = 32;
  u8* Next() {
    if (remainingSpace() < kRoom) [[unlikely]]
      Grow();
    return _bufferPtr;
  }
  void WroteTo(u8* end) { _bufferPtr = end; }
  // Copied as a whole, which knows its size when it is compiled.
  template <std::size_t kMost>
  void Write(const std::array<u8, kMost>& bytes, unsigned size) {
    static_assert(kMost <= kRoom);
    u8* const to = Next();
    std::memcpy(to, bytes.data(), kMost);
    WroteTo(to + size);
  }
  template <class... Byte>
  void Put(Byte... byte) {
    u8* const to = Next();
    const u8 all[] = {static_cast<u8>(byte)...};
    std::memcpy(to, all, sizeof(all));
    WroteTo(to + sizeof(all));
  }

 private:
  void Grow() {
    const std::size_t at = offset();
    _section->_buffer._size = at;  // the library has not seen what was written in place
    static constexpr u8 kZeros[kRoom] = {};
    embed(kZeros, kRoom);
    setOffset(at);
  }
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
    if (in_ecx) assembler.Put(0x67);
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

  // --- What most of the code is made of, and the library takes ten times as long to encode ---
  // Of 64 bits.
  void Load(u8 reg, const isa::HostMem& from) { Memory(kLoad, reg, from); }
  void Store(const isa::HostMem& to, u8 reg) { Memory(kStore, reg, to); }
  void Store(const isa::HostMem& to, i32 value);
  void Lea(u8 reg, const isa::HostMem& address) { Memory(kLea, reg, address); }
  void Move(u8 reg, u64 value);
  void LoadGs(u8 reg, i32 displacement) { Gs(kLoad, reg, displacement); }
  void StoreGs(i32 displacement, u8 reg) { Gs(kStore, reg, displacement); }
  void AddGs(u8 reg, i32 displacement) { Gs(kAdd, reg, displacement); }
  void SubGs(u8 reg, i32 displacement) { Gs(kSub, reg, displacement); }
  void JmpGs(i32 displacement);
  void MovR11Rax() { assembler.Put(0x49, 0x89, 0xc3); }
  void MovRaxR11() { assembler.Put(0x4c, 0x89, 0xd8); }
  template <std::size_t kBytes>
  void Put(const u8 (&bytes)[kBytes]) {
    u8* const to = assembler.Next();
    std::memcpy(to, bytes, kBytes);
    assembler.WroteTo(to + kBytes);
  }

  // A string instruction: prefixes, and the opcode for elements of `size` bytes.
  void String(bool rep, bool repne, unsigned size, u8 byte_opcode);

 private:
  void JmpWithWord(u64 word, PlaceList* kind, HostAddr target);
  void Note(PlaceList* kind, unsigned bytes_ago) { kind->Add(Offset() - bytes_ago); }
  // Opcodes of 64-bit operations with a register and a memory operand.
  static constexpr u8 kAdd = 0x03, kSub = 0x2b, kStore = 0x89, kLoad = 0x8b, kLea = 0x8d;
  void NoteWrite(u8 opcode, u8 reg) {
    if (reg == vcpu::kR10 && opcode != kStore) assembler.set_wrote_r10(true);
  }
  void Memory(u8 opcode, u8 reg, const isa::HostMem& mem);
  void Gs(u8 opcode, u8 reg, i32 displacement);
  ShortJump Short(u8 opcode) {
    assembler.Put(opcode, 0);
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
