// SPDX-License-Identifier: Apache-2.0
// The results as one self-contained SVG, for README and web pages, on light and dark ground.
#ifndef ALIBI_BENCH_SVG_CHART_H_
#define ALIBI_BENCH_SVG_CHART_H_

#include <nlohmann/json.hpp>
#include <string>

#include "bench/results.h"

namespace alibi::bench {

// Two panels: cycles per operation on a log scale, compute programs as times native.
std::string SvgChart(const Results& results, const std::string& default_policy,
                     const nlohmann::ordered_json& host);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_SVG_CHART_H_
