// SPDX-License-Identifier: Apache-2.0
#include "translator/host_code.h"

#include <algorithm>
#include <cstring>

#include "abi/contract.h"
#include "base/check.h"

namespace alibi::translator {

HostCode::HostCode() {
  code_.init(asmjit::Environment::host());
  code_.attach(&assembler);
}

void HostCode::RawGs(std::initializer_list<u8> bytes, i32 displacement) {
  u8 all[16];
  std::copy(bytes.begin(), bytes.end(), all);
  std::memcpy(all + bytes.size(), &displacement, 4);
  assembler.embed(all, bytes.size() + 4);
}

void HostCode::LeaR11(u8 base, i32 displacement) {
  unsigned displacement_bytes = displacement == static_cast<i8>(displacement) ? 1 : 4;
  if (displacement == 0 && (base & 7) != vcpu::kRbp) displacement_bytes = 0;
  const u8 mod = displacement_bytes == 0 ? 0 : displacement_bytes == 1 ? 0x40 : 0x80;
  u8 bytes[8] = {static_cast<u8>(base < 8 ? 0x4c : 0x4d), 0x8d,
                 static_cast<u8>(mod | 0x18 | (base & 7))};
  unsigned size = 3;
  if ((base & 7) == vcpu::kRsp) bytes[size++] = 0x24;
  std::memcpy(bytes + size, &displacement, 4);
  assembler.embed(bytes, size + displacement_bytes);
}

HostCode::FarJump HostCode::Jmp() {
  Raw({0xe9, 0, 0, 0, 0});
  return {Offset() - 4};
}

HostCode::FarJump HostCode::Jcc(u8 condition) {
  Raw({0x0f, static_cast<u8>(0x80 | condition), 0, 0, 0, 0});
  return {Offset() - 4};
}

HostCode::FarJump HostCode::JumpIfAbove(const x86::Gp& reg, u32 limit) {
  const u8 rex = reg.id() < 8 ? 0x48 : 0x49;
  const u8 modrm = static_cast<u8>(0xf8 | (reg.id() & 7));
  u8 bytes[] = {rex, 0x81, modrm, 0, 0, 0, 0, 0x0f, 0x87, 0, 0, 0, 0};
  std::memcpy(bytes + 3, &limit, 4);
  assembler.embed(bytes, sizeof(bytes));
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
  u8 bytes[kJmpWithWordBytes] = {0x49, 0xba};
  std::memcpy(bytes + 2, &word, 8);
  bytes[10] = 0xe9;
  assembler.set_wrote_r10(true);
  assembler.embed(bytes, sizeof(bytes));
  Note(kind, kJmpWithWordBytes - 2);
  Bind(FarJump{Offset() - 4}, target);
}

void HostCode::String(bool rep, bool repne, unsigned size, u8 byte_opcode) {
  if (rep) Raw({0xf3});
  if (repne) Raw({0xf2});
  if (size == 2) Raw({0x66});
  if (size == 8) Raw({0x48});
  Raw({static_cast<u8>(byte_opcode + (size != 1))});
}

namespace {
constexpr i32 kSpilledRax = kVcpuOffset + static_cast<i32>(offsetof(vcpu::VcpuState, scratch.rax));
}  // namespace

void SaveFlags(HostCode& code, FlagsSave save) {
  if (save == FlagsSave::kNone) return;
  if (save == FlagsSave::kRaxInR11) {
    code.MovR11Rax();
  } else {
    code.MovGsRax(kSpilledRax);
  }
  TakeFlagsToRax(code.assembler);
}

void RestoreFlags(HostCode& code, FlagsSave save) {
  if (save == FlagsSave::kNone) return;
  LoadFlagsFromRax(code.assembler);
  if (save == FlagsSave::kRaxInR11) {
    code.MovRaxR11();
  } else {
    code.MovRaxGs(kSpilledRax);
  }
}

}  // namespace alibi::translator
