// SPDX-License-Identifier: Apache-2.0
// Runs linuxbench on each machine, interleaved and repeated, and judges what it says.
#ifndef ALIBI_BENCH_LINUX_LINUX_RUNNER_H_
#define ALIBI_BENCH_LINUX_LINUX_RUNNER_H_

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/child_process.h"
#include "bench/linux/console.h"
#include "bench/linux/guest_files.h"
#include "bench/results.h"

namespace alibi::bench {

struct LinuxMachine {
  SystemId system;
  // The command whose stdout is the console, for linuxbench's words, such as
  // "quick:only=getppid"; "": the machine only boots.
  std::function<std::vector<std::string>(const std::string& words)> command;
  bool boots = true;      // false: linuxbench on the host
  bool isolated = false;  // its kernel isolates its page tables: it runs the rows NAME/pti
  std::string engine{};   // of Alibi's, by name; "": another system
  unsigned cpus = 1;      // natively so many of the host's
  // Of a run: that of LinuxRunOptions if it is zero.
  std::chrono::milliseconds limit{};
};

// linuxbench's names of those among `names`, of workloads, that the machine runs, in their order.
// The host has one setting, whose figure stands beside both of a guest.
std::vector<std::string> ProgramsOf(const LinuxMachine& machine,
                                    const std::vector<std::string>& names);

struct LinuxRunOptions {
  unsigned runs = 5;
  bool quick = false;
  // Among how many workers rows of parallel.inc are divided.
  unsigned workers = kLeastWorkers;
  bool memory = false;  // what machines take is measured at their end
  // Figures are CPU time: those of the clock multiplied by the part of a core that the machine
  // used. For a host that is busy with other things, and workloads that keep one VCPU busy.
  bool cpu_time = false;
  std::vector<std::string> names;  // of workloads
  std::chrono::milliseconds run_limit = std::chrono::minutes(20);
  // What a machine said, and how it ended; may be empty.
  std::function<void(const ChildResult&)> ended;
  // "run 2 of 5: alibi hysteresis"; may be empty.
  std::function<void(const std::string&)> progress;
};

// How long a run's workloads took, in seconds: by the guest's clock, by the host's, and of CPU
// time.
struct LinuxClock {
  SystemId system;
  double guest = 0, host = 0, cpu = 0;
};

// The two may differ by this part; figures taken with a worse clock are refused.
inline constexpr double kMaxClockError = 0.05;
bool ClockIsRight(const LinuxClock& clock);

// A system that was measured, and what it is; see LinuxMachine.
struct LinuxSystem {
  SystemId id;
  std::string engine{};
  unsigned cpus = 1;
};

struct LinuxMeasurements {
  Results results;  // seconds per operation, and what went wrong
  Results other;    // the same by the other measure
  bool cpu_time =
      false;  // `results` are CPU time, `other` the clock's: the guest's, for a boot the host's
  std::vector<LinuxClock> clocks;
  std::vector<LinuxSystem> systems;  // in the order of the machines
  // What a machine took of the host's memory at its end, in bytes, one figure for each run.
  std::map<SystemId, std::vector<double>> memory;
  // What readers of the tables must know beside them, such as that this host's KVM emulates: whole
  // lines.
  std::vector<std::string> notes;
};

LinuxMeasurements RunLinux(const std::vector<LinuxMachine>& machines,
                           const LinuxRunOptions& options);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_LINUX_RUNNER_H_
