// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/option_rom.h"

#include "base/check.h"

// no_boot_rom.S
extern "C" const alibi::u8 alibi_no_boot_rom[];
extern "C" const alibi::u8 alibi_no_boot_rom_end[];

namespace alibi::loader {
namespace {

constexpr u64 kBlock = 512, kBlocksAt = 2, kChecksumAt = 6, kPnpAt = 0x1a;
constexpr u64 kPnpBytes = 32, kPnpChecksumAt = 9;

// What makes the sum of the bytes zero.
u8 Complement(const u8* bytes, u64 size) {
  u8 sum = 0;
  for (u64 i = 0; i < size; ++i) sum = static_cast<u8>(sum + bytes[i]);
  return static_cast<u8>(-sum);
}

}  // namespace

std::vector<u8> FinishOptionRom(std::span<const u8> code) {
  std::vector<u8> rom(code.begin(), code.end());
  rom.resize((rom.size() + kBlock - 1) / kBlock * kBlock);
  const u64 pnp = rom[kPnpAt];
  ALIBI_CHECK(pnp + kPnpBytes <= rom.size(), "the ROM's expansion header is in it");
  rom[kBlocksAt] = static_cast<u8>(rom.size() / kBlock);
  rom[pnp + kPnpChecksumAt] = Complement(&rom[pnp], kPnpBytes);
  rom[kChecksumAt] = Complement(rom.data(), rom.size());
  return rom;
}

std::vector<u8> NoBootDeviceRom() {
  return FinishOptionRom({alibi_no_boot_rom, alibi_no_boot_rom_end});
}

}  // namespace alibi::loader
