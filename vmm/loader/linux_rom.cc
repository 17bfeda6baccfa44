#include "vmm/loader/linux_rom.h"

#include "base/check.h"

// linux_rom.S
extern "C" const alibi::u8 alibi_linux_rom[];
extern "C" const alibi::u8 alibi_linux_rom_end[];

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

std::vector<u8> LinuxRom() {
  std::vector<u8> rom(alibi_linux_rom, alibi_linux_rom_end);
  rom.resize((rom.size() + kBlock - 1) / kBlock * kBlock);
  const u64 pnp = rom[kPnpAt];
  ALIBI_CHECK(pnp + kPnpBytes <= rom.size(), "the ROM's expansion header is in it");
  rom[kBlocksAt] = static_cast<u8>(rom.size() / kBlock);
  rom[pnp + kPnpChecksumAt] = Complement(&rom[pnp], kPnpBytes);
  rom[kChecksumAt] = Complement(rom.data(), rom.size());
  return rom;
}

}  // namespace alibi::loader
