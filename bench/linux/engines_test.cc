// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/engines.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "bench/linux/linux_report.h"
#include "testsuite/golden.h"

namespace alibi::bench {
namespace {

using Names = std::vector<std::string>;

const SystemId kHost = {kNative, ""}, kTcg = {kQemuTcg, ""};
const SystemId kTranslated = SystemOfEngine("translate", "hysteresis", true);
const SystemId kAutomatic = SystemOfEngine("auto", "hysteresis", false);
const SystemId kDirectly = SystemOfEngine("direct", "hysteresis", false);

LinuxMeasurements Canned() {
  LinuxMeasurements measurements;
  measurements.systems = {
      {kHost}, {kTranslated, "translate"}, {kAutomatic, "auto"}, {kDirectly, "direct"}, {kTcg}};
  Results& results = measurements.results;
  const auto add = [&](const char* name, const SystemId& system, std::vector<double> samples) {
    results.Add(system, "", {name, std::move(samples), ""});
  };
  add("boot", kTranslated, {0.9});
  add("boot", kAutomatic, {0.92});
  add("getppid", kHost, {100e-9});
  add("getppid", kTranslated, {150e-9, 150e-9, 150e-9});
  add("getppid", kAutomatic, {160e-9, 160e-9, 160e-9});
  add("getppid", kDirectly, {21e-6});
  add("getppid", kTcg, {400e-9});
  add("gzip", kHost, {30e-3});
  add("gzip", kTranslated, {66e-3});
  add("gzip", kAutomatic, {32e-3});
  add("gzip", kDirectly, {31e-3});
  add("lua", kHost, {40e-3});
  add("lua", kTranslated, {160e-3});
  add("lua", kAutomatic, {55e-3});
  add("matmul", kHost, {1e-3});
  add("matmul", kAutomatic, {4e-3});
  results.AddMiss({kHardware, ""}, "before the shell: no end within 60 s");
  measurements.notes = {"hardware: an emulator\n"};
  return measurements;
}

TEST_CASE("Engines beside each other, native and TCG") {
  CHECK(testsuite::CompareWithGolden("bench/linux/golden/engines.txt",
                                     EngineTable(Canned(), false)) == "");
}

TEST_CASE("One engine alone needs no table of engines; a chart of several has all of them") {
  LinuxMeasurements measurements = Canned();
  const std::string table = LinuxTable(measurements, false);
  CHECK_THAT(table, Catch::Contains(EngineTable(measurements, false)) &&
                        Catch::EndsWith("\nhardware: an emulator\n") &&
                        Catch::Contains("FAILED  hardware: before the shell: no end within 60 s"));
  const std::string svg = LinuxSvg(measurements, "");
  CHECK_THAT(svg, Catch::Contains("gzip, direct: 1.0x") && Catch::Contains("aim of auto"));
  // An engine without a figure is in neither.
  measurements.systems.push_back({{kHardware, ""}, "hardware"});
  CHECK(LinuxSvg(measurements, "") == svg);
  measurements.systems.resize(2);
  CHECK(EngineTable(measurements, false).empty());
  measurements.systems.clear();
  CHECK_THAT(LinuxSvg(measurements, ""), !Catch::Contains("gzip, direct"));
}

TEST_CASE("JSON says which engine a row is of") {
  const auto json = LinuxJson(Canned(), {}, {});
  unsigned of_engines = 0;
  for (const auto& row : json["benchmarks"]) {
    const bool own = row["system"] != kNative && row["system"] != kQemuTcg;
    CHECK(row.contains("engine") == own);
    of_engines += own;
    if (row["system"] == "alibi-auto") CHECK(row["engine"] == "auto");
  }
  CHECK(of_engines == 11);
  CHECK(json["notes"][0] == "hardware: an emulator\n");
}

TEST_CASE("Aims of auto: beside native, or beside translate; what noise may explain is unsure") {
  const LinuxMeasurements measurements = Canned();
  const auto verdict = [&](const char* name) {
    return JudgeAuto(measurements, *FindLinuxWorkload(name));
  };
  CHECK(verdict("gzip") == EngineVerdict::kMet);        // 1.07 times native
  CHECK(verdict("lua") == EngineVerdict::kUnsure);      // 1.38, one sample
  CHECK(verdict("matmul") == EngineVerdict::kMissed);   // 4
  CHECK(verdict("getppid") == EngineVerdict::kMissed);  // 7 % over translate, three samples
  CHECK(verdict("boot") == EngineVerdict::kMet);        // 2 %
  CHECK(verdict("x87") == EngineVerdict::kNone);
  CHECK(JudgeAuto({}, *FindLinuxWorkload("gzip")) == EngineVerdict::kNone);
}

TEST_CASE("Engines are chosen by name") {
  CHECK(ChooseEngines({"all"}).value() == Names{"translate", "auto", "direct", "hardware"});
  CHECK(ChooseEngines({"direct", "auto"}).value() == Names{"direct", "auto"});
  CHECK_THAT(ChooseEngines({"diesel"}).error().message, Catch::Contains("no engine 'diesel'"));
  CHECK_FALSE(ChooseEngines({"auto", "all"}).ok());
  CHECK_FALSE(ChooseEngines({"auto", "auto"}).ok());
  CHECK_FALSE(ChooseEngines({}).ok());

  CHECK(SystemOfEngine("auto", "never", true) == SystemId{kAlibi, "never"});
  CHECK(SystemOfEngine("auto", "never", false) == SystemId{"alibi-auto", "never"});
  CHECK(SystemOfEngine("hardware", "never", true) == SystemId{kAlibi, ""});
  CHECK(SystemOfEngine("hardware", "never", false) == SystemId{kHardware, ""});
}

// A trial of a program that is this shell script, with folders of programs beside it.
HardwareTrial TrialOf(const std::string& script) {
  const char* temporary = std::getenv("TEST_TMPDIR");
  const std::filesystem::path folder =
      std::string(temporary != nullptr ? temporary : "/tmp") + "/data";
  for (const char* file :
       {"frobos/bench/nanobench.elf", "frobos/bench/native_nanobench", "frobos/compute/compute.elf",
        "frobos/compute/compute32.elf", "frobos/compute/native", "frobos/compute/native32.elf"}) {
    std::filesystem::create_directories((folder / file).parent_path());
    std::ofstream(folder / file) << "x";
  }
  const std::filesystem::path program = folder / "alibi";
  std::ofstream(program) << "#!/bin/sh\n" + script + "\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  return TryHardware(program, folder);
}

TEST_CASE("A trial of the hardware engine tells whether it is hardware") {
  const std::string asked =
      "case \"$*\" in *only=callret*--engine*hardware*) ;; *) exit 2;; esac; ";
  const HardwareTrial real = TrialOf(asked + "echo '{\"name\":\"callret\",\"samples\":[9,10]}'");
  CHECK(real.note == "");
  CHECK(real.limit.count() == 0);

  const HardwareTrial emulated =
      TrialOf(asked + "echo '{\"name\":\"callret\",\"samples\":[5000,5000]}'; exit 69");
  CHECK_THAT(emulated.note, Catch::Contains("instruction emulator (call+ret 5,000 cycles)") &&
                                Catch::EndsWith("\n"));
  CHECK(emulated.limit.count() > 0);

  const HardwareTrial failed = TrialOf("echo 'alibi: --engine hardware: no KVM' >&2; exit 69");
  CHECK_THAT(failed.note, Catch::Contains("exit status 69: alibi: --engine hardware: no KVM"));
  CHECK(failed.limit.count() > 0);

  const HardwareTrial none = TryHardware("/bin/true", "/nowhere");
  CHECK_THAT(none.note, Catch::StartsWith("hardware: not tried beforehand: "));
  CHECK(none.limit.count() > 0);
}

}  // namespace
}  // namespace alibi::bench
