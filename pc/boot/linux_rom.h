// SPDX-License-Identifier: Apache-2.0
// An option ROM that hands over to a Linux kernel's setup code: it offers itself to the BIOS as
// something to boot from (PnP BIOS specification 1.0A, 3.3), and when it is chosen copies what
// fw_cfg has under QEMU's numbers for kernels (18h and below) into memory, by fw_cfg's DMA.
#ifndef ALIBI_PC_BOOT_LINUX_ROM_H_
#define ALIBI_PC_BOOT_LINUX_ROM_H_

#include <vector>

#include "base/types.h"

namespace alibi::loader {

// Where SeaBIOS finds it in fw_cfg, and what it calls it in "bootorder".
inline constexpr char kLinuxRomFile[] = "genroms/linux.bin";
inline constexpr char kLinuxRomBootPath[] = "/rom@genroms/linux.bin";

// With its checksums; a multiple of 512 bytes.
std::vector<u8> LinuxRom();

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_LINUX_ROM_H_
