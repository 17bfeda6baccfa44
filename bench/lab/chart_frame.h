// SPDX-License-Identifier: Apache-2.0
// What all kinds of charts of a report have in common.
#ifndef ALIBI_BENCH_LAB_CHART_FRAME_H_
#define ALIBI_BENCH_LAB_CHART_FRAME_H_

#include <string>
#include <vector>

#include "bench/lab/chart.h"
#include "bench/svg_canvas.h"

namespace alibi::bench::lab {

// One of a chart's two drawings.
struct ChartFormat {
  const char* css;
  double width;
  bool labels_above;  // groups' labels over their bars, not left of them
  unsigned ticks;
};
extern const ChartFormat kChartFormats[2];

// Pixels that a text takes at most.
double TextWidth(const std::string& text);
// The drawing's element. `name`: for those who cannot see it.
std::string ChartSvg(const ChartFormat& format, double height, const std::string& name,
                     const SvgCanvas& canvas);
// "" for a single series.
std::string ChartLegend(const std::vector<Series>& series);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_CHART_FRAME_H_
