// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "bench/lab/reproduce/judging.h"

namespace alibi::bench::lab {
namespace {

// With less kept than all: how many times as long as with all.
double Without(const Evidence& f, const char* engine, const char* hosting, const char* row) {
  return f(fmt::format("cures.{},{}.{}", engine, hosting, row)) /
         f(fmt::format("cures.{},all.{}", engine, row));
}

Judgement JudgeProtectionSwitch(const Evidence& f) {
  const double call = Without(f, "direct", "remap", "getppid"),
               turn = Without(f, "direct", "remap", "ctxswitch");
  return When(
      call >= 5 && turn >= 5,
      fmt::format("directly: null system call {:.1f}x, switch of processes {:.1f}x; translated: "
                  "{:.1f}x, {:.1f}x",
                  call, turn, Without(f, "translate", "views=1", "getppid"),
                  Without(f, "translate", "views=1", "ctxswitch")),
      "a stop, which is there either way, costs more than the mapping calls for the few pages that "
      "come back");
}

Judgement JudgeAddressSpaces(const Evidence& f) {
  const double one = Without(f, "direct", "satellites=1", "ctxswitch");
  return When(one >= 13,
              fmt::format("directly: one satellite {:.1f}x, two {:.1f}x; translated: one view "
                          "{:.1f}x, two {:.1f}x, eight {:.1f}x",
                          one, Without(f, "direct", "satellites=2", "ctxswitch"),
                          Without(f, "translate", "views=1", "ctxswitch"),
                          Without(f, "translate", "views=2", "ctxswitch"),
                          Without(f, "translate", "views=8", "ctxswitch")),
              "pages come back by sixteens, and a switch has four system calls, whose stops are "
              "there either way");
}

Judgement JudgeOneProcess(const Evidence& f) {
  const double one = Without(f, "direct", "satellites=1", "getppid");
  // The paper's cures gain factors of 2 to 13.
  constexpr double kLittle = 1.2;
  return When(one < kLittle,
              fmt::format("{:.2f}x (with two {:.2f}x)", one,
                          Without(f, "direct", "satellites=2", "getppid")),
              "as much with two, so it is not the number of spaces; the cause is not known");
}

}  // namespace

std::vector<Claim> TypeIiCuresClaims() {
  return {
#define ALIBI_CLAIM(id, section, claim, paper, command) \
  {#id, section, claim, paper, command, Judge##id},
#include "bench/lab/reproduce/type_ii_cures.inc"
  };
}

}  // namespace alibi::bench::lab
