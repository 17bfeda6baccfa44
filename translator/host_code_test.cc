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
