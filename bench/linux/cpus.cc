// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/cpus.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/linux/linux_report.h"
#include "bench/text_table.h"

namespace alibi::bench {
namespace {

constexpr const char* kNote =
    "Time per operation with so many CPUs, medians, and behind it (x) how many times as fast that "
    "is as\n"
    "with the first number. aim: of two CPUs; unsure: missed, but natively as well: the host had "
    "no two\n"
    "cores to give.\n";
constexpr const char* kMemoryNote =
    "Memory of a machine's processes at its end, with what its guest has touched of its RAM; a "
    "page that\n"
    "several map counts once (PSS):\n";

struct VerdictText {
  SpeedUpVerdict verdict;
  const char* text;
  const char* color;
};
constexpr VerdictText kVerdictTexts[] = {
    {SpeedUpVerdict::kNone, "", nullptr},
    {SpeedUpVerdict::kMet, "met", kColorGreen},
    {SpeedUpVerdict::kMissed, "MISSED", kColorRed},
    {SpeedUpVerdict::kUnsure, "unsure", nullptr},
};

Cell CellOf(SpeedUpVerdict verdict, const std::string& text) {
  return {text, kVerdictTexts[static_cast<unsigned>(verdict)].color};
}

SystemId With(const LinuxSystem& first, unsigned cpus) {
  return SystemWithCpus(first.id, first.cpus, cpus);
}

// "alibi hysteresis: 180 MB with 1 CPU, 220 MB with 2: 40.0 MB for each more"; "" without all
// figures.
std::string MemoryLine(const LinuxMeasurements& measurements, const LinuxSystem& system,
                       const std::vector<unsigned>& numbers) {
  constexpr double kMegabyte = 1 << 20;
  std::string text;
  std::vector<double> megabytes;
  for (unsigned cpus : numbers) {
    const auto bytes = measurements.memory.find(With(system, cpus));
    if (bytes == measurements.memory.end()) return "";
    megabytes.push_back(Summarize(bytes->second).median / kMegabyte);
    text += fmt::format("{}{:.0f} MB with {}", text.empty() ? "" : ", ", megabytes.back(), cpus);
    if (megabytes.size() == 1) text += cpus == 1 ? " CPU" : " CPUs";
  }
  const double more = static_cast<double>(numbers.back()) - numbers.front();
  return fmt::format("{}: {}: {:.1f} MB for each more\n", system.id.Name(), text,
                     (megabytes.back() - megabytes.front()) / more);
}

}  // namespace

SystemId SystemWithCpus(const SystemId& first, unsigned first_cpus, unsigned cpus) {
  if (cpus == first_cpus) return first;
  return {fmt::format("{}-smp{}", first.system, cpus), first.policy};
}

std::vector<LinuxSystem> FirstSystems(const LinuxMeasurements& measurements) {
  std::vector<LinuxSystem> first;
  for (const LinuxSystem& system : measurements.systems) {
    if (system.cpus == measurements.systems.front().cpus) first.push_back(system);
  }
  return first;
}

std::vector<unsigned> CpuNumbers(const LinuxMeasurements& measurements) {
  std::vector<unsigned> numbers;
  for (const LinuxSystem& system : measurements.systems) {
    if (std::find(numbers.begin(), numbers.end(), system.cpus) == numbers.end()) {
      numbers.push_back(system.cpus);
    }
  }
  if (numbers.empty()) numbers = {1};
  return numbers;
}

double SpeedUp(const LinuxMeasurements& measurements, const std::string& workload,
               const SystemId& first, unsigned cpus) {
  const double before = measurements.results.Of(workload, first).median;
  const SystemId system = SystemWithCpus(first, CpuNumbers(measurements).front(), cpus);
  const double now = measurements.results.Of(workload, system).median;
  return before > 0 && now > 0 ? before / now : 0;
}

SpeedUpVerdict JudgeSpeedUp(const LinuxMeasurements& measurements, const LinuxWorkload& workload,
                            const SystemId& first) {
  const std::vector<unsigned> numbers = CpuNumbers(measurements);
  if (workload.speed_up == 0 || numbers.front() != 1) return SpeedUpVerdict::kNone;
  const double own = SpeedUp(measurements, workload.name, first, 2);
  if (own == 0) return SpeedUpVerdict::kNone;
  if (own >= workload.speed_up) return SpeedUpVerdict::kMet;
  const double native = SpeedUp(measurements, workload.name, {kNative, ""}, 2);
  return native != 0 && native < workload.speed_up ? SpeedUpVerdict::kUnsure
                                                   : SpeedUpVerdict::kMissed;
}

std::string CpusTable(const LinuxMeasurements& measurements, bool colors) {
  const std::vector<unsigned> numbers = CpuNumbers(measurements);
  if (numbers.size() < 2) return "";
  const std::vector<LinuxSystem> systems = FirstSystems(measurements);
  TextTable table;
  std::vector<Cell> head = {{"CPUs"}, {"per"}};
  for (const LinuxSystem& system : systems) {
    for (unsigned cpus : numbers) {
      head.push_back({fmt::format("{} {}", system.id.system, cpus)});
      if (cpus != numbers.front()) head.push_back({"x"});
    }
    if (!system.engine.empty()) head.insert(head.end(), {{"aim"}, {""}});
  }
  table.Row(std::move(head));
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    std::vector<Cell> row = {{workload.name}, {workload.per}};
    bool any = false;
    for (const LinuxSystem& system : systems) {
      const SpeedUpVerdict verdict = system.engine.empty()
                                         ? SpeedUpVerdict::kNone
                                         : JudgeSpeedUp(measurements, workload, system.id);
      for (unsigned cpus : numbers) {
        const double seconds = measurements.results.Of(workload.name, With(system, cpus)).median;
        any = any || seconds > 0;
        row.push_back({seconds > 0 ? FormatSeconds(seconds) : "-"});
        if (cpus == numbers.front()) continue;
        const double times = SpeedUp(measurements, workload.name, system.id, cpus);
        row.push_back(CellOf(cpus == 2 ? verdict : SpeedUpVerdict::kNone,
                             times > 0 ? FormatTimes(times) : "-"));
      }
      if (system.engine.empty()) continue;
      row.push_back({workload.speed_up > 0 ? fmt::format("{:g}", workload.speed_up) : ""});
      row.push_back(CellOf(verdict, kVerdictTexts[static_cast<unsigned>(verdict)].text));
    }
    if (any) table.Row(std::move(row));
  }
  std::string memory;
  for (const LinuxSystem& system : systems) memory += MemoryLine(measurements, system, numbers);
  const auto dim = [colors](const char* text) {
    return colors ? kColorDim + std::string(text) + kColorReset : std::string(text);
  };
  return table.Render(colors) + "\n" + dim(kNote) +
         (memory.empty() ? "" : dim(kMemoryNote) + memory);
}

}  // namespace alibi::bench
