// SPDX-License-Identifier: Apache-2.0
#include "bench/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/report.h"
#include "bench/svg_drawing.h"

namespace alibi::bench {

std::string SvgChart(const Results& results, const std::string& default_policy,
                     const nlohmann::ordered_json& host) {
  std::vector<SystemId> systems;
  std::vector<SvgSeries> series;
  for (const auto& [id, look] :
       {std::pair{SystemId{kNative, ""}, SvgSeries{"native", "native"}},
        std::pair{SystemId{kAlibi, default_policy}, SvgSeries{"Alibi", "alibi", true}},
        std::pair{SystemId{kHardware, ""}, SvgSeries{"hardware (KVM)", "hardware"}},
        std::pair{SystemId{kQemuTcg, ""}, SvgSeries{"QEMU TCG", "tcg"}}}) {
    if (!results.Has(id)) continue;
    systems.push_back(id);
    series.push_back(look);
  }

  const std::string title = "Alibi: cycles per operation";
  SvgDrawing drawing;
  drawing.Head(title,
               fmt::format("{} · {} · policy {} · medians · shorter is better",
                           host.value("cpu", std::string("unknown CPU")),
                           host.value("kernel", std::string("unknown kernel")), default_policy),
               series, "Alibi's budget");

  SvgPanel nano{.title = "Privileged and control-flow operations, cycles (log scale)",
                .series = series,
                .rows = {},
                .least = 1,
                .most = 10,
                .ticks = {},
                .label = FormatCycles};
  SvgPanel compute{.title = "Compute programs in user mode, times native (log scale)",
                   .series = {},
                   .rows = {},
                   .least = 0.5,
                   .most = 2,
                   .ticks = {},
                   .label = [](double v) { return fmt::format("{:.1f}x", v); }};
  SvgPanel compute32 = compute;
  compute32.title = "32-bit compute programs in user mode, times native (log scale)";
  const SystemId native = {kNative, ""};
  for (std::size_t i = 0; i < systems.size(); ++i) {
    if (systems[i] == native) continue;
    SvgSeries unmarked = series[i];
    unmarked.marked = false;
    compute.series.push_back(unmarked);
    compute32.series.push_back(unmarked);
  }
  const auto cycles = [&](const std::string& row, const SystemId& id) {
    return results.Samples(row, id).empty() ? -1 : results.Of(row, id).median;
  };
  const auto slowdown = [&](const std::string& row, const SystemId& id) {
    const double base = results.Of(row, native).median, own = cycles(row, id);
    return base > 0 && own > 0 ? own / base : -1;
  };
  for (const std::string& name : results.Benchmarks()) {
    const std::string prefix = ComputePrefixOf(name);
    SvgPanel& panel = prefix == kComputePrefix     ? compute
                      : prefix == kCompute32Prefix ? compute32
                                                   : nano;
    SvgRow row{name, name.substr(prefix.size()), {}, &panel == &nano ? BudgetOf(name) : 0};
    for (const SystemId& id : systems) {
      if (&panel != &nano && id == native) continue;
      row.values.push_back(&panel == &nano ? cycles(name, id) : slowdown(name, id));
      panel.most = std::max(panel.most, row.values.back());
    }
    panel.rows.push_back(std::move(row));
  }
  if (!nano.rows.empty()) {
    nano.most = std::pow(10, std::ceil(std::log10(nano.most)));
    for (double tick = 1; tick <= nano.most; tick *= 10) nano.ticks.push_back(tick);
    drawing.Draw(nano);
  }
  for (SvgPanel* panel : {&compute, &compute32}) {
    if (panel->rows.empty()) continue;
    constexpr double kTicks[] = {0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
    for (double tick : kTicks) {
      panel->ticks.push_back(tick);
      if (tick >= panel->most) break;
    }
    panel->most = panel->ticks.back();
    drawing.Draw(*panel);
  }
  return drawing.Finish(title);
}

}  // namespace alibi::bench
