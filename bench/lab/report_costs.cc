// SPDX-License-Identifier: Apache-2.0
// Sections of the report: what was measured.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/lab/chart.h"
#include "bench/lab/html.h"
#include "bench/lab/report.h"
#include "bench/report.h"
#include "bench/results.h"

namespace alibi::bench::lab {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Those of the paper's Figure 4; its ptemod is three here.
constexpr const char* kFigure4[] = {"syscall",          "in",          "cr8wr",
                                    "callret",          "pgfault",     "divzero",
                                    "ptemod_unchanged", "ptemod_p_np", "ptemod_np_p"};

std::vector<std::string> Head(const LabData& data, const std::string& first) {
  std::vector<std::string> head = {first};
  for (const Configuration& c : data.configurations()) head.push_back(data.Label(c));
  return head;
}

std::vector<Series> SeriesOf(const LabData& data, const std::vector<Configuration>& all) {
  std::vector<Series> series;
  for (const Configuration& c : all) series.push_back({data.Label(c), data.Css(c)});
  return series;
}

bool Measured(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return !std::isnan(v); });
}

// Configurations that have a value in some group; what they lack elsewhere stays empty.
void DropEmptySeries(BarChart* chart) {
  for (std::size_t i = chart->series.size(); i-- > 0;) {
    const bool used = std::any_of(chart->groups.begin(), chart->groups.end(),
                                  [i](const BarGroup& g) { return !std::isnan(g.values[i]); });
    if (used) continue;
    chart->series.erase(chart->series.begin() + static_cast<std::ptrdiff_t>(i));
    for (BarGroup& group : chart->groups) {
      group.values.erase(group.values.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

std::string BenchmarkTable(const LabData& data, const std::string& workload) {
  HtmlTable table(Head(data, workload));
  for (const std::string& name : data.Benchmarks(workload)) {
    const std::string unit = data.UnitOf(workload, name);
    std::vector<std::string> cells = {
        unit == "cycles" ? name : fmt::format("{} ({})", name, unit.substr(unit.find('/') + 1))};
    for (const Configuration& c : data.configurations()) {
      cells.push_back(CellOf(data.Median(workload, c, name), unit));
    }
    table.Row(std::move(cells));
  }
  return table.empty() ? "" : table.Render();
}

// Bars of a workload's benchmarks as times of the native figures, where there are any.
std::string TimesNative(const LabData& data, const std::string& workload) {
  const Configuration native = {{kNative, ""}, {}};
  BarChart chart;
  chart.name = workload + ": times native";
  chart.axis = "times native (log scale; shorter is better)";
  chart.scale = Scale::kLog;
  chart.label = [](double value) { return fmt::format("{:.2f}", value); };
  std::vector<Configuration> others = data.configurations();
  std::erase(others, native);
  chart.series = SeriesOf(data, others);
  for (const std::string& name : data.Benchmarks(workload)) {
    const double base = data.Median(workload, native, name);
    BarGroup group{name.substr(ComputePrefixOf(name).size()), {}};
    for (const Configuration& c : others) {
      group.values.push_back(data.Median(workload, c, name) / base);
    }
    if (Measured(group.values)) chart.groups.push_back(std::move(group));
  }
  if (chart.groups.empty()) return "";
  DropEmptySeries(&chart);
  return DrawBars(chart);
}

}  // namespace

std::string NanobenchSection(const LabData& data) {
  const std::vector<std::string> workloads = data.WorkloadsOf("nanobench");
  if (workloads.empty()) return Missing("The experiment has no workload of program nanobench.");
  std::string text;
  for (const std::string& workload : workloads) {
    if (workloads.size() > 1) text += SubHeading(workload);
    BarChart chart;
    chart.name = "Nanobenchmarks: cycles per operation";
    chart.axis = "cycles per operation (log scale; shorter is better)";
    chart.scale = Scale::kLog;
    chart.series = SeriesOf(data, data.configurations());
    chart.label = FormatCycles;
    for (const char* name : kFigure4) {
      BarGroup group{name, {}};
      for (const Configuration& c : data.configurations()) {
        group.values.push_back(data.Median(workload, c, name));
      }
      if (Measured(group.values)) chart.groups.push_back(std::move(group));
    }
    if (!chart.groups.empty()) {
      DropEmptySeries(&chart);
      text += DrawBars(chart);
    }
    const std::string table = BenchmarkTable(data, workload);
    if (table.empty()) {
      text += Missing("No run of it gave a figure.");
    } else {
      text += Details("All of them, in cycles", table);
    }
  }
  return text;
}

std::string ProgramsSection(const LabData& data) {
  std::string text;
  for (const std::string& workload : data.Workloads()) {
    if (data.ProgramOf(workload) == "nanobench") continue;
    const std::string table = BenchmarkTable(data, workload);
    if (table.empty()) continue;
    text += SubHeading(workload) + TimesNative(data, workload) + table;
  }
  return text.empty() ? Missing("The experiment has nanobenchmarks only.") : text;
}

std::string TranslationSection(const LabData& data) {
  const std::vector<Configuration> ours = data.Ours();
  BarChart chart;
  chart.name = "Translation: cycles per guest instruction";
  chart.axis = "cycles per translated guest instruction";
  chart.series = SeriesOf(data, ours);
  chart.label = FormatCycles;
  HtmlTable table({"workload", "configuration", "translations", "guest instructions",
                   "cycles per instruction", "bytes per guest byte", "part of the run"},
                  2);
  for (const std::string& workload : data.Workloads()) {
    BarGroup group{workload, {}};
    for (const Configuration& c : ours) {
      const auto counter = [&](const char* name) {
        return data.Median(workload, c, std::string("runtime.") + name);
      };
      const double instructions = counter("translated_instructions");
      const double cycles = counter("translation_cycles");
      group.values.push_back(instructions > 0 ? cycles / instructions : kNone);
      if (!(instructions > 0)) continue;
      const double wall = data.Median(workload, c, "wall") * data.tsc_hz();
      table.Row(
          {workload, data.Label(c), FormatCount(counter("translations")), FormatCount(instructions),
           FormatCycles(cycles / instructions),
           fmt::format("{:.2f}", counter("emitted_bytes") / counter("translated_guest_bytes")),
           wall > 0 ? fmt::format("{:.1f} %", 100 * cycles / wall) : "-"});
    }
    if (Measured(group.values)) chart.groups.push_back(std::move(group));
  }
  if (chart.groups.empty()) return Missing("No run of Alibi gave its counters.");
  DropEmptySeries(&chart);
  std::string text = DrawBars(chart) + Details("As a table", table.Render());
  HtmlTable reasons({"workload", "configuration", "reason", "translations", "instructions",
                     "cycles per instruction"},
                    3);
  for (const std::string& workload : data.Workloads()) {
    for (const Configuration& c : ours) {
      const LogDigest* digest = data.Digest(workload, c);
      if (digest == nullptr) continue;
      for (const auto& [why, tally] : digest->translations) {
        reasons.Row({workload, data.Label(c), why, fmt::format("{}", tally.count),
                     fmt::format("{}", tally.instructions),
                     tally.instructions == 0
                         ? "-"
                         : FormatCycles(static_cast<double>(tally.cycles) /
                                        static_cast<double>(tally.instructions))});
      }
    }
  }
  if (!reasons.empty()) text += Details("By reason, from the event log", reasons.Render());
  return text;
}

}  // namespace alibi::bench::lab
