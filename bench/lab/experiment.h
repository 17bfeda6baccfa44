// SPDX-License-Identifier: Apache-2.0
// Experiment files: what `alibi lab run` measures. TOML; docs/lab.md describes the keys.
#ifndef ALIBI_BENCH_LAB_EXPERIMENT_H_
#define ALIBI_BENCH_LAB_EXPERIMENT_H_

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "bench/linux/workloads.h"

namespace alibi::bench::lab {

// What a run executes.
enum class Program : u8 {
  kNanobench,  // FrobOS's nanobenchmarks
  kCompute,    // the compute programs, as 64-bit code
  kCompute32,  // the same as 32-bit code
  kLinux,      // rows of bench/linux in a Debian guest, those of entries.inc among them
  kBoot,       // one of Debian's kernels, booted and powered off
  kNetwork,    // nettest in a Debian guest
  kTransmit,   // FrobOS: what accesses to a Lance cost
  kDebian,     // rows of bench/linux in a whole Debian
  kVmibench,   // FrobOS: the privileged work of a 32-bit kernel, by VMI's calls where there are any
  kVmibench64,  // the nanobenchmarks, by VMI's calls where there are any
  kVmiLinux,    // vmi_init in a 32-bit Linux whose kernel the user gives
};
inline constexpr unsigned kProgramCount = 11;
const char* ProgramName(Program program);
constexpr bool IsVmi(Program program) {
  return program == Program::kVmibench || program == Program::kVmibench64 ||
         program == Program::kVmiLinux;
}

struct Workload {
  std::string name;  // unique in its experiment
  Program program = Program::kNanobench;
  std::vector<std::string> only;  // benchmarks of the program; empty: all
  std::string kernel;        // of kLinux, kBoot, kDebian, kNetwork: one of those of ./alibi linux
  std::string card = "";     // of kNetwork and kTransmit: "lance" or "virtio"
  std::string backend = "";  // of kNetwork: what the card leads to: see network.h
  std::string rate = "";     // of kNetwork: of the wire, "100M"; "": as fast as it may be
};

// An option of `alibi run`, and the values it takes in turn.
struct Parameter {
  std::string name;
  std::vector<std::string> values;
};

enum class Order : u8 {
  kInterleaved,  // every configuration once, then again: drift of the host hits all alike
  kShuffled,     // likewise, each round in another order, which the seed decides
};

struct Experiment {
  std::string title;
  std::string question;  // for the report
  std::vector<Workload> workloads;
  std::vector<std::string> policies;
  std::vector<std::string> peers;  // "native", "qemu-tcg", "uml"
  std::vector<Parameter> parameters;
  unsigned repeats = 3;
  Order order = Order::kInterleaved;
  u64 seed = 1;
  std::chrono::seconds time_limit{300};  // of one run
  bool quick = false;                    // short runs
  // One run more of every configuration of Alibi, with its event log and its execution profile. Its
  // times are not among the figures.
  bool observe = true;
  bool cpu_time = false;  // figures of Linux guests are CPU time: see LinuxRunOptions
};

// Whether a guest of the program (kLinux, kBoot, kDebian) has the suite's rows. The boots' rows are
// of its guests, too.
bool HasRowsOf(Program program, LinuxSuite suite);

// `file`: for messages. An error begins with "FILE:LINE: " and names what would be right.
Result<Experiment> ParseExperiment(const std::string& text, const std::string& file);

// The same experiment at its shortest, as text of another file: short runs, each once, none
// observed. The text must be one that can be parsed; its comments go.
std::string QuickForm(const std::string& text);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_EXPERIMENT_H_
