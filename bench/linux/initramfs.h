// SPDX-License-Identifier: Apache-2.0
// The initial RAM disk that all measured machines boot: busybox, linuxbench and an init script.
#ifndef ALIBI_BENCH_LINUX_INITRAMFS_H_
#define ALIBI_BENCH_LINUX_INITRAMFS_H_

#include <string>
#include <string_view>

#include "base/types.h"

namespace alibi::bench {

// An archive in the "newc" format, which the kernel unpacks
// (Documentation/driver-api/early-userspace/buffer-format.rst).
class CpioArchive {
 public:
  // `mode`: type and permissions as in stat(2). `device`: for device nodes.
  void Add(std::string_view name, u32 mode, std::string_view data = {}, u32 device_major = 0,
           u32 device_minor = 0);
  // The archive, ended. Nothing may be added any more.
  std::string Finish();

 private:
  std::string bytes_;
  u32 inode_ = 0;
};

// `busybox` and `linuxbench`: contents of static programs; linuxbench may be "". What it runs comes
// with the kernel's command line, as "linuxbench=WORDS" (see guest/main.c); then, or at once if
// there are no words, the machine powers off.
std::string MakeInitramfs(std::string_view busybox, std::string_view linuxbench);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_INITRAMFS_H_
