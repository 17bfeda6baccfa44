// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/reproduce/overhead.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace alibi::bench::lab {
namespace {

enum class Native : u8 {
  kMeasured,  // the benchmark's own native figure is that of the same instructions
  kOneCycle,  // a store
  kUnknown,   // privileged, or measured with all that the host's kernel does about it
};
using enum Native;

struct Row {
  const char* name;
  const char* what;
  std::vector<const char*> counts;
  std::vector<const char*> benchmarks;
  Native native;
};

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
#define ALIBI_OVERHEAD(name, what, counts, benchmarks, native) \
  {#name, what, counts, benchmarks, native},
#include "bench/lab/reproduce/overhead.inc"
  };
  return rows;
}

}  // namespace

OperationCosts CostsOf(const Results& results, const SystemId& alibi) {
  OperationCosts costs;
  for (const std::string& name : results.Benchmarks()) {
    costs[name] = {results.Of(name, alibi).median, results.Of(name, {kNative, ""}).median};
  }
  return costs;
}

std::vector<std::string> OverheadBenchmarks() {
  std::vector<std::string> names;
  for (const Row& row : Rows())
    names.insert(names.end(), row.benchmarks.begin(), row.benchmarks.end());
  return names;
}

Result<std::vector<OverheadRow>> DecomposeOverhead(const nlohmann::ordered_json& profile,
                                                   const OperationCosts& costs, double tsc_hz) {
  std::vector<OverheadRow> result;
  for (const Row& row : Rows()) {
    OverheadRow out;
    out.name = row.name;
    out.what = row.what;
    for (const char* pointer : row.counts) {
      const nlohmann::ordered_json::json_pointer at(pointer);
      if (!profile.contains(at) || !profile[at].is_number()) {
        return Error{
            fmt::format("the profile has no {}; was it written by alibi run --profile?", pointer)};
      }
      out.count += profile[at].get<u64>();
    }
    for (const char* benchmark : row.benchmarks) {
      const auto cost = costs.find(benchmark);
      const bool needs_native = row.native == kMeasured;
      if (cost == costs.end() || cost->second.here == 0 ||
          (needs_native && cost->second.native == 0)) {
        return Error{fmt::format("the nanobenchmark {} was not measured{}", benchmark,
                                 needs_native ? ", on Alibi and natively" : "")};
      }
      out.here += cost->second.here / static_cast<double>(row.benchmarks.size());
      if (needs_native)
        out.native += cost->second.native / static_cast<double>(row.benchmarks.size());
    }
    if (row.native == kOneCycle) out.native = 1;
    out.upper_bound = row.native == kUnknown && !row.benchmarks.empty();
    const double cycles = row.benchmarks.empty() ? 1 : out.here - out.native;
    out.seconds = static_cast<double>(out.count) * cycles / tsc_hz;
    result.push_back(std::move(out));
  }
  return result;
}

}  // namespace alibi::bench::lab
