// SPDX-License-Identifier: Apache-2.0
// Machines with several numbers of CPUs (`alibi bench linux --smp 1,2`) as systems that are
// measured beside each other, and what their table says.
#ifndef ALIBI_BENCH_LINUX_CPUS_H_
#define ALIBI_BENCH_LINUX_CPUS_H_

#include <string>
#include <vector>

#include "bench/linux/linux_runner.h"
#include "bench/linux/workloads.h"

namespace alibi::bench {

// The number of CPUs that was named first is that of the systems that all tables are about, such as
// `first`; with another one the same system is "NAME-smpN".
SystemId SystemWithCpus(const SystemId& first, unsigned first_cpus, unsigned cpus);

// Those with the first number, in their order.
std::vector<LinuxSystem> FirstSystems(const LinuxMeasurements& measurements);

// Those that were measured, as they were named; one at least.
std::vector<unsigned> CpuNumbers(const LinuxMeasurements& measurements);

// How many times as fast the system is with so many CPUs as with the first number; 0: unknown.
double SpeedUp(const LinuxMeasurements& measurements, const std::string& workload,
               const SystemId& first, unsigned cpus);

// How a system does beside LinuxWorkload::speed_up. kUnsure: it misses the aim, and so does the
// host itself, which had no two cores to give.
enum class SpeedUpVerdict { kNone, kMet, kMissed, kUnsure };
SpeedUpVerdict JudgeSpeedUp(const LinuxMeasurements& measurements, const LinuxWorkload& workload,
                            const SystemId& first);

// One workload per row: of each system the time with each number of CPUs and, behind those but the
// first, how many times as fast that is; then the aim of two CPUs and whether it is met. Below,
// the memory that the machines took. "" if there is one number only.
std::string CpusTable(const LinuxMeasurements& measurements, bool colors);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_CPUS_H_
