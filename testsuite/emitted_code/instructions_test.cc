// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "isa/decoder.h"
#include "testsuite/emitted_code/case_file.h"
#include "testsuite/golden.h"

namespace alibi::testsuite {
namespace {

using isa::Instr, isa::Op, isa::Treatment;

const char* const kFiles[] = {
    "operands", "operands_narrow", "control", "stack", "strings", "system", "segments",
    "integer",  "integer_narrow",  "x87",     "mmx",   "sse",     "vex",    "evex",
};

std::string PathOf(const std::string& name) {
  return "testsuite/emitted_code/golden/" + name + ".txt";
}

std::string Read(const std::string& path) {
  std::ifstream in(path);
  REQUIRE(in);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::set<std::pair<Op, Treatment>>& Seen() {
  static std::set<std::pair<Op, Treatment>> seen;
  return seen;
}

TEST_CASE("Golden: every instruction's code") {
  for (const char* name : kFiles) {
    const std::string path = PathOf(name);
    INFO(path);
    const std::string made = MakeAnew(Read(path), [](const Instr& instr) {
      Seen().insert({instr.op, instr.treatment});
    });
    CHECK(CompareWithGolden(path, made) == "");
  }
  // No row of the instruction table is without a case.
  struct Row {
    const char* text;
    Op op;
    Treatment treatment;
  };
  constexpr Row kRows[] = {
#define ALIBI_ROW(mnemonic, shape, op, treatment) \
  {#mnemonic ", " #shape, Op::op, Treatment::treatment},
#include "isa/instructions.inc"
  };
  for (const Row& row : kRows) {
    INFO(row.text);
    CHECK(Seen().count({row.op, row.treatment}) == 1);
  }
}

}  // namespace
}  // namespace alibi::testsuite
