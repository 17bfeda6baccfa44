// SPDX-License-Identifier: Apache-2.0
// What `alibi bench linux` measures: the rows of workloads.inc, with several numbers of CPUs those
// of parallel.inc, and those that need no program; what `alibi bench scaling` does: those of
// scaling.inc; `alibi bench disk`: those of disk.inc; and `alibi bench debian`: those of
// debian.inc; and those of entries.inc, which are for `alibi lab`.
#ifndef ALIBI_BENCH_LINUX_WORKLOADS_H_
#define ALIBI_BENCH_LINUX_WORKLOADS_H_

#include <string>
#include <vector>

namespace alibi::bench {

// Something that the engine has only so much of.
struct ScalingBound {
  const char* name;
  const char* per;      // what one operation is
  const char* meaning;  // one line
};

// Which of the commands runs a workload; kParallel: bench linux, with several numbers of CPUs or if
// it is named; kEntries: none of them, but `alibi lab`.
enum class LinuxSuite { kLinux, kParallel, kScaling, kDisk, kDebian, kEntries };

// Which machines run a workload, and how often.
enum class LinuxHow {
  kPlain,         // without page table isolation, in each run
  kBothSettings,  // and once more with it: another row, NAME/pti
  kGuests,        // as kPlain, but not natively: it needs a system of its own
  kOnce,          // without it, in one run alone: it takes minutes
};

struct LinuxWorkload {
  std::string name;
  const char* per;      // what one operation is; figures are seconds per operation
  double aim;           // QEMU TCG's time / Alibi's time
  const char* meaning;  // one line
  LinuxSuite suite;
  bool is_boot = false;                 // of the machine itself: no native counterpart
  const ScalingBound* bound = nullptr;  // a row of scaling.inc, of this bound ...
  unsigned size = 0;                    // ... and this size; of a row of entries.inc, its steps
  double most = 0;                      // Alibi's time / native time at most; 0: no such aim
  LinuxHow how = LinuxHow::kPlain;
  bool isolated = false;  // the guest's kernel isolates its page tables
  std::string program{};  // linuxbench's name for it: `name` without /pti
  // Time on engine auto / native time at most; 0: at most that on engine translate, but for the
  // policy's cost.
  double auto_most = 0;
  // On two CPUs, Alibi's time on one / on two; 0: no such aim.
  double speed_up = 0;
};

// From the start of the VMM's process to the shell's first line on the console.
inline constexpr const char* kBootWorkload = "boot";
// The guest's clock at the start of /init: the kernel's part of it, after decompression.
inline constexpr const char* kInitWorkload = "init";
// From the start of the VMM's process to Debian's login prompt.
inline constexpr const char* kLoginWorkload = "login";

// Behind the name of a workload in a guest that isolates its page tables.
inline constexpr const char* kIsolatedSuffix = "/pti";
// The same exec in a new machine and in one that has done thousands of them, and how many times as
// much the latter may cost.
inline constexpr const char* kFreshWorkload = "execdyn";
inline constexpr const char* kAgedWorkload = "execlate";
inline constexpr double kMostAgeing = 1.1;

// In the order in which they are run and shown.
const std::vector<LinuxWorkload>& LinuxWorkloads();
const std::vector<ScalingBound>& ScalingBounds();
// Whether it is a row of the command's: kLinux has those of kParallel, too.
bool Belongs(const LinuxWorkload& workload, LinuxSuite command);
// nullptr: there is none of this name.
const LinuxWorkload* FindLinuxWorkload(const std::string& name);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_WORKLOADS_H_
