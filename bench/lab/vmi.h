// SPDX-License-Identifier: Apache-2.0
// Workloads about VMI (docs/vmi.md): FrobOS's vmibench, its nanobenchmarks with the instructions at
// sites, and vmi_init in a 32-bit Linux whose kernel the user gives.
#ifndef ALIBI_BENCH_LAB_VMI_H_
#define ALIBI_BENCH_LAB_VMI_H_

#include <string>
#include <vector>

#include "base/result.h"

namespace alibi::bench::lab {

// vmibench's benchmarks.
std::vector<std::string> VmibenchNames();
std::string VmibenchWords(bool quick, const std::vector<std::string>& only);

// All paths.
struct VmiFiles {
  std::string image, image64;     // vmibench, and nanobench_vmi
  std::string kernel, initramfs;  // of the Linux guest; "": there is none
};
// `kernel`: the user's, "" for none; its initial RAM disk is made in `folder`. Fails if a file is
// missing.
Result<VmiFiles> FindVmiFiles(const std::string& data_folder, const std::string& kernel,
                              const std::string& folder);

// The Linux machines' commands, the console being stdout. They restart when all is measured, and
// end by that.
std::vector<std::string> AlibiVmiLinuxCommand(const VmiFiles& files, const std::string& alibi,
                                              bool quick);
std::vector<std::string> QemuVmiLinuxCommand(const VmiFiles& files, const std::string& qemu,
                                             bool quick);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_VMI_H_
