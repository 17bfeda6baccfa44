// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace alibi::bench {

double Quantile(const std::vector<double>& sorted, double q) {
  ALIBI_CHECK(!sorted.empty(), "a quantile has samples");
  const double at = q * static_cast<double>(sorted.size() - 1);
  const std::size_t below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

Summary Summarize(std::vector<double> samples) {
  Summary summary;
  if (samples.empty()) return summary;
  std::sort(samples.begin(), samples.end());
  summary.median = Quantile(samples, 0.5);
  summary.p10 = Quantile(samples, 0.1);
  summary.p90 = Quantile(samples, 0.9);
  summary.count = samples.size();
  return summary;
}

double GeometricMean(const std::vector<double>& values) {
  double sum = 0;
  std::size_t count = 0;
  for (double value : values) {
    if (value <= 0) continue;
    sum += std::log(value);
    ++count;
  }
  return count == 0 ? 0 : std::exp(sum / static_cast<double>(count));
}

}  // namespace alibi::bench
