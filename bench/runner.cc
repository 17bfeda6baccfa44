// SPDX-License-Identifier: Apache-2.0
#include "bench/runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "bench/child_process.h"

namespace alibi::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kRam = "128";  // MB

struct Job {
  SystemId system;
  std::string program;  // "nanobench", "compute" or "compute32"
  std::string prefix;   // of its benchmarks' names
  std::vector<std::string> argv;
  std::string stats_file;  // "": the system has none
  int success = kGuestSuccess, failure = kGuestFailure;
  bool given_up = false;  // it crashed or hung: not tried again
};

// A file name for one run's counters, removed with it.
class TemporaryFile {
 public:
  TemporaryFile() {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder != nullptr ? folder : "/tmp") + "/alibi-bench-XXXXXX";
    const int fd = mkstemp(path_.data());
    if (fd >= 0) {
      close(fd);
    } else {
      path_.clear();
    }
  }
  ~TemporaryFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

// A guest image and its host counterpart.
struct Pair {
  const char* name;
  const char* prefix;  // of its benchmarks' names; "" for the nanobenchmarks
  std::string Programs::*image;
  std::string Programs::*native;
  bool IsCompute() const { return *prefix != 0; }
};
constexpr Pair kPairs[] = {
    {"nanobench", "", &Programs::nanobench_image, &Programs::native_nanobench},
    {"compute", kComputePrefix, &Programs::compute_image, &Programs::native_compute},
    {"compute32", kCompute32Prefix, &Programs::compute32_image, &Programs::native_compute32},
};

// The part of `only` that the program with this prefix knows, without the prefix.
std::vector<std::string> Selected(const std::vector<std::string>& only, const std::string& prefix) {
  std::vector<std::string> names;
  for (const std::string& name : only) {
    if (ComputePrefixOf(name) == prefix) names.push_back(name.substr(prefix.size()));
  }
  return names;
}

void AddJobs(const Programs& programs, const RunnerOptions& options, const std::string& stats_file,
             const Pair& pair, std::vector<Job>* jobs) {
  if (!options.only.empty() && Selected(options.only, pair.prefix).empty()) return;
  Job job;
  job.program = pair.name;
  job.prefix = pair.prefix;
  const std::string words =
      MeasuringWords(pair.IsCompute(), options.quick, Selected(options.only, pair.prefix));
  const std::string& image = programs.*pair.image;

  Job native = job;
  native.system = {kNative, ""};
  native.argv = NativeCommand(programs.*pair.native, words);
  native.success = kNativeSuccess;
  native.failure = kNativeFailure;
  jobs->push_back(native);

  for (const std::string& policy : options.policies) {
    Job alibi = job;
    alibi.system = {kAlibi, policy};
    alibi.argv = AlibiImageCommand(programs.alibi, image, policy, words);
    alibi.argv.insert(alibi.argv.end(), options.alibi_options.begin(), options.alibi_options.end());
    if (!stats_file.empty()) {
      alibi.argv.insert(alibi.argv.end(), {"--stats-json", stats_file});
      alibi.stats_file = stats_file;
    }
    jobs->push_back(alibi);
  }
  if (options.hardware) {
    Job hardware = job;
    hardware.system = {kHardware, ""};
    hardware.argv = AlibiImageCommand(programs.alibi, image, "", words);
    jobs->push_back(hardware);
  }
  if (!programs.qemu.empty()) {
    Job qemu = job;
    qemu.system = {kQemuTcg, ""};
    qemu.argv = QemuImageCommand(programs.qemu, image, words);
    jobs->push_back(qemu);
  }
}

void RunJob(Job& job, milliseconds limit, const std::vector<std::string>& log_options,
            Results* results) {
  std::vector<std::string> argv = job.argv;
  argv.insert(argv.end(), log_options.begin(), log_options.end());
  const ChildResult child = RunChild(argv, limit);
  const ProgramOutput output = ParseProgramOutput(child.output);
  for (const Measurement& measurement : output.measurements) {
    results->Add(job.system, job.prefix, measurement);
  }
  const bool ended = child.started && !child.timed_out && child.signal == 0 &&
                     (child.exit_status == job.success || child.exit_status == job.failure);
  if (!ended || !output.done) {
    const std::string after =
        output.measurements.empty() ? "" : " after " + output.measurements.back().name;
    results->AddMiss(job.system,
                     fmt::format("{}{}: {}", job.program, after,
                                 ended ? "its output is incomplete" : child.Describe()));
    job.given_up = true;
    return;
  }
  if (job.stats_file.empty()) return;
  std::ifstream file(job.stats_file);
  std::stringstream text;
  text << file.rdbuf();
  if (auto cost = ParseStats(text.str()); cost.ok()) {
    results->AddTranslation(job.system, *cost);
  } else {
    results->AddMiss(job.system, job.program + ": " + cost.error().message);
  }
}

}  // namespace

std::string MeasuringWords(bool compute, bool quick, const std::vector<std::string>& only) {
  // Few samples per run and more runs: noise comes in bursts. A compute program's runs are long
  // enough to be cut up by the host: three, which "quick" means, would be too few.
  std::string words = quick     ? (compute ? "quick samples=5" : "quick")
                      : compute ? "samples=4"
                                : "samples=5";
  if (!only.empty()) words += " only=" + Join(only);
  return words;
}

std::vector<std::string> AlibiImageCommand(const std::string& alibi, const std::string& image,
                                           const std::string& policy, const std::string& words) {
  std::vector<std::string> argv = {
      alibi, "run", image, "--no-reboot", "--ram", std::string(kRam) + "M", "--append", words};
  if (policy.empty()) {
    argv.insert(argv.end(), {"--engine", "hardware"});
  } else {
    argv.insert(argv.end(), {"--engine", "translate", "--policy", policy, "--tc-cache", "none"});
  }
  return argv;
}

std::vector<std::string> QemuImageCommand(const std::string& qemu, const std::string& image,
                                          const std::string& words) {
  return {qemu,         "-M",      "pc",
          "-cpu",       "max",     "-m",
          kRam,         "-kernel", image,
          "-append",    words,     "-display",
          "none",       "-serial", "stdio",
          "-no-reboot", "-device", "isa-debug-exit,iobase=0xf4,iosize=0x04",
          "-accel",     "tcg"};
}

std::vector<std::string> NativeCommand(const std::string& program, const std::string& words) {
  std::vector<std::string> argv = {program};
  std::stringstream rest(words);
  for (std::string word; rest >> word;) argv.push_back(word);
  return argv;
}

Result<Programs> FindPrograms(const std::string& data_folder, const std::string& alibi) {
  Programs programs;
  programs.alibi = alibi;
  const std::pair<std::string*, const char*> files[] = {
      {&programs.nanobench_image, "frobos/bench/nanobench.elf"},
      {&programs.compute_image, "frobos/compute/compute.elf"},
      {&programs.native_nanobench, "frobos/bench/native_nanobench"},
      {&programs.native_compute, "frobos/compute/native"},
      {&programs.compute32_image, "frobos/compute/compute32.elf"},
      {&programs.native_compute32, "frobos/compute/native32.elf"},
  };
  for (const auto& [path, file] : files) {
    *path = data_folder + "/" + file;
    if (access(path->c_str(), R_OK) != 0) {
      return Error{fmt::format(
          "{}: missing; ./alibi bench builds it, or set ALIBI_DATA to Bazel's bazel-bin", *path)};
    }
  }
  return programs;
}

RunReport RunAll(const Programs& programs, const RunnerOptions& options) {
  const TemporaryFile stats;
  std::vector<Job> jobs;
  for (const Pair& pair : kPairs) AddJobs(programs, options, stats.path(), pair, &jobs);

  RunReport report;
  const Clock::time_point begin = Clock::now();
  const Clock::time_point deadline = begin + options.total_limit;
  const auto left = [deadline] {
    return std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  };
  milliseconds longest_round{0};
  for (unsigned round = 0; round < options.repeats; ++round) {
    if (left() < longest_round) break;
    const Clock::time_point round_begin = Clock::now();
    for (Job& job : jobs) {
      if (job.given_up) continue;
      // The programs' hundred million instructions would take an emulator days.
      if (job.system.system == kHardware && !job.prefix.empty() &&
          report.results.HardwareIsEmulated()) {
        report.results.AddMiss(job.system, job.program + ": not run, its KVM emulates ring 0");
        job.given_up = true;
        continue;
      }
      const milliseconds limit = std::min(options.run_limit, left());
      if (limit.count() <= 0) {
        report.results.AddMiss(job.system, job.program + ": not run, the time was up");
        continue;
      }
      if (options.progress) {
        options.progress(fmt::format("round {} of {}: {}, {}", round + 1, options.repeats,
                                     job.system.Name(), job.program));
      }
      std::vector<std::string> log_options;
      if (job.system.system == kAlibi) {
        log_options = options.logs.Options(
            fmt::format("{}-{}-{}", job.program, job.system.policy, round + 1));
      }
      RunJob(job, limit, log_options, &report.results);
    }
    longest_round = std::max(longest_round,
                             std::chrono::duration_cast<milliseconds>(Clock::now() - round_begin));
    ++report.rounds;
  }
  return report;
}

}  // namespace alibi::bench
