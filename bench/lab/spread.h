// SPDX-License-Identifier: Apache-2.0
// An experiment's cells on several hosts, by engines that exist: GNU parallel over ssh, Slurm. Each
// cell is a job, and has a folder like any experiment's; what they left is merged into one.
#ifndef ALIBI_BENCH_LAB_SPREAD_H_
#define ALIBI_BENCH_LAB_SPREAD_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/lab/experiment.h"
#include "bench/lab/lab_runner.h"
#include "bench/lab/matrix.h"

namespace alibi::bench::lab {

// The copy of the experiment's file in its folder, which jobs read.
inline constexpr const char* kCopiedExperiment = "spread.toml";

// FOLDER/cells/NUMBER, of a cell's own runs.
std::string CellFolder(const std::string& folder, unsigned cell);

struct SpreadEngine {
  const char* name;     // "parallel", "slurm"
  const char* program;  // in PATH
  const char* package;  // Debian's
  // Its command, which ends when all jobs have ended. They run `job`, in which a cell's number
  // stands for `{}`, in `folder`, an absolute path. `options`: more words for it.
  std::vector<std::string> (*command)(const std::string& folder, const std::string& job,
                                      const std::vector<unsigned>& cells,
                                      const std::vector<std::string>& options);
};
const std::vector<SpreadEngine>& SpreadEngines();

// What a job runs, for the shell, with {} for the cell's number. `alibi` is the program's path on
// every host.
std::string CellJob(const std::string& alibi);

// "1-3,7" of ascending numbers.
std::string Ranges(const std::vector<unsigned>& numbers);

struct Merged {
  LabSummary summary;        // of what is there
  std::vector<Cell> undone;  // cells that lack runs, or have runs that failed
  std::size_t finished = 0;  // cells
};

// Takes the cells' runs over into `folder`, with the host that each was made on: results.csv,
// experiment.json, logs/. Fails if cells hold another experiment, or were measured with different
// builds of the program, or if different hosts have one name.
Result<Merged> MergeCells(const Experiment& experiment, const std::string& text,
                          const std::string& file, const std::string& folder);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_SPREAD_H_
