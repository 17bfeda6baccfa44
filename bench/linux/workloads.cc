// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/workloads.h"

namespace alibi::bench {

const std::vector<LinuxWorkload>& LinuxWorkloads() {
  static const std::vector<LinuxWorkload> kWorkloads = {
      {kBootWorkload, "boot", 2, "from the start of the VMM to the shell's first line", true},
      {kInitWorkload, "boot", 2, "the kernel's own time, by its clock, until /init", true},
#define ALIBI_LINUX_WORKLOAD(name, function, per, full, quick, samples, aim, meaning) \
  {#name, per, aim, meaning, false},
#include "bench/linux/workloads.inc"
#undef ALIBI_LINUX_WORKLOAD
  };
  return kWorkloads;
}

const LinuxWorkload* FindLinuxWorkload(const std::string& name) {
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    if (name == workload.name) return &workload;
  }
  return nullptr;
}

}  // namespace alibi::bench
