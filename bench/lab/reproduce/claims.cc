// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "bench/lab/reproduce/judging.h"
#include "bench/linux/linux_report.h"
#include "bench/report.h"

namespace alibi::bench::lab {
namespace {

// What words of the paper are taken to mean.
constexpr double kRarely = 0.1;        // of all
constexpr double kMostOfAll = 0.5;     // of all
constexpr double kVastMajority = 0.9;  // of all
constexpr double kNoVisibleShare = 0.02;
constexpr double kSmallFraction = 0.05;
constexpr double kSimilar = 3;  // times, either way

double Nano(const Evidence& f, const std::string& name, const char* system = "alibi") {
  return f("nano." + name + "." + system);
}

// "310; a host's signal 4,886": natively only a process's view of it can be measured.
std::string FaultText(const Evidence& f, const std::string& name) {
  return fmt::format("{} (natively a signal: {})", FormatCycles(Nano(f, name)),
                     FormatCycles(Nano(f, name, "native")));
}

double BootCalls(const Evidence& f) {
  return f("boot.stats.runtime.exit_callouts") + f("boot.stats.runtime.lookups");
}

double Entered(const Evidence& f, const std::string& run) {
  double sum = 0;
  for (unsigned mode = 0; mode < 6; ++mode) {
    // There are as many as the run had modes.
    const std::string name = fmt::format("{}.profile.modes.{}.entered", run, mode);
    if (mode == 0 || f.Has(name)) sum += f(name);
  }
  return sum;
}

// --- 3.1, 3.2 ---

Judgement JudgePrivilegeIsHidden(const Evidence& f) {
  const bool right = f("dump.privilege") != 0;
  return When(right, right ? "CS.RPL is 0, IOPL follows POPF" : "the program did not get through");
}

Judgement JudgeNothingAssumed(const Evidence& f) {
  const bool right = f("dump.return_address") != 0;
  return When(right, right ? "RET to an address that was pushed" : "the program did not return");
}

Judgement JudgeOnDemand(const Evidence& f) {
  const double idle = f("boot.profile.translations_not_entered"),
               all = f("boot.stats.runtime.translations");
  return When(idle / all < 0.01,
              fmt::format("{} of {} were never entered", GroupDigits(idle), GroupDigits(all)));
}

Judgement JudgeNeverInPlace(const Evidence& f) {
  const double all = f("maps.guest"), executable = f("maps.guest_executable");
  return When(all > 0 && executable == 0,
              fmt::format("{} mappings of guest memory, {} executable", all, executable));
}

Judgement JudgeExampleUnits(const Evidence& f) {
  const double ccfs = f("dump.isprime.ccfs"), first = f("dump.isprime.first_instructions"),
               ident = f("dump.isprime.first_ident");
  return When(ccfs == 4 && first == 4 && ident == 3,
              fmt::format("{} CCFs; {} of {} IDENT", ccfs, ident, first));
}

Judgement JudgeExampleExits(const Evidence& f) {
  const double remain = f("dump.isprime.never_taken"), elided = f("dump.isprime.elided");
  return When(remain == 2 && elided == 2, fmt::format("{} remain, {} fall through, {} jump", remain,
                                                      elided, f("dump.isprime.jumps")));
}

Judgement JudgeExampleUnexecuted(const Evidence& f) {
  const bool translated = f("dump.isprime.prime_translated") != 0;
  return When(!translated, translated ? "translated" : "not translated");
}

Judgement JudgeUnitCap(const Evidence& f) {
  const double full = f("boot.profile.translation_lengths.12"),
               all = f.Sum("boot.profile.translation_lengths.");
  return When(full / all < kRarely, Percent(full / all) + " of a boot's TUs have 12");
}

Judgement JudgeMostlyIdent(const Evidence& f) {
  const double ident = f("boot.profile.executions.ident"), all = f("boot.profile.instructions");
  return When(ident / all > kMostOfAll, Percent(ident / all) + " of a boot's executed instructions",
              "memory operands are not: there is no segment to keep the guest out, so each gets a "
              "look-up");
}

Judgement JudgeRegistersBound(const Evidence& f) {
  const double share = f("boot.profile.executions.reg") / f("boot.profile.instructions");
  return When(
      share < kRarely,
      Percent(share) + " of a boot's instructions name r10 or r11, or are encoded otherwise");
}

Judgement JudgeChaining(const Evidence& f) {
  const double entered = Entered(f, "boot"), calls = BootCalls(f);
  return When(calls / entered < 0.01,
              fmt::format("one callout in {} entries", GroupDigits(entered / calls)));
}

Judgement JudgeFallThrough(const Evidence& f) {
  const double elided = f("boot.stats.runtime.elided_exits"),
               all = elided + f("boot.stats.runtime.chained_exits");
  return When(elided / all > kRarely, Percent(elided / all) + " of a boot's chained exits");
}

Judgement JudgeBootUnits(const Evidence& f) {
  const double n64 = f("bios.units.64"), n32 = f("bios.units.32"), n16 = f("bios.units.16");
  return When(n64 > 0 && n32 > 0 && n16 > 0,
              fmt::format("{} 64-bit, {} 32-bit and {} 16-bit TUs", GroupDigits(n64),
                          GroupDigits(n32), GroupDigits(n16)));
}

Judgement JudgeWorkingSet(const Evidence& f) {
  const double boot = f("boot.translation_share"), later = f("forkwait.translation_share");
  return When(later < boot / 2, fmt::format("{} of a boot's time, {} with forkwait behind it",
                                            Percent(boot), Percent(later)));
}

Judgement JudgeDirectControl(const Evidence& f) {
  const double ratio = Nano(f, "isprime") / Nano(f, "isprime", "native");
  return When(ratio < 1.02, fmt::format("isPrime(4999): {:.2f}x native", ratio));
}

Judgement JudgeIndirectControl(const Evidence& f) {
  const double share = f("overhead.callret.seconds") / f("boot.seconds");
  return When(share < 0.1, Percent(share) + " of a boot's time");
}

Judgement JudgeInTcFaster(const Evidence& f) {
  const double pair = Nano(f, "clisti");
  return When(pair < 60, fmt::format("CLI and STI together {}", FormatCycles(pair)));
}

Judgement JudgeContextSwitch(const Evidence& f) {
  const double cost = Nano(f, "cr3"), in_tc = Nano(f, "clisti");
  return When(cost > in_tc, fmt::format("MOV to CR3 {}, CLI and STI {}", FormatCycles(cost),
                                        FormatCycles(in_tc)));
}

Judgement JudgeMemoryNative(const Evidence& f) {
  const double least = f("compute.listwalk"), most = f("compute.strings");
  return When(most < 1.1,
              fmt::format("{:.1f}x (a list walk) to {:.1f}x (strings) native", least, most),
              "a process has no segment limits in 64-bit mode: every access is looked up in a slot "
              "of its own");
}

Judgement JudgeUserDirect(const Evidence& f) {
  const double native = f("linux.lua.native"), ratio = f("linux.lua.auto") / native;
  return When(ratio < 1.05,
              fmt::format("Lua in a Linux guest: {:.2f}x native (translated {:.1f}x)", ratio,
                          f("linux.lua.alibi") / native),
              "what runs before the policy decides is translated, and a stop is a signal and two "
              "changes of process");
}

// --- 3.3 ---

Judgement JudgeThreeWays(const Evidence& f) {
  const double trap = Nano(f, "ptemod_unchanged", "never"), callout = Nano(f, "ptemod_unchanged"),
               in_tc = Nano(f, "rdtsc");
  return When(trap > callout && callout > in_tc,
              fmt::format("{} > {} > {} cycles", FormatCycles(trap), FormatCycles(callout),
                          FormatCycles(in_tc)));
}

Judgement JudgeTrapsEliminated(const Evidence& f) {
  const double never = f("boot_never.stats.runtime.host_faults"),
               here = f("boot.stats.runtime.host_faults");
  return When(here / never < kRarely,
              fmt::format("{} traps in a boot, {} without adaptation: {} less", GroupDigits(here),
                          GroupDigits(never), Percent(1 - here / never)));
}

Judgement JudgeForwardingJump(const Evidence& f) {
  const bool forwards = f("dump.isprime.forwards") != 0;
  return When(forwards, forwards ? "one jump" : "no forwarding jump");
}

Judgement JudgeCalloutFaster(const Evidence& f) {
  bool faster = true;
  std::string text;
  for (const char* name : {"pgfault", "divzero", "ptemod_np_p"}) {
    const double trap = Nano(f, name, "never"), callout = Nano(f, name);
    faster = faster && callout < trap;
    text += fmt::format("{}{}: {} instead of {}", text.empty() ? "" : "; ", name,
                        FormatCycles(callout), FormatCycles(trap));
  }
  return When(faster, text);
}

Judgement JudgeReversal(const Evidence& f) {
  const double reversions = f("boot.stats.runtime.reversions");
  return When(reversions > 0,
              fmt::format("{} sites of {} convicted in a boot", GroupDigits(reversions),
                          GroupDigits(f("boot.stats.runtime.adaptations"))));
}

Judgement JudgeLowFrequency(const Evidence& f) {
  const double verdicts = f("boot.stats.runtime.adaptations") + f("boot.stats.runtime.reversions");
  const double share = verdicts / f("boot.stats.runtime.translations");
  return When(share < kRarely, fmt::format("{} verdicts in a boot, {} of its translations",
                                           GroupDigits(verdicts), Percent(share)));
}

Judgement JudgeVariety(const Evidence& f) {
  unsigned adapted = 0;
  for (const char* name : {"pgfault", "divzero", "ptemod_unchanged"}) {
    if (Nano(f, name) < Nano(f, name, "never") / 2) ++adapted;
  }
  return When(
      adapted == 3,
      fmt::format("{} of 3: faults of the guest's, divisions, stores to page tables; devices "
                  "count as these",
                  adapted));
}

// --- 5 to 6.2 ---

Judgement JudgeCodeDensity(const Evidence& f) {
  const double ratio = f("translation.emitted_bytes") / f("translation.guest_bytes");
  return When(ratio > 1, fmt::format("{:.1f} bytes of CCF for each of the guest's", ratio));
}

Judgement JudgeSafetyIn64Bits(const Evidence&) {
  return {Verdict::kNotChecked, "-",
          "here no segment is needed; docs/safety.md has the argument and names its tests"};
}

Judgement JudgeCompute(const Evidence& f) {
  const double mean = f("compute.mean");
  return When(mean < 1.09, fmt::format("{:.0f} % slower on average", (mean - 1) * 100),
              "these run in ring 0, which is translated, and each access is looked up; the next "
              "chapter's programs run directly");
}

Judgement JudgeCompile(const Evidence& f) {
  const double native = f("linux.compile.native"), part = native / f("linux.compile.auto");
  return When(part >= 0.674,
              fmt::format("{} of native (translate {})", Percent(part),
                          Percent(native / f("linux.compile.alibi"))),
              "what runs before the policy decides is translated, and so are the kernel's page "
              "faults");
}

// A process against a native one, where the paper's took `paper` times as long.
Judgement AgainstForkwait(double ratio, double paper, const std::string& here) {
  if (ratio <= paper) return {Verdict::kBetter, here, ""};
  return {Verdict::kDoesNotHold, here, "fork, exit and wait are the guest kernel's code"};
}

Judgement JudgeForkwait(const Evidence& f) {
  const double native = f("linux.forkwait.native"), here = f("linux.forkwait.alibi");
  return AgainstForkwait(here / native, 36.9 / 6.0,
                         fmt::format("{} natively, {} a process: {:.1f}x", FormatSeconds(native),
                                     FormatSeconds(here), here / native));
}

// --- 6.3 ---

Judgement JudgeConverges(const Evidence& f) {
  const double sites = f("boot.stats.sites_known"),
               all = f("boot.stats.runtime.translated_instructions");
  return When(sites / all < kSmallFraction,
              fmt::format("{} of {} translated instructions misbehaved: {}", GroupDigits(sites),
                          GroupDigits(all), Percent(sites / all)));
}

Judgement JudgeNanoSyscall(const Evidence& f) {
  return Cost(Nano(f, "syscall"), 2308,
              fmt::format("{} (natively with Linux's part: {})", FormatCycles(Nano(f, "syscall")),
                          FormatCycles(Nano(f, "syscall", "native"))));
}
Judgement JudgeNanoIn(const Evidence& f) {
  return Cost(Nano(f, "in"), 216, FormatCycles(Nano(f, "in")));
}
Judgement JudgeNanoCr8(const Evidence& f) {
  return Cost(Nano(f, "cr8wr"), 35, FormatCycles(Nano(f, "cr8wr")));
}
Judgement JudgeNanoCallRet(const Evidence& f) {
  const double native = Nano(f, "callret", "native"), here = Nano(f, "callret");
  return Cost(here - native, 40,
              fmt::format("{} natively, {}", FormatCycles(native), FormatCycles(here)));
}
Judgement JudgeNanoPgfault(const Evidence& f) {
  return Cost(Nano(f, "pgfault"), 3927 - 1093, FaultText(f, "pgfault"));
}
Judgement JudgeNanoDivzero(const Evidence& f) {
  return Cost(Nano(f, "divzero"), 3223 - 889, FaultText(f, "divzero"));
}

Judgement JudgeFaultDelivery(const Evidence& f) {
  const double fault = Nano(f, "pgfault"), divide = Nano(f, "divzero");
  return When(divide / fault > kMostOfAll && divide < fault,
              fmt::format("{} of {}: {}", FormatCycles(divide), FormatCycles(fault),
                          Percent(divide / fault)));
}

Judgement JudgeNanoPteUnchanged(const Evidence& f) {
  return Cost(Nano(f, "ptemod_unchanged"), 391,
              fmt::format("{}, with a trap {}", FormatCycles(Nano(f, "ptemod_unchanged")),
                          FormatCycles(Nano(f, "ptemod_unchanged", "never"))));
}
Judgement JudgeNanoPtePresentNot(const Evidence& f) {
  Judgement judgement = Cost(Nano(f, "ptemod_p_np"), 17, FormatCycles(Nano(f, "ptemod_p_np")));
  if (judgement.verdict == Verdict::kDoesNotHold) {
    judgement.why = "the shadow entry is poisoned at once, not when the guest flushes its TLB";
  }
  return judgement;
}
Judgement JudgeNanoPteNotPresent(const Evidence& f) {
  return Cost(Nano(f, "ptemod_np_p"), 2121, FormatCycles(Nano(f, "ptemod_np_p")));
}

Judgement JudgeBootFaults(const Evidence& f) {
  const double share = f("overhead.pgfault.seconds") / f("boot.seconds");
  return When(share < kNoVisibleShare,
              fmt::format("{} faults, at most {} of the boot's time",
                          GroupDigits(f("overhead.pgfault.count")), Percent(share)));
}

Judgement JudgeBootPtes(const Evidence& f) {
  const double stores = f("boot.stats.mmu.trace_writes");
  return When(stores > 1e6, fmt::format("{} stores to traced pages", GroupDigits(stores)),
              "another guest: Linux with little to start");
}

Judgement JudgeBootSyscalls(const Evidence& f) {
  const double calls = f("boot.profile.classes.syscall"), stores = f("boot.stats.mmu.trace_writes");
  const double ratio = stores / calls;
  return When(ratio < kSimilar && ratio > 1 / kSimilar,
              fmt::format("{} system calls, {} stores", GroupDigits(calls), GroupDigits(stores)),
              "another guest: Linux's boot has hardly any user code");
}

Judgement JudgeBootIo(const Evidence& f) {
  const double kernel = f("bios.io.64"), all = kernel + f("bios.io.32") + f("bios.io.16");
  return When(1 - kernel / all > kVastMajority,
              fmt::format("{} of {}: {}", GroupDigits(all - kernel), GroupDigits(all),
                          Percent(1 - kernel / all)),
              "Linux polls port 61h to calibrate its TSC");
}

Judgement JudgeTranslatorShare(const Evidence& f) {
  const double boot = f("boot.translation_share"), later = f("forkwait.translation_share");
  return When(boot < kRarely && later < kRarely,
              fmt::format("{} of a boot's time, {} with forkwait", Percent(boot), Percent(later)),
              "a boot is short, and translates much code");
}

Judgement JudgeTranslatorCost(const Evidence& f) {
  const double boot =
      f("boot.stats.runtime.translation_cycles") / f("boot.stats.runtime.translated_instructions");
  const double bench = f("translation.cycles") / f("translation.instructions");
  return Cost(boot, 2300,
              fmt::format("{} in a boot, {} in the nanobenchmarks", FormatCycles(boot),
                          FormatCycles(bench)));
}

// --- 7 ---

Judgement JudgeForkwaitNewer(const Evidence& f) {
  const double ratio = f("linux.forkwait.alibi") / f("linux.forkwait.native");
  return AgainstForkwait(ratio, 7.0, fmt::format("{:.1f}x", ratio));
}

Judgement JudgeEagerFill(const Evidence& f) {
  const double eager = f("coherence.eager.hidden_faults"),
               deferred = f("coherence.deferred.hidden_faults");
  return When(eager < deferred,
              fmt::format("a boot and 300 processes: {} hidden faults, {} with dropped traces",
                          GroupDigits(eager), GroupDigits(deferred)));
}

Judgement JudgeDroppedTraces(const Evidence& f) {
  const double eager = f("coherence.eager.trace_writes"),
               deferred = f("coherence.deferred.trace_writes");
  return When(
      deferred < eager,
      fmt::format("a boot and 300 processes: {} stores to traced pages, {} with dropped traces",
                  GroupDigits(eager), GroupDigits(deferred)));
}

Judgement JudgeTracesAdapted(const Evidence& f) {
  const double traps = f("forkwait.stats.runtime.host_faults_trace"),
               stores = f("forkwait.stats.mmu.trace_writes");
  return When(traps / stores < kRarely,
              fmt::format("forkwait: {} of {} stores to traced pages trap", Percent(traps / stores),
                          GroupDigits(stores)));
}

}  // namespace

std::vector<Claim> TranslationClaims() {
  return {
#define ALIBI_CLAIM(id, section, claim, paper, command) \
  {#id, section, claim, paper, command, Judge##id},
#include "bench/lab/reproduce/claims.inc"
  };
}

}  // namespace alibi::bench::lab
