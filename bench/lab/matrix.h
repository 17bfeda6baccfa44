// SPDX-License-Identifier: Apache-2.0
// An experiment's runs, in the order in which they are made.
#ifndef ALIBI_BENCH_LAB_MATRIX_H_
#define ALIBI_BENCH_LAB_MATRIX_H_

#include <string>
#include <utility>
#include <vector>

#include "bench/lab/experiment.h"
#include "bench/results.h"

namespace alibi::bench::lab {

// Option and value.
using Setting = std::pair<std::string, std::string>;

// The repeat of runs that are observed instead of timed.
inline constexpr unsigned kObserved = 0;

struct RunSpec {
  std::string id;  // unique, and good for a file's name
  Workload workload;
  SystemId system;
  std::vector<Setting> parameters;  // one for each of the experiment's; peers have none
  unsigned repeat = 1;              // from 1; or kObserved
  unsigned cell = 1;                // from 1
};

// One round of one workload, with every system, policy and combination of parameters: the least
// from which a ratio can be taken. A cell's runs are made on one host.
struct Cell {
  unsigned number = 1;  // from 1
  std::string workload;
  unsigned repeat = 1;
  std::vector<std::string> runs;  // their ids
};

// Every workload with every system, policy and combination of parameters, `repeats` times, then the
// observed runs. What a peer cannot do (booting natively) is left out. The same experiment always
// gives the same ids in the same order.
std::vector<RunSpec> Matrix(const Experiment& experiment);
// The same runs by cells, in the order of their numbers.
std::vector<Cell> Cells(const Experiment& experiment);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_MATRIX_H_
