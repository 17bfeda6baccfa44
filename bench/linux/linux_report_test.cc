// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/linux_report.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "testsuite/golden.h"

namespace alibi::bench {
namespace {

const SystemId kTcg = {kQemuTcg, ""}, kHost = {kNative, ""}, kOurs = {kAlibi, "hysteresis"};

LinuxMeasurements Canned() {
  LinuxMeasurements measurements;
  Results& results = measurements.results;
  results.Add(kHost, "", {"getppid", {119e-9, 121e-9, 120e-9}, ""});
  results.Add(kHost, "", {"forkwait", {75e-6}, ""});
  results.Add(kHost, "", {"matmul", {1.1e-3}, ""});
  results.Add(kOurs, "", {"boot", {0.9, 0.8, 1.2}, ""});
  results.Add(kOurs, "", {"getppid", {250e-9}, ""});
  results.Add(kOurs, "", {"forkwait", {250e-6}, ""});
  results.Add(kTcg, "", {"boot", {2.7, 3.1}, ""});
  results.Add(kTcg, "", {"getppid", {500e-9}, ""});
  results.Add(kTcg, "", {"forkwait", {500e-6}, ""});
  results.Add(kTcg, "", {"matmul", {60e-3}, ""});
  results.Add(kHost, "", {"true", {1e-3}, ""});
  results.Add(kOurs, "", {"true", {5.5e-3}, ""});
  results.Add(kTcg, "", {"true", {17e-3}, ""});
  results.Add(kHost, "", {"getppid/pti", {119e-9, 121e-9, 120e-9}, ""});
  results.Add(kOurs, "", {"getppid/pti", {300e-9}, ""});
  results.Add(kTcg, "", {"getppid/pti", {9e-6}, ""});
  results.Add(kOurs, "", {"execdyn", {4e-3}, ""});
  results.Add(kOurs, "", {"execlate", {5e-3}, ""});
  results.Add(kTcg, "", {"execdyn", {20e-3}, ""});
  results.Add(kTcg, "", {"execlate", {20e-3}, ""});
  results.Add(kOurs, "", {"gdb", {1}, ""});
  results.Add(kTcg, "", {"gdb", {1.4}, ""});
  measurements.other.Add(kOurs, "", {"forkwait", {245e-6}, ""});
  measurements.other.Add(kTcg, "", {"forkwait", {300e-6}, ""});
  results.AddMiss(kOurs, "matmul: killed by signal 8");
  measurements.clocks = {{kOurs, 10, 10.01, 9.9}, {kOurs, 12, 12, 11.9}, {kTcg, 20, 20.02, 12}};
  return measurements;
}

TEST_CASE("The table") {
  CHECK(testsuite::CompareWithGolden("bench/linux/golden/report.txt",
                                     LinuxTable(Canned(), false)) == "");
}

TEST_CASE("Times have three digits and a fitting unit") {
  CHECK(FormatSeconds(1.449) == "1.45 s");
  CHECK(FormatSeconds(0.9996) == "1.00 s");
  CHECK(FormatSeconds(0.0251) == "25.1 ms");
  CHECK(FormatSeconds(251e-6) == "251 us");
  CHECK(FormatSeconds(1.2e-9) == "1.20 ns");
  CHECK(FormatSeconds(0.5e-9) == "0.50 ns");
  CHECK(FormatSeconds(0) == "0.00 ns");
  CHECK(FormatSeconds(1234) == "1234 s");
}

TEST_CASE("The JSON has the shape of the nanobenchmarks") {
  const auto json = LinuxJson(Canned(), {{"cpu", "x"}}, {{"kernel", "vmlinuz"}});
  CHECK(json["host"]["cpu"] == "x");
  CHECK(json["linux"]["kernel"] == "vmlinuz");
  const auto& first = json["benchmarks"][0];
  CHECK(first["name"] == "boot");
  CHECK(first["system"] == "alibi");
  CHECK(first["policy"] == "hysteresis");
  CHECK(first["median_seconds"] == 0.9);
  CHECK(first["samples"].size() == 3);
  const auto forkwait = std::find_if(
      json["benchmarks"].begin(), json["benchmarks"].end(),
      [](const auto& row) { return row["name"] == "forkwait" && row["system"] == "alibi"; });
  REQUIRE(forkwait != json["benchmarks"].end());
  CHECK((*forkwait)["clock_seconds"] == 250e-6);
  CHECK((*forkwait)["cpu_seconds"] == 245e-6);
  CHECK(json["ageing"].dump() == R"({"alibi":1.25,"qemu-tcg":1.0})");
  CHECK(json["ratios"]["getppid/pti"]["tcg/alibi"] == 30);
  CHECK(json["failures"][0]["what"] == "matmul: killed by signal 8");
  CHECK(json["clocks"][2]["host_seconds"] == 20.02);
}

TEST_CASE("What an exec costs in an old machine is held against its aim") {
  const std::string line = "execlate in times of execdyn: alibi hysteresis ";
  CHECK_THAT(LinuxTable(Canned(), false),
             Catch::Contains(line + "1.25 (aim: at most 1.1, MISSED), qemu-tcg 1.00\n"));
  LinuxMeasurements measurements;
  measurements.results.Add(kOurs, "", {"execdyn", {4e-3}, ""});
  CHECK_THAT(LinuxTable(measurements, false), !Catch::Contains("in times of"));
  measurements.results.Add(kOurs, "", {"execlate", {4.2e-3}, ""});
  CHECK_THAT(LinuxTable(measurements, false),
             Catch::Contains(line + "1.05 (aim: at most 1.1, met)"));
}

TEST_CASE("With CPU time, the clock is the other measure") {
  LinuxMeasurements measurements = Canned();
  measurements.cpu_time = true;
  CHECK_THAT(LinuxTable(measurements, false), Catch::Contains("alibi clock  tcg clock"));
  const auto json = LinuxJson(measurements, {}, {});
  for (const auto& row : json["benchmarks"]) CHECK(row["cpu_seconds"] == row["median_seconds"]);
}

TEST_CASE("The chart shows what was measured") {
  const std::string svg = LinuxSvg(Canned(), "a <host>");
  CHECK_THAT(svg, Catch::Contains("a &lt;host&gt;"));
  CHECK_THAT(svg, Catch::Contains("boot, Alibi: 900 ms"));
  CHECK_THAT(svg, Catch::Contains("forkwait, QEMU TCG: 6.7x"));
  CHECK_THAT(svg, Catch::Contains("getppid/pti, QEMU TCG: 75.0x"));
  CHECK_THAT(svg, Catch::Contains("prefers-color-scheme: dark"));
  CHECK_THAT(svg, !Catch::Contains("matmul, Alibi"));
  CHECK_THAT(LinuxSvg({}, ""), Catch::Contains("</svg>"));
}

TEST_CASE("A run of TCG alone, or of nothing, has a table") {
  LinuxMeasurements measurements;
  CHECK_THAT(LinuxTable(measurements, true), Catch::Contains("workload"));
  measurements.results.Add(kTcg, "", {"x87", {1}, ""});
  CHECK_THAT(LinuxTable(measurements, false), Catch::Contains("1.00 s"));
}

}  // namespace
}  // namespace alibi::bench
