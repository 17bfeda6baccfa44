// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/linux_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "bench/linux/guest_files.h"
#include "bench/linux/process_use.h"
#include "bench/linux/workloads.h"

namespace alibi::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Lines take a moment through a serial port; within it, clocks cannot be compared.
constexpr double kConsoleDelay = 0.05;
// CPU times are known to 10 ms.
constexpr double kShortestShare = 0.2;

// Seconds per operation, by the clock and of CPU time.
struct Sample {
  double clock = 0, cpu = 0;
};

// What one machine gave in all runs so far.
struct Tally {
  std::set<std::string> given_up;  // crashed or failed: not tried again
  bool broken = false;             // it did not even boot
  std::map<std::string, std::vector<Sample>> samples;
  std::map<std::string, std::set<std::string>> checks;
};

bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Whether the machine has to give a figure for the workload.
bool Asked(const LinuxMachine& machine, const LinuxWorkload& workload,
           const std::vector<std::string>& names) {
  return (machine.boots ? machine.isolated == workload.isolated
                        : workload.how != LinuxHow::kGuests) &&
         Contains(names, workload.name);
}

class Runner {
 public:
  Runner(const std::vector<LinuxMachine>& machines, const LinuxRunOptions& options)
      : machines_(machines), options_(options), tallies_(machines.size()) {
    for (const LinuxMachine& machine : machines) AddSystem(machine);
  }

  LinuxMeasurements Run() {
    for (unsigned run = 0; run < options_.runs; ++run) {
      for (std::size_t i = 0; i < machines_.size(); ++i) {
        where_ = fmt::format("run {} of {}: {}{}", run + 1, options_.runs,
                             machines_[i].system.Name(), machines_[i].isolated ? " pti=on" : "");
        RunMachine(machines_[i], tallies_[i]);
      }
    }
    CompareChecks();
    measurements_.cpu_time = options_.cpu_time;
    for (const LinuxWorkload& workload : LinuxWorkloads()) {
      for (std::size_t i = 0; i < machines_.size(); ++i) {
        const auto it = tallies_[i].samples.find(workload.program);
        if (it == tallies_[i].samples.end()) continue;
        if (!Asked(machines_[i], workload, options_.names)) continue;
        Measurement clock{workload.name, {}, ""}, cpu{workload.name, {}, ""};
        for (const Sample& sample : it->second) {
          clock.samples.push_back(sample.clock);
          cpu.samples.push_back(sample.cpu);
        }
        measurements_.results.Add(machines_[i].system, "", options_.cpu_time ? cpu : clock);
        measurements_.other.Add(machines_[i].system, "", options_.cpu_time ? clock : cpu);
      }
    }
    return std::move(measurements_);
  }

 private:
  // Machines with and without isolation are of one system.
  void AddSystem(const LinuxMachine& machine) {
    std::vector<LinuxSystem>& all = measurements_.systems;
    if (std::none_of(all.begin(), all.end(),
                     [&](const LinuxSystem& system) { return system.id == machine.system; })) {
      all.push_back({machine.system, machine.engine, machine.cpus});
    }
  }

  void Miss(const LinuxMachine& machine, const std::string& what) {
    measurements_.results.AddMiss(machine.system, (machine.isolated ? "pti=on: " : "") + what);
  }

  // What runs in the machine and was not given up.
  std::vector<std::string> Wanted(const LinuxMachine& machine, const Tally& tally) const {
    std::vector<std::string> names = ProgramsOf(machine, options_.names);
    std::erase_if(names, [&](const std::string& name) {
      return tally.given_up.count(name) != 0 ||
             (FindLinuxWorkload(name)->how == LinuxHow::kOnce && tally.samples.count(name) != 0);
    });
    return names;
  }

  // One run; when a workload takes the machine with it, again for those behind it.
  void RunMachine(const LinuxMachine& machine, Tally& tally) {
    std::vector<std::string> names = Wanted(machine, tally);
    bool first = true;
    while (!tally.broken && (first ? machine.boots || !names.empty() : !names.empty())) {
      const std::string words = LinuxbenchWords(
          {options_.quick, machine.cpus, options_.workers, options_.memory && machine.boots},
          names);
      const LinuxConsole console = RunOnce(machine, words, first, tally);
      first = false;
      std::erase_if(names, [&](const std::string& name) {
        return console.outcomes().count(name) != 0 || tally.given_up.count(name) != 0;
      });
      if (console.done()) break;
    }
  }

  LinuxConsole RunOnce(const LinuxMachine& machine, const std::string& words, bool count_boot,
                       Tally& tally) {
    if (options_.progress) options_.progress(where_);
    LinuxConsole console;
    std::string begun;
    double memory = 0;
    const Clock::time_point start = Clock::now();
    const ChildResult child = RunChild(
        machine.command(words), machine.limit.count() != 0 ? machine.limit : options_.run_limit,
        [&](std::string_view text, int group) {
          console.Feed(text, std::chrono::duration<double>(Clock::now() - start).count(),
                       GroupCpuSeconds(group));
          if (console.unfinished() != begun && !console.unfinished().empty() && options_.progress) {
            options_.progress(where_ + ", " + console.unfinished());
          }
          begun = console.unfinished();
          if (options_.memory && machine.boots && console.done() && memory == 0) {
            memory = GroupMemoryBytes(group);
          }
        });
    if (memory > 0) measurements_.memory[machine.system].push_back(memory);
    if (options_.ended) options_.ended(child);
    const bool ended = child.started && !child.timed_out && child.exit_status == 0;
    if (!ended || (!words.empty() && !console.done())) {
      Judge(machine, child, console, ended, tally);
    }
    if (machine.boots && count_boot) TakeBoot(console, tally);
    TakeOutcomes(machine, console, tally);
    return console;
  }

  // What to blame for a run that did not come to its end.
  void Judge(const LinuxMachine& machine, const ChildResult& child, const LinuxConsole& console,
             bool ended, Tally& tally) {
    std::string what = ended ? "the guest switched the machine off too early" : child.Describe();
    if (!console.last_line().empty()) {
      what += fmt::format("; the console's last line: {}", console.last_line());
    }
    if (!console.unfinished().empty()) {
      Miss(machine, console.unfinished() + ": " + what);
      tally.given_up.insert(console.unfinished());
      return;
    }
    tally.broken = true;
    const bool up = console.Mark("shell") || console.Mark(kLoginMark);
    Miss(machine, (console.done()  ? "after the last workload: "
                   : up            ? "between workloads: "
                   : machine.boots ? "before the shell: "
                                   : "linuxbench: ") +
                      what);
  }

  // The part of a core that was used in a stretch of time, as far as the clock tick of CPU times
  // allows to tell; `otherwise` for a shorter stretch. More than 1: a VMM has threads.
  static double Share(double cpu, double host, double otherwise) {
    return host < kShortestShare ? otherwise : std::max(cpu / host, 0.01);
  }

  static void TakeBoot(const LinuxConsole& console, Tally& tally) {
    const auto take = [&](const char* workload, const char* mark, double ClockMark::*clock) {
      const auto at = console.Mark(mark);
      if (!at) return;
      const double seconds = *at.*clock;
      tally.samples[workload].push_back({seconds, seconds * Share(at->cpu, at->host, 1)});
    };
    take(kInitWorkload, "init", &ClockMark::guest);
    take(kBootWorkload, "shell", &ClockMark::host);
    take(kLoginWorkload, kLoginMark, &ClockMark::host);
  }

  void TakeOutcomes(const LinuxMachine& machine, const LinuxConsole& console, Tally& tally) {
    const auto begin = console.Mark("begin"), done = console.Mark("done");
    double share = 1;
    if (begin && done) {
      const LinuxClock clock = {machine.system, done->guest - begin->guest,
                                done->host - begin->host, done->cpu - begin->cpu};
      share = Share(clock.cpu, clock.host, 1);
      measurements_.clocks.push_back(clock);
      if (!ClockIsRight(clock)) {
        Miss(machine, fmt::format("a run's figures are refused, since its clock is off: {:.2f} s "
                                  "passed for the guest, {:.2f} s for the host",
                                  clock.guest, clock.host));
        return;
      }
    }
    for (const auto& [name, outcome] : console.outcomes()) {
      if (!outcome.error.empty()) {
        Miss(machine, name + ": " + outcome.error);
        tally.given_up.insert(name);
        continue;
      }
      std::vector<Sample>& samples = tally.samples[name];
      const double own_share = Share(outcome.cpu, outcome.host, share);
      for (double seconds : outcome.seconds) samples.push_back({seconds, seconds * own_share});
      tally.checks[name].insert(outcome.check);
    }
  }

  // A machine that computes something else than the host has no figure for it. Without the host's
  // checksum, QEMU's is taken as right.
  void CompareChecks() {
    for (const LinuxWorkload& workload : LinuxWorkloads()) {
      // Machines of both settings compute the same.
      if (workload.isolated) continue;
      const std::string& name = workload.program;
      const std::set<std::string>* right = nullptr;
      for (const char* system : {kNative, kQemuTcg}) {
        for (std::size_t i = 0; i < machines_.size(); ++i) {
          const auto it = tallies_[i].checks.find(name);
          if (right == nullptr && machines_[i].system.system == system &&
              it != tallies_[i].checks.end()) {
            right = &it->second;
          }
        }
      }
      for (std::size_t i = 0; i < machines_.size(); ++i) {
        const auto it = tallies_[i].checks.find(name);
        if (it == tallies_[i].checks.end()) continue;
        if (it->second.size() == 1 && (right == nullptr || *right == it->second)) continue;
        Miss(machines_[i], it->second.size() != 1
                               ? fmt::format("{}: its runs computed different things", name)
                               : fmt::format("{}: it computed {} instead of {}", name,
                                             *it->second.begin(), *right->begin()));
        tallies_[i].samples.erase(name);
      }
    }
  }

  const std::vector<LinuxMachine>& machines_;
  const LinuxRunOptions& options_;
  std::vector<Tally> tallies_;
  LinuxMeasurements measurements_;
  std::string where_;
};

}  // namespace

std::vector<std::string> ProgramsOf(const LinuxMachine& machine,
                                    const std::vector<std::string>& names) {
  std::vector<std::string> programs;
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    if (!workload.is_boot && Asked(machine, workload, names) &&
        !Contains(programs, workload.program)) {
      programs.push_back(workload.program);
    }
  }
  return programs;
}

bool ClockIsRight(const LinuxClock& clock) {
  return std::abs(clock.guest - clock.host) <= kMaxClockError * clock.host + kConsoleDelay;
}

LinuxMeasurements RunLinux(const std::vector<LinuxMachine>& machines,
                           const LinuxRunOptions& options) {
  return Runner(machines, options).Run();
}

}  // namespace alibi::bench
