// SPDX-License-Identifier: Apache-2.0
// Bar charts as self-contained SVG, for light and dark ground.
#ifndef ALIBI_BENCH_SVG_DRAWING_H_
#define ALIBI_BENCH_SVG_DRAWING_H_

#include <functional>
#include <string>
#include <vector>

#include "bench/svg_canvas.h"

namespace alibi::bench {

inline constexpr double kSvgWidth = 860, kSvgLeft = 150;  // left: where bars begin

struct SvgSeries {
  const char* label;
  const char* css;      // class of its bars: native, alibi, tcg, or the name of an engine
  bool marked = false;  // its bars show the rows' marks
};

struct SvgRow {
  std::string name;
  std::string shown;           // on the axis
  std::vector<double> values;  // one for each of the panel's series; negative: none
  double mark = 0;             // a line across the marked bars; 0: none
};

// Bars on a logarithmic axis from `least` to `most`.
struct SvgPanel {
  std::string title;
  std::vector<SvgSeries> series;
  std::vector<SvgRow> rows;
  double least = 1, most = 1;
  std::vector<double> ticks;
  std::function<std::string(double)> label;
};

// The axis begins and ends at a tick, and holds all of the rows' values.
void FitAxis(SvgPanel* panel);

class SvgDrawing {
 public:
  // Title, subtitle and legend, at the top.
  void Head(const std::string& title, const std::string& subtitle,
            const std::vector<SvgSeries>& series, const std::string& mark);
  void Draw(const SvgPanel& panel);  // below what was drawn
  std::string Finish(const std::string& title) const;

 private:
  SvgCanvas canvas_;
  double y_ = 0;
};

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_SVG_DRAWING_H_
