// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/crossover.h"

#include <algorithm>
#include <cmath>

namespace alibi::bench::lab {

std::optional<double> PredictedCrossover(double slowdown, double stop_seconds) {
  if (!(slowdown > 1) || !(stop_seconds > 0)) return std::nullopt;
  return (slowdown - 1) / stop_seconds;
}

double PredictedDirect(double rate, double stop_seconds) { return 1 + rate * stop_seconds; }

std::optional<double> MeasuredCrossover(std::vector<EntryPoint> points) {
  std::sort(points.begin(), points.end(),
            [](const EntryPoint& a, const EntryPoint& b) { return a.rate < b.rate; });
  // Negative: running directly is faster. The last change of sign counts: below it, where little
  // is entered, noise may cross the curves as well.
  const auto loss = [](const EntryPoint& point) {
    return std::log(point.direct / point.translate);
  };
  for (std::size_t i = points.size(); i-- > 1;) {
    const double before = loss(points[i - 1]), after = loss(points[i]);
    if (!(before < 0 && after >= 0)) continue;
    const double part = -before / (after - before);
    return std::exp(std::log(points[i - 1].rate) +
                    part * std::log(points[i].rate / points[i - 1].rate));
  }
  return std::nullopt;
}

}  // namespace alibi::bench::lab
