#include "bench/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/report.h"

namespace alibi::bench {
namespace {

constexpr double kWidth = 860, kLeft = 150, kRight = 70, kBar = 8, kBarGap = 2, kGroupGap = 11;
constexpr double kPlotWidth = kWidth - kLeft - kRight;

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
.tcg { fill: #e0913f; }
.budget { stroke: #e6edf3; }
}
</style>
)";

std::string Escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

struct Series {
  SystemId id;
  const char* label;
  const char* css;
};

class Drawing {
 public:
  double y = 0;

  void Text(double x, double at, const char* css, const char* anchor, const std::string& text) {
    body_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n",
                    x, at, css, anchor, Escaped(text));
  }
  void Line(double x1, double y1, double x2, double y2, const char* css) {
    body_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1,
        x2, y2, css);
  }
  void Bar(double x, double at, double width, const char* css, const std::string& tooltip) {
    body_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"1.5\" "
        "class=\"{}\"><title>{}</title></rect>\n",
        x, at, std::max(width, 1.0), kBar, css, Escaped(tooltip));
  }
  std::string Finish(const std::string& title) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">\n{3}"
        "<rect class=\"ground\" width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n{4}</svg>\n",
        kWidth, y, Escaped(title), kStyle, body_);
  }

 private:
  std::string body_;
};

struct Panel {
  std::string title;
  std::vector<std::string> rows;
  std::vector<Series> series;
  double least = 1, most = 1;  // of the logarithmic axis
  std::vector<double> ticks;

  double X(double value) const {
    const double part = std::log(std::max(value, least) / least) / std::log(most / least);
    return kLeft + kPlotWidth * std::clamp(part, 0.0, 1.0);
  }
};

std::string TickLabel(double value) {
  if (value >= 1000) return fmt::format("{:.0f}k", value / 1000);
  return fmt::format("{:g}", value);
}

// `value(row, series)`: what the bar shows, negative if there is none.
template <class Value, class Label>
void DrawPanel(Drawing& drawing, const Panel& panel, Value&& value, Label&& label, bool budgets) {
  drawing.Text(16, drawing.y + 12, "head", "start", panel.title);
  drawing.y += 34;
  const double top = drawing.y;
  double height = 0;
  for (const std::string& row : panel.rows) {
    for (const Series& series : panel.series)
      height += value(row, series) >= 0 ? kBar + kBarGap : 0;
    height += kGroupGap;
  }
  for (double tick : panel.ticks) {
    drawing.Line(panel.X(tick), top - 4, panel.X(tick), top + height, "grid");
    drawing.Text(panel.X(tick), top - 9, "tick", "middle", TickLabel(tick));
  }
  double y = top + kGroupGap / 2;
  for (const std::string& row : panel.rows) {
    const double group = y, budget = budgets ? BudgetOf(row) : 0;
    for (const Series& series : panel.series) {
      const double v = value(row, series);
      if (v < 0) continue;
      const double end = panel.X(v);
      drawing.Bar(kLeft, y, end - kLeft, series.css,
                  fmt::format("{}, {}: {}", row, series.label, label(v)));
      if (budget != 0 && series.id.system == kAlibi) {
        drawing.Line(panel.X(budget), y - 2, panel.X(budget), y + kBar + 2, "budget");
      }
      drawing.Text(end + 4, y + kBar, "value", "start", label(v));
      y += kBar + kBarGap;
    }
    const std::string name = row.substr(ComputePrefixOf(row).size());
    drawing.Text(kLeft - 10, (group + y - kBarGap) / 2 + 4, "ink", "end", name);
    y += kGroupGap;
  }
  drawing.y = top + height + 26;
}

}  // namespace

std::string SvgChart(const Results& results, const std::string& default_policy,
                     const nlohmann::ordered_json& host) {
  std::vector<Series> series;
  for (const Series& s : {Series{{kNative, ""}, "native", "native"},
                          Series{{kAlibi, default_policy}, "Alibi", "alibi"},
                          Series{{kQemuTcg, ""}, "QEMU TCG", "tcg"}}) {
    if (results.Has(s.id)) series.push_back(s);
  }

  const std::string title = "Alibi: cycles per operation";
  Drawing drawing;
  drawing.Text(16, 30, "title", "start", title);
  drawing.Text(16, 50, "soft", "start",
               fmt::format("{} · {} · policy {} · medians · shorter is better",
                           host.value("cpu", std::string("unknown CPU")),
                           host.value("kernel", std::string("unknown kernel")), default_policy));
  double x = 16;
  for (const Series& s : series) {
    drawing.Bar(x, 63, 14, s.css, s.label);
    drawing.Text(x + 20, 71, "ink", "start", s.label);
    x += 40 + 7.5 * static_cast<double>(std::string(s.label).size());
  }
  drawing.Line(x + 6, 61, x + 6, 74, "budget");
  drawing.Text(x + 14, 71, "ink", "start", "Alibi's budget");
  drawing.y = 100;

  Panel nano{.title = "Privileged and control-flow operations, cycles (log scale)",
             .rows = {},
             .series = series,
             .least = 1,
             .most = 10,
             .ticks = {}};
  Panel compute{.title = "Compute programs in user mode, times native (log scale)",
                .rows = {},
                .series = {},
                .least = 0.5,
                .most = 2,
                .ticks = {}};
  Panel compute32 = compute;
  compute32.title = "32-bit compute programs in user mode, times native (log scale)";
  const SystemId native = {kNative, ""};
  for (const Series& s : series) {
    if (s.id == native) continue;
    compute.series.push_back(s);
    compute32.series.push_back(s);
  }
  const auto cycles = [&](const std::string& row, const Series& s) {
    return results.Samples(row, s.id).empty() ? -1 : results.Of(row, s.id).median;
  };
  const auto slowdown = [&](const std::string& row, const Series& s) {
    const double base = results.Of(row, native).median, own = cycles(row, s);
    return base > 0 && own > 0 ? own / base : -1;
  };
  for (const std::string& name : results.Benchmarks()) {
    const std::string prefix = ComputePrefixOf(name);
    Panel& panel = prefix == kComputePrefix     ? compute
                   : prefix == kCompute32Prefix ? compute32
                                                : nano;
    panel.rows.push_back(name);
    for (const Series& s : panel.series) {
      panel.most = std::max(panel.most, &panel == &nano ? cycles(name, s) : slowdown(name, s));
    }
  }
  if (!nano.rows.empty()) {
    nano.most = std::pow(10, std::ceil(std::log10(nano.most)));
    for (double tick = 1; tick <= nano.most; tick *= 10) nano.ticks.push_back(tick);
    DrawPanel(drawing, nano, cycles, FormatCycles, true);
  }
  for (Panel* panel : {&compute, &compute32}) {
    if (panel->rows.empty()) continue;
    constexpr double kTicks[] = {0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
    for (double tick : kTicks) {
      panel->ticks.push_back(tick);
      if (tick >= panel->most) break;
    }
    panel->most = panel->ticks.back();
    DrawPanel(
        drawing, *panel, slowdown, [](double v) { return fmt::format("{:.1f}x", v); }, false);
  }
  return drawing.Finish(title);
}

}  // namespace alibi::bench
