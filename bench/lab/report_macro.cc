// SPDX-License-Identifier: Apache-2.0
// Section of the report: whole programs in a whole Debian, against native (the paper's Figures 2
// and 3).
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "bench/lab/chart.h"
#include "bench/lab/html.h"
#include "bench/lab/report.h"
#include "bench/lab/reproduce/macro_paper.h"
#include "bench/statistics.h"

namespace alibi::bench::lab {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string Percent(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.0f} %", value);
}

// Those beside native, in the order of the rows.
std::vector<Configuration> Machines(const LabData& data) {
  std::vector<Configuration> machines = data.configurations();
  std::erase_if(machines, [](const Configuration& c) { return c.system.system == kNative; });
  return machines;
}

// One workload of the experiment: a chart, and its table.
std::string Figure(const LabData& data, const std::string& workload,
                   const std::vector<Configuration>& machines) {
  BarChart chart;
  chart.name = workload + ": speed in percent of native";
  chart.axis = "speed in percent of native (longer is better)";
  chart.label = [](double value) { return fmt::format("{:.0f}", value); };
  std::vector<std::string> head = {"program", "stands in for", "paper", "native"};
  for (const Configuration& c : machines) {
    chart.series.push_back({data.Label(c), data.Css(c)});
    head.push_back(data.Label(c));
  }
  HtmlTable table(head, 2);
  std::vector<std::vector<double>> columns(machines.size());
  for (const std::string& row : data.Benchmarks(workload)) {
    const double native = data.Median(workload, {{kNative, ""}, {}}, row);
    // A boot has none.
    if (!(native > 0)) continue;
    const MacroPaper* paper = MacroPaperOf(row);
    std::vector<std::string> cells = {row, paper == nullptr ? "" : paper->what,
                                      Percent(paper == nullptr ? kNone : paper->percent),
                                      CellOf(native, data.UnitOf(workload, row))};
    BarGroup group{row, {}};
    for (std::size_t i = 0; i < machines.size(); ++i) {
      const double percent = 100 * native / data.Median(workload, machines[i], row);
      group.values.push_back(percent);
      if (percent > 0) columns[i].push_back(percent);
      cells.push_back(Percent(percent));
    }
    chart.groups.push_back(std::move(group));
    table.Row(std::move(cells));
  }
  if (chart.groups.empty()) return "";
  if (chart.groups.size() > 1) {
    std::vector<std::string> means = {"geometric mean", "", "", ""};
    for (const std::vector<double>& column : columns) {
      means.push_back(column.size() == chart.groups.size() ? Percent(GeometricMean(column)) : "-");
    }
    table.Row(std::move(means));
  }
  return SubHeading(workload) + DrawBars(chart) + Details("As a table", table.Render());
}

}  // namespace

std::string MacroSection(const LabData& data) {
  const std::vector<Configuration> machines = Machines(data);
  std::string text;
  for (const std::string& workload : data.WorkloadsOf("debian")) {
    text += Figure(data, workload, machines);
  }
  return text.empty() ? Missing(
                            "The experiment has no workload of program debian with native "
                            "figures, as macro.toml does.")
                      : text;
}

}  // namespace alibi::bench::lab
