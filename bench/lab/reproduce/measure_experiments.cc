// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <set>
#include <utility>

#include "bench/child_process.h"
#include "bench/lab/experiment.h"
#include "bench/lab/lab_data.h"
#include "bench/lab/lab_runner.h"
#include "bench/lab/reproduce/measure.h"

namespace alibi::bench::lab {
namespace {

// The part of experiments/hosted_io.toml that claims are about.
constexpr const char* kHostedIo = R"toml(
title = "Hosted I/O, for the reproduction page"
order = "shuffled"
seed = 14
observe = false
[parameters]
net-optimize = ["none", "ports", "ports,latch", "all"]
[[workload]]
name = "access"
program = "transmit"
card = "lance"
[[workload]]
name = "lance"
program = "network"
card = "lance"
only = ["send-4096", "datagrams-1472"]
[[workload]]
name = "lance-100M"
program = "network"
card = "lance"
rate = "100M"
only = ["send-4096"]
)toml";

// And of experiments/macro.toml and macro32.toml, by CPU time: hosts have other things to do for
// hours. The kernel chooses the guest's bits.
std::string Macro(const std::string& kernel, const std::string& engines) {
  const std::string tcg = FindProgram("qemu-system-x86_64").empty() ? "" : ", \"qemu-tcg\"";
  return fmt::format(R"toml(
title = "Whole programs, for the reproduction page"
observe = false
cpu-time = true
time-limit = 3600
peers = ["native"{}]
[parameters]
engine = [{}]
[[workload]]
name = "programs"
program = "debian"
kernel = "{}"
only = ["tar-gzip", "bzip2", "xz", "python", "perl", "sqlite3", "gcc-lua", "minisat", "java",
        "web-small", "web-large", "make-lua", "forkwait-40000"]
)toml",
                     tcg, engines, kernel);
}

// What has no native figure, in a guest of 64 bits.
constexpr const char* kMacroGuests = R"toml(
[[workload]]
name = "guests"
program = "debian"
only = ["swap", "vga-text"]
)toml";

// And of experiments/type_ii.toml; peers are those that are here.
constexpr const char* kTypeIi = R"toml(
title = "Type II, for the reproduction page"
observe = false
time-limit = 3600
[parameters]
engine = ["translate", "direct", "auto"]
[[workload]]
name = "micro"
program = "linux"
only = ["getppid", "ctxswitch"]
[[workload]]
name = "macro"
program = "linux"
only = ["sha256", "matmul"]
[[workload]]
name = "debian"
program = "debian"
only = ["povray", "make-lua", "web-small"]
[[workload]]
name = "network"
program = "network"
card = "virtio"
backend = "tap"
only = ["send-4096", "receive-4096"]
)toml";

// And experiments/type_ii_cures.toml.
constexpr const char* kTypeIiCures = R"toml(
title = "Type II cures, for the reproduction page"
observe = false
peers = ["native"]
[parameters]
engine = ["translate", "direct"]
hosting = ["all", "views=1", "views=2", "views=8", "satellites=1", "satellites=2", "remap"]
[[workload]]
name = "cures"
program = "linux"
only = ["getppid", "ctxswitch"]
)toml";

// "native" of a peer; of Alibi its parameters' values: "direct", "direct,views=1".
std::string NameOf(const Configuration& configuration) {
  if (configuration.system.system != kAlibi) return configuration.system.system;
  std::string name;
  for (const auto& [parameter, value] : configuration.parameters) {
    name += (name.empty() ? "" : ",") + value;
  }
  return name;
}

// The experiment's medians as "WORKLOAD.CONFIGURATION.METRIC".
Result<Figures> MeasureExperiment(const std::string& name, const std::string& lines,
                                  const MeasureOptions& options) {
  const std::string text = fmt::format("quick = {}\nrepeats = {}\n{}", options.quick,
                                       options.repeats != 0 ? options.repeats
                                       : options.quick      ? 1
                                                            : 3,
                                       lines);
  const auto experiment = ParseExperiment(text, name);
  if (!experiment.ok()) return experiment.error();
  LabOptions lab;
  lab.file = name;
  lab.folder = options.work_folder + "/" + name;
  lab.alibi = options.alibi;
  lab.data_folder = options.data_folder;
  lab.progress = options.progress;
  lab.stopped = options.stopped;
  auto done = RunLab(experiment.value(), text, lab);
  if (!done.ok()) return done.error();
  if (done->done < done->runs) return Error{"stopped; the same command goes on"};
  const auto data = LabData::Load(lab.folder, nullptr);
  if (!data.ok()) return data.error();
  Figures figures;
  figures.failures = done->failures;
  for (const std::string& workload : data.value().Workloads()) {
    std::set<std::string> metrics;
    for (const TidyRow& row : data.value().rows()) {
      if (row.workload == workload) metrics.insert(row.value.metric);
    }
    for (const std::string& metric : metrics) {
      // Of the counters those that the benchmark took for its own part of the run.
      if (metric.starts_with("runtime.") || metric.starts_with("mmu.") ||
          metric.starts_with("direct.")) {
        continue;
      }
      for (const Configuration& configuration : data.value().configurations()) {
        if (const auto summary = data.value().Of(workload, configuration, metric)) {
          figures.Set(fmt::format("{}.{}.{}", workload, NameOf(configuration), metric),
                      summary->median);
        }
      }
    }
  }
  return figures;
}

}  // namespace

Result<Figures> MeasureHostedIo(const MeasureOptions& options) {
  return MeasureExperiment("hosted-io", kHostedIo, options);
}

Result<Figures> MeasureMacro(const MeasureOptions& options) {
  const std::string engines = R"("translate", "direct", "auto", "hardware")";
  return MeasureExperiment("macro", Macro("cloud-amd64", engines) + kMacroGuests, options);
}

Result<Figures> MeasureMacro32(const MeasureOptions& options) {
  return MeasureExperiment("macro32", Macro("686", R"("translate", "direct", "auto")"), options);
}

Result<Figures> MeasureTypeIi(const MeasureOptions& options) {
  std::string peers = "\"native\"";
  for (const auto& [program, peer] :
       {std::pair{"qemu-system-x86_64", kQemuTcg}, std::pair{"linux.uml", kUml}}) {
    if (!FindProgram(program).empty()) peers += fmt::format(", \"{}\"", peer);
  }
  return MeasureExperiment("type-ii", fmt::format("peers = [{}]{}", peers, kTypeIi), options);
}

Result<Figures> MeasureTypeIiCures(const MeasureOptions& options) {
  return MeasureExperiment("type-ii-cures", kTypeIiCures, options);
}

}  // namespace alibi::bench::lab
