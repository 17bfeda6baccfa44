// SPDX-License-Identifier: Apache-2.0
#include "bench/svg_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace alibi::bench {
namespace {

constexpr double kRight = 70, kBar = 8, kBarGap = 2, kGroupGap = 11;
constexpr double kPlotWidth = kSvgWidth - kSvgLeft - kRight;

// Plain colours with a dark override: viewers that know neither custom properties nor
// prefers-color-scheme show the light chart on its own light ground.
constexpr const char* kStyle = R"(<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
.title { font-size: 17px; font-weight: 600; }
.head { font-size: 13px; font-weight: 600; }
.soft { fill: #59636e; }
.value { font-size: 10px; fill: #59636e; paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }
.tick { font-size: 11px; fill: #59636e; }
.ground { fill: #ffffff; }
.grid { stroke: #e4e7eb; stroke-width: 1; }
.native { fill: #98a1ab; }
.alibi { fill: #0a66c2; }
.translate { fill: #0a66c2; }
.auto { fill: #1f883d; }
.direct { fill: #7fbf5a; }
.hardware { fill: #a65ac2; }
.tcg { fill: #e08a2c; }
.budget { stroke: #1f2328; stroke-width: 1.6; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.soft, .value, .tick { fill: #9198a1; }
.ground { fill: #0d1117; }
.value { stroke: #0d1117; }
.grid { stroke: #2a313a; }
.native { fill: #6e7681; }
.alibi { fill: #4aa3ff; }
.translate { fill: #4aa3ff; }
.auto { fill: #3fb950; }
.direct { fill: #2c7a34; }
.hardware { fill: #bd7ad6; }
.tcg { fill: #e0913f; }
.budget { stroke: #e6edf3; }
}
</style>
)";

constexpr double kTicks[] = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5,  1,    2,    5,    10,
                             20,   50,   100,  200, 500, 1000, 2000, 5000, 10000};

std::string TickLabel(double value) {
  if (value >= 1000) return fmt::format("{:.0f}k", value / 1000);
  return fmt::format("{:g}", value);
}

double X(const SvgPanel& panel, double value) {
  const double part =
      std::log(std::max(value, panel.least) / panel.least) / std::log(panel.most / panel.least);
  return kSvgLeft + kPlotWidth * std::clamp(part, 0.0, 1.0);
}

}  // namespace

void FitAxis(SvgPanel* panel) {
  double least = 1e9, most = 0;
  for (const SvgRow& row : panel->rows) {
    for (double value : row.values) {
      if (value < 0) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  for (double tick : kTicks) {
    if (tick < least) panel->ticks.clear();  // the largest tick below is the first
    panel->ticks.push_back(tick);
    if (tick >= most && panel->ticks.size() > 1) break;
  }
  panel->least = panel->ticks.front();
  panel->most = panel->ticks.back();
}

void SvgDrawing::Head(const std::string& title, const std::string& subtitle,
                      const std::vector<SvgSeries>& series, const std::string& mark) {
  canvas_.Text(16, 30, "title", "start", title);
  canvas_.Text(16, 50, "soft", "start", subtitle);
  double x = 16;
  for (const SvgSeries& s : series) {
    canvas_.Bar(x, 63, 14, kBar, s.css, s.label);
    canvas_.Text(x + 20, 71, "ink", "start", s.label);
    x += 40 + 7.5 * static_cast<double>(std::string(s.label).size());
  }
  canvas_.Line(x + 6, 61, x + 6, 74, "budget");
  canvas_.Text(x + 14, 71, "ink", "start", mark);
  y_ = 100;
}

void SvgDrawing::Draw(const SvgPanel& panel) {
  canvas_.Text(16, y_ + 12, "head", "start", panel.title);
  y_ += 34;
  const double top = y_;
  double height = 0;
  for (const SvgRow& row : panel.rows) {
    for (double value : row.values) height += value >= 0 ? kBar + kBarGap : 0;
    height += kGroupGap;
  }
  for (double tick : panel.ticks) {
    canvas_.Line(X(panel, tick), top - 4, X(panel, tick), top + height, "grid");
    canvas_.Text(X(panel, tick), top - 9, "tick", "middle", TickLabel(tick));
  }
  double at = top + kGroupGap / 2;
  for (const SvgRow& row : panel.rows) {
    const double group = at;
    for (std::size_t i = 0; i < row.values.size(); ++i) {
      const double value = row.values[i];
      if (value < 0) continue;
      const double end = X(panel, value);
      const std::string label = panel.label(value);
      canvas_.Bar(kSvgLeft, at, end - kSvgLeft, kBar, panel.series[i].css,
                  fmt::format("{}, {}: {}", row.name, panel.series[i].label, label));
      if (row.mark > 0 && panel.series[i].marked) {
        canvas_.Line(X(panel, row.mark), at - 2, X(panel, row.mark), at + kBar + 2, "budget");
      }
      canvas_.Text(end + 4, at + kBar, "value", "start", label);
      at += kBar + kBarGap;
    }
    canvas_.Text(kSvgLeft - 10, (group + at - kBarGap) / 2 + 4, "ink", "end", row.shown);
    at += kGroupGap;
  }
  y_ = top + height + 26;
}

std::string SvgDrawing::Finish(const std::string& title) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n{3}"
      "<rect class=\"ground\" width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n{4}</svg>\n",
      kSvgWidth, y_, EscapeMarkup(title), kStyle, canvas_.body());
}

}  // namespace alibi::bench
