// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "bench/lab/reproduce/judging.h"
#include "bench/linux/linux_report.h"

namespace alibi::bench::lab {
namespace {

constexpr double kHundreds = 100;
constexpr double kNearly = 2;

// Figures are "WORKLOAD.SYSTEM OR ENGINE.ROW", in seconds for one operation.
double Micro(const Evidence& f, const char* system, const char* row) {
  return f(fmt::format("micro.{}.{}", system, row));
}
double Macro(const Evidence& f, const char* system, const char* row) {
  return f(fmt::format("macro.{}.{}", system, row));
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
  const double send = rate("translate", "send-4096") / rate("native", "send-4096"),
               receive = rate("translate", "receive-4096") / rate("native", "receive-4096");
  return When(send >= 0.9 && receive >= 0.9,
              fmt::format("sends {:.0f} Mb/s ({} of native), receives {:.0f} Mb/s ({})",
                          rate("translate", "send-4096"), Percent(send),
                          rate("translate", "receive-4096"), Percent(receive)),
              "loopback has no wire to wait for; the chapter on hosted I/O has one of 100 Mb/s");
}

Judgement JudgeComputeClassic(const Evidence& f) {
  const double ratio = Macro(f, "uml", "matmul") / Macro(f, "native", "matmul");
  return When(ratio < 1.1, fmt::format("matmul {:.2f}x native", ratio));
}

Judgement JudgeComputeOwn(const Evidence& f) {
  const double matmul = Macro(f, "auto", "matmul") / Macro(f, "native", "matmul"),
               sha256 = Macro(f, "auto", "sha256") / Macro(f, "native", "sha256");
  return When(matmul < 1.05 && sha256 < 1.05,
              fmt::format("matmul {:.2f}x, sha256 {:.2f}x native", matmul, sha256),
              "engine auto must find out first what runs directly");
}

Judgement JudgeKernelBuild(const Evidence& f) {
  const double native = Macro(f, "native", "forkexec"), uml = Macro(f, "uml", "forkexec") / native,
               ours = Macro(f, "translate", "forkexec") / native;
  return When(ours < 1.35, fmt::format("User-Mode Linux {:.1f}x, then {:.1f}x", uml, ours),
              "exec and page faults are the guest kernel's code, which is translated");
}

Judgement JudgeWebServer(const Evidence&) {
  return {Verdict::kNotChecked, "-",
          "SPECweb99 is not free to use, and User-Mode Linux has no whole Debian here; the chapter "
          "on whole programs has nginx on the other machines"};
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
