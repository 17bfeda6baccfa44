// SPDX-License-Identifier: Apache-2.0
// A report of `alibi bench linux`, `scaling` or `debian` against an older one: --compare.
#ifndef ALIBI_BENCH_LINUX_COMPARE_H_
#define ALIBI_BENCH_LINUX_COMPARE_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/result.h"
#include "bench/linux/linux_runner.h"
#include "bench/linux/workloads.h"
#include "bench/statistics.h"

namespace alibi::bench {

struct OldReport {
  nlohmann::json host, settings;
  std::map<std::pair<std::string, std::string>, Summary> rows;  // by workload and system
};

// The JSON that a run of the suite wrote (LinuxJson). An error: it is none, or of another suite.
Result<OldReport> ParseReport(const std::string& text, LinuxSuite suite);

// Less than this part is noise, whatever the samples say; and where there is one sample alone,
// which says nothing about its spread.
inline constexpr double kLeastNoise = 0.1, kNoiseOfOne = 0.3;

// A row is worse if Alibi got slower beside each of native and QEMU TCG that both reports have, or
// by the clock where they have neither, by more than the noise: how uncertain the medians are that
// were compared, and at least the above. Beside one alone it may be that one that changed.
//
// One workload per row, old and new side by side; then what else differs between the reports: host
// and settings.
std::string CompareTable(const OldReport& old, const LinuxMeasurements& now,
                         const nlohmann::json& host, const nlohmann::json& settings, bool colors);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_COMPARE_H_
