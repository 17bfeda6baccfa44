// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "bench/lab/reproduce/judging.h"
#include "bench/report.h"

namespace alibi::bench::lab {
namespace {

constexpr const char* kPlain = "unmodified";
constexpr const char* kParavirtual = "paravirtual";

// Figures are "vmi.ROW.VARIANT", in cycles.
double Row(const Evidence& f, const std::string& row, const char* variant) {
  return f("vmi." + row + "." + variant);
}

std::string Pair(const Evidence& f, const std::string& row) {
  return fmt::format("{}: {} cycles unmodified, {} by calls", row,
                     FormatCycles(Row(f, row, kPlain)), FormatCycles(Row(f, row, kParavirtual)));
}

bool IsCheaper(const Evidence& f, const std::string& row) {
  return Row(f, row, kParavirtual) < Row(f, row, kPlain);
}

Judgement JudgePteBatch(const Evidence& f) {
  return When(IsCheaper(f, "ptechange") && IsCheaper(f, "ptemap"),
              Pair(f, "ptechange") + "; " + Pair(f, "ptemap"));
}

Judgement JudgeFaultMap(const Evidence& f) {
  return When(IsCheaper(f, "pgfault_map"), Pair(f, "pgfault_map"),
              "one entry is no batch, and its flush follows at once");
}

Judgement JudgeApicAccess(const Evidence& f) {
  return When(IsCheaper(f, "apicread") && IsCheaper(f, "apicwrite"),
              Pair(f, "apicread") + "; " + Pair(f, "apicwrite"));
}

Judgement JudgeCycleCounter(const Evidence& f) {
  return When(Row(f, "clock", kParavirtual) < 1.25 * Row(f, "clock", kPlain), Pair(f, "clock"));
}

Judgement JudgeNoHypercall(const Evidence& f) {
  const double here = Row(f, "clisti", kParavirtual), crossing = Row(f, "apicread", kParavirtual);
  return When(here < crossing / 4, fmt::format("both calls {} cycles; a hypercall {}",
                                               FormatCycles(here), FormatCycles(crossing)));
}

Judgement JudgeInterruptFlag(const Evidence& f) {
  return When(IsCheaper(f, "clisti"), Pair(f, "clisti"),
              "CLI and STI do not trap here: they are one store each, and a call is more");
}

Judgement JudgeIoDelay(const Evidence& f) {
  return When(Row(f, "delay", kParavirtual) < 1, Pair(f, "delay"));
}

Judgement JudgeTransparent(const Evidence& f) {
  // Rows of which one operation is long enough that a call is no part of what is measured.
  double product = 1;
  unsigned rows = 0;
  for (const char* row : {"ptechange", "ptemap", "ptetouch", "pgfault_map", "iret", "sysenter",
                          "cr3", "apicread", "apicwrite"}) {
    product *= Row(f, row, "transparent") / Row(f, row, kPlain);
    ++rows;
  }
  const double mean = std::pow(product, 1.0 / rows);
  return When(mean < 1.09,
              fmt::format("{} on average over {} rows; CLI and STI {} cycles instead of {}",
                          Percent(mean - 1), rows, FormatCycles(Row(f, "clisti", "transparent")),
                          FormatCycles(Row(f, "clisti", kPlain))));
}

Judgement JudgeMacrobenchmarks(const Evidence&) {
  return {Verdict::kNotChecked, "-",
          "needs a kernel with VMI (Linux 2.6.21 to 2.6.36), which Debian 12 does not have"};
}

}  // namespace

std::vector<Claim> VmiClaims() {
  return {
#define ALIBI_CLAIM(id, section, claim, paper, command) \
  {#id, section, claim, paper, command, Judge##id},
#include "bench/lab/reproduce/vmi.inc"
  };
}

}  // namespace alibi::bench::lab
