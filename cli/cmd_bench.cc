// SPDX-License-Identifier: Apache-2.0
// alibi bench: the paper's table on this machine, against native and QEMU TCG.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>

#include "adapt/policy.h"
#include "bench/child_process.h"
#include "bench/host_info.h"
#include "bench/report.h"
#include "bench/runner.h"
#include "bench/svg_chart.h"
#include "cli/bench_files.h"
#include "cli/cli.h"
#include "hardware/kvm.h"
#include "machine/machine.h"

namespace alibi::vmm {
namespace {

// --quick promises 30 s in all; what is left is for the report and a slow exit of the last run.
constexpr std::chrono::seconds kQuickLimit{26};
constexpr std::chrono::seconds kQuickRunLimit{10};
constexpr unsigned kQuickRepeats = 5;
constexpr unsigned kRepeats = 5;

struct BenchOptions {
  std::string json = "alibi-bench.json";
  bool quick = false;
  bool no_qemu = false;
  std::string engine = "translate";
  std::vector<std::string> policies = {"never", "always", "threshold", "hysteresis"};
  unsigned repeats = 0;
  bench::LogFolder logs;
  std::vector<std::string> only;
  std::string coherence = mmu::NameOf(MachineConfig().coherence);
};

}  // namespace

int CmdBench(int argc, char** argv) {
  const std::string_view suite = argc > 1 ? argv[1] : "";
  if (suite == "linux") return CmdBenchLinux(argc - 1, argv + 1);
  if (suite == "scaling") return CmdBenchScaling(argc - 1, argv + 1);
  if (suite == "disk") return CmdBenchDisk(argc - 1, argv + 1);
  if (suite == "debian") return CmdBenchDebian(argc - 1, argv + 1);
  if (suite == "vmi") return CmdBenchVmi(argc - 1, argv + 1);
  BenchOptions options;
  CLI::App app(
      "Measures FrobOS's nanobenchmarks and compute programs natively, on Alibi with each policy,\n"
      "and on QEMU TCG if it is installed; prints tables and a chart, writes JSON and an SVG.\n"
      "alibi bench linux: a Linux guest's speed instead; alibi bench scaling: what it costs\n"
      "beyond each of the engine's bounds; alibi bench disk: what its disks cost; alibi bench\n"
      "debian: the programs of a whole Debian; alibi bench vmi: a paravirtual kernel against an\n"
      "unmodified one.");
  app.add_flag("--quick", options.quick, "fewer, shorter samples: at most 30 s");
  app.add_option("--json", options.json, "where the JSON goes, and the SVG beside it")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--only", options.only, "only these benchmarks, such as syscall,compute_sort")
      ->type_name("NAMES")
      ->delimiter(',');
  app.add_option("--repeats", options.repeats,
                 fmt::format("rounds over all systems ({})", kRepeats))
      ->check(CLI::Range(1, 1000));
  app.add_option("--coherence", options.coherence, "as for alibi run")->capture_default_str();
  app.add_flag("--no-qemu", options.no_qemu, "leave QEMU out");
  app.add_option(
         "--engine", options.engine,
         "which engines of Alibi's to measure: translate, with each policy, hardware, or all\n"
         "(translate); all leaves out what this host does not offer")
      ->type_name("NAME")
      ->check(CLI::IsMember({"translate", "hardware", "all"}));
  app.add_option("--policy", options.policies,
                 "adaptation policies to measure, one option each\n"
                 "(never, always, threshold, hysteresis)")
      ->type_name("POLICY")
      ->allow_extra_args(false);
  AddLogFolderOptions(app, &options.logs, "PROGRAM-POLICY-ROUND.log");
  app.footer(ExitCodeHelp());
  if (const auto status = ParseArguments(app, "bench", argc, argv)) return *status;
  for (const std::string& spec : options.policies) {
    if (auto policy = adapt::MakePolicy(spec); !policy.ok()) {
      return Fail(kUsage, "--policy: " + policy.error().message);
    }
  }

  if (const auto coherence = mmu::ParseCoherence(options.coherence); !coherence.ok()) {
    return Fail(kUsage, "--coherence: " + coherence.error().message);
  }
  bool hardware = options.engine != "translate";
  if (hardware) {
    if (auto kvm = hardware::Kvm::Open(); !kvm.ok()) {
      if (options.engine == "hardware") {
        return Fail(kUnsupportedHost, "--engine hardware: " + kvm.error().message);
      }
      fmt::print(stderr, "alibi: no hardware column: {}\n", kvm.error().message);
      hardware = false;
    }
  }
  if (options.engine == "hardware") options.policies.clear();
  const std::string own_path = OwnPath();
  auto programs = bench::FindPrograms(DataFolder(own_path), own_path);
  if (!programs.ok()) return Fail(kNoInput, programs.error().message);
  if (!options.no_qemu) {
    programs->qemu = bench::FindProgram("qemu-system-x86_64");
    if (programs->qemu.empty()) {
      fmt::print(stderr,
                 "alibi: no qemu-system-x86_64 here, so no qemu-tcg column; run: "
                 "sudo apt-get install qemu-system-x86\n");
    }
  }
  const std::string svg_path = SvgPath(options.json);
  for (const std::string& path : {options.json, svg_path}) {
    // Found out now rather than after minutes of measuring; nothing is overwritten yet.
    if (!std::ofstream(path, std::ios::app).good()) {
      return Fail(kCannotCreate, path + ": cannot be written");
    }
  }

  bench::RunnerOptions runner;
  runner.policies = options.policies;
  runner.hardware = hardware;
  runner.quick = options.quick;
  runner.repeats = options.repeats != 0 ? options.repeats
                   : options.quick      ? kQuickRepeats
                                        : kRepeats;
  runner.only = options.only;
  runner.alibi_options = {"--coherence", options.coherence};
  runner.logs = options.logs;
  if (options.quick) {
    runner.total_limit = kQuickLimit;
    runner.run_limit = kQuickRunLimit;
  }
  const bool show_progress = isatty(STDERR_FILENO);
  if (show_progress) {
    runner.progress = [](const std::string& what) {
      fmt::print(stderr, "\r\x1b[K{}", what);
      std::fflush(stderr);
    };
  }
  const bench::RunReport report = bench::RunAll(*programs, runner);
  if (show_progress) fmt::print(stderr, "\r\x1b[K");

  const std::vector<std::string> measured = report.results.Benchmarks();
  for (const std::string& name : options.only) {
    if (std::find(measured.begin(), measured.end(), name) == measured.end()) {
      return Fail(kUsage, fmt::format("--only: no benchmark '{}'; there are {}, and {}NAME and "
                                      "{}NAME for the compute programs",
                                      name, bench::KnownBenchmarks(), bench::kComputePrefix,
                                      bench::kCompute32Prefix));
    }
  }

  bench::ReportStyle style;
  style.default_policy = MachineConfig().policy;
  style.colors = isatty(STDOUT_FILENO) && std::getenv("NO_COLOR") == nullptr;
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 40) {
    style.width = std::min<unsigned>(window.ws_col, 120);
  }
  auto host = bench::DescribeHost(programs->qemu);
  host["coherence"] = options.coherence;
  fmt::print("{}\n{}, {} round{}\n\n", host["cpu"].get<std::string>(),
             host["kernel"].get<std::string>(), report.rounds, report.rounds == 1 ? "" : "s");
  fmt::print("{}\n", bench::FullReport(report.results, style));

  if (!WriteFile(options.json, report.results.ToJson(host).dump(1) + "\n")) {
    return Fail(kCannotCreate, options.json + ": not written; is the disk full?");
  }
  if (!WriteFile(svg_path, bench::SvgChart(report.results, style.default_policy, host))) {
    return Fail(kCannotCreate, svg_path + ": not written; is the disk full?");
  }
  fmt::print("wrote {} and {}\n", options.json, svg_path);
  // A nested KVM that emulates cannot do everything, and is not ours; who asks for it alone is
  // told.
  const bool failed =
      report.results.Failed(options.engine == "hardware" ? bench::kHardware : bench::kAlibi);
  return failed ? kBenchFailed : kSuccess;
}

}  // namespace alibi::vmm
