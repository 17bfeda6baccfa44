// SPDX-License-Identifier: Apache-2.0
// Tidy data: one row per measured value, as CSV (RFC 4180, with a line of column names).
#ifndef ALIBI_BENCH_LAB_TIDY_H_
#define ALIBI_BENCH_LAB_TIDY_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/lab/matrix.h"

namespace alibi::bench::lab {

struct Value {
  std::string metric;
  double value = 0;
  std::string unit;
};

struct TidyRow {
  std::string run;  // its id
  std::string workload;
  SystemId system;
  std::vector<Setting> parameters;
  unsigned repeat = 1;
  Value value;
  std::string host = "";  // its name, if an experiment was spread over hosts
};

// run,workload,system,policy,PARAMETERS...,repeat,metric,value,unit; "host" behind "policy" if any
// row has one.
std::string WriteCsv(const std::vector<TidyRow>& rows, const std::vector<std::string>& parameters);
// What WriteCsv wrote. Cells of parameters that are empty are no settings. Errors name `file` and
// the line.
Result<std::vector<TidyRow>> ReadCsv(const std::string& text, const std::string& file);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_TIDY_H_
