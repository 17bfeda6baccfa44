// SPDX-License-Identifier: Apache-2.0
#include "translator/host_code.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace alibi::translator {
namespace {

constexpr HostAddr kHost{0x10000};

std::string Hex(HostCode& code) {
  std::string text;
  for (u32 i = 0; i < code.Offset(); ++i) {
    constexpr const char* kDigits = "0123456789abcdef";
    const u8 byte = code.Bytes()[i];
    text += {kDigits[byte >> 4], kDigits[byte & 15], ' '};
  }
  if (!text.empty()) text.pop_back();
  return text;
}

TEST_CASE("A short jump leads to where it is bound") {
  HostCode code;
  code.Start(kHost);
  const HostCode::ShortJump zero = code.Jrcxz();
  const HostCode::ShortJump less = code.JccShort(12);
  code.assembler.nop();
  code.Bind(less);
  const HostCode::ShortJump loop = code.Count(HostCode::CountJump::kLoope, true);
  code.Bind(zero);
  code.Bind(loop);
  CHECK(Hex(code) == "e3 06 7c 01 90 67 e1 00");
}

TEST_CASE("A far jump leads to an address that is known later, such as one in cold code") {
  HostCode hot, cold;
  hot.Start(kHost);
  cold.Start(kHost + 0x100);
  const HostCode::FarJump jump = hot.Jcc(Condition::kNotEqual);
  hot.JmpTo(kHost);
  cold.assembler.nop();
  hot.Bind(jump, cold.Here());
  CHECK(Hex(hot) == "0f 85 fb 00 00 00 e9 f5 ff ff ff");
}

TEST_CASE("The compare of a look-up knows all registers") {
  HostCode code;
  code.Start(kHost);
  code.JumpIfAbove(x86::rdx, 0xff8);
  code.JumpIfAbove(x86::r11, 0xff8);
  CHECK(Hex(code) ==
        "48 81 fa f8 0f 00 00 0f 87 00 00 00 00 49 81 fb f8 0f 00 00 0f 87 00 00 00 00");
}

TEST_CASE("What is written in place is what the library would write") {
  constexpr u8 kRegs[] = {vcpu::kRax, vcpu::kRsp, vcpu::kRbp, 6, vcpu::kR10, vcpu::kR11, 12, 13};
  constexpr i32 kDisplacements[] = {0, 1, -8, 127, 128, -128, -129, 0x12345678};
  for (const u8 reg : kRegs) {
    for (const u8 base : kRegs) {
      for (const u8 index : {isa::kNoReg, u8{0}, u8{10}, u8{13}}) {
        for (const i32 disp : kDisplacements) {
          HostCode code, expected;
          code.Start(kHost);
          expected.Start(kHost);
          const isa::HostMem mem{base, index, disp};
          const x86::Mem operand = index == isa::kNoReg
                                       ? x86::ptr(x86::gpq(base), disp)
                                       : x86::ptr(x86::gpq(base), x86::gpq(index), 0, disp);
          x86::Mem sized = operand;
          sized.setSize(8);
          code.Load(reg, mem);
          code.Store(mem, reg);
          code.Store(mem, -5);
          code.Lea(reg, mem);
          code.LoadGs(reg, disp);
          code.AddGs(reg, disp);
          code.SubGs(reg, disp);
          code.StoreGs(disp, reg);
          x86::Mem gs = x86::ptr_abs(static_cast<u64>(i64{disp}), 8);
          gs.setSegment(x86::gs);
          x86::Assembler& a = expected.assembler;
          a.mov(x86::gpq(reg), operand);
          a.mov(operand, x86::gpq(reg));
          a.mov(sized, asmjit::imm(-5));
          a.lea(x86::gpq(reg), operand);
          a.mov(x86::gpq(reg), gs);
          a.add(x86::gpq(reg), gs);
          a.sub(x86::gpq(reg), gs);
          a.mov(gs, x86::gpq(reg));
          CHECK(Hex(code) == Hex(expected));
        }
      }
    }
    for (const u64 value : {u64{0}, u64{0x80000000}, u64{0xffffffff}, u64{1} << 32, ~u64{0},
                            ~u64{0x7fffffff}, ~u64{0x80000000}}) {
      HostCode code, expected;
      code.Start(kHost);
      expected.Start(kHost);
      code.Move(reg, value);
      if (value >> 32 == 0) {
        expected.assembler.mov(x86::gpd(reg), asmjit::imm(value));
      } else {
        expected.assembler.mov(x86::gpq(reg), asmjit::imm(value));
      }
      CHECK(Hex(code) == Hex(expected));
    }
  }
}

TEST_CASE("The buffer grows with what is written in place, and what was written stays") {
  HostCode code;
  code.Start(kHost);
  for (u32 i = 0; i < 4096; ++i) code.Lea(vcpu::kR11, {vcpu::kRax, isa::kNoReg, 0x11111111});
  REQUIRE(code.Offset() == 4096 * 7);
  bool same = true;
  for (u32 i = 0; i < code.Offset(); ++i) same = same && code.Bytes()[i] == code.Bytes()[i % 7];
  CHECK(same);
  CHECK(code.Bytes()[6] == 0x11);
}

TEST_CASE("What writes r10 is seen, by whichever way it is written") {
  HostCode code;
  code.Start(kHost);
  const auto wrote = [&] {
    const bool was = code.assembler.wrote_r10();
    code.assembler.set_wrote_r10(false);
    return was;
  };
  code.Store({vcpu::kRax, isa::kNoReg, 0}, vcpu::kR10);
  code.StoreGs(0, vcpu::kR10);
  code.Lea(vcpu::kR11, {vcpu::kR10, vcpu::kR11, 0});
  CHECK_FALSE(wrote());
  code.Lea(vcpu::kR10, {vcpu::kRax, isa::kNoReg, 0});
  CHECK(wrote());
  code.LoadGs(vcpu::kR10, 0);
  CHECK(wrote());
  code.Move(vcpu::kR10, 1);
  CHECK(wrote());
}

TEST_CASE("The flags are kept around a block, and wherever it jumps to they can be restored") {
  HostCode code;
  code.Start(kHost);
  {
    const KeptFlags kept(code, FlagsSave::kRaxInR11);
    code.assembler.nop();
  }
  { const KeptFlags kept(code, FlagsSave::kNone); }
  CHECK(Hex(code) == "49 89 c3 9f 0f 90 c0 90 04 7f 9e 4c 89 d8");
}

TEST_CASE("A test of r10 that keeps the flags") {
  HostCode code;
  code.Start(kHost);
  const HostCode::FarJump taken = code.JumpIfR10NonZero();
  code.Bind(taken, kHost);
  CHECK(Hex(code) == "49 87 ca e3 08 49 87 ca e9 f3 ff ff ff 4c 89 d1");
  CHECK(code.assembler.wrote_r10());
}

TEST_CASE("String instructions with their prefixes") {
  constexpr u8 kMovs = 0xa4, kScas = 0xae;
  HostCode code;
  code.Start(kHost);
  code.String(true, false, 1, kMovs);
  code.String(false, true, 2, kScas);
  code.String(true, false, 8, kMovs);
  CHECK(Hex(code) == "f3 a4 f2 66 af f3 48 a5");
}

}  // namespace
}  // namespace alibi::translator
