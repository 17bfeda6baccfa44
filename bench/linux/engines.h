// SPDX-License-Identifier: Apache-2.0
// Alibi's engines (`alibi run --engine`) as systems that are measured beside each other, and what
// their tables say.
#ifndef ALIBI_BENCH_LINUX_ENGINES_H_
#define ALIBI_BENCH_LINUX_ENGINES_H_

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/linux/linux_runner.h"
#include "bench/linux/workloads.h"

namespace alibi::bench {

inline constexpr const char* kAllEngines = "all";
inline constexpr const char* kTranslateEngine = "translate";
inline constexpr const char* kAutoEngine = "auto";
inline constexpr const char* kHardwareEngine = "hardware";

// `names`: of engines, or kAllEngines alone, which is every engine, the default one first. An error
// names the engine that does not exist, or that is there twice.
Result<std::vector<std::string>> ChooseEngines(const std::vector<std::string>& names);

// The engine that was named first is system "alibi", which aims and older reports are about; the
// others are "alibi-NAME" and "hardware".
SystemId SystemOfEngine(const std::string& engine, const std::string& policy, bool first);

// The hardware engine on this host, tried for a moment: FrobOS's callret.
struct HardwareTrial {
  // What readers of its figures must know: that this host's KVM emulates ring 0, or that the trial
  // failed. "": nothing.
  std::string note;
  // Where there is a note. A kernel that boots at all does so within it; run by an emulator, one
  // may say nothing for hours.
  std::chrono::milliseconds limit{};
};
HardwareTrial TryHardware(const std::string& alibi, const std::string& data_folder);

// Those that were measured beside each other, the first number of CPUs being theirs; none if there
// is one alone.
std::vector<LinuxSystem> EnginesOf(const LinuxMeasurements& measurements);

// One workload per row: what it takes natively, and on each engine and on QEMU TCG the time and how
// many times the native one that is; then the aim of engine auto and whether it is met. "" if
// there is one engine only.
std::string EngineTable(const LinuxMeasurements& measurements, bool colors);

// How engine auto does beside its aim: as LinuxWorkload::auto_most says.
enum class EngineVerdict { kNone, kMet, kMissed, kUnsure };
EngineVerdict JudgeAuto(const LinuxMeasurements& measurements, const LinuxWorkload& workload);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_ENGINES_H_
