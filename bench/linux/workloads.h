// SPDX-License-Identifier: Apache-2.0
// What `alibi bench linux` measures: the rows of workloads.inc, and those that need no program;
// what `alibi bench scaling` does: those of scaling.inc; and `alibi bench debian`: those of
// debian.inc.
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

// Which of the commands runs a workload.
enum class LinuxSuite { kLinux, kScaling, kDebian };

struct LinuxWorkload {
  std::string name;
  const char* per;      // what one operation is; figures are seconds per operation
  double aim;           // QEMU TCG's time / Alibi's time
  const char* meaning;  // one line
  LinuxSuite suite;
  bool is_boot = false;                 // of the machine itself: no native counterpart
  const ScalingBound* bound = nullptr;  // a row of scaling.inc, of this bound ...
  unsigned size = 0;                    // ... and this size
  double most = 0;                      // Alibi's time / native time at most; 0: no such aim
};

// From the start of the VMM's process to the shell's first line on the console.
inline constexpr const char* kBootWorkload = "boot";
// The guest's clock at the start of /init: the kernel's part of it, after decompression.
inline constexpr const char* kInitWorkload = "init";
// From the start of the VMM's process to Debian's login prompt.
inline constexpr const char* kLoginWorkload = "login";

// In the order in which they are run and shown.
const std::vector<LinuxWorkload>& LinuxWorkloads();
const std::vector<ScalingBound>& ScalingBounds();
// nullptr: there is none of this name.
const LinuxWorkload* FindLinuxWorkload(const std::string& name);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_WORKLOADS_H_
