// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/lab/chart_frame.h"

namespace alibi::bench::lab {
namespace {

constexpr double kTop = 28, kPlot = 260, kLine = 15, kDot = 7;

struct Range {
  double least = 0, most = 0;
  void Take(double value) {
    if (std::isnan(value)) return;
    least = least == 0 ? value : std::min(least, value);
    most = std::max(most, value);
  }
};

// Texts in rows, so that none touches another one.
class LabelRows {
 public:
  // The row, from 0, for a text between these x.
  unsigned RowFor(double left, double right) {
    for (std::size_t row = 0; row < ends_.size(); ++row) {
      if (ends_[row] + 6 > left) continue;
      ends_[row] = right;
      return static_cast<unsigned>(row);
    }
    ends_.push_back(right);
    return static_cast<unsigned>(ends_.size() - 1);
  }
  double Height() const { return kLine * static_cast<double>(ends_.size()); }

 private:
  std::vector<double> ends_;
};

class CurveDrawing {
 public:
  CurveDrawing(const CurveChart& chart, const ChartFormat& format)
      : chart_(chart), format_(format) {
    Range x, y;
    for (const auto& curve : chart.curves) {
      for (const auto& [at, value] : curve) {
        x.Take(at);
        y.Take(value);
      }
    }
    for (const CurveChart::Thing& thing : chart.things) {
      x.Take(thing.x);
      for (double value : thing.values) y.Take(value);
    }
    for (const CurveChart::Mark& mark : chart.marks) x.Take(mark.x);
    x_ticks_ = LogTicksAround(x.least, x.most, false);
    y_ticks_ = LogTicksAround(y.least, y.most, true);
    for (double tick : y_ticks_) left_ = std::max(left_, TextWidth(ShortNumber(tick)) + 12);
    right_ = format.width - 12;
  }

  std::string Draw() {
    canvas_.Text(0, 12, "soft", "start", chart_.y_axis);
    // Marks have their labels above the plot.
    top_ = kTop + kLine * static_cast<double>(chart_.marks.size());
    Axes();
    Marks();
    for (std::size_t i = 0; i < chart_.series.size(); ++i) Curve(i);
    const double names = Things();
    canvas_.Text((left_ + right_) / 2, Bottom() + 36 + names, "soft", "middle", chart_.x_axis);
    return ChartSvg(format_, Bottom() + 44 + names, chart_.name, canvas_);
  }

 private:
  double Bottom() const { return top_ + kPlot; }
  static double Part(const std::vector<double>& ticks, double value) {
    return std::log(value / ticks.front()) / std::log(ticks.back() / ticks.front());
  }
  double X(double x) const { return left_ + (right_ - left_) * Part(x_ticks_, x); }
  double Y(double y) const { return Bottom() - kPlot * Part(y_ticks_, y); }

  void Axes() {
    for (double tick : y_ticks_) {
      canvas_.Line(left_, Y(tick), right_, Y(tick), tick == y_ticks_[0] ? "base" : "grid");
      canvas_.Text(left_ - 6, Y(tick) + 4, "soft", "end", ShortNumber(tick));
    }
    for (double tick : x_ticks_) {
      canvas_.Line(X(tick), top_, X(tick), Bottom() + 4, "grid");
      const std::string text = ShortNumber(tick);
      const double half = TextWidth(text) / 2;
      canvas_.Text(std::clamp(X(tick), half, format_.width - half), Bottom() + 17, "soft", "middle",
                   text);
    }
  }

  void Marks() {
    double y = kTop + 4;
    for (const CurveChart::Mark& mark : chart_.marks) {
      const double x = X(mark.x);
      canvas_.Line(x, top_ - 6, x, Bottom(), mark.measured ? "measured" : "predicted");
      const double half = TextWidth(mark.label) / 2;
      canvas_.Text(std::clamp(x, half, format_.width - half), y, "ink", "middle", mark.label);
      y += kLine;
    }
  }

  void Curve(std::size_t i) {
    std::vector<std::pair<double, double>> line;
    for (const auto& [x, y] : chart_.curves[i]) line.emplace_back(X(x), Y(y));
    canvas_.Path(line, (chart_.series[i].css + " line").c_str(), chart_.series[i].label);
    for (const auto& [x, y] : chart_.curves[i]) {
      Dot(x, y, i, 4,
          fmt::format("{}, {} at {}", chart_.series[i].label, ShortNumber(y), ShortNumber(x)));
    }
  }

  void Dot(double x, double y, std::size_t series, double size, const std::string& tip) {
    canvas_.Bar(X(x) - size / 2, Y(y) - size / 2, size, size, chart_.series[series].css.c_str(),
                tip);
  }

  // The height of what stands below the axis.
  double Things() {
    std::vector<CurveChart::Thing> things = chart_.things;
    std::stable_sort(things.begin(), things.end(),
                     [](const auto& a, const auto& b) { return a.x < b.x; });
    LabelRows rows;
    for (const CurveChart::Thing& thing : things) {
      const double half = TextWidth(thing.name) / 2;
      const double at = std::clamp(X(thing.x), half, format_.width - half);
      const double y = Bottom() + 33 + kLine * rows.RowFor(at - half, at + half);
      canvas_.Text(at, y, "ink", "middle", thing.name);
      for (std::size_t i = 0; i < thing.values.size(); ++i) {
        if (std::isnan(thing.values[i])) continue;
        Dot(thing.x, thing.values[i], i, kDot,
            fmt::format("{}, {}: {}", thing.name, chart_.series[i].label,
                        ShortNumber(thing.values[i])));
      }
    }
    return rows.Height();
  }

  const CurveChart& chart_;
  const ChartFormat& format_;
  double left_ = 16, right_, top_ = kTop;
  std::vector<double> x_ticks_, y_ticks_;
  SvgCanvas canvas_;
};

}  // namespace

std::vector<double> LogTicksAround(double least, double most, bool fine) {
  constexpr double kAlmost = 1e-9;
  double power = std::pow(10, std::floor(std::log10(least) + kAlmost));
  std::vector<double> ticks;
  for (;; power *= 10) {
    for (double factor : {1.0, 2.0, 5.0}) {
      if (factor != 1 && !fine) continue;
      const double tick = factor * power;
      // The largest tick below is the first.
      if (!ticks.empty() && tick <= least * (1 + kAlmost)) ticks.clear();
      ticks.push_back(tick);
      if (tick >= most * (1 - kAlmost) && ticks.size() > 1) return ticks;
    }
  }
}

std::string DrawCurves(const CurveChart& chart) {
  std::string text = "<figure>\n" + ChartLegend(chart.series);
  for (const ChartFormat& format : kChartFormats) text += CurveDrawing(chart, format).Draw();
  return text + "</figure>\n";
}

}  // namespace alibi::bench::lab
