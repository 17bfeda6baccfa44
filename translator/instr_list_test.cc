// SPDX-License-Identifier: Apache-2.0
#include "translator/instr_list.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

namespace alibi::translator {
namespace {

void CheckKept(const std::vector<u8>& code, unsigned code_bits, u32 code_base,
               const isa::FeatureSet* shown, unsigned count) {
  auto tu = std::make_unique<TranslationUnit>();
  REQUIRE(BuildTranslationUnit({.pc = LinearAddr(0x401000),
                                .code_bits = code_bits,
                                .bytes = code.data(),
                                .available = static_cast<unsigned>(code.size()),
                                .code_base = code_base,
                                .shown = shown},
                               tu.get()) == isa::DecodeStatus::kOk);
  REQUIRE(tu->count == count);
  std::vector<u8> bytes(InstrList::BytesFor(*tu));
  InstrList::Keep(*tu, bytes.data());
  const InstrList list(bytes.data(), tu->count, tu->pc, code_bits, code_base, shown);
  REQUIRE(list.size() == count);
  unsigned i = 0;
  for (const isa::Instr& instr : list) {
    CHECK(instr == tu->instrs[i]);
    CHECK(list.pc(i) == instr.pc);
    ++i;
  }
  CHECK(i == count);
  CHECK(list.front() == tu->instrs[0]);
}

TEST_CASE("instructions are what they were") {
  // push rbp; mov rbp, rsp; mov eax, [rip+0x100]; vaddps ymm; jne
  const std::vector<u8> code = {0x55, 0x48, 0x89, 0xe5, 0x8b, 0x05, 0,    1,    0,   0,
                                0xc5, 0xf4, 0x58, 0xc2, 0x75, 0xf0, 0x90, 0x90, 0x90};
  CheckKept(code, 64, 0, nullptr, 5);
  // In a segment branches wrap.
  CheckKept({0x40, 0x66, 0xe9, 0xf0, 0xff}, 32, 0x400000, nullptr, 2);
}

TEST_CASE("undefined instructions are what they were") {
  CheckKept({0x90, 0x0f, 0xff, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, 64, 0,
            nullptr, 2);
  CheckKept({0x90, 0x06, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, 64, 0,
            nullptr, 2);
  // Hidden by CPUID.
  isa::FeatureSet shown;
  for (unsigned i = 1; i < static_cast<unsigned>(isa::Feature::kCount); ++i) {
    shown.Hide(static_cast<isa::Feature>(i));
  }
  CheckKept({0x90, 0xc5, 0xf4, 0x58, 0xc2, 0x90, 0x90, 0x90, 0x90}, 64, 0, &shown, 2);
}

}  // namespace
}  // namespace alibi::translator
