// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "bench/lab/network.h"
#include "bench/linux/guest_files.h"

namespace alibi::bench::lab {
namespace {

// Steele, Lea, Flood 2014 (SplittableRandom): the same sequence everywhere, unlike std::shuffle.
class SplitMix {
 public:
  explicit SplitMix(u64 seed) : state_(seed) {}
  u64 Next() {
    u64 x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

 private:
  u64 state_;
};

// Every combination of the parameters' values, the last parameter changing fastest.
std::vector<std::vector<Setting>> Combinations(const std::vector<Parameter>& parameters) {
  std::vector<std::vector<Setting>> all = {{}};
  for (const Parameter& parameter : parameters) {
    std::vector<std::vector<Setting>> longer;
    for (const std::vector<Setting>& settings : all) {
      for (const std::string& value : parameter.values) {
        longer.push_back(settings);
        longer.back().emplace_back(parameter.name, value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// User-Mode Linux has a kernel of its own, for programs of 64 bits; and neither a card nor a
// user-mode network.
bool RunsOnUml(const Workload& workload) {
  switch (workload.program) {
    case Program::kLinux:
    case Program::kBoot:
    case Program::kDebian:
      return RunsLinuxbench(workload.kernel);
    case Program::kNetwork:
      return workload.backend == kTapBackend && workload.rate.empty();
    default:
      return false;
  }
}

std::string IdOf(const RunSpec& run, std::size_t number) {
  std::string text = fmt::format("{:03}-{}-{}", number, run.workload.name, run.system.system);
  if (!run.system.policy.empty()) text += "-" + run.system.policy;
  for (const auto& [name, value] : run.parameters) text += "-" + value;
  text += run.repeat == kObserved ? "-observed" : fmt::format("-{}", run.repeat);
  for (char& c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  }
  return text;
}

}  // namespace

std::vector<RunSpec> Matrix(const Experiment& experiment) {
  std::vector<RunSpec> round;
  for (const Workload& workload : experiment.workloads) {
    for (const std::string& peer : experiment.peers) {
      // No guest of the host's hardware, and none of QEMU's wires is slow.
      const bool boots = workload.program == Program::kBoot ||
                         workload.program == Program::kTransmit || IsVmi(workload.program);
      if (peer == kNative && (boots || !workload.rate.empty())) continue;
      if (peer == kQemuTcg && !workload.rate.empty()) continue;
      if (peer == kUml && !RunsOnUml(workload)) continue;
      round.push_back({"", workload, {peer, ""}, {}, 1});
    }
    for (const std::string& policy : experiment.policies) {
      for (const std::vector<Setting>& settings : Combinations(experiment.parameters)) {
        round.push_back({"", workload, {kAlibi, policy}, settings, 1});
      }
    }
  }
  std::vector<RunSpec> runs;
  SplitMix random(experiment.seed);
  unsigned cell = 0;
  const auto add_round = [&](std::vector<RunSpec> specs, unsigned repeat) {
    const std::size_t first = runs.size();
    for (RunSpec& run : specs) {
      run.repeat = repeat;
      if (runs.size() == first || run.workload.name != runs.back().workload.name) ++cell;
      run.cell = cell;
      run.id = IdOf(run, runs.size() + 1);
      runs.push_back(std::move(run));
    }
    if (experiment.order != Order::kShuffled) return;
    for (std::size_t i = runs.size(); i > first + 1; --i) {
      std::swap(runs[i - 1], runs[first + random.Next() % (i - first)]);
    }
  };
  for (unsigned repeat = 1; repeat <= experiment.repeats; ++repeat) add_round(round, repeat);
  if (experiment.observe) {
    std::erase_if(round, [](const RunSpec& run) { return run.system.system != kAlibi; });
    add_round(round, kObserved);
  }
  return runs;
}

std::vector<Cell> Cells(const Experiment& experiment) {
  std::map<unsigned, Cell> cells;
  for (const RunSpec& run : Matrix(experiment)) {
    Cell& cell = cells[run.cell];
    cell.number = run.cell;
    cell.workload = run.workload.name;
    cell.repeat = run.repeat;
    cell.runs.push_back(run.id);
  }
  std::vector<Cell> all;
  for (auto& [number, cell] : cells) all.push_back(std::move(cell));
  return all;
}

}  // namespace alibi::bench::lab
