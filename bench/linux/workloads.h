// SPDX-License-Identifier: Apache-2.0
// What `alibi bench linux` measures: the rows of workloads.inc, and those that need no program. And
// what `alibi bench scaling` does: those of scaling.inc.
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

struct LinuxWorkload {
  std::string name;
  const char* per;                      // what one operation is; figures are seconds per operation
  double aim;                           // QEMU TCG's time / Alibi's time
  const char* meaning;                  // one line
  bool is_boot = false;                 // of the machine itself: no native counterpart
  const ScalingBound* bound = nullptr;  // a row of scaling.inc, of this bound ...
  unsigned size = 0;                    // ... and this size
};

// From the start of the VMM's process to the shell's first line on the console.
inline constexpr const char* kBootWorkload = "boot";
// The guest's clock at the start of /init: the kernel's part of it, after decompression.
inline constexpr const char* kInitWorkload = "init";

// In the order in which they are run and shown; those of scaling.inc last.
const std::vector<LinuxWorkload>& LinuxWorkloads();
const std::vector<ScalingBound>& ScalingBounds();
// nullptr: there is none of this name.
const LinuxWorkload* FindLinuxWorkload(const std::string& name);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_WORKLOADS_H_
