// SPDX-License-Identifier: Apache-2.0
// Takes the figures of the reproduction page, each run in a process of its own.
#ifndef ALIBI_BENCH_LAB_REPRODUCE_MEASURE_H_
#define ALIBI_BENCH_LAB_REPRODUCE_MEASURE_H_

#include <functional>
#include <string>

#include "base/result.h"
#include "bench/lab/reproduce/figures.h"

namespace alibi::bench::lab {

struct MeasureOptions {
  std::string alibi;        // the program
  std::string data_folder;  // laid out like bazel-bin
  std::string policy;       // the default one, which the figures are about
  std::string kernel = "cloud-amd64";
  bool quick = false;
  unsigned repeats = 0;                              // of experiments; 0: as many as usual
  std::string work_folder;                           // for what an interrupted run goes on with
  std::function<bool()> stopped;                     // true: no further run is begun; may be empty
  std::function<void(const std::string&)> progress;  // may be empty
};

// Measures a chapter (claims.h); with the host, what was asked for, and the host's load. What
// cannot be measured is among the figures' failures. Fails if nothing can be: programs or the
// kernel are missing; or if it was stopped.
Result<Figures> Measure(const std::string& chapter, const MeasureOptions& options);

Result<Figures> MeasureTranslation(const MeasureOptions& options);
Result<Figures> MeasureMacro(const MeasureOptions& options);
Result<Figures> MeasureMacro32(const MeasureOptions& options);
Result<Figures> MeasureHostedIo(const MeasureOptions& options);
Result<Figures> MeasureTypeIi(const MeasureOptions& options);
Result<Figures> MeasureTypeIiCures(const MeasureOptions& options);
Result<Figures> MeasureVmi(const MeasureOptions& options);

// What `alibi dump --example isprime` says, as figures.
void ReadExample(const std::string& text, Figures* figures);
// Of a file of `alibi run --profile`, under the names "PREFIX...".
void ReadProfile(const nlohmann::ordered_json& file, const std::string& prefix, Figures* figures);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_REPRODUCE_MEASURE_H_
