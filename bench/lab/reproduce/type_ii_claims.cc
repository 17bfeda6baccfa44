// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "bench/lab/reproduce/judging.h"
#include "bench/linux/linux_report.h"

namespace alibi::bench::lab {
namespace {

constexpr double kHundreds = 100;
constexpr double kNearly = 2;
constexpr double kWire = 100;  // Mb/s

// Figures are "WORKLOAD.SYSTEM OR ENGINE.ROW", in seconds for one operation.
double Micro(const Evidence& f, const char* system, const char* row) {
  return f(fmt::format("micro.{}.{}", system, row));
}
double Macro(const Evidence& f, const char* system, const char* row) {
  return f(fmt::format("macro.{}.{}", system, row));
}
// Of a whole Debian, in times of native.
double Program(const Evidence& f, const char* system, const char* row) {
  return f(fmt::format("debian.{}.{}", system, row)) / f(fmt::format("debian.native.{}", row));
}

// "26 us (native 0.11 us): 240x".
std::string Beside(double here, double native) {
  return fmt::format("{} (native {}): {:.1f}x", FormatSeconds(here), FormatSeconds(native),
                     here / native);
}

Judgement JudgeSecondProcess(const Evidence& f) {
  const double call = Micro(f, "direct", "getppid") / Micro(f, "translate", "getppid"),
               turn = Micro(f, "direct", "ctxswitch") / Micro(f, "translate", "ctxswitch");
  return When(call >= 2 && turn >= 2,
              fmt::format("null system call {:.0f}x, switch of processes {:.1f}x", call, turn));
}

Judgement JudgeClassicNullCall(const Evidence& f) {
  const double here = Micro(f, "uml", "getppid"), native = Micro(f, "native", "getppid");
  return When(here / native >= kHundreds, Beside(here, native));
}

Judgement JudgeClassicSwitch(const Evidence& f) {
  const double here = Micro(f, "uml", "ctxswitch"), native = Micro(f, "native", "ctxswitch");
  return When(here / native >= kHundreds, Beside(here, native),
              "each turn has four system calls and walks 64 KB, which the host pays for as well");
}

Judgement JudgeNullCall(const Evidence& f) {
  const double here = Micro(f, "translate", "getppid"), native = Micro(f, "native", "getppid");
  return When(here / native < kNearly, Beside(here, native));
}

Judgement JudgeSwitch(const Evidence& f) {
  const double here = Micro(f, "translate", "ctxswitch"), native = Micro(f, "native", "ctxswitch");
  return When(here / native < 5, Beside(here, native));
}

Judgement JudgeNetwork(const Evidence& f) {
  const auto rate = [&](const char* system, const char* row) {
    return f(fmt::format("network.{}.{}", system, row));
  };
  const double send = rate("translate", "send-4096"), receive = rate("translate", "receive-4096");
  return When(send >= kWire && receive >= kWire,
              fmt::format("sends {:.0f} Mb/s, receives {:.0f} Mb/s (User-Mode Linux {:.0f} and "
                          "{:.0f}; the host's loopback {:.0f} and {:.0f})",
                          send, receive, rate("uml", "send-4096"), rate("uml", "receive-4096"),
                          rate("native", "send-4096"), rate("native", "receive-4096")));
}

Judgement JudgeComputeClassic(const Evidence& f) {
  const double ratio = Program(f, "uml", "povray");
  return When(ratio < 1.1, fmt::format("{:.2f}x native", ratio));
}

Judgement JudgeComputeOwn(const Evidence& f) {
  const double matmul = Macro(f, "auto", "matmul") / Macro(f, "native", "matmul"),
               sha256 = Macro(f, "auto", "sha256") / Macro(f, "native", "sha256"),
               povray = Program(f, "auto", "povray");
  return When(matmul < 1.05 && sha256 < 1.05 && povray < 1.05,
              fmt::format("POV-Ray {:.2f}x, a product of matrices {:.2f}x, sha256 {:.2f}x native",
                          povray, matmul, sha256),
              "engine auto must find out first what runs directly");
}

Judgement JudgeKernelBuild(const Evidence& f) {
  const double uml = Program(f, "uml", "make-lua"), ours = Program(f, "auto", "make-lua");
  return When(ours < 1.35, fmt::format("User-Mode Linux {:.1f}x, then {:.1f}x", uml, ours),
              "exec and page faults are the guest kernel's code, which is translated");
}

Judgement JudgeWebServer(const Evidence& f) {
  const double uml = Program(f, "uml", "web-small"), ours = Program(f, "auto", "web-small");
  return When(ours < 1.14, fmt::format("User-Mode Linux {:.1f}x, then {:.1f}x", uml, ours),
              "a network packet is the guest kernel's work, which is translated, and a device's");
}

}  // namespace

std::vector<Claim> TypeIiClaims() {
  return {
#define ALIBI_CLAIM(id, section, claim, paper, command) \
  {#id, section, claim, paper, command, Judge##id},
#include "bench/lab/reproduce/type_ii.inc"
  };
}

}  // namespace alibi::bench::lab
