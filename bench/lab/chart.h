// SPDX-License-Identifier: Apache-2.0
// Charts for a report: inline SVG, drawn twice, for wide and for narrow pages; the page's style
// sheet (kChartStyle) shows one of them, and has their colours, light and dark.
#ifndef ALIBI_BENCH_LAB_CHART_H_
#define ALIBI_BENCH_LAB_CHART_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace alibi::bench::lab {

struct Series {
  std::string label;
  std::string css;  // "native", "tcg", or of SeriesClass()
};

// Colours for configurations of Alibi and other things without a meaning of their own; beyond
// kSeriesClasses they begin again.
inline constexpr unsigned kSeriesClasses = 6;
std::string SeriesClass(std::size_t index);

enum class Scale { kLinear, kLog };

struct BarGroup {
  std::string label;
  std::vector<double> values;  // one for each series; NaN: none
};

struct BarChart {
  std::string name;  // what it shows, for those who cannot see it
  std::string axis;  // what the bars' lengths are, with the unit
  Scale scale = Scale::kLinear;
  bool stacked = false;  // a group's values lie behind each other in one bar; linear only
  std::vector<Series> series;
  std::vector<BarGroup> groups;
  std::function<std::string(double)> label;  // a value, with its unit if `axis` has none
  std::function<std::string(double)> tick;   // the same on the axis; empty: ShortNumber
};

struct LineChart {
  std::string name;
  std::string x_axis, y_axis;
  std::vector<Series> series;
  std::vector<std::vector<std::pair<double, double>>> points;  // one list for each series
};

// A legend if there are several series, and the drawings.
std::string DrawBars(const BarChart& chart);
// y is logarithmic, with a place for 0 below.
std::string DrawLines(const LineChart& chart);

extern const char* const kChartStyle;

// 0 to `most` in steps of 1, 2 or 5 times a power of ten, at most `count` of them; ends at or above
// most.
std::vector<double> LinearTicks(double most, unsigned count);
// "0", "1,234,567": no part of a unit.
std::string FormatCount(double value);
// "1,234", "25.3k", "1.2M", "3.1G": three digits where that is exact enough.
std::string ShortNumber(double value);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_CHART_H_
