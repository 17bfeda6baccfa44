// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/lab/chart_frame.h"

namespace alibi::bench::lab {

// Chosen by a search for colours that are far apart (CIE 1976, at least 25; --uml 22) for normal
// sight and for protanopia, deuteranopia and tritanopia (Machado et al. 2009), with a contrast of 3
// or more to the ground. Lines differ by their dashes as well.
const char* const kChartStyle = R"(
:root { --native: #858b96; --tcg: #770703; --uml: #240000; --s0: #0641e3; --s1: #0c6f47; --s2: #a30c91;
  --s3: #4697e2; --s4: #ae8100; --s5: #343a47; --grid: #e4e7eb; }
@media (prefers-color-scheme: dark) {
  :root { --native: #dbdcdc; --tcg: #c53826; --uml: #489c60; --s0: #97b5fe; --s1: #2aec8e; --s2: #ae3da1;
    --s3: #0f5adc; --s4: #deb20d; --s5: #8e9092; --grid: #2d343d; }
}
.native { --c: var(--native); } .tcg { --c: var(--tcg); } .uml { --c: var(--uml); }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); }
.s3 { --c: var(--s3); } .s4 { --c: var(--s4); } .s5 { --c: var(--s5); }
.s1.line { stroke-dasharray: 7 3; } .s2.line { stroke-dasharray: 2 3; }
.s3.line { stroke-dasharray: 9 3 2 3; } .s4.line { stroke-dasharray: 5 2; }
.s5.line { stroke-dasharray: 1 4; }
svg.chart { display: block; }
svg.chart text { font: 12px var(--font); fill: var(--ink); }
svg.chart .soft, svg.chart .value { fill: var(--soft); }
svg.chart .value { font-size: 11px; }
svg.chart rect { fill: var(--c); }
svg.chart .part { stroke: var(--ground); stroke-width: 1; }
svg.chart .line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
svg.chart .grid { stroke: var(--grid); stroke-width: 1; }
svg.chart .base { stroke: var(--soft); stroke-width: 1; }
svg.chart .measured { stroke: var(--ink); stroke-width: 1.5; }
svg.chart .predicted { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 4 3; }
svg.narrow { display: none; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0;
  margin: .6rem 0 .4rem; font-size: .85rem; }
.legend i { display: inline-block; width: .85rem; height: .65rem; margin-right: .4rem;
  border-radius: 2px; background: var(--c); }
@media (max-width: 820px) { svg.wide { display: none; } svg.narrow { display: block; } }
)";

const ChartFormat kChartFormats[2] = {{"wide", 760, false, 6}, {"narrow", 336, true, 3}};

double TextWidth(const std::string& text) {
  constexpr double kCharacter = 7.3;  // of 12 px text, on average: DejaVu Sans, the widest font
  return kCharacter * static_cast<double>(text.size());
}

std::string ChartSvg(const ChartFormat& format, double height, const std::string& name,
                     const SvgCanvas& canvas) {
  return fmt::format(
      "<svg class=\"chart {0}\" width=\"{1:.0f}\" height=\"{2:.0f}\" viewBox=\"0 0 {1:.0f} "
      "{2:.0f}\" role=\"img\" aria-label=\"{3}\">\n{4}</svg>\n",
      format.css, format.width, height, EscapeMarkup(name), canvas.body());
}

std::string ChartLegend(const std::vector<Series>& series) {
  if (series.size() < 2) return "";
  std::string text = "<ul class=\"legend\">";
  for (const Series& s : series) {
    text += fmt::format("<li><i class=\"{}\"></i>{}</li>", s.css, EscapeMarkup(s.label));
  }
  return text + "</ul>\n";
}

namespace {

constexpr double kBar = 11, kBarGap = 2, kGroupGap = 12;

std::vector<double> LogTicks(double most) {
  std::vector<double> ticks = {1};
  while (ticks.back() < most) ticks.push_back(ticks.back() * 10);
  if (ticks.size() == 1) ticks.push_back(10);
  return ticks;
}

// A value's place between 0 and 1. Logarithmic axes begin at 1: what is less has no length.
double Part(Scale scale, double value, double most) {
  const double part =
      scale == Scale::kLinear ? value / most : std::log(std::max(value, 1.0)) / std::log(most);
  return std::clamp(part, 0.0, 1.0);
}

double Sum(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += std::isnan(value) ? 0 : std::max(value, 0.0);
  return sum;
}

double LargestOf(const BarChart& chart) {
  double most = 0;
  for (const BarGroup& group : chart.groups) {
    if (chart.stacked) most = std::max(most, Sum(group.values));
    for (double value : group.values) {
      if (!chart.stacked && !std::isnan(value)) most = std::max(most, value);
    }
  }
  return most;
}

// The bars of a drawing, from the top down.
class BarDrawing {
 public:
  BarDrawing(const BarChart& chart, const ChartFormat& format) : chart_(chart), format_(format) {
    double longest_label = 0, longest_value = 0;
    for (const BarGroup& group : chart.groups) {
      longest_label = std::max(longest_label, TextWidth(group.label));
      for (double value : group.values) {
        if (!std::isnan(value)) {
          longest_value = std::max(longest_value, TextWidth(chart.label(value)));
        }
      }
      longest_value = std::max(longest_value, TextWidth(chart.label(Sum(group.values))));
    }
    left_ = format.labels_above ? 4 : longest_label + 14;
    width_ = format.width - left_ - longest_value - 8;
    const double largest = LargestOf(chart);
    ticks_ = chart.scale == Scale::kLog ? LogTicks(largest)
                                        : LinearTicks(largest > 0 ? largest : 1, format.ticks);
    most_ = ticks_.back();
  }

  std::string Draw() {
    double height = 0;
    for (const BarGroup& group : chart_.groups) height += HeightOf(group);
    const double top = 44;
    Axis(top, top + height);
    double y = top + kGroupGap / 2;
    for (const BarGroup& group : chart_.groups) {
      Group(group, y);
      y += HeightOf(group);
    }
    return ChartSvg(format_, top + height + 6, chart_.name, canvas_);
  }

 private:
  double X(double value) const { return left_ + width_ * Part(chart_.scale, value, most_); }

  double Bars(const BarGroup& group) const {
    if (chart_.stacked) return 1;
    return static_cast<double>(std::count_if(group.values.begin(), group.values.end(),
                                             [](double value) { return !std::isnan(value); }));
  }
  double HeightOf(const BarGroup& group) const {
    return std::max(Bars(group), 1.0) * (kBar + kBarGap) + kGroupGap +
           (format_.labels_above ? 16 : 0);
  }

  void Axis(double top, double bottom) {
    canvas_.Text(left_, 12, "soft", "start", chart_.axis);
    double free_from = 0;  // labels do not touch each other
    for (double tick : ticks_) {
      canvas_.Line(X(tick), top - 6, X(tick), bottom, tick == ticks_[0] ? "base" : "grid");
      const std::string text = chart_.tick ? chart_.tick(tick) : ShortNumber(tick);
      const double half = TextWidth(text) / 2;
      const double at = std::clamp(X(tick), half, format_.width - half);
      if (at - half < free_from) continue;
      canvas_.Text(at, top - 12, "soft", "middle", text);
      free_from = at + half + 8;
    }
  }

  void Group(const BarGroup& group, double y) {
    const double middle = y + Bars(group) * (kBar + kBarGap) / 2 + 3;
    if (format_.labels_above) {
      canvas_.Text(left_, y + 10, "ink", "start", group.label);
      y += 16;
    } else {
      canvas_.Text(left_ - 10, middle, "ink", "end", group.label);
    }
    double end = left_;
    for (std::size_t i = 0; i < group.values.size(); ++i) {
      const double value = group.values[i];
      if (std::isnan(value)) continue;
      const Series& series = chart_.series[i];
      const std::string tip =
          fmt::format("{}, {}: {}", group.label, series.label, chart_.label(value));
      const double length = X(value) - left_;
      if (chart_.stacked) {
        if (value > 0) canvas_.Bar(end, y, length, kBar, (series.css + " part").c_str(), tip);
        end += length;
        continue;
      }
      canvas_.Bar(left_, y, length, kBar, series.css.c_str(), tip);
      canvas_.Text(X(value) + 5, y + kBar - 1.5, "value", "start", chart_.label(value));
      y += kBar + kBarGap;
    }
    if (chart_.stacked) {
      canvas_.Text(end + 5, y + kBar - 1.5, "value", "start", chart_.label(Sum(group.values)));
    }
  }

  const BarChart& chart_;
  const ChartFormat& format_;
  double left_, width_, most_ = 1;
  std::vector<double> ticks_;
  SvgCanvas canvas_;
};

class LineDrawing {
 public:
  LineDrawing(const LineChart& chart, const ChartFormat& format) : chart_(chart), format_(format) {
    double most_x = 0, most_y = 1, longest = 0;
    for (const auto& points : chart.points) {
      for (const auto& [x, y] : points) {
        most_x = std::max(most_x, x);
        most_y = std::max(most_y, y);
      }
    }
    for (const Series& series : chart.series) longest = std::max(longest, TextWidth(series.label));
    y_ticks_ = LogTicks(most_y);
    x_ticks_ = LinearTicks(most_x > 0 ? most_x : 1, format.ticks);
    // The axis ends with the data, not with the tick behind it.
    most_x_ = most_x > 0 ? most_x : 1;
    while (x_ticks_.back() > most_x_ * 1.0001) x_ticks_.pop_back();
    right_ = format.width - (format.labels_above ? 8 : longest + 16);
    left_ = 12;
    for (double tick : y_ticks_) left_ = std::max(left_, TextWidth(ShortNumber(tick)) + 10);
  }

  std::string Draw() {
    canvas_.Text(0, 12, "soft", "start", chart_.y_axis);
    for (double tick : y_ticks_) YTick(tick);
    YTick(0);
    for (double tick : x_ticks_) {
      canvas_.Line(X(tick), kBottom, X(tick), kBottom + 4, "base");
      const std::string text = fmt::format("{:g}", tick);
      const double half = TextWidth(text) / 2;
      canvas_.Text(std::clamp(X(tick), half, format_.width - half), kBottom + 17, "soft", "middle",
                   text);
    }
    canvas_.Text((left_ + right_) / 2, kBottom + 34, "soft", "middle", chart_.x_axis);
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      std::vector<std::pair<double, double>> line;
      for (const auto& [x, y] : chart_.points[i]) line.emplace_back(X(x), Y(y));
      canvas_.Path(line, (chart_.series[i].css + " line").c_str(), chart_.series[i].label);
    }
    if (!format_.labels_above) EndLabels();
    return ChartSvg(format_, kBottom + 42, chart_.name, canvas_);
  }

 private:
  static constexpr double kTop = 28, kBottom = 268, kZeroBand = 18, kLine = 14;

  double X(double x) const { return left_ + (right_ - left_) * x / most_x_; }
  double Y(double y) const {
    if (y < 1) return kBottom - kZeroBand * std::max(y, 0.0);
    return kBottom - kZeroBand -
           (kBottom - kZeroBand - kTop) * std::log(y) / std::log(y_ticks_.back());
  }

  void YTick(double tick) {
    canvas_.Line(left_, Y(tick), right_, Y(tick), tick == 0 ? "base" : "grid");
    canvas_.Text(left_ - 6, Y(tick) + 4, "soft", "end", ShortNumber(tick));
  }

  // Beside the lines' ends, moved apart where they would lie over each other.
  void EndLabels() {
    struct Label {
      double y;
      const Series* series;
    };
    std::vector<Label> labels;
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      if (chart_.points[i].empty()) continue;
      labels.push_back({Y(chart_.points[i].back().second), &chart_.series[i]});
    }
    std::stable_sort(labels.begin(), labels.end(),
                     [](const Label& a, const Label& b) { return a.y > b.y; });
    double free_below = kBottom + 4;
    for (Label& label : labels) free_below = (label.y = std::min(label.y, free_below)) - kLine;
    for (const Label& label : labels) {
      canvas_.Text(right_ + 8, label.y + 4, "ink", "start", label.series->label);
    }
  }

  const LineChart& chart_;
  const ChartFormat& format_;
  double left_, right_, most_x_;
  std::vector<double> x_ticks_, y_ticks_;
  SvgCanvas canvas_;
};

}  // namespace

std::string SeriesClass(std::size_t index) { return fmt::format("s{}", index % kSeriesClasses); }

std::vector<double> LinearTicks(double most, unsigned count) {
  const double rough = most / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough * 0.9999) step = factor * power;
  }
  std::vector<double> ticks;
  for (unsigned i = 0;; ++i) {
    ticks.push_back(i * step);
    if (ticks.back() >= most * 0.9999) return ticks;
  }
}

std::string ShortNumber(double value) {
  const double size = std::abs(value);
  struct Unit {
    double least, one;  // rounded values that are shown with it; its size
    const char* suffix;
  };
  for (const Unit& unit :
       {Unit{0.9995e9, 1e9, "G"}, Unit{0.9995e6, 1e6, "M"}, Unit{9999.5, 1e3, "k"}}) {
    if (size < unit.least) continue;
    const double shown = value / unit.one;
    return std::abs(shown) >= 99.95 || shown == std::round(shown)
               ? fmt::format("{:.0f}{}", shown, unit.suffix)
               : fmt::format("{:.1f}{}", shown, unit.suffix);
  }
  if (size >= 999.5) {
    const long rounded = std::lround(value);
    return fmt::format("{},{:03}", rounded / 1000, std::abs(rounded) % 1000);
  }
  if (size >= 99.95 || value == std::round(value)) return fmt::format("{:.0f}", value);
  if (size >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2g}", value);
}

std::string FormatCount(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string DrawBars(const BarChart& chart) {
  std::string text = "<figure>\n" + ChartLegend(chart.series);
  for (const ChartFormat& format : kChartFormats) text += BarDrawing(chart, format).Draw();
  return text + "</figure>\n";
}

std::string DrawLines(const LineChart& chart) {
  std::string text = "<figure>\n" + ChartLegend(chart.series);
  for (const ChartFormat& format : kChartFormats) text += LineDrawing(chart, format).Draw();
  return text + "</figure>\n";
}

}  // namespace alibi::bench::lab
