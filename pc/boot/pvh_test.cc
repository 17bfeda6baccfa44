// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/pvh.h"

#include <elf.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <vector>

#include "pc/boot/elf.h"
#include "pc/boot/test_images.h"

namespace alibi::loader {
namespace {

constexpr u64 kNotes = 0x200, kCode = 0x1000;

// One segment of 5000 bytes, 8 MB in memory, at 16 MB, and two notes.
std::vector<u8> Kernel() {
  std::vector<u8> image(kCode + 5000, 0x90);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_EXEC;
  header.e_machine = EM_X86_64;
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  Put(image, 0, header);
  Elf64_Phdr code{};
  code.p_type = PT_LOAD;
  code.p_offset = kCode;
  code.p_vaddr = 0xffffffff81000000;
  code.p_paddr = 16 * kMiB;
  code.p_filesz = 5000;
  code.p_memsz = 8 * kMiB;
  Put(image, sizeof(header), code);
  Elf64_Phdr notes{};
  notes.p_type = PT_NOTE;
  notes.p_offset = kNotes;
  notes.p_filesz = 20 + 24;
  Put(image, sizeof(header) + sizeof(code), notes);
  const u32 other[] = {4, 4, 6, 0x00554e47, 42};  // "GNU"
  const u32 entry[] = {4, 8, 18, 0x006e6558, 16 * kMiB + 0x123, 0};
  Put(image, kNotes, other);
  Put(image, kNotes + sizeof(other), entry);
  return image;
}

PvhOptions Options() {
  PvhOptions options;
  options.low_ram_bytes = 64 * kMiB;
  options.high_ram_bytes = kMiB;
  options.command_line = "console=ttyS0";
  options.rsdp = 0xf0000;
  return options;
}

TEST_CASE("A PVH kernel is placed, with its start information", "[pvh]") {
  const std::vector<u8> image = Kernel(), disk(5000, 0x42);
  PvhOptions options = Options();
  options.modules = {{disk, "initrd"}};
  REQUIRE(IsPvh(image));
  FakeRam ram;
  auto entry = LoadPvh(image, "vmlinux", options, ram);
  REQUIRE(entry.ok());
  CHECK(entry->eip == 16 * kMiB + 0x123);
  CHECK(ram.writes.at(16 * kMiB).size() == 5000);
  CHECK(ram.zeroed.at(16 * kMiB + 5000) == 8 * kMiB - 5000);
  const std::vector<u8>& info = ram.writes.at(entry->start_info);
  const auto at = [&](u64 address) { return address - entry->start_info; };
  CHECK(Load32(info, 0) == 0x336ec578);
  CHECK(Load32(info, 4) == 1);
  REQUIRE(Load32(info, 12) == 1);
  const u64 module = at(Load64(info, 16));
  CHECK(ram.writes.at(Load64(info, module)) == disk);
  CHECK(Load64(info, module) >= 24 * kMiB);
  CHECK(Load64(info, module + 8) == 5000);
  CHECK(std::strcmp(reinterpret_cast<const char*>(&info[at(Load64(info, 24))]), "console=ttyS0") ==
        0);
  CHECK(Load64(info, 32) == 0xf0000);
  const u64 map = at(Load64(info, 40));
  REQUIRE(Load32(info, 48) == 6);
  REQUIRE(info.size() == map + 6 * 24);
  CHECK(Load64(info, map) == 0);
  CHECK(Load64(info, map + 5 * 24) == u64{1} << 32);
  CHECK(Load64(info, map + 5 * 24 + 8) == kMiB);
  CHECK(Load32(info, map + 5 * 24 + 16) == 1);
}

TEST_CASE("What is wrong with a PVH kernel is said, and nothing is written", "[pvh]") {
  struct Bad {
    const char* what;
    std::function<void(std::vector<u8>&, PvhOptions&)> spoil;
  };
  static const std::vector<u8> disk(60 * kMiB);
  constexpr u64 kEntryNote = kNotes + 20, kSegment = sizeof(Elf64_Ehdr);
  const Bad bad[] = {
      {"no PVH entry", [](auto& image, auto&) { image[kEntryNote + 8] = 17; }},
      {"no PVH entry", [](auto& image, auto&) { Put<u32>(image, kNotes, 0xfffffff0); }},
      {"no PVH entry", [](auto& image, auto&) { Put<u32>(image, kEntryNote + 4, 0xffffffff); }},
      {"no PVH entry", [](auto& image, auto&) { Put<u32>(image, kEntryNote + 4, 2); }},
      {"not in any segment", [](auto& image, auto&) { Put<u32>(image, kEntryNote + 16, 7); }},
      {"not in any segment", [](auto& image, auto&) { Put<u32>(image, kEntryNote + 20, 1); }},
      {"needs 25 MB", [](auto&, auto& options) { options.low_ram_bytes = 20 * kMiB; }},
      {"hole", [](auto& image, auto&) { Put<u64>(image, kSegment + 24, 0x90000); }},
      {"RAM", [](auto& image, auto&) { Put<u64>(image, kSegment + 40, u64{1} << 40); }},
      {"needs 85 MB",
       [](auto&, auto& options) {
         options.modules = {{disk, "disk"}};
       }},
      {"65535 characters", [](auto&, auto& options) { options.command_line.resize(70000, 'x'); }},
      {"truncated", [](auto& image, auto&) { image.resize(kCode + 100); }},
  };
  for (const Bad& b : bad) {
    INFO(b.what);
    std::vector<u8> image = Kernel();
    PvhOptions options = Options();
    b.spoil(image, options);
    FakeRam ram;
    auto entry = LoadPvh(image, "vmlinux", options, ram);
    REQUIRE_FALSE(entry.ok());
    INFO(entry.error().message);
    CHECK(entry.error().message.find(b.what) != std::string::npos);
    CHECK(ram.writes.empty());
    CHECK(ram.zeroed.empty());
  }
}

}  // namespace
}  // namespace alibi::loader
