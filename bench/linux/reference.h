// SPDX-License-Identifier: Apache-2.0
// Results of other hosts, stored in the tree (reference/hosts.json), and what is much worse here.
//
// Times do not compare across hosts, ratios do: how many times slower than natively, and how many
// times faster than QEMU TCG, each measured on the same host in the same run.
#ifndef ALIBI_BENCH_LINUX_REFERENCE_H_
#define ALIBI_BENCH_LINUX_REFERENCE_H_

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/linux/linux_runner.h"

namespace alibi::bench {

// Medians of one workload; nothing where a side was not measured.
struct LinuxRatios {
  std::optional<double> alibi_to_native, tcg_to_alibi;
};
// By workload; those that have no ratio are left out.
std::map<std::string, LinuxRatios> RatiosOf(const LinuxMeasurements& measurements);

struct ReferenceHost {
  std::string name, date;
  std::string kernel;  // as for --kernel
  std::map<std::string, LinuxRatios> ratios;
};

// hosts.json: [{"host", "date", "kernel", "ratios": {WORKLOAD: {"alibi/native", "tcg/alibi"}}}].
Result<std::vector<ReferenceHost>> ParseReference(const std::string& text);
// The same shape, for a report.
nlohmann::ordered_json RatiosJson(const std::map<std::string, LinuxRatios>& ratios);

// A workload is much worse than on a host if every ratio that both have is at least this many
// times worse: a host that is slow natively, or on which TCG is slow, spoils only one of them.
inline constexpr double kMuchWorse = 3;

// A line for each workload that is much worse than on one of the hosts, naming the host where it
// is best; hosts with another kernel are left out.
std::string MuchWorseThanElsewhere(const LinuxMeasurements& measurements,
                                   const std::vector<ReferenceHost>& hosts,
                                   const std::string& kernel);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_REFERENCE_H_
