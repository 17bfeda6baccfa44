// SPDX-License-Identifier: Apache-2.0
// The initial RAM disk that all measured machines boot: busybox, linuxbench and an init script.
#ifndef ALIBI_BENCH_LINUX_INITRAMFS_H_
#define ALIBI_BENCH_LINUX_INITRAMFS_H_

#include <string>
#include <string_view>
#include <vector>

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

// A program or a library, and where it lies: "lib64/ld-linux-x86-64.so.2".
struct InitramfsFile {
  std::string name;
  std::string data;
};

// With these files in front, among them bin/busybox. What bin/linuxbench runs, if it is there,
// comes with the kernel's command line, as "linuxbench=WORDS" (see guest/main.c); then, or at once
// if there are no words, the machine powers off.
std::string MakeInitramfs(const std::vector<InitramfsFile>& files);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_INITRAMFS_H_
