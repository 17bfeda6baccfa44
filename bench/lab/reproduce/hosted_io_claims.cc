// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "bench/lab/reproduce/judging.h"
#include "bench/report.h"

namespace alibi::bench::lab {
namespace {

constexpr double kPaperMhz = 733;
// Rows whose throughput the CPU limits.
constexpr const char* kRow = "datagrams-1472";

// Figures are "access.NETWORK OPTIMISATIONS.ROW" and the like: see measure_experiments.cc.
double Access(const Evidence& f, const char* row, const char* optimizations) {
  return f(fmt::format("access.{}.{}", optimizations, row));
}

double Sampled(const Evidence& f, const char* optimizations, const char* kind) {
  return f(fmt::format("lance.{}.{}.sampled.{}", optimizations, kRow, kind));
}

double CrossingsPerFrame(const Evidence& f, const char* optimizations) {
  const auto count = [&](const char* counter) {
    return f(fmt::format("lance.{}.count.{}", optimizations, counter));
  };
  return count("port_crossings") / count("lance_transmitted");
}

Judgement JudgeTransmitPath(const Evidence& f) {
  const double here = Access(f, "transmit", "none");
  return Cost(here, 31.63 * kPaperMhz, FormatCycles(here) + " cycles, one frame in the ring");
}

Judgement JudgeCrossing(const Evidence& f) {
  const double here = Access(f, "rap", "none");
  return Cost(here, 8.90 * kPaperMhz,
              fmt::format("{} cycles, the access itself included", FormatCycles(here)));
}

Judgement JudgeAccessesPerFrame(const Evidence& f) {
  const double here = CrossingsPerFrame(f, "none");
  return When(here > 12 / 3.0 && here < 12 * 3.0,
              fmt::format("{:.1f} for each frame sent, received ones included", here),
              "the driver has other accesses");
}

Judgement JudgeTimeInVmm(const Evidence& f) {
  const double vmm = Sampled(f, "none", "program"), guest = Sampled(f, "none", "translated");
  return When(vmm > guest,
              fmt::format("datagrams: {} in the VMM, {} in the guest's translated code",
                          Percent(vmm), Percent(guest)),
              "a crossing is a call here: it costs a tenth of the paper's");
}

Judgement JudgePortsBeside(const Evidence& f) {
  const double before = Access(f, "csr0", "none"), after = Access(f, "csr0", "ports");
  return When(after < before / 10,
              fmt::format("IN of CSR0: {} cycles, then {}: {}", FormatCycles(before),
                          FormatCycles(after), Percent(after / before)),
              "what is saved is less: a crossing costs a tenth of the paper's");
}

Judgement JudgeLatchedPort(const Evidence& f) {
  const double ports = Access(f, "rap", "ports"), latched = Access(f, "rap", "ports,latch");
  return When(latched < ports / 2,
              fmt::format("OUT to RAP between two RDTSC: {} cycles answered beside, {} as memory",
                          FormatCycles(ports), FormatCycles(latched)));
}

Judgement JudgeFewerCrossings(const Evidence& f) {
  const double before = CrossingsPerFrame(f, "none"), after = CrossingsPerFrame(f, "all");
  return When(after < before / 2, fmt::format("{:.1f} for each frame, then {:.1f}", before, after));
}

Judgement JudgeTimeInVmmAfter(const Evidence& f) {
  const double before = Sampled(f, "none", "program"), after = Sampled(f, "all", "program");
  return When(after < 0.6 * before,
              fmt::format("datagrams: {} in the VMM, then {}", Percent(before), Percent(after)));
}

Judgement JudgeLimitDoubles(const Evidence& f) {
  const auto gain = [&](const char* row) {
    return f(fmt::format("lance.all.{}.limit", row)) / f(fmt::format("lance.none.{}.limit", row));
  };
  const double datagrams = gain(kRow), tcp = gain("send-4096");
  return When(datagrams >= 2 && tcp >= 2,
              fmt::format("by the VCPU's CPU time: datagrams {:.1f}x, TCP {:.1f}x", datagrams, tcp),
              "most of the time is the guest's own code already");
}

Judgement JudgeWireSaturated(const Evidence& f) {
  const double here = f("lance-100M.all.send-4096");
  return When(here >= 85, fmt::format("{:.0f} Mb/s of payload", here),
              "on this host with its load");
}

Judgement JudgeIdleGuest(const Evidence& f) {
  const double before = f("lance-100M.none.send-4096.idle"),
               after = f("lance-100M.all.send-4096.idle");
  return When(after >= 0.217 && after > before,
              fmt::format("{}, then {}", Percent(before), Percent(after)));
}

}  // namespace

std::vector<Claim> HostedIoClaims() {
  return {
#define ALIBI_CLAIM(id, section, claim, paper, command) \
  {#id, section, claim, paper, command, Judge##id},
#include "bench/lab/reproduce/hosted_io.inc"
  };
}

}  // namespace alibi::bench::lab
