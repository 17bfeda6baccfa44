// SPDX-License-Identifier: Apache-2.0
// The results of `alibi bench linux` as a table, as JSON and as a chart.
#ifndef ALIBI_BENCH_LINUX_LINUX_REPORT_H_
#define ALIBI_BENCH_LINUX_LINUX_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "bench/linux/linux_runner.h"

namespace alibi::bench {

// "119 ns", "2.5 us", "1.45 s".
std::string FormatSeconds(double seconds);
// "1.23", "12.3".
std::string FormatTimes(double ratio);
// What failed, a line each.
std::string LinuxFailures(const Results& results, bool colors);

// One workload per row: seconds per operation (medians), by both measures, the ratios, and whether
// the aims are met;
// then what execlate costs beside execdyn, the clocks, and what failed; then the engines beside
// each other (engines.h), the numbers of CPUs (cpus.h) and the notes. `colors`: escapes for a
// terminal.
std::string LinuxTable(const LinuxMeasurements& measurements, bool colors);

// As of the nanobenchmarks, with "median_seconds" for "median_cycles": {"host", "linux":
// `settings`, "clocks": [...], "benchmarks": [{"name", "system", "policy", "per",
// "median_seconds", "p10", "p90", "samples", "engine", "cpus", "clock_seconds", "cpu_seconds"}],
// "ratios": as in reference.h, "ageing": {system: execlate / execdyn}, "failures": [...], "memory":
// [{"system", "cpus", "median_bytes"}], "notes": [...]}. Seconds per operation; engine, cpus,
// memory and notes where there are several or any.
nlohmann::ordered_json LinuxJson(const LinuxMeasurements& measurements,
                                 const nlohmann::ordered_json& host,
                                 const nlohmann::ordered_json& settings);

// One self-contained SVG, for light and dark ground. `subtitle`: the host and the guest's kernel.
std::string LinuxSvg(const LinuxMeasurements& measurements, const std::string& subtitle);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_LINUX_REPORT_H_
