// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/linux.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <vector>

#include "pc/boot/elf.h"
#include "pc/boot/linux_rom.h"
#include "pc/boot/option_rom.h"
#include "pc/boot/test_images.h"

namespace alibi::loader {
namespace {

TEST_CASE("A bzImage is placed, with its parameters", "[linux]") {
  const std::vector<u8> image = BzImage(), initrd(5000, 0x42);
  FakeRam ram;
  LinuxOptions options;
  options.low_ram_bytes = 64 * kMiB;
  options.high_ram_bytes = kMiB;
  options.command_line = "console=ttyS0";
  options.initrd = initrd;
  options.rsdp = 0xf0000;
  auto entry = LoadLinux(image, "vmlinuz", options, ram);
  REQUIRE(entry.ok());
  CHECK(entry->rip == 16 * kMiB);
  CHECK(entry->page_tables == 0);
  CHECK(ram.writes.at(16 * kMiB).size() == 5000);
  const std::vector<u8>& params = ram.writes.at(entry->boot_params);
  REQUIRE(params.size() == 4096);
  CHECK(Load32(params, 0x214) == 16 * kMiB);
  const u32 line = Load32(params, 0x228), disk = Load32(params, 0x218);
  CHECK(std::string(ram.writes.at(line).begin(), ram.writes.at(line).end()) ==
        std::string("console=ttyS0\0", 14));
  CHECK(ram.writes.at(disk) == initrd);
  CHECK(disk % 4096 == 0);
  CHECK(disk + 5000 <= 64 * kMiB);
  CHECK(Load32(params, 0x21c) == 5000);
  CHECK(Load64(params, 0x70) == 0xf0000);
  CHECK(Load16(params, 0x1fa) == 0xffff);
  CHECK(params[0x210] == 0xff);
  CHECK(Load64(params, 0x250) == 0);  // no setup_data
  // The memory map: rising, and the last row is what lies above 4 GB.
  REQUIRE(params[0x1e8] == 6);
  u64 end = 0;
  for (u64 row = 0x2d0; row < 0x2d0 + 6 * 20; row += 20) {
    CHECK(Load64(params, row) >= end);
    end = Load64(params, row) + Load64(params, row + 8);
    CHECK(Load32(params, row + 16) ==
          (row == 0x2d0 || row == 0x2d0 + 60 || row == 0x2d0 + 100 ? 1 : 2));
  }
  CHECK(end == (u64{1} << 32) + kMiB);
}

TEST_CASE("A kernel with a 64-bit entry is entered there, unless it must not be", "[linux]") {
  std::vector<u8> image = BzImage();
  LinuxOptions options;
  options.low_ram_bytes = 64 * kMiB;
  options.entry = LinuxEntryPoint::k64;
  FakeRam none;
  CHECK_FALSE(LoadLinux(image, "vmlinuz", options, none).ok());
  CHECK(none.writes.empty());
  image[0x236] = 1;
  for (const auto point : {LinuxEntryPoint::kBest, LinuxEntryPoint::k64, LinuxEntryPoint::k32}) {
    options.entry = point;
    FakeRam ram;
    auto entry = LoadLinux(image, "vmlinuz", options, ram);
    REQUIRE(entry.ok());
    const bool long_mode = point != LinuxEntryPoint::k32;
    CHECK(entry->rip == 16 * kMiB + (long_mode ? 0x200 : 0));
    // __BOOT_CS has the L or the D bit.
    const std::vector<u8>& gdt = ram.writes.at(entry->gdt);
    REQUIRE(gdt.size() == 32);
    CHECK(gdt[0x16] == (long_mode ? 0xaf : 0xcf));
    CHECK(gdt[0x1d] == 0x93);
    CHECK((entry->page_tables != 0) == long_mode);
    if (!long_mode) continue;
    // The tables lead every address below 4 GB to itself.
    const std::vector<u8>& tables = ram.writes.at(entry->page_tables);
    const auto word = [&](u64 address) { return Load64(tables, address - entry->page_tables); };
    for (const u64 address : {u64{0}, u64{0x10000}, 16 * kMiB, u64{0xfee00000}}) {
      INFO(address);
      const u64 pdpt = word(entry->page_tables) & ~u64{0xfff};
      const u64 pd = word(pdpt + (address >> 30) * 8) & ~u64{0xfff};
      const u64 leaf = word(pd + ((address >> 21) & 511) * 8);
      CHECK((leaf & 0x83) == 0x83);
      CHECK((leaf & ~u64{0xfff}) == (address & ~u64{0x1fffff}));
    }
  }
}

TEST_CASE("A kernel that cannot be relocated goes to 1 MB", "[linux]") {
  std::vector<u8> image = BzImage();
  FakeRam ram;
  LinuxOptions options;
  options.low_ram_bytes = 64 * kMiB;
  image[0x234] = 0;
  const auto entry = LoadLinux(image, "vmlinuz", options, ram);
  REQUIRE(entry.ok());
  CHECK(entry.value().rip == kMiB);
}

// Debian's memtest86+ and ipxe.lkrn: syssize is rounded up, and nothing fills the file up to it.
TEST_CASE("A kernel's last paragraph may be short", "[linux]") {
  std::vector<u8> image = BzImage();
  Put<u32>(image, 0x1f4, 5000 / 16 + 1);
  FakeRam ram;
  LinuxOptions options;
  options.low_ram_bytes = 64 * kMiB;
  REQUIRE(LoadLinux(image, "memtest", options, ram).ok());
  CHECK(ram.writes.at(16 * kMiB).size() == 5000);
}

TEST_CASE("What has no 32-bit entry starts through a BIOS", "[linux]") {
  CHECK_FALSE(StartsThroughBios(BzImage()));
  const std::vector<u8> initrd(5000, 0x42);
  LinuxOptions options;
  options.low_ram_bytes = 64 * kMiB;
  options.initrd = initrd;
  options.command_line = "x";
  SECTION("iPXE: loaded high, but entered nowhere") {
    std::vector<u8> image = BzImage();
    Put<u16>(image, 0x206, 0x207);
    Put<u32>(image, 0x214, 0);
    CHECK(StartsThroughBios(image));
    const auto setup = PrepareLinuxSetup(image, "ipxe.lkrn", options);
    REQUIRE(setup.ok());
    CHECK(setup.value().kernel_at == kMiB);
    CHECK(Load32(setup.value().setup, 0x214) == 0);  // its own affair
  }
  SECTION("a zImage, loaded low") {
    std::vector<u8> image = BzImage();
    Put<u16>(image, 0x206, 0x202);
    Put<u32>(image, 0x1f4, 0xabcd0000 + 5000 / 16);  // the upper half means something else
    Put<u32>(image, 0x214, 0x1000);
    Put<u32>(image, 0x22c, 0);
    image[0x211] = 0;
    CHECK(StartsThroughBios(image));
    const auto setup = PrepareLinuxSetup(image, "zImage", options);
    REQUIRE(setup.ok());
    CHECK(setup.value().kernel_at == 0x10000);
    CHECK(setup.value().setup_at == 0x90000);
    const std::vector<u8>& code = setup.value().setup;
    CHECK(Load32(code, 0x214) == 0x1000);
    CHECK(Load32(code, 0x228) == setup.value().command_line_at);
    CHECK(setup.value().command_line_at >= 0x90000u + Load16(code, 0x224) + 0x200);
    CHECK(setup.value().initrd_at >= kMiB);
    options.command_line = std::string(256, 'x');
    CHECK_FALSE(PrepareLinuxSetup(image, "zImage", options).ok());
    options.command_line = "";
    image.resize(3 * 512 + (512 << 10) + 1);
    CHECK_FALSE(PrepareLinuxSetup(image, "zImage", options).ok());
  }
}

TEST_CASE("What is wrong with a kernel is said, and nothing is written", "[linux]") {
  struct Bad {
    const char* what;
    std::function<void(std::vector<u8>&, LinuxOptions&)> spoil;
  };
  static const std::vector<u8> disk(4096 * 3000);
  const Bad bad[] = {
      {"no Linux boot header", [](auto& image, auto&) { image[0x202] = 0; }},
      {"no Linux boot header", [](auto& image, auto&) { image.resize(0x200); }},
      {"older than 2.02", [](auto& image, auto&) { Put<u16>(image, 0x206, 0x201); }},
      {"truncated", [](auto& image, auto&) { image[0x1f1] = 200; }},
      // 5,000 bytes are 312 paragraphs and a half.
      {"truncated: it has 6536 bytes, not 6560", [](auto& image, auto&) { image[0x1f4] += 2; }},
      {"no 32-bit entry", [](auto& image, auto&) { image[0x211] = 0; }},
      {"no 32-bit entry", [](auto& image, auto&) { Put<u32>(image, 0x214, 0); }},
      {"needs 24 MB", [](auto&, auto& options) { options.low_ram_bytes = 4 * kMiB; }},
      {"2047 characters", [](auto&, auto& options) { options.command_line.resize(3000, 'x'); }},
      // The kernel moves itself up to where it was linked.
      {"needs 24 MB",
       [](auto& image, auto& options) {
         options.low_ram_bytes = 12 * kMiB;
         image[0x234] = 0;
       }},
      {"MB of RAM", [](auto& image, auto&) { Put<u64>(image, 0x258, ~u64{0}); }},
      {"MB of RAM", [](auto& image, auto&) { Put<u32>(image, 0x260, ~u32{0}); }},
      {"no 64-bit entry", [](auto&, auto& options) { options.entry = LinuxEntryPoint::k64; }},
      {"RAM disk of 12 MB needs 36 MB",
       [](auto&, auto& options) {
         options.low_ram_bytes = 26 * kMiB;
         options.initrd = disk;
       }},
      {"does not fit beside it below the 1 MB",
       [](auto& image, auto& options) {
         Put<u32>(image, 0x22c, 0xfffff);
         options.initrd = disk;
       }},
  };
  for (const Bad& b : bad) {
    INFO(b.what);
    std::vector<u8> image = BzImage();
    LinuxOptions options;
    options.low_ram_bytes = 64 * kMiB;
    b.spoil(image, options);
    FakeRam ram;
    auto entry = LoadLinux(image, "vmlinuz", options, ram);
    REQUIRE_FALSE(entry.ok());
    CHECK(entry.error().message.find(b.what) != std::string::npos);
    CHECK(ram.writes.empty());
  }
}

TEST_CASE("Setup code for the 16-bit entry gets its parameters", "[linux]") {
  const std::vector<u8> image = BzImage(), initrd(5000, 0x42);
  LinuxOptions options;
  options.low_ram_bytes = 64 * kMiB;
  options.command_line = "console=ttyS0";
  options.initrd = initrd;
  auto setup = PrepareLinuxSetup(image, "vmlinuz", options);
  REQUIRE(setup.ok());
  CHECK(setup->kernel_at == kMiB);
  CHECK(setup->kernel.size() == 5000);
  CHECK(setup->setup.size() == 3 * 512);
  CHECK(setup->setup[0x210] == 0xff);
  CHECK(setup->setup[0x211] == 0x81);
  CHECK(Load32(setup->setup, 0x214) == kMiB);
  CHECK(Load32(setup->setup, 0x218) == setup->initrd_at);
  CHECK(Load32(setup->setup, 0x21c) == 5000);
  CHECK(Load16(setup->setup, 0x224) == 0xde00);
  CHECK(Load32(setup->setup, 0x228) == setup->command_line_at);
  CHECK(setup->initrd_at + 5000 <= 63 * kMiB);  // the rest is the BIOS's
  CHECK(setup->command_line.size() == 14);
  options.low_ram_bytes = 20 * kMiB;
  CHECK_FALSE(PrepareLinuxSetup(image, "vmlinuz", options).ok());
  std::vector<u8> large = image;
  large.resize(100 * 512);
  large[0x1f1] = 80;
  options.low_ram_bytes = 64 * kMiB;
  CHECK_FALSE(PrepareLinuxSetup(large, "vmlinuz", options).ok());
}

TEST_CASE("The ROMs are ones that a BIOS takes", "[linux]") {
  const std::vector<u8> rom = GENERATE(LinuxRom(), NoBootDeviceRom());
  const auto sum = [&rom](u64 first, u64 size) {
    u8 result = 0;
    for (u64 i = first; i < first + size; ++i) result = static_cast<u8>(result + rom[i]);
    return result;
  };
  CHECK(Load16(rom, 0) == 0xaa55);
  CHECK(rom[2] * 512u == rom.size());
  CHECK(sum(0, rom.size()) == 0);
  const u16 pnp = Load16(rom, 0x1a);
  REQUIRE(pnp + 32u <= rom.size());
  CHECK(Load32(rom, pnp) == 0x506e5024);  // "$PnP"
  CHECK(sum(pnp, 32) == 0);
  CHECK(Load16(rom, pnp + 0x1a) < rom.size());
}

}  // namespace
}  // namespace alibi::loader
