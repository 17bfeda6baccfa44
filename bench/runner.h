// SPDX-License-Identifier: Apache-2.0
// Runs the measured systems, interleaved and repeated, each run in a process of its own.
#ifndef ALIBI_BENCH_RUNNER_H_
#define ALIBI_BENCH_RUNNER_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/log_folder.h"
#include "bench/results.h"

namespace alibi::bench {

// Where the programs are. All paths.
struct Programs {
  std::string alibi;            // takes `run IMAGE ...`
  std::string qemu;             // "": not measured
  std::string nanobench_image;  // guest kernels
  std::string compute_image;
  std::string compute32_image;
  std::string native_nanobench;  // their host counterparts
  std::string native_compute;
  std::string native_compute32;
};

// In a folder laid out like bazel-bin. Fails with what to do when one of them is missing.
Result<Programs> FindPrograms(const std::string& data_folder, const std::string& alibi);

// Guests end with status 2v+1: 1 is success, 3 says that a benchmark of theirs failed (and its line
// says why). Native programs: 0 and 1.
inline constexpr int kGuestSuccess = 1, kGuestFailure = 3, kNativeSuccess = 0, kNativeFailure = 1;

// The command line of a measuring program, guest or host. `only`: as the program calls its
// benchmarks; empty: all.
std::string MeasuringWords(bool compute, bool quick, const std::vector<std::string>& only);
// The machines' commands for a guest image, the serial port being stdout. `policy` may be empty:
// --engine hardware.
std::vector<std::string> AlibiImageCommand(const std::string& alibi, const std::string& image,
                                           const std::string& policy, const std::string& words);
std::vector<std::string> QemuImageCommand(const std::string& qemu, const std::string& image,
                                          const std::string& words);
// On the host.
std::vector<std::string> NativeCommand(const std::string& program, const std::string& words);

struct RunnerOptions {
  std::vector<std::string> policies;       // under --engine translate; may be empty
  bool hardware = false;                   // and under --engine hardware
  std::vector<std::string> alibi_options;  // further ones of every `alibi run`
  bool quick = false;
  unsigned repeats = 5;
  LogFolder logs;                 // PROGRAM-POLICY-ROUND.log
  std::vector<std::string> only;  // benchmark names, as results call them; empty: all
  // No run may end later than this. Rounds that would not fit are left out; the first is always
  // begun.
  std::chrono::milliseconds total_limit = std::chrono::hours(1);
  std::chrono::milliseconds run_limit = std::chrono::minutes(2);
  // "round 2 of 5: alibi never, compute"; may be empty.
  std::function<void(const std::string&)> progress;
};

struct RunReport {
  Results results;
  unsigned rounds = 0;  // complete ones
};

RunReport RunAll(const Programs& programs, const RunnerOptions& options);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_RUNNER_H_
