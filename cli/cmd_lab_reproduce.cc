// SPDX-License-Identifier: Apache-2.0
// alibi lab reproduce: the papers' claims, measured again, as a page.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "bench/host_info.h"
#include "bench/lab/reproduce/claims.h"
#include "bench/lab/reproduce/measure.h"
#include "bench/lab/reproduce/page.h"
#include "cli/bench_files.h"
#include "cli/cli.h"
#include "cli/cmd_lab.h"
#include "cli/stop_request.h"
#include "machine/host_check.h"
#include "machine/machine.h"

namespace alibi::vmm {
namespace {

namespace lab = bench::lab;

constexpr const char* kPage = "/reproduction.md";
constexpr const char* kFigures = "/reproduction.json";

Result<lab::Reproduction> ReadFigures(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text.ok()) return text.error();
  auto read = lab::Reproduction::FromJson(text.value());
  if (!read.ok()) return Error{fmt::format("{}: {}", path, read.error().message)};
  return read;
}

std::string ChapterNames() {
  std::string names;
  for (const lab::Chapter& chapter : lab::Chapters()) {
    names += (names.empty() ? "" : ", ") + std::string(chapter.id);
  }
  return names;
}

// What tells one build of the program from another.
std::string BuildOf(const std::string& program) {
  struct stat about {};
  if (stat(program.c_str(), &about) != 0) return "?";
  return fmt::format("{}-{}", about.st_size, about.st_mtime);
}

// For what an interrupted run goes on with: this build's, since others' figures are others'.
std::string WorkFolder(const std::string& build, const lab::MeasureOptions& measure) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base = cache != nullptr && *cache == '/' ? cache
                           : home != nullptr                 ? std::string(home) + "/.cache"
                                                             : "/tmp";
  return fmt::format("{}/alibi/reproduce/{}{}{}", base, build, measure.quick ? "-quick" : "",
                     measure.repeats != 0 ? fmt::format("-{}", measure.repeats) : "");
}

struct Options {
  std::string page, json;
  std::vector<std::string> chapters;
  lab::MeasureOptions measure;
  std::string build;
};

// True: this build has measured it on this host, as it is asked for now.
bool IsDone(const lab::Reproduction& all, const std::string& vendor, const std::string& chapter,
            const Options& options) {
  const auto host = all.hosts.find(vendor);
  if (host == all.hosts.end()) return false;
  const auto figures = host->second.find(chapter);
  return figures != host->second.end() &&
         figures->second.settings.value("build", std::string()) == options.build &&
         figures->second.settings.value("quick", false) == options.measure.quick &&
         figures->second.settings.value("repeats", 0u) == options.measure.repeats;
}

int WriteBoth(const lab::Reproduction& all, const Options& options) {
  for (const auto& [path, text] :
       {std::pair{options.json, all.ToJson()}, {options.page, lab::ReproductionPage(all)}}) {
    if (!WriteFile(path, text)) {
      return Fail(kCannotCreate, path + ": not written; is the disk full?");
    }
  }
  return kSuccess;
}

// Chapter by chapter, each written as soon as it is measured. Returns the exit status.
int MeasureAll(lab::Reproduction* all, const Options& options) {
  const std::string vendor = lab::VendorOf(bench::DescribeHost(""));
  int status = kSuccess;
  for (const std::string& chapter : options.chapters) {
    if (IsDone(*all, vendor, chapter, options)) {
      fmt::print(stderr, "alibi: {}: measured by this build before; taken over\n", chapter);
      continue;
    }
    auto measured = lab::Measure(chapter, options.measure);
    if (isatty(STDERR_FILENO)) fmt::print(stderr, "\r\x1b[K");
    if (Stopped()) {
      fmt::print(stderr, "alibi: stopped; the same command goes on\n");
      return kInterrupted;
    }
    if (!measured.ok()) {
      status = Fail(kNoInput, fmt::format("{}: {}", chapter, measured.error().message));
      continue;
    }
    measured->settings["build"] = options.build;
    for (const std::string& failure : measured->failures) {
      fmt::print(stderr, "alibi: not measured: {}\n", failure);
    }
    all->hosts[vendor][chapter] = std::move(*measured);
    if (const int written = WriteBoth(*all, options); written != kSuccess) return written;
  }
  std::error_code ignored;
  if (status == kSuccess) std::filesystem::remove_all(options.measure.work_folder, ignored);
  return status;
}

}  // namespace

int CmdLabReproduce(int argc, char** argv) {
  std::string folder = ".", from;
  Options options;
  bool quick = false;
  CLI::App app(
      "Measures what the papers claim, and writes reproduction.md (claim, the paper's figure, "
      "ours,\n"
      "whether it holds) and reproduction.json (the measurements). What the JSON has of a CPU of\n"
      "another vendor stays, beside this host's. Takes a good half hour; boots Debian kernels,\n"
      "which come through apt the first time. One that was stopped goes on.");
  app.add_option("--out", folder, "the folder to write to (.)")->type_name("DIR");
  auto* from_option =
      app.add_option("--from", from, "measure nothing: make the page of these measurements")
          ->type_name("FILE");
  app.add_flag("--quick", quick, "short runs: good for a look, not for figures")
      ->excludes(from_option);
  app.add_option("--repeats", options.measure.repeats,
                 "runs of each of an experiment's combinations (3, with --quick 1)")
      ->type_name("N")
      ->check(CLI::Range(1u, 1000u))
      ->excludes(from_option);
  app.add_option("--only", options.chapters, "only these chapters: " + ChapterNames())
      ->type_name("CHAPTERS")
      ->delimiter(',')
      ->excludes(from_option);
  app.footer(ExitCodeHelp());
  if (const auto status = ParseArguments(app, "lab reproduce", argc, argv)) return *status;
  for (const std::string& name : options.chapters) {
    const auto& chapters = lab::Chapters();
    if (std::none_of(chapters.begin(), chapters.end(),
                     [&](const lab::Chapter& chapter) { return name == chapter.id; })) {
      return Fail(kUsage,
                  fmt::format("--only: there is no chapter '{}', but {}", name, ChapterNames()));
    }
  }
  if (options.chapters.empty()) {
    for (const lab::Chapter& chapter : lab::Chapters()) options.chapters.emplace_back(chapter.id);
  }
  mkdir(folder.c_str(), 0777);  // what may be wrong with it shows below
  options.page = folder + kPage;
  options.json = folder + kFigures;
  for (const std::string& path : {options.page, options.json}) {
    if ((path == options.page || from.empty()) && !std::ofstream(path, std::ios::app).good()) {
      return Fail(kCannotCreate, path + ": cannot be written");
    }
  }
  if (!from.empty()) {
    const auto read = ReadFigures(from);
    if (!read.ok()) return Fail(kNoInput, read.error().message);
    if (!WriteFile(options.page, lab::ReproductionPage(read.value()))) {
      return Fail(kCannotCreate, options.page + ": not written; is the disk full?");
    }
    fmt::print("wrote {}\n", options.page);
    return kSuccess;
  }

  if (Status host = CheckHost(ReadHostFeatures()); !host.ok()) {
    return Fail(kUnsupportedHost, host.error().message);
  }
  lab::Reproduction all;
  // An empty file is the one that was just made above.
  if (const auto before = ReadFile(options.json); before.ok() && !before.value().empty()) {
    auto read = ReadFigures(options.json);
    if (!read.ok())
      return Fail(kNoInput, read.error().message + "; remove it, or give another --out");
    all = std::move(*read);
  }
  options.measure.alibi = OwnPath();
  options.measure.data_folder = DataFolder(options.measure.alibi);
  options.measure.policy = MachineConfig().policy;
  options.measure.quick = quick;
  options.build = BuildOf(options.measure.alibi);
  options.measure.work_folder = WorkFolder(options.build, options.measure);
  options.measure.stopped = [] { return Stopped().load(); };
  if (isatty(STDERR_FILENO)) {
    options.measure.progress = [](const std::string& what) {
      fmt::print(stderr, "\r\x1b[K{}", what);
      std::fflush(stderr);
    };
  }
  std::error_code error;
  std::filesystem::create_directories(options.measure.work_folder, error);
  if (error) {
    return Fail(kCannotCreate, fmt::format("{}: {}", options.measure.work_folder, error.message()));
  }
  StopAfterThisRun();
  const int status = MeasureAll(&all, options);
  if (status == kSuccess) fmt::print("wrote {} and {}\n", options.page, options.json);
  return status;
}

}  // namespace alibi::vmm
