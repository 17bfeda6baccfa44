// SPDX-License-Identifier: Apache-2.0
// alibi lab run --spread.
#ifndef ALIBI_CLI_LAB_SPREAD_H_
#define ALIBI_CLI_LAB_SPREAD_H_

#include <string>

#include "bench/lab/experiment.h"
#include "bench/lab/lab_runner.h"

namespace alibi::vmm {

struct SpreadOptions {
  std::string engine;          // one of SpreadNames()
  std::string engine_options;  // more words for it, as the user wrote them
  bool plan = false;           // only print the jobs
  std::string file, folder;
  std::string alibi;  // the program, on every host
};

// "parallel, slurm"
std::string SpreadNames();

// Runs the cells that are not done as jobs, and merges all into options.folder. Returns the exit
// status; *summary is set if that is kSuccess and it was no plan.
int Spread(const bench::lab::Experiment& experiment, const std::string& text,
           const SpreadOptions& options, bench::lab::LabSummary* summary);

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_LAB_SPREAD_H_
