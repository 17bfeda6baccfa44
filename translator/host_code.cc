// SPDX-License-Identifier: Apache-2.0
#include "translator/host_code.h"

#include <cstring>

#include "abi/contract.h"
#include "base/check.h"

namespace alibi::translator {

HostCode::HostCode() {
  code_.init(asmjit::Environment::host());
  code_.attach(&assembler);
}

namespace {

template <class T>
u8* PutLittle(u8* to, T value) {
  std::memcpy(to, &value, sizeof(value));
  return to + sizeof(value);
}

// ModRM, SIB and displacement of [base + index + disp], with `reg` in ModRM: where they end.
u8* PutOperand(u8* to, u8 reg, const isa::HostMem& mem) {
  unsigned displacement_bytes = mem.disp == static_cast<i8>(mem.disp) ? 1 : 4;
  if (mem.disp == 0 && (mem.base & 7) != vcpu::kRbp) displacement_bytes = 0;
  const unsigned mod = displacement_bytes == 0 ? 0 : displacement_bytes == 1 ? 0x40 : 0x80;
  const unsigned fields = mod | (reg & 7u) << 3, base = mem.base & 7u;
  const bool indexed = mem.index != isa::kNoReg;
  const bool sib = indexed || base == vcpu::kRsp;
  to[0] = static_cast<u8>(fields | (sib ? 4 : base));
  to[1] = static_cast<u8>((indexed ? mem.index & 7u : 4u) << 3 | base);
  to += sib ? 2 : 1;
  PutLittle(to, mem.disp);
  return to + displacement_bytes;
}

constexpr u8 Rex(u8 reg, const isa::HostMem& mem) {
  const unsigned x = mem.index != isa::kNoReg && mem.index >= 8 ? 2 : 0;
  return static_cast<u8>(0x48u | (reg >= 8 ? 4u : 0u) | x | (mem.base >= 8 ? 1u : 0u));
}

}  // namespace

void HostCode::Memory(u8 opcode, u8 reg, const isa::HostMem& mem) {
  NoteWrite(opcode, reg);
  u8* const to = assembler.Next();
  to[0] = Rex(reg, mem);
  to[1] = opcode;
  assembler.WroteTo(PutOperand(to + 2, reg, mem));
}

void HostCode::Store(const isa::HostMem& at, i32 value) {
  u8* const to = assembler.Next();
  to[0] = Rex(0, at);
  to[1] = 0xc7;
  assembler.WroteTo(PutLittle(PutOperand(to + 2, 0, at), value));
}

// In its shortest form.
void HostCode::Move(u8 reg, u64 value) {
  NoteWrite(kLoad, reg);
  const u8 extended = reg >= 8, low = reg & 7;
  u8* to = assembler.Next();
  if (value >> 32 == 0) {
    if (extended) *to++ = 0x41;
    *to++ = static_cast<u8>(0xb8 | low);
    assembler.WroteTo(PutLittle(to, static_cast<u32>(value)));
    return;
  }
  *to++ = static_cast<u8>(0x48 | extended);
  if (static_cast<u64>(static_cast<i32>(value)) == value) {
    *to++ = 0xc7;
    *to++ = static_cast<u8>(0xc0 | low);
    assembler.WroteTo(PutLittle(to, static_cast<u32>(value)));
    return;
  }
  *to++ = static_cast<u8>(0xb8 | low);
  assembler.WroteTo(PutLittle(to, value));
}

void HostCode::Gs(u8 opcode, u8 reg, i32 displacement) {
  NoteWrite(opcode, reg);
  u8* const to = assembler.Next();
  to[0] = 0x65;
  to[1] = reg >= 8 ? 0x4c : 0x48;
  to[2] = opcode;
  to[3] = static_cast<u8>((reg & 7) << 3 | 4);
  to[4] = 0x25;
  assembler.WroteTo(PutLittle(to + 5, displacement));
}

void HostCode::JmpGs(i32 displacement) {
  u8* const to = assembler.Next();
  to[0] = 0x65;
  to[1] = 0xff;
  to[2] = 0x24;
  to[3] = 0x25;
  assembler.WroteTo(PutLittle(to + 4, displacement));
}

HostCode::FarJump HostCode::Jmp() {
  assembler.Put(0xe9, 0, 0, 0, 0);
  return {Offset() - 4};
}

HostCode::FarJump HostCode::Jcc(u8 condition) {
  assembler.Put(0x0f, 0x80 | condition, 0, 0, 0, 0);
  return {Offset() - 4};
}

HostCode::FarJump HostCode::JumpIfAbove(const x86::Gp& reg, u32 limit) {
  u8* const to = assembler.Next();
  to[0] = reg.id() < 8 ? 0x48 : 0x49;
  to[1] = 0x81;
  to[2] = static_cast<u8>(0xf8 | (reg.id() & 7));
  PutLittle(to + 3, limit);
  to[7] = 0x0f;
  to[8] = 0x87;
  assembler.WroteTo(PutLittle(to + 9, u32{0}));
  return {Offset() - 4};
}

HostCode::FarJump HostCode::JumpIfR10NonZero() {
  assembler.xchg(x86::r10, x86::rcx);
  const ShortJump zero = Jrcxz();
  assembler.xchg(x86::r10, x86::rcx);
  const FarJump jump = Jmp();
  Bind(zero);
  assembler.mov(x86::rcx, x86::r10);
  return jump;
}

void HostCode::Bind(ShortJump jump) {
  const u32 distance = Offset() - jump.end;
  ALIBI_CHECK(distance < 0x80, "a short jump leads over less than 128 bytes");
  assembler.bufferData()[jump.end - 1] = static_cast<u8>(distance);
}

void HostCode::Bind(FarJump jump, HostAddr target) {
  const i64 distance = static_cast<i64>(target - (host_ + jump.rel32 + 4));
  ALIBI_CHECK(distance == static_cast<i32>(distance), "TC regions lie within rel32 reach");
  const i32 rel = static_cast<i32>(distance);
  std::memcpy(assembler.bufferData() + jump.rel32, &rel, 4);
  references.jumps.Add(jump.rel32);
}

void HostCode::JmpWithWord(u64 word, PlaceList* kind, HostAddr target) {
  assembler.set_wrote_r10(true);
  u8* const to = assembler.Next();
  to[0] = 0x49;
  to[1] = 0xba;
  PutLittle(to + 2, word);
  to[10] = 0xe9;
  assembler.WroteTo(to + kJmpWithWordBytes);
  Note(kind, kJmpWithWordBytes - 2);
  Bind(FarJump{Offset() - 4}, target);
}

void HostCode::String(bool rep, bool repne, unsigned size, u8 byte_opcode) {
  if (rep) assembler.Put(0xf3);
  if (repne) assembler.Put(0xf2);
  if (size == 2) assembler.Put(0x66);
  if (size == 8) assembler.Put(0x48);
  assembler.Put(byte_opcode + (size != 1));
}

namespace {
constexpr i32 kSpilledRax = kVcpuOffset + static_cast<i32>(offsetof(vcpu::VcpuState, scratch.rax));
}  // namespace

void SaveFlags(HostCode& code, FlagsSave save) {
  if (save == FlagsSave::kNone) return;
  if (save == FlagsSave::kRaxInR11) {
    code.MovR11Rax();
  } else {
    code.StoreGs(kSpilledRax, vcpu::kRax);
  }
  code.Put(kTakeFlagsToRax);
}

void RestoreFlags(HostCode& code, FlagsSave save) {
  if (save == FlagsSave::kNone) return;
  code.Put(kLoadFlagsFromRax);
  if (save == FlagsSave::kRaxInR11) {
    code.MovRaxR11();
  } else {
    code.LoadGs(vcpu::kRax, kSpilledRax);
  }
}

}  // namespace alibi::translator
