// SPDX-License-Identifier: Apache-2.0
// An experiment's folder: what came of each run, and the two files that have all of it.
#ifndef ALIBI_BENCH_LAB_LAB_FOLDER_H_
#define ALIBI_BENCH_LAB_LAB_FOLDER_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/lab/experiment.h"
#include "bench/lab/matrix.h"
#include "bench/lab/tidy.h"

namespace alibi::bench::lab {

// What came of one run.
struct Record {
  std::vector<std::string> command;
  std::string failure;  // "": none
  std::vector<Value> values;
  std::string host;  // its name, if the experiment was spread over hosts
};

// Files of a run, in the experiment's folder.
std::string RecordFile(const std::string& folder, const std::string& run);    // Record as JSON
std::string EventLogFile(const std::string& folder, const std::string& run);  // of observed runs
std::string DigestFile(const std::string& folder, const std::string& run);    // of that log
std::string ProfileFile(const std::string& folder, const std::string& run);   // of observed runs

Status WriteRecord(const std::string& folder, const RunSpec& run, const Record& record);
// False: there is none, or a damaged one.
bool ReadRecord(const std::string& folder, const std::string& run, Record* record);

// experiment.json, beside what the experiment itself says.
struct FolderFacts {
  std::string text;  // the experiment's file
  std::string file;  // its name
  std::string version, began;
  nlohmann::ordered_json program;  // {"path", "bytes", "changed"}
  nlohmann::ordered_json host;     // as DescribeHost has it; null if there are several
  nlohmann::ordered_json hosts;    // by name, of an experiment that was spread; null if it was not
  std::vector<std::string> notes;  // on what was left out
  std::size_t planned = 0;         // runs
};

Status WriteExperiment(const std::string& folder, const Experiment& experiment,
                       const FolderFacts& facts, const std::vector<RunSpec>& runs,
                       const std::map<std::string, Record>& records);
Status WriteResults(const std::string& folder, const Experiment& experiment,
                    const std::vector<RunSpec>& runs, const std::map<std::string, Record>& records);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_LAB_FOLDER_H_
