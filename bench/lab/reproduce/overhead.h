// SPDX-License-Identifier: Apache-2.0
// Where the overhead of a run goes: the paper's Figure 5. How often each operation of the
// nanobenchmarks was executed, times what it costs here more than without a VMM.
#ifndef ALIBI_BENCH_LAB_REPRODUCE_OVERHEAD_H_
#define ALIBI_BENCH_LAB_REPRODUCE_OVERHEAD_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "bench/results.h"

namespace alibi::bench::lab {

// Cycles of one operation of a nanobenchmark; native 0: not measured.
struct OperationCost {
  double here = 0, native = 0;
};
using OperationCosts = std::map<std::string, OperationCost>;  // by benchmark

// The medians of results; `alibi`: the system whose overhead it is.
OperationCosts CostsOf(const Results& results, const SystemId& alibi);
// The benchmarks that a decomposition needs.
std::vector<std::string> OverheadBenchmarks();

struct OverheadRow {
  std::string name, what;
  u64 count = 0;            // operations, or cycles if `here` is 0
  double here = 0;          // cycles of one
  double native = 0;        // cycles of one without a VMM ...
  bool upper_bound = true;  // ... which nobody without privileges can measure: taken as 0
  double seconds = 0;       // overhead of all; negative: faster than native
};

// In the order of Figure 5. `profile`: a file of `alibi run --profile`. Fails if it or the costs
// lack something, and says what.
Result<std::vector<OverheadRow>> DecomposeOverhead(const nlohmann::ordered_json& profile,
                                                   const OperationCosts& costs, double tsc_hz);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_REPRODUCE_OVERHEAD_H_
