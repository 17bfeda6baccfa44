// SPDX-License-Identifier: Apache-2.0
// Option ROMs of ours for a BIOS to find (PnP BIOS specification 1.0A, 3.3): both offer something
// to boot from.
#ifndef ALIBI_PC_BOOT_OPTION_ROM_H_
#define ALIBI_PC_BOOT_OPTION_ROM_H_

#include <span>
#include <vector>

#include "base/types.h"

namespace alibi::loader {

// Fills in the number of blocks and the checksums of header and expansion header, which is where
// the word at 1Ah says; pads to whole blocks of 512 bytes.
std::vector<u8> FinishOptionRom(std::span<const u8> code);

// What a BIOS comes to when nothing else can be booted, having the least of priorities: says so on
// the screen, and to the machine (devices::BootFailure).
std::vector<u8> NoBootDeviceRom();
inline constexpr char kNoBootDeviceRomFile[] = "genroms/none.bin";

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_OPTION_ROM_H_
