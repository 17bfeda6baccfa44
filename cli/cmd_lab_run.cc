// SPDX-License-Identifier: Apache-2.0
// alibi lab run: an experiment file's matrix, measured; alibi lab report: its report again.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>

#include "bench/lab/experiment.h"
#include "bench/lab/files.h"
#include "bench/lab/lab_data.h"
#include "bench/lab/lab_runner.h"
#include "bench/lab/report.h"
#include "cli/bench_files.h"
#include "cli/cmd_lab.h"
#include "inspect/log_columns.h"

namespace alibi::vmm {
namespace {

namespace lab = bench::lab;

std::atomic<bool>& Stopped() {
  static std::atomic<bool> stopped = false;
  return stopped;
}

// The first Ctrl-C lets the current run end, so that its record is whole; the second one is final.
void StopAfterThisRun() {
  struct sigaction action {};
  action.sa_handler = [](int) { Stopped() = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (int number : {SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
}

// "a/policies.toml" -> "policies-lab".
std::string DefaultFolder(const std::string& file) {
  const std::string name = file.substr(file.rfind('/') + 1);
  return name.substr(0, name.rfind('.')) + "-lab";
}

// Makes FOLDER/report.html. Returns the exit status.
int Report(const std::string& folder) {
  const auto data = lab::LabData::Load(folder, InstructionText);
  if (!data.ok()) return Fail(kNoInput, data.error().message);
  const std::string path = folder + "/report.html";
  if (const Status written = lab::WriteWholeFile(path, lab::MakeReport(data.value()));
      !written.ok()) {
    return Fail(kCannotCreate, written.error().message);
  }
  fmt::print("{}\n", path);
  return kSuccess;
}

}  // namespace

int CmdLabRun(int argc, char** argv) {
  std::string file, folder;
  bool check = false;
  CLI::App app(
      "Runs the matrix of an experiment file (docs/lab.md): workloads x policies x parameters,\n"
      "repeated. Writes results.csv, experiment.json, logs/ and report.html to a folder. What is\n"
      "there already is not measured again: an experiment that was stopped goes on.");
  app.add_option("EXPERIMENT", file, "the experiment, a TOML file")->required();
  app.add_option("--out", folder, "where results go (EXPERIMENT's name with -lab behind)")
      ->type_name("FOLDER");
  app.add_flag("--check", check, "only read the file, and list the runs it asks for");
  app.footer(ExitCodeHelp());
  if (const auto status = ParseArguments(app, "lab run", argc, argv)) return *status;
  const auto text = lab::ReadWholeFile(file);
  if (!text.ok()) return Fail(kNoInput, text.error().message);
  const auto experiment = lab::ParseExperiment(text.value(), file);
  if (!experiment.ok()) return Fail(kUsage, experiment.error().message);
  if (check) {
    for (const lab::RunSpec& run : lab::Matrix(experiment.value())) fmt::print("{}\n", run.id);
    return kSuccess;
  }

  const bool terminal = isatty(STDERR_FILENO);
  lab::LabOptions options;
  options.file = file;
  options.folder = folder.empty() ? DefaultFolder(file) : folder;
  options.alibi = OwnPath();
  options.data_folder = DataFolder(options.alibi);
  options.stopped = [] { return Stopped().load(); };
  options.progress = [terminal](const std::string& what) {
    fmt::print(stderr, "{}{}{}", terminal ? "\r\x1b[K" : "alibi: ", what, terminal ? "" : "\n");
    std::fflush(stderr);
  };
  StopAfterThisRun();
  const auto summary = lab::RunLab(experiment.value(), text.value(), options);
  if (terminal) fmt::print(stderr, "\r\x1b[K");
  if (!summary.ok()) return Fail(kNoInput, summary.error().message);
  const lab::LabSummary& done = summary.value();
  for (const std::string& failure : done.failures) fmt::print(stderr, "alibi: {}\n", failure);
  if (done.earlier != 0) fmt::print(stderr, "alibi: {} runs of an earlier time\n", done.earlier);
  if (const int status = Report(options.folder); status != kSuccess) return status;
  if (done.done < done.runs) {
    fmt::print(stderr, "alibi: stopped after {} of {} runs; the same command goes on\n", done.done,
               done.runs);
    return kInterrupted;
  }
  return done.failures.empty() ? kSuccess : kBenchFailed;
}

int CmdLabReport(int argc, char** argv) {
  std::string folder;
  CLI::App app("Makes report.html of an experiment's folder again, from its CSV and its logs.");
  app.add_option("FOLDER", folder, "what alibi lab run wrote")->required();
  app.footer(ExitCodeHelp());
  if (const auto status = ParseArguments(app, "lab report", argc, argv)) return *status;
  return Report(folder);
}

}  // namespace alibi::vmm
