// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/engines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "bench/child_process.h"
#include "bench/linux/compare.h"
#include "bench/linux/cpus.h"
#include "bench/linux/linux_report.h"
#include "bench/linux/workloads.h"
#include "bench/report.h"
#include "bench/runner.h"
#include "bench/text_table.h"
#include "runtime/engine_kind.h"

namespace alibi::bench {
namespace {

// What the policy may cost where user code is better translated.
constexpr double kMostOverTranslate = 1.03;
// By how much, as a part of it, a median is uncertain; one sample alone does not say.
double NoiseOf(const Summary& summary) {
  return summary.count == 1
             ? kNoiseOfOne
             : (summary.p90 - summary.p10) / summary.median / std::sqrt(summary.count);
}

constexpr const char* kNote =
    "Time per operation, medians, and behind each (x) how many times native that is. aim, of "
    "engine "
    "auto:\n"
    "at most so many times native, or +3 % beside engine translate; unsure: missed by no more than "
    "the\n"
    "medians are uncertain.\n";

Summary Of(const LinuxMeasurements& measurements, const std::string& workload, const char* engine) {
  for (const LinuxSystem& row : EnginesOf(measurements)) {
    if (row.engine == engine) return measurements.results.Of(workload, row.id);
  }
  return {};
}

std::string TextOf(EngineVerdict verdict) {
  switch (verdict) {
    case EngineVerdict::kMet:
      return "met";
    case EngineVerdict::kMissed:
      return "MISSED";
    case EngineVerdict::kUnsure:
      return "unsure";
    case EngineVerdict::kNone:
      break;
  }
  return "";
}

const char* ColorOf(EngineVerdict verdict) {
  return verdict == EngineVerdict::kMet      ? kColorGreen
         : verdict == EngineVerdict::kMissed ? kColorRed
                                             : nullptr;
}

}  // namespace

Result<std::vector<std::string>> ChooseEngines(const std::vector<std::string>& names) {
  if (names == std::vector<std::string>{kAllEngines}) {
    return std::vector<std::string>(std::begin(runtime::kEngineNames),
                                    std::end(runtime::kEngineNames));
  }
  std::vector<std::string> chosen;
  for (const std::string& name : names) {
    if (auto kind = runtime::ParseEngineKind(name); !kind.ok()) {
      return Error{kind.error().message + ", or all of them"};
    }
    if (std::find(chosen.begin(), chosen.end(), name) != chosen.end()) {
      return Error{fmt::format("'{}' is there twice", name)};
    }
    chosen.push_back(name);
  }
  if (chosen.empty()) return Error{"name one at least"};
  return chosen;
}

SystemId SystemOfEngine(const std::string& engine, const std::string& policy, bool first) {
  // Site policies are nothing to the host's CPU.
  const std::string its_policy = engine == kHardwareEngine ? "" : policy;
  if (first) return {kAlibi, its_policy};
  if (engine == kHardwareEngine) return {kHardware, ""};
  return {fmt::format("{}-{}", kAlibi, engine), its_policy};
}

HardwareTrial TryHardware(const std::string& alibi, const std::string& data_folder) {
  using namespace std::chrono_literals;
  constexpr std::chrono::milliseconds kTrial = 20s, kDoubtful = 60s;
  auto programs = FindPrograms(data_folder, alibi);
  if (!programs.ok()) {
    return {"hardware: not tried beforehand: " + programs.error().message + "\n", kDoubtful};
  }
  const ChildResult child = RunChild(AlibiImageCommand(alibi, programs->nanobench_image, "",
                                                       MeasuringWords(false, true, {"callret"})),
                                     kTrial);
  Results results;
  for (const Measurement& measurement : ParseProgramOutput(child.output).measurements) {
    results.Add({kHardware, ""}, "", measurement);
  }
  if (results.Samples("callret", {kHardware, ""}).empty()) {
    return {
        fmt::format("hardware: it did not get through FrobOS's callret: {}\n", child.Describe()),
        kDoubtful};
  }
  const std::string note = HardwareNote(results);
  return {note, note.empty() ? 0ms : kDoubtful};
}

EngineVerdict JudgeAuto(const LinuxMeasurements& measurements, const LinuxWorkload& workload) {
  const Summary own = Of(measurements, workload.name, kAutoEngine);
  const bool beside_native = workload.auto_most != 0;
  const Summary base = beside_native ? measurements.results.Of(workload.name, {kNative, ""})
                                     : Of(measurements, workload.name, kTranslateEngine);
  if (own.count == 0 || base.count == 0) return EngineVerdict::kNone;
  const double most = beside_native ? workload.auto_most : kMostOverTranslate;
  if (own.median <= most * base.median) return EngineVerdict::kMet;
  const double noise = std::max(NoiseOf(own), NoiseOf(base));
  return own.median <= (1 + noise) * most * base.median ? EngineVerdict::kUnsure
                                                        : EngineVerdict::kMissed;
}

std::vector<LinuxSystem> EnginesOf(const LinuxMeasurements& measurements) {
  std::vector<LinuxSystem> engines = FirstSystems(measurements);
  std::erase_if(engines, [](const LinuxSystem& system) { return system.engine.empty(); });
  if (engines.size() < 2) engines.clear();
  return engines;
}

std::string EngineTable(const LinuxMeasurements& measurements, bool colors) {
  const std::vector<LinuxSystem> engines = EnginesOf(measurements);
  if (engines.empty()) return "";
  const Results& results = measurements.results;
  struct Column {
    std::string head;
    SystemId system;
  };
  std::vector<Column> columns;
  for (const LinuxSystem& engine : engines) columns.push_back({engine.engine, engine.id});
  if (results.Has({kQemuTcg, ""})) columns.push_back({kQemuTcg, {kQemuTcg, ""}});
  TextTable table;
  std::vector<Cell> head = {{"engines"}, {"per"}, {"native"}};
  for (const Column& column : columns) {
    head.push_back({column.head});
    head.push_back({"x"});
  }
  head.push_back({"aim"});
  head.push_back({""});
  table.Row(std::move(head));
  unsigned met = 0, missed = 0, unsure = 0;
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    const double native = results.Of(workload.name, {kNative, ""}).median;
    std::vector<Cell> row = {
        {workload.name}, {workload.per}, {native > 0 ? FormatSeconds(native) : "-"}};
    bool any = false;
    for (const Column& column : columns) {
      const double own = results.Of(workload.name, column.system).median;
      any = any || own > 0;
      row.push_back({own > 0 ? FormatSeconds(own) : "-"});
      row.push_back({own > 0 && native > 0 ? FormatTimes(own / native) : "-"});
    }
    if (!any) continue;
    const EngineVerdict verdict = JudgeAuto(measurements, workload);
    met += verdict == EngineVerdict::kMet;
    missed += verdict == EngineVerdict::kMissed;
    unsure += verdict == EngineVerdict::kUnsure;
    row.push_back({verdict == EngineVerdict::kNone ? ""
                   : workload.auto_most == 0       ? "+3 %"
                                                   : fmt::format("{:g}", workload.auto_most)});
    row.push_back({TextOf(verdict), ColorOf(verdict)});
    table.Row(std::move(row));
  }
  std::string text =
      table.Render(colors) + "\n" + (colors ? kColorDim + std::string(kNote) + kColorReset : kNote);
  if (met + missed + unsure != 0) {
    text += fmt::format("Aims of auto: {} met, {} missed, {} unsure.\n", met, missed, unsure);
  }
  return text;
}

}  // namespace alibi::bench
