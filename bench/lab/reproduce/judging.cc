// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/reproduce/judging.h"

#include <fmt/format.h>

#include <cmath>

namespace alibi::bench::lab {

std::string Percent(double part) {
  const double percent = part * 100;
  return fmt::format("{:.{}f} %", percent, percent != 0 && std::abs(percent) < 1 ? 2 : 1);
}

Judgement When(bool holds, std::string here, std::string why_not) {
  return {holds ? Verdict::kHolds : Verdict::kDoesNotHold, std::move(here),
          holds ? "" : std::move(why_not)};
}

Judgement Cost(double here, double paper, std::string text) {
  return {here < paper ? Verdict::kBetter : Verdict::kDoesNotHold, std::move(text), ""};
}

std::string GroupDigits(double n) {
  std::string digits = fmt::format("{}", static_cast<u64>(n));
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

const char* VerdictName(Verdict verdict) {
  static constexpr const char* kNames[] = {"holds", "better here", "does not hold", "not checked"};
  return kNames[static_cast<unsigned>(verdict)];
}

const std::vector<Chapter>& Chapters() {
  static const std::vector<Chapter> chapters = {
      {"translation", "Software and hardware techniques",
       "Adams and Agesen, *A Comparison of Software and Hardware Techniques for x86 "
       "Virtualization*\n"
       "(ASPLOS 2006), says in its sections 3 to 7 what a software VMM with adaptive binary "
       "translation\ndoes and costs. Its cycles are those of a 3.8 GHz Pentium 4.",
       TranslationClaims()},
      {"macro", "Whole programs",
       "The macrobenchmarks of the same paper (its sections 6.1 and 6.2, Figures 2 and 3), by free "
       "programs in\na whole Debian. Figures are CPU time, a machine's and a native program's, in "
       "parts of native speed:\nthose of engine auto, which runs user code directly as the paper's "
       "VMM does.",
       MacroClaims()},
      {"macro32", "Whole programs of 32 bits",
       "The same programs as Debian builds them for 32-bit CPUs, on its 32-bit kernel;\n"
       "natively, in a chroot on this host's.",
       Macro32Claims()},
      {"hosted-io", "Hosted I/O",
       "Sugerman, Venkitachalam and Lim, *Virtualizing I/O Devices on VMware Workstation's Hosted "
       "Virtual\nMachine Monitor* (USENIX 2001). The paper's times are turned into cycles of its "
       "733 MHz Pentium III.\n[hosted_io.md](hosted_io.md) has the details, and what each "
       "optimisation is here.",
       HostedIoClaims()},
      {"vmi", "Paravirtualization",
       "Amsden, Arai, Hecht, Holler and Subrahmanyam, *VMI: An Interface for Paravirtualization* "
       "(Linux\nSymposium 2006). Figures are of a 32-bit kernel of FrobOS's that calls VMI as "
       "Linux "
       "does, or does not:\n[vmi.md](vmi.md).",
       VmiClaims()},
      {"type-ii", "On a host operating system",
       "King, Dunlap and Chen, *Operating System Support for Virtual Machines* (USENIX 2003): a "
       "VMM "
       "that is a\nprocess of a host operating system, what it costs without the host's support, "
       "and "
       "what cures that.\nUser-Mode Linux, from Debian's packages, stands for one without: its "
       "kernel is a process that traces\nthose of the guest. All run the same programs.",
       TypeIiClaims()},
      {"type-ii-cures", "On a host operating system: cures off and on",
       "What King, Dunlap and Chen's second and third cure gain: that a switch between the guest's "
       "kernel and\nits programs, or between two programs, needs no mapping calls. `--hosting` "
       "keeps "
       "less than all\n([lab.md](lab.md#the-file)); figures are times with that in times with all "
       "kept. The first cure, one process\ninstead of two, is in the chapter above.",
       TypeIiCuresClaims()},
  };
  return chapters;
}

Judgement Judge(const Claim& claim, const Figures& figures) {
  const Evidence evidence(figures);
  Judgement judgement = claim.judge(evidence);
  if (evidence.missing().empty()) return judgement;
  return {Verdict::kNotChecked, "-", "not measured: " + evidence.missing().front()};
}

}  // namespace alibi::bench::lab
