// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "bench/lab/reproduce/judging.h"
#include "bench/linux/linux_report.h"
#include "bench/statistics.h"

namespace alibi::bench::lab {
namespace {

// The rows that compute, for SPECint.
constexpr const char* kComputing[] = {"tar-gzip", "bzip2",   "xz",      "python",
                                      "perl",     "sqlite3", "gcc-lua", "minisat"};

// Figures are "programs.SYSTEM OR ENGINE.ROW", in seconds for one operation; swap and vga-text,
// which no native run has, are "guests.SYSTEM OR ENGINE.ROW".
double Of(const Evidence& f, const char* system, const char* row) {
  return f(fmt::format("programs.{}.{}", system, row));
}
// The part of native speed. The paper's VMM runs user code directly, as engine auto does.
double Part(const Evidence& f, const char* row, const char* engine = "auto") {
  return Of(f, "native", row) / Of(f, engine, row);
}

std::string Parts(const Evidence& f, const char* row) {
  return fmt::format("{} {} (translate {}, QEMU TCG {})", row, Percent(Part(f, row)),
                     Percent(Part(f, row, "translate")), Percent(Part(f, row, "qemu-tcg")));
}

double MeanPart(const Evidence& f, const char* engine) {
  std::vector<double> parts;
  for (const char* row : kComputing) parts.push_back(Part(f, row, engine));
  // What was not measured is no number, and nothing made of it will be shown.
  return f.missing().empty() ? GeometricMean(parts) : 0;
}

Judgement JudgeSpecInt(const Evidence& f) {
  const double mean = MeanPart(f, "auto");
  double least = 1e9, most = 0;
  for (const char* row : kComputing) {
    least = std::min(least, Part(f, row));
    most = std::max(most, Part(f, row));
  }
  return When(least >= 0.91,
              fmt::format("{} to {} of native, {} on average (translate {}, QEMU TCG {})",
                          Percent(least), Percent(most), Percent(mean),
                          Percent(MeanPart(f, "translate")), Percent(MeanPart(f, "qemu-tcg"))),
              "a stop of user code that runs directly is a signal and two changes of process, and "
              "short programs end before they run directly");
}

Judgement JudgeSpecJbb(const Evidence& f) {
  return When(
      Part(f, "java") >= 0.98, Parts(f, "java"),
      "a JVM makes its code as it runs: pages that are being written to stay translated, and "
      "so does what runs for a short while");
}

Judgement JudgeApache(const Evidence& f) {
  const double small = Part(f, "web-small"), large = Part(f, "web-large");
  return When(std::min(small, large) >= 0.45, Parts(f, "web-small") + "; " + Parts(f, "web-large"),
              "a network packet is the guest kernel's work, which is translated, and a device's");
}

// A row of guests alone, which has no part of native.
Judgement BesideTcg(const Evidence& f, const char* row, const char* why) {
  const auto time = [&](const char* system) { return f(fmt::format("guests.{}.{}", system, row)); };
  return {Verdict::kNotChecked,
          fmt::format("{}, QEMU TCG {}: {:.1f}x as fast", FormatSeconds(time("auto")),
                      FormatSeconds(time("qemu-tcg")), time("qemu-tcg") / time("auto")),
          why};
}

Judgement JudgeLargeRam(const Evidence& f) {
  return BesideTcg(f, "swap",
                   "swap space and the limit are a guest's own, so there is no native figure");
}
Judgement JudgeGraphics(const Evidence& f) {
  return BesideTcg(f, "vga-text", "the console is a guest's own, so there is no native figure");
}

Judgement JudgeLargeCompile(const Evidence& f) {
  return When(Part(f, "make-lua") >= 0.674, Parts(f, "make-lua"),
              "exec, page faults and code that runs once are translated");
}

Judgement JudgeCompileKinds(const Evidence& f) {
  const double compute = MeanPart(f, "auto"), compile = Part(f, "make-lua"),
               forkwait = Part(f, "forkwait-40000");
  return When(compute > compile && compile > forkwait,
              fmt::format("{}, {}, {}", Percent(compute), Percent(compile), Percent(forkwait)),
              "a compiler's short processes cost more than forks alone: each executes a program");
}

Judgement JudgeForkwait40000(const Evidence& f) {
  constexpr double kPaper = 36.9 / 6.0;
  const double native = Of(f, "native", "forkwait-40000"), here = Of(f, "auto", "forkwait-40000");
  return {here / native <= kPaper ? Verdict::kBetter : Verdict::kDoesNotHold,
          fmt::format("{} natively, {} a process: {:.1f}x (translate {:.1f}x, QEMU TCG {:.1f}x)",
                      FormatSeconds(native), FormatSeconds(here), here / native,
                      1 / Part(f, "forkwait-40000", "translate"),
                      1 / Part(f, "forkwait-40000", "qemu-tcg")),
          here / native <= kPaper ? "" : "fork, exit and wait are the guest kernel's code"};
}

Judgement JudgeHardwareVmm(const Evidence& f) {
  const double native = Of(f, "native", "forkwait-40000"),
               hardware = Of(f, "hardware", "forkwait-40000") - native,
               software = Of(f, "auto", "forkwait-40000") - native;
  return When(hardware > software, fmt::format("{:.1f} times the overhead", hardware / software),
              "CPUs have nested page tables now, which the paper's had not");
}

}  // namespace

std::vector<Claim> MacroClaims() {
  return {
#define ALIBI_CLAIM(id, section, claim, paper, command) \
  {#id, section, claim, paper, command, Judge##id},
#define ALIBI_PROGRAM_CLAIM(id, section, claim, paper) \
  ALIBI_CLAIM(id, section, claim, paper, "alibi lab run bench/lab/experiments/macro.toml")
#include "bench/lab/reproduce/macro.inc"
  };
}

std::vector<Claim> Macro32Claims() {
  return {
#define ALIBI_PROGRAM_CLAIM(id, section, claim, paper) \
  {#id "32", section, claim, paper, "alibi lab run bench/lab/experiments/macro32.toml", Judge##id},
#include "bench/lab/reproduce/macro.inc"
  };
}

}  // namespace alibi::bench::lab
