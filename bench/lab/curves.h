// SPDX-License-Identifier: Apache-2.0
// Charts of curves with both axes logarithmic: measured curves, single things measured beside them,
// and places on the x axis that mean something.
#ifndef ALIBI_BENCH_LAB_CURVES_H_
#define ALIBI_BENCH_LAB_CURVES_H_

#include <string>
#include <utility>
#include <vector>

#include "bench/lab/chart.h"

namespace alibi::bench::lab {

struct CurveChart {
  // Something single, with a value for each series; NaN: none. Its name stands below the x axis.
  struct Thing {
    std::string name;
    double x = 1;
    std::vector<double> values;
  };
  // A vertical line.
  struct Mark {
    std::string label;
    double x = 1;
    bool measured = true;  // else dashed
  };
  std::string name;  // what it shows, for those who cannot see it
  std::string x_axis, y_axis;
  std::vector<Series> series;
  std::vector<std::vector<std::pair<double, double>>> curves;  // one for each series
  std::vector<Thing> things;
  std::vector<Mark> marks;
};

// All x and y are above 0. A legend, and the drawings.
std::string DrawCurves(const CurveChart& chart);

// Ticks 1, 2, 5, 10, ... or 1, 10, 100, ... around least and most, both above 0.
std::vector<double> LogTicksAround(double least, double most, bool fine);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_CURVES_H_
