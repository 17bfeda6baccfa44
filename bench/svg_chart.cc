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

// Viewers without prefers-color-scheme show the light colours on a light ground.
constexpr const char* kStyle = R"(<style>
svg { --ground: #ffffff; --ink: #1f2328; --soft: #59636e; --grid: #e4e7eb;
      --native: #8c959f; --alibi: #0a66c2; --tcg: #d9760a; --budget: #1f2328; }
@media (prefers-color-scheme: dark) {
  svg { --ground: #0d1117; --ink: #e6edf3; --soft: #9198a1; --grid: #2a313a;
        --native: #7d8590; --alibi: #4aa3ff; --tcg: #f0a04b; --budget: #e6edf3; } }
text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); }
.title { font-size: 17px; font-weight: 600; }
.soft { fill: var(--soft); }
.value { font-size: 10px; fill: var(--soft); }
.tick { font-size: 11px; fill: var(--soft); }
.ground { fill: var(--ground); }
.grid { stroke: var(--grid); stroke-width: 1; }
.native { fill: var(--native); } .alibi { fill: var(--alibi); } .tcg { fill: var(--tcg); }
.budget { stroke: var(--budget); stroke-width: 1.5; }
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
  double most = 1;
  bool log = false;
  std::vector<double> ticks;

  double X(double value) const {
    const double part = log ? std::log10(std::max(value, 1.0)) / std::log10(most) : value / most;
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
  drawing.Text(16, drawing.y + 12, "ink", "start", panel.title);
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
    const double group = y;
    for (const Series& series : panel.series) {
      const double v = value(row, series);
      if (v < 0) continue;
      const double end = panel.X(v);
      drawing.Bar(kLeft, y, end - kLeft, series.css,
                  fmt::format("{}, {}: {}", row, series.label, label(v)));
      drawing.Text(end + 4, y + kBar, "value", "start", label(v));
      y += kBar + kBarGap;
    }
    const std::string name =
        row.starts_with(kComputePrefix) ? row.substr(std::string(kComputePrefix).size()) : row;
    drawing.Text(kLeft - 10, (group + y - kBarGap) / 2 + 4, "ink", "end", name);
    if (const double budget = budgets ? BudgetOf(row) : 0; budget != 0) {
      drawing.Line(panel.X(budget), group - 3, panel.X(budget), y + 1, "budget");
    }
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
             .most = 10,
             .log = true,
             .ticks = {}};
  Panel compute{.title = "Compute programs in user mode, times native",
                .rows = {},
                .series = {},
                .most = 1,
                .log = false,
                .ticks = {}};
  const SystemId native = {kNative, ""};
  for (const Series& s : series) {
    if (s.id != native) compute.series.push_back(s);
  }
  const auto cycles = [&](const std::string& row, const Series& s) {
    return results.Samples(row, s.id).empty() ? -1 : results.Of(row, s.id).median;
  };
  const auto slowdown = [&](const std::string& row, const Series& s) {
    const double base = results.Of(row, native).median, own = cycles(row, s);
    return base > 0 && own > 0 ? own / base : -1;
  };
  for (const std::string& name : results.Benchmarks()) {
    Panel& panel = name.starts_with(kComputePrefix) ? compute : nano;
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
  if (!compute.rows.empty()) {
    double step = 1;
    while (compute.most / step > 10) step *= step == 2 || step == 20 ? 2.5 : 2;
    compute.most = std::ceil(compute.most / step) * step;
    for (double tick = 0; tick <= compute.most; tick += step) compute.ticks.push_back(tick);
    DrawPanel(
        drawing, compute, slowdown, [](double v) { return fmt::format("{:.1f}x", v); }, false);
  }
  return drawing.Finish(title);
}

}  // namespace alibi::bench
