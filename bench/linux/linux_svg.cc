// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "bench/linux/cpus.h"
#include "bench/linux/engines.h"
#include "bench/linux/linux_report.h"
#include "bench/linux/workloads.h"
#include "bench/svg_drawing.h"

namespace alibi::bench {
namespace {

// A system that failed from the beginning has none.
bool HasFigure(const Results& results, const SystemId& id) {
  const auto& all = LinuxWorkloads();
  return std::any_of(all.begin(), all.end(), [&](const LinuxWorkload& workload) {
    return !results.Samples(workload.name, id).empty();
  });
}

// Of the same systems; without rows for the number of CPUs that they have.
SvgPanel SpeedUpPanel(const LinuxMeasurements& measurements, const std::vector<SystemId>& systems,
                      const std::vector<SvgSeries>& series, unsigned cpus) {
  SvgPanel panel{.title = fmt::format("Time on {} CPUs, in times of that on {} (log scale)", cpus,
                                      CpuNumbers(measurements).front()),
                 .series = series,
                 .rows = {},
                 .ticks = {},
                 .label = [](double v) { return fmt::format("{:.2f}x", v); }};
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    SvgRow row{workload.name, workload.name, {}, 0};
    if (cpus == 2 && workload.speed_up > 0) row.mark = 1 / workload.speed_up;
    bool any = false;
    for (const SystemId& id : systems) {
      const double times = SpeedUp(measurements, workload.name, id, cpus);
      row.values.push_back(times > 0 ? 1 / times : -1);
      any = any || times > 0;
    }
    if (any) panel.rows.push_back(std::move(row));
  }
  return panel;
}

}  // namespace

std::string LinuxSvg(const LinuxMeasurements& measurements, const std::string& subtitle) {
  const Results& results = measurements.results;
  std::vector<SystemId> systems;
  std::vector<SvgSeries> series;
  const auto add = [&](const SystemId& id, const SvgSeries& look) {
    if (!HasFigure(results, id)) return;
    systems.push_back(id);
    series.push_back(look);
  };
  // Beside other engines the aim is that of engine auto.
  const std::vector<LinuxSystem> engines = EnginesOf(measurements);
  for (const LinuxSystem& system : engines) {
    const char* name = system.engine.c_str();
    add(system.id, {name, name, system.engine == kAutoEngine});
  }
  for (const SystemId& id : results.Systems()) {
    if (id.system == kAlibi && engines.empty()) add(id, {"Alibi", "alibi", true});
    if (id.system == kQemuTcg) add(id, {"QEMU TCG", "tcg"});
  }
  const std::string title = engines.empty() ? "A Linux guest on Alibi and on QEMU TCG"
                                            : "A Linux guest on Alibi's engines and on QEMU TCG";
  SvgPanel boot{.title = "Boot, seconds (log scale)",
                .series = series,
                .rows = {},
                .ticks = {},
                .label = FormatSeconds};
  SvgPanel work{.title = "Workloads in the guest, times native (log scale)",
                .series = series,
                .rows = {},
                .ticks = {},
                .label = [](double v) { return fmt::format("{:.1f}x", v); }};
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    const double native = results.Of(workload.name, {kNative, ""}).median;
    const double base = workload.is_boot ? 1 : native;
    if (base <= 0) continue;
    SvgRow row{workload.name, workload.name, {}, 0};
    bool any = false;
    for (const SystemId& id : systems) {
      const double own = results.Of(workload.name, id).median;
      row.values.push_back(own > 0 ? own / base : -1);
      any = any || own > 0;
      // Where Alibi's bar has to end for its aim.
      if (id.system == kQemuTcg && own > 0) row.mark = own / base / workload.aim;
    }
    if (!engines.empty()) row.mark = workload.auto_most;
    if (any) (workload.is_boot ? boot : work).rows.push_back(std::move(row));
  }
  SvgDrawing drawing;
  drawing.Head(title, subtitle + " · medians · shorter is better", series,
               engines.empty() ? "Alibi's aim" : "aim of auto");
  std::vector<SvgPanel> panels = {std::move(boot), std::move(work)};
  const std::vector<unsigned> numbers = CpuNumbers(measurements);
  for (unsigned cpus : numbers) {
    if (cpus == numbers.front()) continue;
    panels.push_back(SpeedUpPanel(measurements, systems, series, cpus));
  }
  for (SvgPanel& panel : panels) {
    if (panel.rows.empty()) continue;
    FitAxis(&panel);
    drawing.Draw(panel);
  }
  return drawing.Finish(title);
}

}  // namespace alibi::bench
