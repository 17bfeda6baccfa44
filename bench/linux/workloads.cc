// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/workloads.h"

#include <string_view>

namespace alibi::bench {
namespace {

LinuxWorkload ScalingRow(std::string_view bound, unsigned size) {
  for (const ScalingBound& row : ScalingBounds()) {
    if (row.name != bound) continue;
    return {std::string(bound) + "/" + std::to_string(size),
            row.per,
            1,
            row.meaning,
            LinuxSuite::kScaling,
            false,
            &row,
            size};
  }
  return {};
}

LinuxWorkload ParallelRow(const char* name, const char* per, double aim, double speed_up,
                          const char* meaning) {
  LinuxWorkload row{name, per, aim, meaning, LinuxSuite::kParallel};
  row.speed_up = speed_up;
  return row;
}

std::vector<LinuxWorkload> MakeWorkloads() {
  const LinuxWorkload rows[] = {
      {kBootWorkload, "boot", 2, "from the start of the VMM to the shell's first line",
       LinuxSuite::kLinux, true, nullptr, 0, 0, LinuxHow::kBothSettings},
      {kInitWorkload, "boot", 2, "the kernel's own time, by its clock, until /init",
       LinuxSuite::kLinux, true, nullptr, 0, 0, LinuxHow::kBothSettings},
#define ALIBI_LINUX_WORKLOAD(name, function, per, full, quick, samples, aim, auto_most, how, \
                             meaning)                                                        \
  {#name, per,           aim,   meaning, LinuxSuite::kLinux, false, nullptr, 0,              \
   0,     LinuxHow::how, false, {},      auto_most},
#include "bench/linux/workloads.inc"
#undef ALIBI_LINUX_WORKLOAD
#define ALIBI_PARALLEL(what, function, per, full, quick, samples, aim, speed_up, meaning) \
  ParallelRow("parallel/" what, per, aim, speed_up, meaning),
#include "bench/linux/parallel.inc"
#define ALIBI_SCALING(bound, size, function, full, quick) ScalingRow(bound, size),
#include "bench/linux/scaling.inc"
#define ALIBI_DISK(disk, what, kilobytes, function, full, quick, samples, aim, meaning) \
  {disk "/" what, "request", aim, meaning, LinuxSuite::kDisk},
#include "bench/linux/disk.inc"
      {kLoginWorkload, "boot", 3, "from the start of the VMM to the login prompt",
       LinuxSuite::kDebian, true},
#define ALIBI_DEBIAN(name, per, full, quick, samples, aim, most, auto_most, how, command, meaning) \
  {name,          per,   aim, meaning,  LinuxSuite::kDebian, false, nullptr, 0, most,              \
   LinuxHow::how, false, {},  auto_most},
#include "bench/linux/debian.inc"
#define ALIBI_ENTRIES(steps, full, quick)                                                        \
  {"entries/" #steps,    "round", 1,       "so many steps of an interpreter, and a system call", \
   LinuxSuite::kEntries, false,   nullptr, steps},
#include "bench/linux/entries.inc"
  };
  std::vector<LinuxWorkload> all;
  for (const LinuxWorkload& row : rows) {
    all.push_back(row);
    all.back().program = row.name;
    if (row.how != LinuxHow::kBothSettings) continue;
    all.push_back(all.back());
    all.back().name += kIsolatedSuffix;
    all.back().isolated = true;
  }
  return all;
}

}  // namespace

const std::vector<ScalingBound>& ScalingBounds() {
  static const std::vector<ScalingBound> kBounds = {
#define ALIBI_BOUND(bound, per, meaning) {bound, per, meaning},
#include "bench/linux/scaling.inc"
  };
  return kBounds;
}

const std::vector<LinuxWorkload>& LinuxWorkloads() {
  static const std::vector<LinuxWorkload> kWorkloads = MakeWorkloads();
  return kWorkloads;
}

bool Belongs(const LinuxWorkload& workload, LinuxSuite command) {
  return workload.suite == command ||
         (workload.suite == LinuxSuite::kParallel && command == LinuxSuite::kLinux);
}

const LinuxWorkload* FindLinuxWorkload(const std::string& name) {
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    if (name == workload.name) return &workload;
  }
  return nullptr;
}

}  // namespace alibi::bench
