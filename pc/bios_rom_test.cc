// SPDX-License-Identifier: Apache-2.0
#include "pc/bios_rom.h"

#include <catch2/catch.hpp>

namespace alibi::vmm {
namespace {

struct Mapped {
  explicit Mapped(u64 size, u64 arena = u64{32} << 20) {
    auto made = mmu::GuestMemory::Create(arena);
    REQUIRE(made.ok());
    memory = std::move(*made);
    std::vector<u8> image(size);
    for (u64 i = 0; i < size; ++i) image[i] = static_cast<u8>(1 + i / 4096);
    auto mapped = BiosRom::Map(std::move(image), *memory);
    REQUIRE(mapped.ok());
    rom = std::move(*mapped);
  }
  u8 At(u64 address) {
    u8 byte = 0;
    memory->ReadPhys(PhysAddr(address), &byte, 1);
    return byte;
  }
  void Put(u64 address, u8 byte) { memory->WritePhys(PhysAddr(address), &byte, 1); }
  std::unique_ptr<mmu::GuestMemory> memory;
  std::unique_ptr<BiosRom> rom;
};

TEST_CASE("ROM sizes") {
  for (u64 size : {u64{4096}, u64{65536}, u64{1} << 24}) CHECK(BiosRom::CheckSize(size, "x").ok());
  for (u64 size : {u64{0}, u64{65537}, (u64{1} << 24) + 4096}) {
    const Status status = BiosRom::CheckSize(size, "some.bin");
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().message.find("some.bin") != std::string::npos);
  }
}

TEST_CASE("A ROM lies at the top and below 1 MB, and cannot be written") {
  Mapped m(256 * 1024);
  CHECK(m.At(0xfffc0000) == 1);
  CHECK(m.At(0xffffffff) == 64);
  CHECK(m.At(0xe0000) == 33);
  CHECK(m.At(0xfffff) == 64);
  CHECK(m.At(0xdffff) == 0xff);
  m.Put(0xfffff, 7);
  m.Put(0xffffffff, 7);
  CHECK(m.At(0xfffff) == 64);
  CHECK(m.At(0xffffffff) == 64);
}

TEST_CASE("A small ROM covers the end of the last range only") {
  Mapped m(8192);
  CHECK(m.At(0xfdfff) == 0xff);
  CHECK(m.At(0xfe000) == 1);
  CHECK(m.At(0xfffff) == 2);
  CHECK(m.At(0xfffff000) == 2);
}

TEST_CASE("PAM: RAM instead of ROM, writable or not, and its bytes stay") {
  Mapped m(128 * 1024);
  REQUIRE(m.rom->Apply({0x30, 0, 0, 0, 0, 0x33, 0x33}).ok());
  CHECK(m.At(0xf0000) == 0);
  m.Put(0xf0000, 0x42);
  m.Put(0xe0000, 0x43);
  CHECK(m.At(0xf0000) == 0x42);
  REQUIRE(m.rom->Apply({0x10, 0, 0, 0, 0, 0x31, 0x33}).ok());
  CHECK(m.At(0xf0000) == 0x42);
  m.Put(0xf0000, 9);
  m.Put(0xe0000, 9);
  CHECK(m.At(0xf0000) == 0x42);
  CHECK(m.At(0xe0000) == 0x43);
  REQUIRE(m.rom->Apply({}).ok());
  CHECK(m.At(0xf0000) == 17);
  CHECK(m.At(0xe0000) == 1);
  REQUIRE(m.rom->Apply({0x30, 0x33, 0, 0, 0, 0, 0}).ok());
  CHECK(m.At(0xf0000) == 0x42);
  CHECK(m.At(0xc0000) == 0);
}

// A guest may write the registers as it likes; the holes that the ranges leave never keep one out.
TEST_CASE("PAM: whatever the guest writes finds its place") {
  for (const u64 size : {u64{8192}, u64{128} << 10, u64{256} << 10}) {
    Mapped m(size, BiosRom::ArenaBytes(size));
    u64 random = 0x9e3779b97f4a7c15 + size;
    for (unsigned round = 0; round < 300; ++round) {
      devices::PciHost::Pam pam;
      for (u8& byte : pam) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        byte = static_cast<u8>(random >> 56);
      }
      REQUIRE(m.rom->Apply(pam).ok());
    }
    REQUIRE(m.rom->Apply({}).ok());
    CHECK(m.At(0xfffff) == size / 4096);
  }
}

TEST_CASE("A host without room for shadow RAM says so before the guest runs") {
  auto made = mmu::GuestMemory::Create(u64{128} << 10);
  REQUIRE(made.ok());
  CHECK_FALSE(BiosRom::Map(std::vector<u8>(4096), **made).ok());
}

}  // namespace
}  // namespace alibi::vmm
