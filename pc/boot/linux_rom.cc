// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/linux_rom.h"

#include "pc/boot/option_rom.h"

// linux_rom.S
extern "C" const alibi::u8 alibi_linux_rom[];
extern "C" const alibi::u8 alibi_linux_rom_end[];

namespace alibi::loader {

std::vector<u8> LinuxRom() { return FinishOptionRom({alibi_linux_rom, alibi_linux_rom_end}); }

}  // namespace alibi::loader
