// SPDX-License-Identifier: Apache-2.0
// What was measured: samples by benchmark, system and policy, and what went wrong.
#ifndef ALIBI_BENCH_RESULTS_H_
#define ALIBI_BENCH_RESULTS_H_

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "bench/statistics.h"

namespace alibi::bench {

// A measured system: "native", "alibi" with a policy, "qemu-tcg".
struct SystemId {
  std::string system;
  std::string policy;  // "" but for alibi
  auto operator<=>(const SystemId&) const = default;
  // "alibi hysteresis", "native".
  std::string Name() const { return policy.empty() ? system : system + " " + policy; }
};

inline constexpr const char* kNative = "native";
inline constexpr const char* kAlibi = "alibi";
// Alibi on the host's CPU, through the KVM API.
inline constexpr const char* kHardware = "hardware";
inline constexpr const char* kQemuTcg = "qemu-tcg";
// User-Mode Linux: its own kernel, as a process whose guests' processes are traced ones.
inline constexpr const char* kUml = "uml";
// In front of the names of compute programs, whose samples are cycles of a whole run.
inline constexpr const char* kComputePrefix = "compute_";
// The same programs as 32-bit code.
inline constexpr const char* kCompute32Prefix = "compute32_";
// The prefix that a benchmark's name begins with, or "".
std::string ComputePrefixOf(const std::string& benchmark);

// A line of a benchmark program's output.
struct Measurement {
  std::string name;
  std::vector<double> samples;  // cycles
  std::string error;            // not empty: the operation failed
};

struct ProgramOutput {
  std::vector<Measurement> measurements;
  bool done = false;  // the program said that it was through
};

// Reads the JSON lines of a benchmark program. Other lines are passed over; a broken line is one
// that the program could not finish.
ProgramOutput ParseProgramOutput(const std::string& text);

// What translating cost in one run.
struct TranslationCost {
  u64 translations = 0, instructions = 0, guest_bytes = 0, emitted_bytes = 0, cycles = 0;
};
// From `alibi run --stats-json`.
Result<TranslationCost> ParseStats(const std::string& json);

class Results {
 public:
  void Add(const SystemId& system, const std::string& prefix, const Measurement& measurement);
  void AddTranslation(const SystemId& system, const TranslationCost& cost);
  // A run or a benchmark that gave no result; said once, however often it happens.
  void AddMiss(const SystemId& system, const std::string& what);

  // Empty samples: not measured.
  const std::vector<double>& Samples(const std::string& benchmark, const SystemId& system) const;
  Summary Of(const std::string& benchmark, const SystemId& system) const {
    return Summarize(Samples(benchmark, system));
  }
  // Of a system, whatever its policy; nothing if it was not measured.
  std::optional<double> MedianOf(const std::string& benchmark, const char* system) const;
  // In the order of bench/rows.inc, then as they came, compute programs last.
  std::vector<std::string> Benchmarks() const;
  // In the order in which they were added.
  const std::vector<SystemId>& Systems() const { return systems_; }
  bool Has(const SystemId& system) const;
  TranslationCost Translation(const SystemId& system) const;
  const std::vector<std::pair<SystemId, std::string>>& Misses() const { return misses_; }
  bool Failed(const char* system) const;
  // Does the host's KVM run the guest's kernel by an instruction emulator, as some nested ones do?
  // Hardware calls and returns in some 10 cycles, an emulator in thousands.
  bool HardwareIsEmulated() const;

  // {"host": ..., "benchmarks": [{"name", "system", "policy", "median_cycles", "p10", "p90",
  // "samples"}]}
  nlohmann::ordered_json ToJson(const nlohmann::ordered_json& host) const;

 private:
  std::vector<std::string> order_;
  std::vector<SystemId> systems_;
  std::map<std::pair<std::string, SystemId>, std::vector<double>> samples_;
  std::map<SystemId, TranslationCost> translation_;
  std::vector<std::pair<SystemId, std::string>> misses_;
};

// The budget of a benchmark in cycles, 0 if it has none; and what it measures, "" if unknown.
double BudgetOf(const std::string& benchmark);
std::string MeaningOf(const std::string& benchmark);
// The names of bench/rows.inc, separated by commas.
std::string KnownBenchmarks();

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_RESULTS_H_
