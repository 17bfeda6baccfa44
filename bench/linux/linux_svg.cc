// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

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
  for (const LinuxEngine& engine : measurements.engines) {
    add(engine.system, {engine.name.c_str(), engine.name.c_str(), engine.name == kAutoEngine});
  }
  for (const SystemId& id : results.Systems()) {
    if (id.system == kAlibi && measurements.engines.empty()) add(id, {"Alibi", "alibi", true});
    if (id.system == kQemuTcg) add(id, {"QEMU TCG", "tcg"});
  }
  const std::string title = measurements.engines.empty()
                                ? "A Linux guest on Alibi and on QEMU TCG"
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
    if (!measurements.engines.empty()) row.mark = workload.auto_most;
    if (any) (workload.is_boot ? boot : work).rows.push_back(std::move(row));
  }
  SvgDrawing drawing;
  drawing.Head(title, subtitle + " · medians · shorter is better", series,
               measurements.engines.empty() ? "Alibi's aim" : "aim of auto");
  for (SvgPanel* panel : {&boot, &work}) {
    if (panel->rows.empty()) continue;
    FitAxis(panel);
    drawing.Draw(*panel);
  }
  return drawing.Finish(title);
}

}  // namespace alibi::bench
