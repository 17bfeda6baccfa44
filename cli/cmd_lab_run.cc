// SPDX-License-Identifier: Apache-2.0
// alibi lab run: an experiment file's matrix, measured; alibi lab report: its report again.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "bench/lab/experiment.h"
#include "bench/lab/files.h"
#include "bench/lab/lab_data.h"
#include "bench/lab/lab_runner.h"
#include "bench/lab/report.h"
#include "bench/lab/spread.h"
#include "cli/bench_files.h"
#include "cli/cmd_lab.h"
#include "cli/lab_spread.h"
#include "cli/stop_request.h"
#include "inspect/log_columns.h"

namespace alibi::vmm {
namespace {

namespace lab = bench::lab;

// "a/policies.toml" -> "policies-lab", or "policies-quick-lab".
std::string DefaultFolder(const std::string& file, bool quick) {
  const std::string name = file.substr(file.rfind('/') + 1);
  return name.substr(0, name.rfind('.')) + (quick ? "-quick-lab" : "-lab");
}

// Makes FOLDER/report.html. Returns the exit status.
int Report(const std::string& folder) {
  const auto data = lab::LabData::Load(folder, InstructionText);
  if (!data.ok()) return Fail(kNoInput, data.error().message);
  const std::string path = folder + "/report.html";
  std::vector<std::pair<std::string, std::string>> pages;
  const std::vector<std::string> hosts = data.value().Hosts();
  for (const std::string& host : hosts) {
    pages.emplace_back(folder + "/" + lab::HostReportName(host),
                       lab::MakeReport(data.value().OnHost(host)));
  }
  pages.emplace_back(
      path, hosts.empty() ? lab::MakeReport(data.value()) : lab::MakeHostIndex(data.value()));
  for (const auto& [name, text] : pages) {
    if (const Status written = lab::WriteWholeFile(name, text); !written.ok()) {
      return Fail(kCannotCreate, written.error().message);
    }
  }
  fmt::print("{}\n", path);
  return kSuccess;
}

// What is said behind a run, and the exit status.
int Conclude(const lab::LabSummary& done, const std::string& folder) {
  for (const std::string& failure : done.failures) fmt::print(stderr, "alibi: {}\n", failure);
  if (done.earlier != 0) fmt::print(stderr, "alibi: {} runs of an earlier time\n", done.earlier);
  if (const int status = Report(folder); status != kSuccess) return status;
  if (done.done < done.runs) {
    fmt::print(stderr, "alibi: stopped after {} of {} runs; the same command goes on\n", done.done,
               done.runs);
    return kInterrupted;
  }
  return done.failures.empty() ? kSuccess : kBenchFailed;
}

}  // namespace

int CmdLabRun(int argc, char** argv) {
  std::string file, folder, kernel;
  bool check = false, quick = false;
  unsigned cell = 0;
  SpreadOptions spread;
  CLI::App app(
      "Runs the matrix of an experiment file (docs/lab.md): workloads x policies x parameters,\n"
      "repeated. Writes results.csv, experiment.json, logs/ and report.html to a folder. What is\n"
      "there already is not measured again: an experiment that was stopped goes on.");
  app.add_option("EXPERIMENT", file, "the experiment, a TOML file")->required();
  app.add_option("--out", folder,
                 "where results go (EXPERIMENT's name with -lab or -quick-lab behind)")
      ->type_name("FOLDER");
  app.add_flag("--check", check, "only read the file, and list the runs it asks for");
  app.add_flag("--quick", quick,
               "short runs, each once, none observed: shows what the experiment does, but its\n"
               "figures are none to keep");
  auto* engine = app.add_option("--spread", spread.engine,
                                "make the runs on several hosts: each workload's rounds are jobs\n"
                                "of GNU parallel over ssh, or of Slurm")
                     ->type_name("parallel|slurm");
  app.add_option("--spread-options", spread.engine_options,
                 "more words for parallel or sbatch, such as '--sshlogin one,two'")
      ->type_name("WORDS")
      ->needs(engine);
  app.add_flag("--plan", spread.plan, "only print the jobs")->needs(engine);
  app.add_option("--cell", cell, "what a job does: only runs of this cell, to FOLDER/cells/N")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000))
      ->excludes(engine);
  app.add_option("--kernel", kernel, "the kernel of workloads that run the user's: vmi-linux")
      ->type_name("FILE")
      ->excludes(engine);
  app.footer(ExitCodeHelp());
  if (const auto status = ParseArguments(app, "lab run", argc, argv)) return *status;
  const auto written = lab::ReadWholeFile(file);
  if (!written.ok()) return Fail(kNoInput, written.error().message);
  // What is wrong is said of the lines that the user wrote.
  auto experiment = lab::ParseExperiment(written.value(), file);
  if (!experiment.ok()) return Fail(kUsage, experiment.error().message);
  const std::string text = quick ? lab::QuickForm(written.value()) : written.value();
  if (quick) experiment = lab::ParseExperiment(text, file);
  if (check) {
    for (const lab::RunSpec& run : lab::Matrix(experiment.value())) fmt::print("{}\n", run.id);
    return kSuccess;
  }

  if (folder.empty()) folder = DefaultFolder(file, quick);
  if (!spread.engine.empty()) {
    spread.file = file;
    spread.folder = folder;
    spread.alibi = OwnPath();
    StopAfterThisRun();
    lab::LabSummary summary;
    const int status = Spread(experiment.value(), text, spread, &summary);
    return status != kSuccess || spread.plan ? status : Conclude(summary, folder);
  }
  if (cell != 0) {
    const auto cells = lab::Cells(experiment.value());
    if (cell > cells.size()) {
      return Fail(kUsage, fmt::format("--cell: {} has {} cells", file, cells.size()));
    }
    folder = lab::CellFolder(folder, cell);
  }

  const bool terminal = isatty(STDERR_FILENO);
  lab::LabOptions options;
  options.file = file;
  options.folder = folder;
  options.cell = cell;
  options.kernel = kernel;
  options.alibi = OwnPath();
  options.data_folder = DataFolder(options.alibi);
  options.stopped = [] { return Stopped().load(); };
  options.progress = [terminal](const std::string& what) {
    fmt::print(stderr, "{}{}{}", terminal ? "\r\x1b[K" : "alibi: ", what, terminal ? "" : "\n");
    std::fflush(stderr);
  };
  StopAfterThisRun();
  const auto summary = lab::RunLab(experiment.value(), text, options);
  if (terminal) fmt::print(stderr, "\r\x1b[K");
  if (!summary.ok()) return Fail(kNoInput, summary.error().message);
  return Conclude(summary.value(), options.folder);
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
