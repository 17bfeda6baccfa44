// SPDX-License-Identifier: Apache-2.0
// Makes an experiment's runs, each in a process of its own, and keeps what came of each in a file:
// an experiment that was stopped goes on where it was.
#ifndef ALIBI_BENCH_LAB_LAB_RUNNER_H_
#define ALIBI_BENCH_LAB_LAB_RUNNER_H_

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/lab/experiment.h"

namespace alibi::bench::lab {

struct LabOptions {
  std::string file;         // the experiment's; for messages and the record
  std::string folder;       // results.csv, experiment.json, logs/; made if it is not there
  std::string alibi;        // the program
  std::string data_folder;  // laid out like bazel-bin
  std::string kernel;       // of workloads that run one which the user gives; "": they are left out
  // Only this cell of the matrix (matrix.h), on this host; 0: all of it.
  unsigned cell = 0;
  // "12 of 80: nanobench, alibi hysteresis (2 failed)"; may be empty.
  std::function<void(const std::string&)> progress;
  // True: no further run is begun; may be empty.
  std::function<bool()> stopped;
};

struct LabSummary {
  unsigned runs = 0;                  // of the matrix
  unsigned done = 0;                  // with those of an earlier time
  unsigned earlier = 0;               // taken over
  std::vector<std::string> failures;  // "RUN: what happened"
};

// Results are in options.folder afterwards. Fails if nothing could be measured at all: programs or
// kernels are missing, the folder cannot be written or holds another experiment.
Result<LabSummary> RunLab(const Experiment& experiment, const std::string& text,
                          const LabOptions& options);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_LAB_RUNNER_H_
