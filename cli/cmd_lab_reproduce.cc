// SPDX-License-Identifier: Apache-2.0
// alibi lab reproduce: the paper's claims, measured again, as a page.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <string>

#include "bench/lab/reproduce/claims.h"
#include "bench/lab/reproduce/measure.h"
#include "bench/lab/reproduce/page.h"
#include "cli/bench_files.h"
#include "cli/cli.h"
#include "cli/cmd_lab.h"
#include "machine/host_check.h"
#include "machine/machine.h"

namespace alibi::vmm {
namespace {

namespace lab = bench::lab;

constexpr const char* kPage = "/reproduction.md";
constexpr const char* kFigures = "/reproduction.json";

Result<lab::Figures> ReadFigures(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text.ok()) return text.error();
  auto figures = lab::Figures::FromJson(text.value());
  if (!figures.ok()) return Error{fmt::format("{}: {}", path, figures.error().message)};
  return figures;
}

}  // namespace

int CmdLabReproduce(int argc, char** argv) {
  std::string folder = ".", from;
  bool quick = false;
  CLI::App app(
      "Measures what the paper claims of its software VMM, and writes reproduction.md (claim, the\n"
      "paper's figure, ours, whether it holds) and reproduction.json (the measurements). Takes\n"
      "some minutes; boots a Debian kernel, which comes through apt the first time.");
  app.add_option("--out", folder, "the folder to write to (.)")->type_name("DIR");
  auto* from_option =
      app.add_option("--from", from, "measure nothing: make the page of these measurements")
          ->type_name("FILE");
  app.add_flag("--quick", quick, "short runs: good for a look, not for figures")
      ->excludes(from_option);
  app.footer(ExitCodeHelp());
  if (const auto status = ParseArguments(app, "lab reproduce", argc, argv)) return *status;
  mkdir(folder.c_str(), 0777);  // what may be wrong with it shows below
  const std::string page = folder + kPage, json = folder + kFigures;
  for (const std::string& path : {page, json}) {
    if ((path == page || from.empty()) && !std::ofstream(path, std::ios::app).good()) {
      return Fail(kCannotCreate, path + ": cannot be written");
    }
  }

  lab::Figures figures;
  if (!from.empty()) {
    auto read = ReadFigures(from);
    if (!read.ok()) return Fail(kNoInput, read.error().message);
    figures = std::move(*read);
  } else {
    if (Status host = CheckHost(ReadHostFeatures()); !host.ok()) {
      return Fail(kUnsupportedHost, host.error().message);
    }
    lab::MeasureOptions options;
    options.alibi = OwnPath();
    options.data_folder = DataFolder(options.alibi);
    options.policy = MachineConfig().policy;
    options.quick = quick;
    if (isatty(STDERR_FILENO)) {
      options.progress = [](const std::string& what) {
        fmt::print(stderr, "\r\x1b[K{}", what);
        std::fflush(stderr);
      };
    }
    auto measured = lab::Measure(options);
    if (isatty(STDERR_FILENO)) fmt::print(stderr, "\r\x1b[K");
    if (!measured.ok()) return Fail(kNoInput, measured.error().message);
    figures = std::move(*measured);
    if (!WriteFile(json, figures.ToJson())) {
      return Fail(kCannotCreate, json + ": not written; is the disk full?");
    }
  }
  if (!WriteFile(page, lab::ReproductionPage(figures))) {
    return Fail(kCannotCreate, page + ": not written; is the disk full?");
  }
  for (const std::string& failure : figures.failures) {
    fmt::print(stderr, "alibi: not measured: {}\n", failure);
  }
  fmt::print("wrote {}\n", from.empty() ? page + " and " + json : page);
  return kSuccess;
}

}  // namespace alibi::vmm
