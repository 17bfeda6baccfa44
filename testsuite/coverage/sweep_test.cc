// SPDX-License-Identifier: Apache-2.0
// The short sweep: the decoder and the host agree on what is #UD and on lengths.
#include "testsuite/coverage/sweep.h"

#include <catch2/catch.hpp>

#include "testsuite/coverage/features.h"
#include "testsuite/coverage/host_probe.h"

namespace alibi::coverage {
namespace {

void CheckSpace(unsigned code_bits, const char* space, u64 at_least) {
  SayWhatHostLacks("encodings, but for their #UD");
  SweepOptions options;
  options.code_bits = code_bits;
  options.space = space;
  const SweepReport report = Sweep(options);
  INFO(report.text);
  CHECK(report.differences == 0);
  CHECK(report.encodings >= at_least);
}

TEST_CASE("Legacy opcodes of 64-bit code: #UD and lengths as on the host", "[sweep]") {
  CheckSpace(64, "legacy", 200'000);
}
TEST_CASE("Legacy opcodes of 32-bit code: #UD and lengths as on the host", "[sweep]") {
  CheckSpace(32, "legacy", 100'000);
}
TEST_CASE("VEX: #UD and lengths as on the host", "[sweep]") { CheckSpace(0, "vex", 100'000); }
TEST_CASE("EVEX: #UD and lengths as on the host", "[sweep]") { CheckSpace(0, "evex", 100'000); }

TEST_CASE("What the prober says about instructions that everyone knows", "[sweep]") {
  struct Row {
    std::initializer_list<u8> bytes;
    unsigned code_bits;
    HostVerdict verdict;
    u8 trap;  // 0: not compared
  };
  constexpr u8 kDebug = 1, kBreakpoint = 3, kDivide = 0, kGeneralProtection = 13;
  const Row rows[] = {
      {{0x90}, 64, HostVerdict::kRuns, kDebug},
      {{0x0f, 0x0b}, 64, HostVerdict::kUndefined, 6},
      {{0x0f}, 64, HostVerdict::kCutShort, 14},
      {{0x06}, 64, HostVerdict::kUndefined, 6},
      {{0x06}, 32, HostVerdict::kRuns, kDebug},
      {{0xeb, 0xfe}, 64, HostVerdict::kRuns, kDebug},
      {{0xf3, 0xa4}, 32, HostVerdict::kRuns, kDebug},
      {{0xcc}, 64, HostVerdict::kRuns, kBreakpoint},
      {{0xf4}, 64, HostVerdict::kRuns, kGeneralProtection},
      {{0xf6, 0xf4}, 64, HostVerdict::kRuns, kDivide},
      {{0x0f, 0x05}, 64, HostVerdict::kRuns, 0},
      {{0xcd, 0x80}, 32, HostVerdict::kRuns, 0},
      {{0xf0, 0x90}, 64, HostVerdict::kUndefined, 6},
      {{0x8b, 0x00}, 64, HostVerdict::kRuns, kDebug},
      {{0x8b, 0x05, 0, 0, 0, 0}, 32, HostVerdict::kRuns, 14},
      {{0x67, 0x8b, 0x04}, 32, HostVerdict::kRuns, 14},  // no SIB byte
      {{0x8b, 0x04}, 32, HostVerdict::kCutShort, 14},
  };
  std::vector<Probe> probes;
  for (const Row& row : rows) {
    Probe probe;
    std::copy(row.bytes.begin(), row.bytes.end(), probe.bytes.begin());
    probe.length = static_cast<u8>(row.bytes.size());
    probe.code_bits = static_cast<u8>(row.code_bits);
    probes.push_back(probe);
  }
  std::vector<ProbeResult> results(probes.size());
  HostProber prober;
  prober.Run(probes, results);
  for (std::size_t i = 0; i < probes.size(); ++i) {
    CAPTURE(i);
    CHECK(results[i].verdict == rows[i].verdict);
    if (rows[i].trap != 0) CHECK(results[i].trap == rows[i].trap);
  }
}

TEST_CASE("What the guest is shown the host can do", "[sweep]") {
  using isa::Feature;
  for (unsigned i = 1; i < static_cast<unsigned>(Feature::kCount); ++i) {
    const auto feature = static_cast<Feature>(i);
    INFO(FeatureBitOf(feature).text);
    // The VMM's own work; the host need not have it.
    const bool ours = feature == Feature::kFsgsbase || feature == Feature::kRdpid ||
                      feature == Feature::kInvpcid || feature == Feature::kSmap ||
                      feature == Feature::kRdtscp || feature == Feature::kLongMode;
    if (!ours && GuestIsShown(feature)) CHECK(HostHas(feature));
  }
}

}  // namespace
}  // namespace alibi::coverage
