// SPDX-License-Identifier: Apache-2.0
// Section of the report: the trade-off between traces, hidden faults and context switches.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "bench/lab/chart.h"
#include "bench/lab/html.h"
#include "bench/lab/report.h"

namespace alibi::bench::lab {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string StrategyOf(const Configuration& configuration) {
  for (const auto& [name, value] : configuration.parameters) {
    if (name == "coherence") return value;
  }
  return "";
}

// Milliseconds of what the event log says of stores to traced pages.
double TraceTime(const LabData& data, const std::string& workload, const Configuration& c) {
  const LogDigest* digest = data.Digest(workload, c);
  if (digest == nullptr || data.tsc_hz() == 0) return kNone;
  double cycles = 0;
  for (const auto* tallies : {&digest->traps, &digest->callouts}) {
    const auto it = tallies->find(adapt::EventName(adapt::Event::kTraceFault));
    if (it != tallies->end()) cycles += static_cast<double>(it->second.cycles);
  }
  return cycles / data.tsc_hz();
}

struct Panel {
  const char* axis;
  double (*value)(const LabData& data, const std::string& workload, const Configuration& c);
  bool time;  // else a count
};

constexpr Panel kPanels[] = {
    {"traces: time in stores to traced pages", TraceTime, true},
    {"hidden faults: only the shadow did not know",
     [](const LabData& data, const std::string& workload, const Configuration& c) {
       return data.Median(workload, c, "mmu.hidden_faults");
     },
     false},
    {"context switches: time in the guest's TLB flushes",
     [](const LabData& data, const std::string& workload, const Configuration& c) {
       return data.Median(workload, c, "mmu.tlb_flush_cycles") / data.tsc_hz();
     },
     true},
    {"the whole run",
     [](const LabData& data, const std::string& workload, const Configuration& c) {
       return data.Median(workload, c, "wall");
     },
     true},
};

// The counters behind the panels.
constexpr const char* kCounters[] = {"mmu.trace_writes",   "mmu.pte_updates",  "mmu.hidden_faults",
                                     "mmu.leaf_fills",     "mmu.tlb_flushes",  "mmu.view_flushes",
                                     "mmu.table_releases", "mmu.table_resyncs"};

}  // namespace

std::string CoherenceSection(const LabData& data) {
  const std::vector<Configuration> ours = data.Ours();
  std::set<std::string> strategies;
  for (const Configuration& c : ours) strategies.insert(StrategyOf(c));
  if (strategies.size() < 2) {
    return Missing("The experiment does not vary the parameter coherence, as coherence.toml does.");
  }
  std::string text;
  for (const std::string& workload : data.Workloads()) {
    std::string panels;
    for (const Panel& panel : kPanels) {
      BarChart chart;
      chart.name = workload + ", " + panel.axis;
      chart.axis = panel.axis;
      chart.series = {{"", SeriesClass(0)}};
      chart.label = panel.time ? TimeLabel : FormatCount;
      if (panel.time) chart.tick = TimeLabel;
      for (const Configuration& c : ours) {
        const double value = panel.value(data, workload, c);
        if (!std::isnan(value)) chart.groups.push_back({data.Label(c), {value}});
      }
      if (!chart.groups.empty()) panels += DrawBars(chart);
    }
    if (panels.empty()) continue;
    std::vector<std::string> head = {"counter"};
    for (const Configuration& c : ours) head.push_back(data.Label(c));
    HtmlTable table(head);
    for (const char* counter : kCounters) {
      std::vector<std::string> cells = {counter};
      for (const Configuration& c : ours) {
        cells.push_back(CellOf(data.Median(workload, c, counter), "count"));
      }
      table.Row(std::move(cells));
    }
    text += SubHeading(workload) + panels + Details("Counters", table.Render());
  }
  return text.empty() ? Missing("No run of Alibi gave its counters.") : text;
}

}  // namespace alibi::bench::lab
