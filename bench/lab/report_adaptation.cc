// SPDX-License-Identifier: Apache-2.0
// Sections of the report: what adaptation did, from the event logs of observed runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/lab/chart.h"
#include "bench/lab/html.h"
#include "bench/lab/report.h"
#include "bench/linux/linux_report.h"
#include "bench/report.h"

namespace alibi::bench::lab {
namespace {

constexpr const char* kNoLogs =
    "There are no event logs: the experiment says observe = false, or its observed runs failed.";
constexpr std::size_t kPoints = 48;  // of a line: more would be too dense

u64 TotalOf(const std::map<std::string, Tally>& tallies) {
  u64 total = 0;
  for (const auto& [name, tally] : tallies) total += tally.count;
  return total;
}

std::string Count(u64 value) { return FormatCount(static_cast<double>(value)); }

// Traps per second against seconds.
std::vector<std::pair<double, double>> TrapRate(const LogDigest& digest) {
  const std::size_t step = (digest.intervals.size() + kPoints - 1) / kPoints;
  std::vector<std::pair<double, double>> points;
  for (std::size_t i = 0; i < digest.intervals.size(); i += step) {
    const std::size_t end = std::min(i + step, digest.intervals.size());
    u64 traps = 0;
    for (std::size_t k = i; k < end; ++k) traps += digest.intervals[k].traps;
    const double width = digest.interval_seconds * static_cast<double>(end - i);
    points.emplace_back(digest.interval_seconds * static_cast<double>(i) + width / 2,
                        static_cast<double>(traps) / width);
  }
  return points;
}

// When so many of its traps were over, in seconds.
double TimeOfPart(const LogDigest& digest, double part) {
  const double wanted = part * static_cast<double>(TotalOf(digest.traps));
  double seen = 0;
  for (std::size_t i = 0; i < digest.intervals.size(); ++i) {
    seen += static_cast<double>(digest.intervals[i].traps);
    if (seen >= wanted) return digest.interval_seconds * static_cast<double>(i + 1);
  }
  return digest.seconds;
}

std::string EventTable(const LabData& data, const std::string& workload) {
  HtmlTable table({"configuration", "event", "", "count", "cycles each", "cycles in all"}, 3);
  for (const Configuration& c : data.Ours()) {
    const LogDigest* digest = data.Digest(workload, c);
    if (digest == nullptr) continue;
    for (const auto& [tallies, how] :
         {std::pair{&digest->traps, "trap"}, std::pair{&digest->callouts, "callout"}}) {
      for (const auto& [event, tally] : *tallies) {
        table.Row({data.Label(c), event, how, Count(tally.count),
                   FormatCycles(static_cast<double>(tally.cycles) /
                                static_cast<double>(std::max<u64>(tally.count, 1))),
                   Count(tally.cycles)});
      }
    }
  }
  return table.Render();
}

}  // namespace

std::string ConvergenceSection(const LabData& data) {
  std::string text;
  for (const std::string& workload : data.Workloads()) {
    LineChart chart;
    chart.name = workload + ": host traps per second over the run";
    chart.x_axis = "seconds since the start";
    chart.y_axis = "host traps per second (log scale)";
    HtmlTable table({"configuration", "run", "traps", "half by", "90 % by", "callouts",
                     "convictions", "acquittals"});
    for (const Configuration& c : data.Ours()) {
      const LogDigest* digest = data.Digest(workload, c);
      if (digest == nullptr) continue;
      chart.series.push_back({data.Label(c), data.Css(c)});
      chart.points.push_back(TrapRate(*digest));
      u64 adaptations = 0, reversions = 0;
      for (const Interval& interval : digest->intervals) {
        adaptations += interval.adaptations;
        reversions += interval.reversions;
      }
      const u64 traps = TotalOf(digest->traps);
      const auto by = [&](double part) {
        return traps == 0 ? std::string("-") : FormatSeconds(TimeOfPart(*digest, part));
      };
      table.Row({data.Label(c), FormatSeconds(digest->seconds), Count(traps), by(0.5), by(0.9),
                 Count(TotalOf(digest->callouts)), Count(adaptations), Count(reversions)});
    }
    if (chart.series.empty()) continue;
    text += SubHeading(workload) + DrawLines(chart) + table.Render() +
            Details("What happened, and what it cost", EventTable(data, workload));
  }
  return text.empty() ? Missing(kNoLogs) : text;
}

std::string SitesSection(const LabData& data) {
  static constexpr const char* kKinds[] = {"DIRECT", "CHECKED", "SIMULATE"};
  std::string text;
  for (const std::string& workload : data.Workloads()) {
    BarChart chart;
    chart.name = workload + ": sites by kind";
    chart.axis = "sites";
    chart.stacked = true;
    chart.label = FormatCount;
    for (std::size_t i = 0; i < std::size(kKinds); ++i) {
      chart.series.push_back({kKinds[i], SeriesClass(i == 0 ? 3 : i == 1 ? 4 : 2)});
    }
    HtmlTable table({"configuration", kKinds[0], kKinds[1], kKinds[2]});
    for (const Configuration& c : data.Ours()) {
      const LogDigest* digest = data.Digest(workload, c);
      if (digest == nullptr) continue;
      BarGroup group{data.Label(c), {}};
      std::vector<std::string> cells = {data.Label(c)};
      for (const char* kind : kKinds) {
        const auto it = digest->sites.find(kind);
        const u64 count = it != digest->sites.end() ? it->second : 0;
        group.values.push_back(static_cast<double>(count));
        cells.push_back(Count(count));
      }
      chart.groups.push_back(std::move(group));
      table.Row(std::move(cells));
    }
    if (chart.groups.empty()) continue;
    text += SubHeading(workload) + DrawBars(chart) + Details("As a table", table.Render());
  }
  return text.empty() ? Missing(kNoLogs) : text;
}

std::string GuiltiestSection(const LabData& data) {
  std::string text;
  const std::vector<Configuration> ours = data.Ours();
  const Configuration* reference = ReferenceOf(ours);
  for (const std::string& workload : data.Workloads()) {
    std::string hidden;
    for (const Configuration& c : ours) {
      const LogDigest* digest = data.Digest(workload, c);
      if (digest == nullptr) continue;
      u64 all = 0;
      for (const auto* tallies : {&digest->traps, &digest->callouts}) {
        for (const auto& [event, tally] : *tallies) all += tally.cycles;
      }
      HtmlTable table({"instruction", "cycles", "part", "traps", "callouts", "at the end",
                       "convicted", "acquitted", "address", "bytes"});
      for (const GuiltySite& site : digest->guiltiest) {
        table.Row({site.instruction.empty() ? "(unknown)" : site.instruction, Count(site.cycles),
                   fmt::format("{:.1f} %", 100.0 * static_cast<double>(site.cycles) /
                                               static_cast<double>(std::max<u64>(all, 1))),
                   Count(site.traps), Count(site.callouts), site.kind, Count(site.adaptations),
                   Count(site.reversions), fmt::format("{:#x}", site.pc.value), site.bytes});
      }
      const std::string body = table.empty() ? Missing("No site ever misbehaved.") : table.Render();
      if (c == *reference) {
        text += SubHeading(workload + ", " + data.Label(c)) + body;
      } else {
        hidden += Details(data.Label(c), body);
      }
    }
    text += hidden;
  }
  return text.empty() ? Missing(kNoLogs) : text;
}

}  // namespace alibi::bench::lab
