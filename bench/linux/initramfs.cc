// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/initramfs.h"

#include <fmt/format.h>

#include <set>

namespace alibi::bench {
namespace {

constexpr u32 kFolder = 0040755, kProgram = 0100755, kCharacterDevice = 0020600;

// The marks are linuxbench's, but come from the shell: a 32-bit kernel cannot run linuxbench. The
// kernel hands parameters that it does not know to init as environment variables.
constexpr std::string_view kInit = R"(#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
read up rest < /proc/uptime
echo "@@bench {\"mark\":\"init\",\"clock\":$up}"
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox --install -s /bin
export PATH=/bin
sh -c 'read up rest < /proc/uptime; echo "@@bench {\"mark\":\"shell\",\"clock\":$up}"'
[ -z "$linuxbench" ] || linuxbench run "$linuxbench" /tmp /bin/busybox
poweroff -f
)";

void PadTo4(std::string* bytes) { bytes->append((4 - bytes->size() % 4) % 4, '\0'); }

}  // namespace

void CpioArchive::Add(std::string_view name, u32 mode, std::string_view data, u32 device_major,
                      u32 device_minor) {
  ++inode_;
  const std::size_t fields[] = {
      inode_, mode, 0, 0, 1, 0, data.size(), 0, 0, device_major, device_minor, name.size() + 1, 0};
  bytes_ += "070701";
  for (std::size_t field : fields) bytes_ += fmt::format("{:08x}", field);
  bytes_ += name;
  bytes_ += '\0';
  PadTo4(&bytes_);
  bytes_ += data;
  PadTo4(&bytes_);
}

std::string CpioArchive::Finish() {
  Add("TRAILER!!!", 0);
  return std::move(bytes_);
}

std::string MakeInitramfs(const std::vector<InitramfsFile>& files) {
  CpioArchive archive;
  std::set<std::string> folders = {"dev", "proc", "sys", "tmp"};
  for (const InitramfsFile& file : files) {
    for (std::size_t at = file.name.find('/'); at != std::string::npos;
         at = file.name.find('/', at + 1)) {
      folders.insert(file.name.substr(0, at));
    }
  }
  for (const std::string& folder : folders) archive.Add(folder, kFolder);
  archive.Add("dev/console", kCharacterDevice, {}, 5, 1);
  for (const InitramfsFile& file : files) archive.Add(file.name, kProgram, file.data);
  archive.Add("init", kProgram, kInit);
  return archive.Finish();
}

}  // namespace alibi::bench
