// SPDX-License-Identifier: Apache-2.0
// Section of the report: hosted I/O, in the tables and figures of Sugerman, Venkitachalam and Lim.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/lab/chart.h"
#include "bench/lab/html.h"
#include "bench/lab/network.h"
#include "bench/lab/report.h"
#include "bench/report.h"

namespace alibi::bench::lab {
namespace {

constexpr const char* kNetwork = "network";
constexpr const char* kTransmit = "transmit";

std::vector<Series> SeriesOf(const LabData& data, const std::vector<Configuration>& all) {
  std::vector<Series> series;
  for (const Configuration& c : all) series.push_back({data.Label(c), data.Css(c)});
  return series;
}

std::vector<std::string> HeadOf(const LabData& data, const std::string& first,
                                const std::vector<Configuration>& all) {
  std::vector<std::string> head = {first};
  for (const Configuration& c : all) head.push_back(data.Label(c));
  return head;
}

bool Any(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return !std::isnan(v); });
}

// Those that have measured something of the workload.
std::vector<Configuration> Measured(const LabData& data, const std::string& workload,
                                    const std::vector<std::string>& names) {
  std::vector<Configuration> all = data.configurations();
  std::erase_if(all, [&](const Configuration& c) {
    return std::none_of(names.begin(), names.end(), [&](const std::string& name) {
      return !std::isnan(data.Median(workload, c, name));
    });
  });
  return all;
}

std::string Number(double value, int digits = 0) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}

// Throughput against the size of writes and reads: the paper's Figure 6. By the clock, or by the
// CPU time of the busiest thread (`suffix` ".limit").
std::string Throughput(const LabData& data, const std::string& workload,
                       const std::string& suffix) {
  const std::vector<Configuration> all = Measured(data, workload, NetworkNames());
  BarChart chart;
  chart.name = workload + ": throughput";
  chart.axis = "Mb/s (longer is better)";
  chart.series = SeriesOf(data, all);
  chart.label = [](double value) { return Number(value); };
  HtmlTable table(HeadOf(data, "Mb/s", all));
  for (const std::string& name : NetworkNames()) {
    BarGroup group{name, {}};
    std::vector<std::string> cells = {name};
    for (const Configuration& c : all) {
      group.values.push_back(data.Median(workload, c, name + suffix));
      cells.push_back(Number(group.values.back()));
    }
    if (!Any(group.values)) continue;
    chart.groups.push_back(std::move(group));
    table.Row(std::move(cells));
  }
  if (chart.groups.empty()) return "";
  return DrawBars(chart) + table.Render();
}

struct Column {
  const char* head;
  int digits;
  double (*value)(const LabData& data, const std::string& workload, const Configuration& c);
};

double Count(const LabData& data, const std::string& workload, const Configuration& c,
             const char* counter) {
  return data.Median(workload, c, std::string("count.") + counter);
}

// Frames both ways, of the card there is.
double Frames(const LabData& data, const std::string& workload, const Configuration& c) {
  double frames = 0;
  for (const char* counter :
       {"lance_transmitted", "lance_received", "virtio_net_transmitted", "virtio_net_received"}) {
    const double count = Count(data, workload, c, counter);
    if (!std::isnan(count)) frames += count;
  }
  return frames > 0 ? frames : std::numeric_limits<double>::quiet_NaN();
}

double Crossings(const LabData& data, const std::string& workload, const Configuration& c) {
  double sum = 0;
  for (const char* cause :
       {"port_crossings", "device_crossings", "timer_crossings", "notice_crossings"}) {
    sum += Count(data, workload, c, cause);
  }
  return sum;
}

constexpr Column kAblation[] = {
    {"crossings, thousands", 1,
     [](const LabData& data, const std::string& w, const Configuration& c) {
       return Crossings(data, w, c) / 1e3;
     }},
    {"by ports", 1,
     [](const LabData& data, const std::string& w, const Configuration& c) {
       return Count(data, w, c, "port_crossings") / 1e3;
     }},
    {"a frame", 2,
     [](const LabData& data, const std::string& w, const Configuration& c) {
       return Crossings(data, w, c) / Frames(data, w, c);
     }},
    {"answered beside", 1,
     [](const LabData& data, const std::string& w, const Configuration& c) {
       return (Count(data, w, c, "port_reads_answered") +
               Count(data, w, c, "port_writes_answered")) /
              1e3;
     }},
    {"wakes", 1,
     [](const LabData& data, const std::string& w, const Configuration& c) {
       return Count(data, w, c, "net_wakes") / 1e3;
     }},
    {"interrupts", 1,
     [](const LabData& data, const std::string& w, const Configuration& c) {
       return Count(data, w, c, "interrupts_taken") / 1e3;
     }},
    {"host CPU, s", 2,
     [](const LabData& data, const std::string& w, const Configuration& c) {
       return data.Median(w, c, "host.user") + data.Median(w, c, "host.system");
     }},
};

std::string Ablation(const LabData& data, const std::string& workload) {
  std::vector<Configuration> ours = data.Ours();
  std::erase_if(ours, [&](const Configuration& c) {
    return std::isnan(data.Median(workload, c, "host.user"));
  });
  if (ours.empty()) return "";
  std::vector<std::string> head = {"configuration"};
  std::vector<std::string> names;
  for (const std::string& name : NetworkNames()) {
    if (std::isnan(data.Median(workload, ours[0], name))) continue;
    if (names.size() < 2) names.push_back(name);
  }
  for (const std::string& name : names) head.push_back(name + ", Mb/s");
  for (const Column& column : kAblation) head.push_back(column.head);
  HtmlTable table(std::move(head));
  for (const Configuration& c : ours) {
    std::vector<std::string> cells = {data.Label(c)};
    for (const std::string& name : names) cells.push_back(Number(data.Median(workload, c, name)));
    for (const Column& column : kAblation) {
      cells.push_back(Number(column.value(data, workload, c), column.digits));
    }
    table.Row(std::move(cells));
  }
  return table.Render();
}

// The paper's Tables 1 and 2.
std::string TimeTable(const LabData& data, const std::string& workload) {
  std::vector<Configuration> ours = data.Ours();
  std::erase_if(ours, [&](const Configuration& c) {
    return std::isnan(data.Median(workload, c, "time.guest"));
  });
  if (ours.empty() || data.tsc_hz() == 0) return "";
  HtmlTable table(HeadOf(data, "seconds, and part of the whole", ours));
  for (const TimeCategory& category : TimeCategories()) {
    std::vector<std::string> cells = {category.meaning};
    for (const Configuration& c : ours) {
      double whole = 0;
      for (const TimeCategory& each : TimeCategories()) {
        whole += data.Median(workload, c, each.metric);
      }
      const double part = data.Median(workload, c, category.metric);
      cells.push_back(fmt::format("{:.2f} ({:.0f} %)", part / data.tsc_hz(),
                                  whole > 0 ? part / whole * 100 : 0));
    }
    table.Row(std::move(cells));
  }
  return table.Render();
}

// What the paper's Tables 1 and 2 have from sampling: the CPU time of the thread that runs the
// VCPU.
std::string SampleTable(const LabData& data, const std::string& workload) {
  std::string text;
  for (const std::string& name : NetworkNames()) {
    const std::string prefix = name + ".sampled.";
    const std::vector<Configuration> all =
        Measured(data, workload, {prefix + SampleKinds()[0].metric});
    if (all.empty()) continue;
    HtmlTable table(HeadOf(data, name + ", % of its CPU time", all));
    for (const TimeCategory& kind : SampleKinds()) {
      std::vector<std::string> cells = {kind.meaning};
      for (const Configuration& c : all) {
        cells.push_back(Number(data.Median(workload, c, prefix + kind.metric) * 100));
      }
      table.Row(std::move(cells));
    }
    text += table.Render();
  }
  return text;
}

// The paper's Table 3.
std::string IdleTable(const LabData& data, const std::string& workload) {
  std::vector<std::string> names;
  for (const std::string& name : NetworkNames()) {
    if (!Measured(data, workload, {name + ".idle"}).empty()) names.push_back(name);
  }
  if (names.empty()) return "";
  const std::vector<Configuration> all = Measured(data, workload, {names[0] + ".idle"});
  HtmlTable table(HeadOf(data, "idle, % of the guest's time", all));
  for (const std::string& name : names) {
    std::vector<std::string> cells = {name};
    for (const Configuration& c : all) {
      cells.push_back(Number(data.Median(workload, c, name + ".idle") * 100, 1));
    }
    table.Row(std::move(cells));
  }
  return table.Render();
}

// The paper's Figure 5, as the guest sees it.
std::string TransmitPath(const LabData& data, const std::string& workload) {
  const std::vector<Configuration> all = Measured(data, workload, TransmitNames());
  BarChart chart;
  chart.name = "Cycles from an access to the next instruction";
  chart.axis = "cycles (log scale; shorter is better)";
  chart.scale = Scale::kLog;
  chart.series = SeriesOf(data, all);
  chart.label = FormatCycles;
  HtmlTable table(HeadOf(data, "cycles", all));
  for (const std::string& name : TransmitNames()) {
    BarGroup group{name, {}};
    std::vector<std::string> cells = {name};
    for (const Configuration& c : all) {
      group.values.push_back(data.Median(workload, c, name));
      cells.push_back(CellOf(group.values.back(), "cycles"));
    }
    if (!Any(group.values)) continue;
    chart.groups.push_back(std::move(group));
    table.Row(std::move(cells));
  }
  return chart.groups.empty() ? "" : DrawBars(chart) + table.Render();
}

}  // namespace

std::string NetworkSection(const LabData& data) {
  std::string text;
  const auto add = [&](const std::string& heading, const std::string& body) {
    if (!body.empty()) text += SubHeading(heading) + body;
  };
  for (const std::string& workload : data.WorkloadsOf(kTransmit)) {
    add(workload + ": one access, in cycles from it to the next instruction (Figure 5)",
        TransmitPath(data, workload));
  }
  for (const std::string& workload : data.WorkloadsOf(kNetwork)) {
    add(workload + ": throughput by the clock (Figure 6)", Throughput(data, workload, ""));
    add(workload + ": at the CPU's limit: by the CPU time of the thread that runs the VCPU",
        Throughput(data, workload, ".limit"));
    add(workload + ": crossings", Ablation(data, workload));
    add(workload + ": where the time went (Tables 1 and 2)", TimeTable(data, workload));
    add(workload + ": where the VCPU's CPU time went, by samples", SampleTable(data, workload));
    add(workload + ": idle guests (Table 3)", IdleTable(data, workload));
  }
  if (!text.empty()) return text;
  return Missing("The experiment has no workload of program network or transmit.");
}

}  // namespace alibi::bench::lab
