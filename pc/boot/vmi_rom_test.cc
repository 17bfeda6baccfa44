// SPDX-License-Identifier: Apache-2.0
// The ROM's bytes as a kernel and a BIOS read them; //frobos/tests:vmi runs them.
#include "pc/boot/vmi_rom.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>

#include "pc/boot/elf.h"

namespace alibi::loader {
namespace {

std::string TextAt(const std::vector<u8>& rom, u64 at) {
  return reinterpret_cast<const char*>(rom.data() + at);
}

u8 Sum(const std::vector<u8>& rom, u64 at, u64 size) {
  return std::accumulate(rom.begin() + static_cast<i64>(at),
                         rom.begin() + static_cast<i64>(at + size), u8{0});
}

TEST_CASE("The ROM has the headers that kernels and BIOSes look for", "[vmi]") {
  const std::vector<u8> rom = VmiRom({});
  CHECK(Load16(rom, 0) == 0xaa55);
  CHECK(rom.size() == rom[2] * u64{512});
  CHECK(Sum(rom, 0, rom.size()) == 0);
  CHECK(rom[3] == 0xcb);  // a far return
  CHECK(Load32(rom, 8) == 0x696d5663);
  CHECK(rom[0xd] == 3);
  CHECK(TextAt(rom, Load16(rom, 0x16)) == "GPL");
  const u64 pci = Load16(rom, 0x18), pnp = Load16(rom, 0x1a);
  CHECK(TextAt(rom, pci).substr(0, 4) == "PCIR");
  CHECK(Load16(rom, pci + 0x10) == rom[2]);
  CHECK(TextAt(rom, pnp).substr(0, 4) == "$PnP");
  CHECK(Sum(rom, pnp, 32) == 0);
  CHECK(TextAt(rom, Load16(rom, pnp + 0xe)) == "Alibi");
  CHECK(TextAt(rom, Load16(rom, pnp + 0x10)) == "VMI");
  // A 64-bit kernel's two entries are jumps into the ROM.
  const u64 entries = Load16(rom, 0x1c);
  for (const u64 entry : {entries, entries + 8}) {
    const bool near = rom[entry] == 0xe9;
    const u64 behind = entry + (near ? 5 : 2);
    const u64 target = behind + (near ? Load32(rom, entry + 1) : rom[entry + 1]);
    CHECK((near || rom[entry] == 0xeb));
    CHECK(target < rom.size());
  }
  // Between a video BIOS and the system's.
  CHECK(kVmiRomAddress.value % 2048 == 0);
  CHECK(kVmiRomAddress.value + rom.size() <= 0xe0000);
}

TEST_CASE("Groups are named, alone or together", "[vmi]") {
  CHECK(ParseVmiGroups("transparent")->bits == 0);
  const u32 full = ParseVmiGroups("full")->bits;
  CHECK(ParseVmiGroups(VmiGroupNames())->bits == full);
  const u32 mmu = ParseVmiGroups("mmu")->bits, timer = ParseVmiGroups("timer")->bits;
  CHECK(mmu != timer);
  CHECK(ParseVmiGroups("timer,mmu")->bits == (mmu | timer));
  for (const char* wrong : {"", "mmu,", ",mmu", "MMU", "basic", "full,mmu"}) {
    const auto groups = ParseVmiGroups(wrong);
    INFO(wrong);
    REQUIRE_FALSE(groups.ok());
    CHECK(groups.error().message.find(VmiGroupNames()) != std::string::npos);
  }
  // The choice is the ROM's only difference, but for its checksum.
  const std::vector<u8> none = VmiRom({}), all = VmiRom({full});
  u64 differences = 0;
  for (u64 i = 0; i < none.size(); ++i) differences += none[i] != all[i];
  CHECK(none.size() == all.size());
  CHECK(differences == 2);
}

}  // namespace
}  // namespace alibi::loader
