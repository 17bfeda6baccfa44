// SPDX-License-Identifier: Apache-2.0
// alibi bench vmi: what a kernel's privileged work costs by its own instructions, and by VMI's
// calls in either form (docs/vmi.md), in 32-bit code and in 64-bit code.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <vector>

#include "bench/child_process.h"
#include "bench/host_info.h"
#include "bench/results.h"
#include "bench/runner.h"
#include "bench/text_table.h"
#include "cli/bench_files.h"
#include "cli/cli.h"

namespace alibi::vmm {
namespace {

// A table. The 64-bit kernel is the nanobenchmarks', whose instructions stand at sites.
struct Kernel {
  const char* title;
  const char* image;
};
constexpr Kernel kKernels[] = {{"32-bit code", "frobos/bench/vmibench.elf"},
                               {"64-bit code", "frobos/bench/nanobench_vmi.elf"}};
constexpr std::chrono::seconds kRunLimit{60};

// A column: the same kernel, on a machine that offers VMI or does not.
struct Variant {
  bench::SystemId system;
  std::vector<std::string> argv;
};

std::vector<Variant> Variants(const std::string& alibi, const std::string& qemu,
                              const std::string& image, const std::string& words) {
  std::vector<Variant> variants;
  const auto add = [&](const char* name, const char* option) {
    auto argv = bench::AlibiImageCommand(alibi, image, "hysteresis", words);
    if (*option != '\0') argv.push_back(option);
    variants.push_back({{bench::kAlibi, name}, std::move(argv)});
  };
  add("unmodified", "");
  add("transparent", "--vmi=transparent");
  add("paravirtual", "--vmi=full");
  if (!qemu.empty()) {
    variants.push_back({{bench::kQemuTcg, ""}, bench::QemuImageCommand(qemu, image, words)});
  }
  return variants;
}

void RunOnce(const Variant& variant, const Kernel& kernel, bench::Results* results) {
  const bench::ChildResult child = bench::RunChild(variant.argv, kRunLimit);
  const bench::ProgramOutput output = bench::ParseProgramOutput(child.output);
  for (const bench::Measurement& m : output.measurements) results->Add(variant.system, "", m);
  if (child.exit_status != bench::kGuestSuccess || !output.done) {
    results->AddMiss(variant.system, std::string(kernel.title) + ": " + child.Describe());
  }
}

std::string Table(const Kernel& kernel, const bench::Results& results,
                  const std::vector<Variant>& variants, bool colors) {
  bench::TextTable table;
  std::vector<bench::Cell> head = {{kernel.title, bench::kColorBold}};
  for (const Variant& variant : variants) {
    const bench::SystemId& system = variant.system;
    head.push_back({system.policy.empty() ? system.system : system.policy, bench::kColorBold});
  }
  table.Row(std::move(head));
  for (const std::string& name : results.Benchmarks()) {
    std::vector<bench::Cell> row = {{name}};
    for (const Variant& variant : variants) {
      const bench::Summary summary = results.Of(name, variant.system);
      row.push_back({summary.count == 0 ? "-" : fmt::format("{:.1f}", summary.median)});
    }
    table.Row(std::move(row));
  }
  return table.Render(colors);
}

}  // namespace

int CmdBenchVmi(int argc, char** argv) {
  std::string json = "alibi-bench-vmi.json";
  std::vector<std::string> only;
  unsigned repeats = 5;
  bool quick = false, no_qemu = false;
  CLI::App app(
      "Measures the privileged work of a 32-bit and of a 64-bit kernel of FrobOS's, in cycles: by\n"
      "its own instructions, by the calls of a VMI ROM in their transparent form and in their\n"
      "paravirtual one (docs/vmi.md), and its own instructions on QEMU TCG if that is installed;\n"
      "prints a table for each, writes JSON.");
  app.add_flag("--quick", quick, "shorter samples");
  app.add_option("--json", json, "where the JSON goes")->type_name("FILE")->capture_default_str();
  app.add_option("--only", only, "only these benchmarks, such as clisti,ptebatch")
      ->type_name("NAMES")
      ->delimiter(',');
  app.add_option("--repeats", repeats, "rounds over all columns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--no-qemu", no_qemu, "leave QEMU out");
  app.footer(ExitCodeHelp());
  if (const auto status = ParseArguments(app, "bench vmi", argc, argv)) return *status;

  const std::string alibi = OwnPath(), folder = DataFolder(alibi) + "/";
  for (const Kernel& kernel : kKernels) {
    const std::string image = folder + kernel.image;
    if (access(image.c_str(), R_OK) != 0) {
      return Fail(kNoInput, image +
                                ": missing; ./alibi bench builds it, or set ALIBI_DATA to Bazel's "
                                "bazel-bin");
    }
  }
  const std::string qemu = no_qemu ? "" : bench::FindProgram("qemu-system-x86_64");
  if (!WriteFile(json, "")) return Fail(kCannotCreate, json + ": cannot be written");

  std::string words = quick ? "quick=yes samples=5" : "samples=5";
  if (!only.empty()) words += fmt::format(" only={}", fmt::join(only, ","));
  std::vector<std::vector<Variant>> variants;
  for (const Kernel& kernel : kKernels) {
    variants.push_back(Variants(alibi, qemu, folder + kernel.image, words));
  }
  bench::Results results[std::size(kKernels)];
  for (unsigned round = 0; round < repeats; ++round) {
    for (std::size_t i = 0; i < std::size(kKernels); ++i) {
      for (const Variant& variant : variants[i]) RunOnce(variant, kKernels[i], &results[i]);
    }
  }
  const auto nothing = [](const bench::Results& of) {
    return of.Benchmarks().empty() && of.Misses().empty();
  };
  if (!only.empty() && std::all_of(std::begin(results), std::end(results), nothing)) {
    return Fail(kUsage, "--only: there is no such benchmark; without --only all are shown");
  }

  auto host = bench::DescribeHost(qemu);
  fmt::print("{}\n{}, {} round{}\n", host["cpu"].get<std::string>(),
             host["kernel"].get<std::string>(), repeats, repeats == 1 ? "" : "s");
  const bool colors = isatty(STDOUT_FILENO) && std::getenv("NO_COLOR") == nullptr;
  nlohmann::ordered_json document = {{"host", host}};
  bool failed = false;
  for (std::size_t i = 0; i < std::size(kKernels); ++i) {
    if (!results[i].Benchmarks().empty()) {
      fmt::print("\n{}", Table(kKernels[i], results[i], variants[i], colors));
    }
    for (const auto& [system, what] : results[i].Misses()) {
      fmt::print("{}: {}\n", system.Name(), what);
    }
    document[kKernels[i].title] = results[i].ToJson(host)["benchmarks"];
    failed = failed || results[i].Failed(bench::kAlibi);
  }
  if (!WriteFile(json, document.dump(1) + "\n")) {
    return Fail(kCannotCreate, json + ": not written; is the disk full?");
  }
  fmt::print("wrote {}\n", json);
  return failed ? kBenchFailed : kSuccess;
}

}  // namespace alibi::vmm
