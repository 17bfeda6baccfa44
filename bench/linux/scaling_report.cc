// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/scaling_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "bench/linux/cpus.h"
#include "bench/linux/linux_report.h"
#include "bench/linux/workloads.h"
#include "bench/svg_drawing.h"
#include "bench/text_table.h"

namespace alibi::bench {
namespace {

constexpr const char* kNote =
    "Time per operation, medians; tcg/alibi: how many times faster Alibi is than QEMU TCG; step: "
    "how\n"
    "many times the cost of the size before it, of Alibi and natively.\n";

// A step so many times as large as the native one is a jump.
constexpr double kJump = 2;

struct Times {
  std::optional<double> native, own, peer;
};

Times TimesOf(const Results& results, const LinuxWorkload& workload) {
  return {results.MedianOf(workload.name, kNative), results.MedianOf(workload.name, kAlibi),
          results.MedianOf(workload.name, kQemuTcg)};
}

Cell Step(const std::optional<double>& before, const std::optional<double>& now) {
  return {before && now ? FormatTimes(*now / *before) : ""};
}

}  // namespace

std::string ScalingTable(const LinuxMeasurements& measurements, bool colors) {
  const Results& results = measurements.results;
  std::string text;
  for (const ScalingBound& bound : ScalingBounds()) {
    TextTable table;
    table.Row({{bound.name},
               {"native"},
               {"alibi"},
               {"qemu-tcg"},
               {"tcg/alibi"},
               {"step"},
               {"native step"}});
    Times before;
    bool any = false;
    for (const LinuxWorkload& workload : LinuxWorkloads()) {
      if (workload.bound != &bound) continue;
      const Times now = TimesOf(results, workload);
      if (!now.native && !now.own && !now.peer) continue;
      any = true;
      const auto time = [](const std::optional<double>& seconds) {
        return Cell{seconds ? FormatSeconds(*seconds) : "-"};
      };
      Cell step = Step(before.own, now.own);
      const double native = before.native && now.native ? *now.native / *before.native : 1;
      if (before.own && now.own && *now.own / *before.own > kJump * std::max(native, 1.0)) {
        step.color = kColorRed;
      }
      table.Row({{std::to_string(workload.size)},
                 time(now.native),
                 time(now.own),
                 time(now.peer),
                 {now.own && now.peer ? FormatTimes(*now.peer / *now.own) : "-"},
                 step,
                 Step(before.native, now.native)});
      before = now;
    }
    if (!any) continue;
    text += fmt::format("Per {}: {}\n{}\n", bound.per, bound.meaning, table.Render(colors));
  }
  text += colors ? kColorDim + std::string(kNote) + kColorReset : kNote;
  text += LinuxFailures(results, colors);
  const std::string cpus = CpusTable(measurements, colors);
  return text + (cpus.empty() ? "" : "\n" + cpus);
}

std::string ScalingSvg(const LinuxMeasurements& measurements, const std::string& subtitle) {
  const Results& results = measurements.results;
  const std::vector<SvgSeries> series = {
      {"native", "native"}, {"Alibi", "alibi"}, {"QEMU TCG", "tcg"}};
  const std::string title = "What an operation costs as something grows";
  SvgDrawing drawing;
  drawing.Head(title, subtitle + " · medians · shorter is better", series, "");
  for (const ScalingBound& bound : ScalingBounds()) {
    SvgPanel panel{.title = "", .series = series, .rows = {}, .ticks = {}, .label = [](double v) {
                     return fmt::format("{:.3g}", v);
                   }};
    double most = 0;
    for (const LinuxWorkload& workload : LinuxWorkloads()) {
      if (workload.bound != &bound) continue;
      const Times times = TimesOf(results, workload);
      SvgRow row{workload.name, std::to_string(workload.size), {}, 0};
      bool any = false;
      for (const auto& seconds : {times.native, times.own, times.peer}) {
        row.values.push_back(seconds.value_or(-1));
        most = std::max(most, seconds.value_or(0));
        any = any || seconds;
      }
      if (any) panel.rows.push_back(std::move(row));
    }
    if (panel.rows.empty()) continue;
    const bool in_nanoseconds = most < 1e-5;
    for (SvgRow& row : panel.rows) {
      for (double& value : row.values) {
        if (value >= 0) value *= in_nanoseconds ? 1e9 : 1e6;
      }
    }
    panel.title = fmt::format("{}: {}, {} per {} (log scale)", bound.name, bound.meaning,
                              in_nanoseconds ? "ns" : "us", bound.per);
    FitAxis(&panel);
    drawing.Draw(panel);
  }
  return drawing.Finish(title);
}

}  // namespace alibi::bench
