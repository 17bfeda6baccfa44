// SPDX-License-Identifier: Apache-2.0
#include "vcpu/cpu_differences.h"

#include <catch2/catch.hpp>
#include <cctype>
#include <fstream>
#include <set>
#include <string>

#include "testsuite/golden.h"

namespace alibi::vcpu {
namespace {

TEST_CASE("CPU differences: signatures decode as the manuals say") {
  // Sapphire Rapids, Zen 5, a Pentium Pro, a K8.
  const struct {
    u32 eax;
    unsigned family, model, stepping;
  } rows[] = {{0x806f8, 6, 0x8f, 8},
              {0xb00f21, 0x1a, 0x02, 1},
              {0x619, 6, 1, 9},
              {0x60fb1, 15, 0x6b, 1},
              {0x543, 5, 4, 3}};
  for (const auto& row : rows) {
    INFO(std::hex << row.eax);
    const CpuSignature signature = DecodeSignature(row.eax);
    CHECK(signature.family == row.family);
    CHECK(signature.model == row.model);
    CHECK(signature.stepping == row.stepping);
  }
}

TEST_CASE("CPU differences: a family may go the other vendor's way") {
  CpuIdentity cpu{.vendor = Vendor::kAmd, .family = 0x1a};
  CHECK(WayOf(HostDifference::kCompareStringsFault, cpu) == Vendor::kAmd);
  cpu.family = 0x19;
  CHECK(WayOf(HostDifference::kCompareStringsFault, cpu) == Vendor::kIntel);
  CHECK(WayOf(HostDifference::kBoundFault, cpu) == Vendor::kAmd);
  cpu.vendor = Vendor::kIntel;
  CHECK(WayOf(HostDifference::kCompareStringsFault, cpu) == Vendor::kIntel);
}

TEST_CASE("CPU differences: the host is who the system says it is") {
  std::ifstream in("/proc/cpuinfo");
  std::string line, vendor, family, model;
  const auto value = [&line](const char* key, std::string* out) {
    const std::size_t colon = line.find(": ");
    if (out->empty() && colon != std::string::npos && line.rfind(std::string(key) + "\t", 0) == 0) {
      *out = line.substr(colon + 2);
    }
  };
  while (std::getline(in, line)) {
    value("vendor_id", &vendor);
    value("cpu family", &family);
    value("model", &model);
  }
  REQUIRE_FALSE(vendor.empty());
  const CpuIdentity& host = CpuIdentity::kHost;
  CHECK((host.vendor == Vendor::kAmd) == (vendor == "AuthenticAMD" || vendor == "HygonGenuine"));
  CHECK(std::to_string(host.family) == family);
  CHECK(std::to_string(host.model) == model);
}

TEST_CASE("CPU differences: docs/cpu_differences.md shows the table") {
  std::string text =
      "# Where Intel's CPUs and AMD's differ\n\n"
      "Written by `ALIBI_ACCEPT=1 bazel run //vcpu:cpu_differences_test` from\n"
      "`vcpu/cpu_differences.inc`; do not edit. The simulator, the native oracle and the opcode "
      "sweep\n"
      "all ask this table.\n";
  // A family that does as the other vendor's CPUs do.
  const auto exceptions = [](const CpuDifferenceRow& row, Vendor vendor) {
    std::string cell;
    for (const HostException& exception : kHostExceptions) {
      // Those of hosts are the first rows.
      if (exception.vendor == vendor &&
          &row == &CpuDifferences()[static_cast<unsigned>(exception.difference)]) {
        cell += std::string("; ") + exception.cpus + ": as " +
                (vendor == Vendor::kAmd ? "Intel's" : "AMD's");
      }
    }
    return cell;
  };
  std::set<std::string> names;
  for (const bool host : {true, false}) {
    text +=
        host ? "\n## User-level instructions: as the host's CPU does\n"
               "Most of them run on the host as they stand; what is done in software agrees with "
               "it.\n\n"
             : "\n## What the VMM does itself: as the CPU does that the guest is shown\n\n";
    text += "| row | what | Intel | AMD | source |\n|---|---|---|---|---|\n";
    for (const CpuDifferenceRow& row : CpuDifferences()) {
      if (row.host != host) continue;
      for (const std::string& cell :
           {std::string(row.name), std::string(row.what),
            row.intel + exceptions(row, Vendor::kIntel), row.amd + exceptions(row, Vendor::kAmd),
            std::string(row.source)}) {
        CHECK(cell != "");
        text += "| " + cell + " ";
      }
      text += "|\n";
      CHECK(std::string(row.intel) != row.amd);
      CHECK(names.insert(row.name).second);
    }
  }
  CHECK(testsuite::CompareWithGolden("docs/cpu_differences.md", text) == "");
}

}  // namespace
}  // namespace alibi::vcpu
