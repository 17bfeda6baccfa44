// SPDX-License-Identifier: Apache-2.0
// Section of the report: engines, by how often a program enters its kernel (the paper's
// section 7.3).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/lab/crossover.h"
#include "bench/lab/curves.h"
#include "bench/lab/html.h"
#include "bench/lab/report.h"
#include "bench/linux/engines.h"
#include "bench/linux/workloads.h"

namespace alibi::bench::lab {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kDirectEngine = "direct";

std::string EngineOf(const Configuration& configuration) {
  for (const auto& [name, value] : configuration.parameters) {
    if (name == "engine") return value;
  }
  return "";
}

// A benchmark of a workload, on all engines.
struct Row {
  std::string workload, benchmark;
  bool synthetic = false;      // of entries.inc: its rate is known, and varied
  double rate = kNone;         // kernel entries per native second
  double stops = kNone;        // stops of its user code, running directly, for whatever reason
  std::vector<double> ratios;  // to native, by engine
};

class Engines {
 public:
  explicit Engines(const LabData& data) : data_(data) {
    for (const Configuration& c : data.Ours()) {
      const std::string engine = EngineOf(c);
      if (!engine.empty() && Find(engine) == nullptr) engines_.push_back(c);
    }
    for (const std::string& workload : data.WorkloadsOf("linux")) AddRows(workload);
  }

  const std::vector<Configuration>& all() const { return engines_; }
  const std::vector<Row>& rows() const { return rows_; }
  const Configuration* Find(const std::string& engine) const {
    for (const Configuration& c : engines_) {
      if (EngineOf(c) == engine) return &c;
    }
    return nullptr;
  }
  double RatioOf(const Row& row, const std::string& engine) const {
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      if (EngineOf(engines_[i]) == engine) return row.ratios[i];
    }
    return kNone;
  }

  // What a stop of user code that runs directly costs, as machines have measured it.
  double StopCycles() const {
    const Configuration* direct = Find(kDirectEngine);
    return direct == nullptr ? kNone
                             : data_.MedianOfProgram("linux", *direct, "prices.direct_stop_cycles");
  }
  double StopSeconds() const { return data_.tsc_hz() > 0 ? StopCycles() / data_.tsc_hz() : kNone; }

  // Of the synthetic rows that both engines have.
  std::vector<EntryPoint> Points() const {
    std::vector<EntryPoint> points;
    for (const Row& row : rows_) {
      const EntryPoint point = {row.rate, RatioOf(row, kTranslateEngine),
                                RatioOf(row, kDirectEngine)};
      if (row.synthetic && point.rate > 0 && point.translate > 0 && point.direct > 0) {
        points.push_back(point);
      }
    }
    return points;
  }

 private:
  void AddRows(const std::string& workload) {
    const Configuration native = {{kNative, ""}, {}};
    std::vector<std::string> names = data_.Benchmarks(workload);
    std::erase_if(names, [](const std::string& name) {
      const LinuxWorkload* known = FindLinuxWorkload(name);
      return known == nullptr || known->is_boot;
    });
    for (const std::string& name : names) {
      Row row;
      row.workload = workload;
      row.benchmark = name;
      row.synthetic = FindLinuxWorkload(name)->suite == LinuxSuite::kEntries;
      const double base = data_.Median(workload, native, name);
      if (row.synthetic) {
        row.rate = row.stops = 1 / base;
      } else if (names.size() == 1) {
        // Counters are of the whole run.
        const double seconds = data_.Median(workload, native, "wall");
        row.rate =
            (CountOf(workload, "system_calls") + CountOf(workload, "instructions")) / seconds;
        row.stops = CountOf(workload, "stops") / seconds;
      }
      for (const Configuration& c : engines_) {
        row.ratios.push_back(data_.Median(workload, c, name) / base);
      }
      rows_.push_back(std::move(row));
    }
  }

  // A counter of direct execution, less what a boot counts, if there is a workload that only boots.
  double CountOf(const std::string& workload, const std::string& counter) const {
    const Configuration* direct = Find(kDirectEngine);
    if (direct == nullptr) return kNone;
    const auto count = [&](const std::string& of) {
      return data_.Median(of, *direct, "direct.direct_" + counter);
    };
    const std::vector<std::string> boots = data_.WorkloadsOf("boot");
    const double own = count(workload), boot = boots.empty() ? 0 : count(boots.front());
    return own - (std::isnan(boot) ? 0 : boot);
  }

  const LabData& data_;
  std::vector<Configuration> engines_;  // the first of each
  std::vector<Row> rows_;
};

bool CanBeDrawn(const Row& row) {
  return row.rate > 0 &&
         std::any_of(row.ratios.begin(), row.ratios.end(), [](double ratio) { return ratio > 0; });
}

std::string Chart(const LabData& data, const Engines& engines,
                  const std::optional<double>& predicted, const std::optional<double>& measured) {
  CurveChart chart;
  chart.name = "Times native by kernel entries per second, by engine";
  chart.x_axis = "kernel entries per native second";
  chart.y_axis = "times native (lower is better)";
  for (const Configuration& c : engines.all()) {
    chart.series.push_back({data.Label(c), data.Css(c)});
  }
  chart.curves.resize(chart.series.size());
  for (const Row& row : engines.rows()) {
    if (!CanBeDrawn(row)) continue;
    if (!row.synthetic) chart.things.push_back({row.benchmark, row.rate, row.ratios});
    for (std::size_t i = 0; row.synthetic && i < row.ratios.size(); ++i) {
      if (row.ratios[i] > 0) chart.curves[i].emplace_back(row.rate, row.ratios[i]);
    }
  }
  for (auto& curve : chart.curves) std::sort(curve.begin(), curve.end());
  if (predicted) chart.marks.push_back({"predicted crossover (dashed)", *predicted, false});
  if (measured) chart.marks.push_back({"measured crossover", *measured, true});
  const bool any =
      !chart.things.empty() || std::any_of(chart.curves.begin(), chart.curves.end(),
                                           [](const auto& curve) { return !curve.empty(); });
  return any ? DrawCurves(chart)
             : Missing("No figure can be drawn: none has a native one beside it.");
}

std::string TimesCell(double ratio) { return ratio > 0 ? fmt::format("{:.2f}", ratio) : "-"; }

std::string RateCell(double rate) { return rate >= 0 ? ShortNumber(rate) : "-"; }

std::string Table(const LabData& data, const Engines& engines) {
  std::vector<std::string> head = {"workload", "benchmark", "entries/s", "stops/s"};
  for (const Configuration& c : engines.all()) head.push_back(data.Label(c));
  head.insert(head.end(), {"direct, predicted", "auto / best"});
  HtmlTable table(head, 2);
  const double stop = engines.StopSeconds();
  for (const Row& row : engines.rows()) {
    std::vector<std::string> cells = {row.workload, row.benchmark, RateCell(row.rate),
                                      RateCell(row.stops)};
    for (double ratio : row.ratios) cells.push_back(TimesCell(ratio));
    cells.push_back(TimesCell(PredictedDirect(row.stops, stop)));
    const double best =
        std::fmin(engines.RatioOf(row, kTranslateEngine), engines.RatioOf(row, kDirectEngine));
    cells.push_back(TimesCell(engines.RatioOf(row, kAutoEngine) / best));
    table.Row(std::move(cells));
  }
  return table.Render();
}

std::string RateText(const std::optional<double>& rate) {
  return rate ? fmt::format("{} kernel entries per second", ShortNumber(*rate)) : "nowhere";
}

}  // namespace

std::string EnginesSection(const LabData& data) {
  const Engines engines(data);
  if (engines.all().size() < 2) {
    return Missing("The experiment does not vary the parameter engine, as hybrid.toml does.");
  }
  if (engines.rows().empty()) {
    return Missing("The experiment has no workload of program linux that gave a figure.");
  }
  std::string text;
  const std::vector<EntryPoint> points = engines.Points();
  std::optional<double> predicted, measured;
  if (!points.empty()) {
    const EntryPoint& slowest = *std::min_element(
        points.begin(), points.end(), [](const auto& a, const auto& b) { return a.rate < b.rate; });
    predicted = PredictedCrossover(slowest.translate, engines.StopSeconds());
    measured = MeasuredCrossover(points);
    text += Paragraph(fmt::format(
        "A stop of user code that runs directly costs {} cycles on this host ({}), as machines "
        "measured it when they were made; translated, the program of the curves takes {} times "
        "what "
        "it takes natively. By these prices the engines are equal at {}; measured, their curves "
        "cross at {}.",
        CellOf(engines.StopCycles(), "cycles"), CellOf(engines.StopSeconds(), "s"),
        TimesCell(slowest.translate), RateText(predicted), RateText(measured)));
  }
  const auto notes = data.experiment().find("notes");
  if (notes != data.experiment().end() && notes->is_array()) {
    for (const auto& note : *notes) {
      if (note.is_string()) text += Paragraph(note.get<std::string>());
    }
  }
  return text + Chart(data, engines, predicted, measured) + Table(data, engines);
}

}  // namespace alibi::bench::lab
