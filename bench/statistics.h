// SPDX-License-Identifier: Apache-2.0
// Order statistics of repeated measurements. On a shared host the noise is one-sided (preemption,
// cold caches), so everything here is a quantile, never a mean of samples.
#ifndef ALIBI_BENCH_STATISTICS_H_
#define ALIBI_BENCH_STATISTICS_H_

#include <cstddef>
#include <vector>

namespace alibi::bench {

struct Summary {
  double median = 0, p10 = 0, p90 = 0;
  std::size_t count = 0;
};

// The q-quantile (0..1) of sorted, non-empty values, linear between neighbours.
double Quantile(const std::vector<double>& sorted, double q);

// All zero for no samples.
Summary Summarize(std::vector<double> samples);

// Of positive values; 0 for none.
double GeometricMean(const std::vector<double>& values);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_STATISTICS_H_
