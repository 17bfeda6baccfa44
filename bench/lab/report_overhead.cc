// SPDX-License-Identifier: Apache-2.0
// Sections of the report: what guests did, and what it cost.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "bench/lab/chart.h"
#include "bench/lab/html.h"
#include "bench/lab/report.h"
#include "bench/lab/reproduce/overhead.h"
#include "bench/report.h"

namespace alibi::bench::lab {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct CountRow {
  const char* what;
  const char* source;  // a counter, or a JSON pointer into the execution profile
};

constexpr CountRow kCounts[] = {
    {"guest instructions", "/profile/instructions"},
    {"SYSCALL, SYSENTER", "/profile/classes/syscall"},
    {"IN, INS", "/profile/classes/in"},
    {"OUT, OUTS", "/profile/classes/out"},
    {"MOV to CR8", "/profile/classes/cr8_write"},
    {"near RET", "/profile/classes/ret"},
    {"MOV to CR3", "/profile/classes/cr3_write"},
    {"INVLPG, INVPCID", "/profile/classes/invlpg"},
    {"page faults that the guest saw", "mmu.true_faults"},
    {"hidden faults", "mmu.hidden_faults"},
    {"stores to traced pages", "mmu.trace_writes"},
    {"shadow entries they changed", "mmu.pte_updates"},
    {"exceptions delivered", "runtime.exceptions_delivered"},
    {"interrupts delivered", "runtime.interrupts_delivered"},
    {"host traps", "runtime.host_faults"},
    {"convictions", "runtime.adaptations"},
    {"acquittals", "runtime.reversions"},
    {"translations", "runtime.translations"},
};

double CountOf(const LabData& data, const std::string& workload, const Configuration& c,
               const std::string& source) {
  if (source[0] != '/') return data.Median(workload, c, source);
  const nlohmann::ordered_json* profile = data.Profile(workload, c);
  const nlohmann::ordered_json::json_pointer at(source);
  return profile != nullptr && profile->contains(at) && (*profile)[at].is_number()
             ? (*profile)[at].get<double>()
             : kNone;
}

// What operations cost, from the experiment's nanobenchmarks.
OperationCosts CostsIn(const LabData& data, const Configuration& configuration) {
  const auto median = [&data](const Configuration& c, const std::string& name) {
    const double value = data.MedianOfProgram("nanobench", c, name);
    return std::isnan(value) ? 0 : value;
  };
  OperationCosts costs;
  for (const std::string& name : OverheadBenchmarks()) {
    costs[name] = {median(configuration, name), median({{kNative, ""}, {}}, name)};
  }
  return costs;
}

}  // namespace

std::string OverheadSection(const LabData& data) {
  std::string text;
  std::string complaint = "There are no execution profiles, which count instructions.";
  for (const std::string& workload : data.Workloads()) {
    if (data.ProgramOf(workload) == "nanobench") continue;
    BarChart chart;
    chart.name = workload + ": overhead by operation";
    chart.axis = "overhead over the whole run";
    chart.label = TimeLabel;
    chart.tick = TimeLabel;
    HtmlTable table({"configuration", "operation", "count", "cycles here", "native", "overhead"},
                    2);
    for (const Configuration& c : data.Ours()) {
      const nlohmann::ordered_json* profile = data.Profile(workload, c);
      if (profile == nullptr) continue;
      // The observed run's own translations took longer: they count executions.
      nlohmann::ordered_json timed = *profile;
      if (const double cycles = data.Median(workload, c, "runtime.translation_cycles");
          !std::isnan(cycles)) {
        timed["stats"]["runtime"]["translation_cycles"] = static_cast<u64>(cycles);
      }
      const auto rows = DecomposeOverhead(timed, CostsIn(data, c), data.tsc_hz());
      if (!rows.ok()) {
        complaint = rows.error().message + ".";
        continue;
      }
      for (std::size_t i = 0; i < rows.value().size(); ++i) {
        const OverheadRow& row = rows.value()[i];
        if (chart.series.empty()) chart.groups.push_back({row.name, {}});
        chart.groups[i].values.push_back(row.seconds);
        table.Row({data.Label(c), row.what, FormatCount(static_cast<double>(row.count)),
                   row.here == 0 ? "" : FormatCycles(row.here),
                   row.here == 0     ? ""
                   : row.upper_bound ? "unknown"
                                     : FormatCycles(row.native),
                   (row.upper_bound ? "at most " : "") + TimeLabel(row.seconds)});
      }
      chart.series.push_back({data.Label(c), data.Css(c)});
    }
    if (chart.series.empty()) continue;
    text += SubHeading(workload) + DrawBars(chart) + Details("As a table", table.Render());
  }
  return text.empty() ? Missing(complaint) : text;
}

std::string CountsSection(const LabData& data) {
  const std::vector<Configuration> ours = data.Ours();
  const Configuration* reference = ReferenceOf(ours);
  if (reference == nullptr) return Missing("The experiment has no configuration of Alibi.");
  std::vector<std::string> head = {data.Label(*reference)};
  for (const std::string& workload : data.Workloads()) head.push_back(workload);
  HtmlTable table(head);
  bool profiled = false;
  for (const CountRow& row : kCounts) {
    std::vector<std::string> cells = {row.what};
    for (const std::string& workload : data.Workloads()) {
      const double count = CountOf(data, workload, *reference, row.source);
      profiled = profiled || (row.source[0] == '/' && !std::isnan(count));
      cells.push_back(CellOf(count, "count"));
    }
    table.Row(std::move(cells));
  }
  return table.Render() +
         (profiled ? "" : Missing("There are no execution profiles, which count instructions."));
}

}  // namespace alibi::bench::lab
