// SPDX-License-Identifier: Apache-2.0
// Runs linuxbench on each machine, interleaved and repeated, and judges what it says.
#ifndef ALIBI_BENCH_LINUX_LINUX_RUNNER_H_
#define ALIBI_BENCH_LINUX_LINUX_RUNNER_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bench/child_process.h"
#include "bench/linux/console.h"
#include "bench/results.h"

namespace alibi::bench {

struct LinuxMachine {
  SystemId system;
  // The command whose stdout is the console, for linuxbench's words, such as
  // "quick:only=getppid"; "": the machine only boots.
  std::function<std::vector<std::string>(const std::string& words)> command;
  bool boots = true;      // false: linuxbench on the host
  bool isolated = false;  // its kernel isolates its page tables: it runs the rows NAME/pti
  std::string engine{};   // of Alibi's, by name; "": another system, or there is one engine only
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
  unsigned cpus = 1;  // of the machines; natively as many of the host's
  // Figures are CPU time: those of the clock multiplied by the part of a core that the machine
  // used. For a host that is busy with other things; all workloads keep one VCPU busy.
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

// An engine of Alibi's that was measured.
struct LinuxEngine {
  std::string name;
  SystemId system;
};

struct LinuxMeasurements {
  Results results;  // seconds per operation, and what went wrong
  Results other;    // the same by the other measure
  bool cpu_time =
      false;  // `results` are CPU time, `other` the clock's: the guest's, for a boot the host's
  std::vector<LinuxClock> clocks;
  std::vector<LinuxEngine> engines;  // in the order of the machines, which had named theirs
  // What readers of the tables must know beside them, such as that this host's KVM emulates: whole
  // lines.
  std::vector<std::string> notes;
};

LinuxMeasurements RunLinux(const std::vector<LinuxMachine>& machines,
                           const LinuxRunOptions& options);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_LINUX_RUNNER_H_
