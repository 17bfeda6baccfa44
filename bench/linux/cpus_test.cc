// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/cpus.h"

#include <catch2/catch.hpp>

#include "bench/linux/compare.h"
#include "bench/linux/linux_report.h"
#include "bench/linux/scaling_report.h"
#include "testsuite/golden.h"

namespace alibi::bench {
namespace {

const SystemId kHost = {kNative, ""}, kOurs = {kAlibi, "hysteresis"}, kTcg = {kQemuTcg, ""};

LinuxMeasurements Canned() {
  LinuxMeasurements measurements;
  const auto add = [&](const char* name, const SystemId& system, double one, double two) {
    measurements.results.Add(system, "", {name, {one}, ""});
    if (two != 0) measurements.results.Add(SystemWithCpus(system, 1, 2), "", {name, {two}, ""});
  };
  for (const SystemId& system : {kHost, kOurs, kTcg}) {
    const std::string engine = system == kOurs ? "auto" : "";
    measurements.systems.push_back({system, engine, 1});
    measurements.systems.push_back({SystemWithCpus(system, 1, 2), engine, 2});
  }
  add("boot", kOurs, 1.2, 1.4);
  add("boot", kTcg, 3, 3.3);
  add("parallel/gzip", kHost, 30e-3, 15e-3);
  add("parallel/gzip", kOurs, 33e-3, 17e-3);
  add("parallel/gzip", kTcg, 170e-3, 87e-3);
  add("parallel/sha256", kHost, 5e-3, 2.5e-3);
  add("parallel/sha256", kOurs, 5e-3, 3e-3);
  add("parallel/lua", kHost, 40e-3, 25e-3);
  add("parallel/lua", kOurs, 50e-3, 30e-3);
  add("parallel/lua", kTcg, 600e-3, 0);
  add("parallel/lock", kHost, 50e-9, 100e-9);
  add("parallel/lock", kOurs, 55e-9, 250e-9);
  measurements.memory[kOurs] = {180 << 20, 184 << 20, 190 << 20};
  measurements.memory[SystemWithCpus(kOurs, 1, 2)] = {230 << 20};
  measurements.memory[kTcg] = {300 << 20};
  return measurements;
}

TEST_CASE("Numbers of CPUs beside each other, native and TCG") {
  CHECK(testsuite::CompareWithGolden("bench/linux/golden/cpus.txt", CpusTable(Canned(), false)) ==
        "");
}

TEST_CASE("One number alone needs no table of CPUs; the tables of several have it") {
  LinuxMeasurements measurements = Canned();
  const std::string cpus = CpusTable(measurements, false);
  CHECK_THAT(LinuxTable(measurements, false), Catch::Contains(cpus));
  CHECK_THAT(ScalingTable(measurements, false), Catch::Contains(cpus));
  CHECK(CpuNumbers(measurements) == std::vector<unsigned>{1, 2});
  measurements.systems.resize(1);
  CHECK(CpusTable(measurements, false).empty());
  CHECK(CpuNumbers({}) == std::vector<unsigned>{1});
}

TEST_CASE("Aims of two CPUs: what the host itself misses is unsure") {
  const LinuxMeasurements measurements = Canned();
  const auto verdict = [&](const char* name, const LinuxMeasurements& of) {
    return JudgeSpeedUp(of, *FindLinuxWorkload(name), kOurs);
  };
  CHECK(verdict("parallel/gzip", measurements) == SpeedUpVerdict::kMet);
  CHECK(verdict("parallel/sha256", measurements) == SpeedUpVerdict::kMissed);
  CHECK(verdict("parallel/lua", measurements) == SpeedUpVerdict::kUnsure);
  CHECK(verdict("parallel/lock", measurements) == SpeedUpVerdict::kNone);     // has no aim
  CHECK(verdict("parallel/compile", measurements) == SpeedUpVerdict::kNone);  // not measured
  CHECK(SpeedUp(measurements, "parallel/gzip", kHost, 2) == Approx(2));
  CHECK(SpeedUp(measurements, "parallel/gzip", kHost, 4) == 0);
  // Aims are of two beside one.
  LinuxMeasurements other = measurements;
  for (LinuxSystem& system : other.systems) system.cpus *= 2;
  CHECK(verdict("parallel/gzip", other) == SpeedUpVerdict::kNone);
}

TEST_CASE("JSON says of how many CPUs a row is, and the chart has the speed-up") {
  const LinuxMeasurements measurements = Canned();
  const auto json = LinuxJson(measurements, {}, {});
  for (const auto& row : json["benchmarks"]) {
    const bool two = row["system"].get<std::string>().ends_with("-smp2");
    CHECK(row["cpus"] == (two ? 2 : 1));
    CHECK_FALSE(row.contains("engine"));
  }
  REQUIRE(json["memory"].size() == 3);
  CHECK(json["memory"][0]["system"] == "alibi");
  CHECK(json["memory"][0]["cpus"] == 1);
  CHECK(json["memory"][0]["median_bytes"] == Approx(184 << 20).epsilon(1e-5));
  const std::string svg = LinuxSvg(measurements, "");
  CHECK_THAT(svg, Catch::Contains("Time on 2 CPUs, in times of that on 1") &&
                      Catch::Contains("parallel/gzip, Alibi: 0.52x"));
  CHECK_THAT(svg, !Catch::Contains("Time on 1 CPU"));
}

TEST_CASE("Each number of CPUs is compared with an older report's") {
  const nlohmann::ordered_json host = {{"cpu", "x"}}, settings = {{"cpus", {1, 2}}};
  const auto old = ParseReport(LinuxJson(Canned(), host, settings).dump(), LinuxSuite::kLinux);
  REQUIRE(old.ok());
  LinuxMeasurements now = Canned();
  now.results = {};
  now.results.Add(kOurs, "", {"parallel/gzip", {33e-3}, ""});
  now.results.Add(SystemWithCpus(kOurs, 1, 2), "", {"parallel/gzip", {30e-3}, ""});
  const std::string table = CompareTable(old.value(), now, host, settings, false);
  CHECK_THAT(table, Catch::Contains("parallel/gzip, CPUs: 1") &&
                        Catch::Contains("1 worse, 0 better") && !Catch::Contains("DIFFERS"));
  const std::size_t two = table.find("parallel/gzip, CPUs: 2");
  REQUIRE(two != std::string::npos);
  CHECK_THAT(table.substr(two, table.find('\n', two) - two), Catch::EndsWith("WORSE"));
}

}  // namespace
}  // namespace alibi::bench
