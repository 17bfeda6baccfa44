// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/spread.h"

#include <fmt/format.h>

#include "bench/shell_word.h"

namespace alibi::bench::lab {
namespace {

using Words = std::vector<std::string>;

void Append(Words* words, const Words& more) {
  words->insert(words->end(), more.begin(), more.end());
}

// One job per host at a time. Files go to and come from the same path on every host: a host that
// shares this file system loses nothing, and one that does not keeps its copy.
Words ParallelCommand(const std::string& folder, const std::string& job,
                      const std::vector<unsigned>& cells, const Words& options) {
  Words words = {"parallel", "--will-cite", "--jobs", "1", "--workdir", folder};
  if (!options.empty()) {
    Append(&words, {"--basefile", kCopiedExperiment, "--return", "cells/{}"});
    Append(&words, options);
  }
  Append(&words, {job, ":::"});
  for (const unsigned cell : cells) words.push_back(fmt::format("{}", cell));
  return words;
}

// One job per node at a time, alone on it. The folder is on a file system that all nodes share.
Words SlurmCommand(const std::string& folder, const std::string& job,
                   const std::vector<unsigned>& cells, const Words& options) {
  std::string numbered = job;
  numbered.replace(numbered.find("{}"), 2, "$SLURM_ARRAY_TASK_ID");
  Words words = {"sbatch",
                 "--wait",
                 "--job-name=alibi-lab",
                 "--nodes=1",
                 "--ntasks=1",
                 "--exclusive",
                 "--chdir=" + folder,
                 "--output=" + folder + "/cells/slurm-%a.txt",
                 "--array=" + Ranges(cells)};
  Append(&words, options);
  Append(&words, {"--wrap", numbered});
  return words;
}

}  // namespace

std::string CellFolder(const std::string& folder, unsigned cell) {
  return fmt::format("{}/cells/{}", folder, cell);
}

const std::vector<SpreadEngine>& SpreadEngines() {
  static const std::vector<SpreadEngine> engines = {
      {"parallel", "parallel", "parallel", ParallelCommand},
      {"slurm", "sbatch", "slurm-client", SlurmCommand},
  };
  return engines;
}

std::string CellJob(const std::string& alibi) {
  return fmt::format("{} lab run {} --out . --cell {{}}", ShellWord(alibi), kCopiedExperiment);
}

std::string Ranges(const std::vector<unsigned>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ",";
    text += end - i == 1 ? fmt::format("{}", numbers[i])
                         : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace alibi::bench::lab
