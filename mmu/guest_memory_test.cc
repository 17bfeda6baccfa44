// SPDX-License-Identifier: Apache-2.0
#include "mmu/guest_memory.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace alibi::mmu {
namespace {

std::unique_ptr<GuestMemory> Make(u64 capacity = 64 << 20) {
  auto created = GuestMemory::Create(capacity);
  REQUIRE(created.ok());
  return std::move(created.value());
}

bool Says(const Status& status, const char* text) {
  INFO((status.ok() ? std::string("no error") : status.error().message));
  CHECK_FALSE(status.ok());
  return !status.ok() && status.error().message.find(text) != std::string::npos &&
         status.error().message.find('\n') == std::string::npos;
}

TEST_CASE("bad slots: each error says what to do", "[guest_memory]") {
  auto memory = Make();
  REQUIRE(memory->AddSlot(PhysAddr(0x100000), 0x100000).ok());
  CHECK(Says(memory->AddSlot(PhysAddr(0), 0), "at least one page"));
  CHECK(Says(memory->AddSlot(PhysAddr(0x10), 0x1000), "multiples of 4096"));
  CHECK(Says(memory->AddSlot(PhysAddr(0), 0x1001), "multiples of 4096"));
  CHECK(Says(memory->AddSlot(PhysAddr(kPhysLimit), 0x1000), "2^40"));
  CHECK(Says(memory->AddSlot(PhysAddr(kPhysLimit - 0x1000), 0x2000), "2^40"));
  CHECK(Says(memory->AddSlot(PhysAddr(0x1000), ~u64{0} << 12), "2^40"));
  CHECK(Says(memory->AddSlot(PhysAddr(0xff000), 0x2000), "overlaps"));
  CHECK(Says(memory->AddSlot(PhysAddr(0x1ff000), 0x1000), "overlaps"));
  CHECK(Says(memory->AddSlot(PhysAddr(0x100000), 0x100000), "overlaps"));
  CHECK(Says(memory->AddSlot(PhysAddr(0x10000000), u64{128} << 20), "larger capacity"));
  CHECK(Says(memory->AddSlot(PhysAddr(0x10000000), u64{1} << 39), "give the guest less memory"));
  CHECK(Says(memory->RemoveSlot(PhysAddr(0x101000)), "no memory slot begins"));
  CHECK_FALSE(GuestMemory::Create(0).ok());
  CHECK_FALSE(GuestMemory::Create(4097).ok());
  CHECK_FALSE(GuestMemory::Create(kPhysLimit * 2).ok());
  // Nothing was half done.
  CHECK(memory->total_bytes() == 0x100000);
  CHECK(memory->AddSlot(PhysAddr(0x200000), 0x1000).ok());
  CHECK(memory->AddSlot(PhysAddr(0xff000), 0x1000).ok());
  CHECK(memory->AddSlot(PhysAddr(kPhysLimit - 0x1000), 0x1000).ok());
}

TEST_CASE("both aliases show the same bytes; edges and holes", "[guest_memory]") {
  auto memory = Make();
  REQUIRE(memory->AddSlot(PhysAddr(0x100000), 0x3000).ok());
  REQUIRE(memory->AddSlot(PhysAddr(0x200000), 0x8000).ok());
  CHECK(memory->HostRw(PhysAddr(0xfffff)) == nullptr);
  CHECK(memory->HostRw(PhysAddr(0x103000)) == nullptr);
  CHECK(memory->HostRw(PhysAddr(~u64{0})) == nullptr);
  for (u64 pa : {0x100000, 0x102fff, 0x200000, 0x207fff}) {
    u8* host = memory->HostRw(PhysAddr(pa));
    REQUIRE(host != nullptr);
    *host = static_cast<u8>(pa >> 12);
    CHECK(*(memory->ro_base() + memory->ArenaOffset(PhysAddr(pa))).As() ==
          static_cast<u8>(pa >> 12));
    CHECK(memory->PhysOf(memory->ArenaOffset(PhysAddr(pa))) == PhysAddr(pa));
  }
}

TEST_CASE("a slot's place is used again, and its memory is zero again", "[guest_memory]") {
  auto memory = Make(0x10000);
  REQUIRE(memory->AddSlot(PhysAddr(0), 0x4000).ok());
  REQUIRE(memory->AddSlot(PhysAddr(0x100000), 0x8000).ok());
  REQUIRE(memory->AddSlot(PhysAddr(0x200000), 0x4000).ok());
  CHECK_FALSE(memory->AddSlot(PhysAddr(0x300000), 0x1000).ok());
  *memory->HostRw(PhysAddr(0x100000)) = 7;
  REQUIRE(memory->RemoveSlot(PhysAddr(0x100000)).ok());
  CHECK(memory->HostRw(PhysAddr(0x100000)) == nullptr);
  REQUIRE(memory->AddSlot(PhysAddr(0x300000), 0x8000).ok());
  CHECK(*memory->HostRw(PhysAddr(0x300000)) == 0);
  CHECK(memory->total_bytes() == 0x10000);
}

struct Device : MmioHandler {
  struct Operation {
    u64 address, value;
    unsigned size;
    bool write;
    bool operator==(const Operation&) const = default;
  };
  std::vector<Operation> log;
  u64 MmioRead(PhysAddr address, unsigned size) override {
    log.push_back({address.value, 0, size, false});
    return ~u64{0} / 3;
  }
  void MmioWrite(PhysAddr address, unsigned size, u64 value) override {
    log.push_back({address.value, value, size, true});
  }
};

TEST_CASE("physical accesses of any size across RAM, ROM and devices", "[guest_memory]") {
  auto memory = Make();
  Device device;
  REQUIRE(memory->AddSlot(PhysAddr(0x1000), 0x2000).ok());
  REQUIRE(memory->AddSlot(PhysAddr(0x3000), 0x1000, true).ok());
  std::vector<u8> data(0x2000), back(0x2000);
  std::iota(data.begin(), data.end(), u8{1});
  // Without a handler: ones, and nothing happens.
  memory->ReadPhys(PhysAddr(0), back.data(), 16);
  CHECK(back[15] == 0xff);
  memory->WritePhys(PhysAddr(0), data.data(), 16);
  memory->set_mmio_handler(&device);

  memory->WritePhys(PhysAddr(0x1003), data.data(), 0x1ff0);
  memory->ReadPhys(PhysAddr(0x1003), back.data(), 0x1ff0);
  CHECK(std::memcmp(data.data(), back.data(), 0x1ff0) == 0);
  CHECK(device.log.empty());

  // Device pieces are naturally aligned and at most 8 bytes.
  memory->WritePhys(PhysAddr(0xff1), data.data(), 16);
  CHECK(device.log == std::vector<Device::Operation>{{0xff1, 0x01, 1, true},
                                                     {0xff2, 0x0302, 2, true},
                                                     {0xff4, 0x07060504, 4, true},
                                                     {0xff8, 0x0f0e0d0c0b0a0908, 8, true}});
  CHECK(*memory->HostRw(PhysAddr(0x1000)) == 0x10);

  device.log.clear();
  CHECK(memory->LoadPhys(PhysAddr(0x2ffe), data.data(), 8));
  memory->ReadPhys(PhysAddr(0x2ffe), back.data(), 8);
  CHECK(std::memcmp(data.data(), back.data(), 8) == 0);
  memory->WritePhys(PhysAddr(0x3000), data.data(), 1);
  CHECK(device.log == std::vector<Device::Operation>{{0x3000, 1, 1, true}});
  CHECK(*memory->HostRw(PhysAddr(0x3000)) == 3);
  CHECK_FALSE(memory->LoadPhys(PhysAddr(0x3ff9), data.data(), 8));
  CHECK(*memory->HostRw(PhysAddr(0x3ff9)) == 0);
  CHECK(memory->IsBacked(PhysAddr(0x1000), 0x3000));
  CHECK_FALSE(memory->IsBacked(PhysAddr(0x1000), 0x3001));
  CHECK_FALSE(memory->IsBacked(PhysAddr(~u64{0}), 2));
  CHECK_FALSE(memory->IsBacked(PhysAddr(0x1000), ~u64{0}));
  memory->set_mmio_handler(nullptr);
}

// Whether the host gives huge pages or not, memory is what it was.
TEST_CASE("backed memory keeps its bytes, and is new after its slot has gone", "[guest_memory]") {
  auto memory = Make();
  constexpr u64 kBase = 0x100000, kSize = u64{16} << 20;
  REQUIRE(memory->AddSlot(PhysAddr(0), 0xa0000).ok());
  REQUIRE(memory->AddSlot(PhysAddr(kBase), kSize).ok());
  CHECK(memory->ro_base().value % HugeBlocks::kBytes == 0);
  CHECK(memory->ArenaOffset(PhysAddr(kBase)) % HugeBlocks::kBytes == kBase % HugeBlocks::kBytes);
  const auto touch = [&](u8 add) {
    for (u64 at = kBase; at < kBase + kSize; at += 0x81000) {
      *memory->HostRw(PhysAddr(at)) = static_cast<u8>((at >> 12) + add);
    }
  };
  const auto check = [&](u8 add) {
    for (u64 at = kBase; at < kBase + kSize; at += 0x81000) {
      const u64 offset = memory->ArenaOffset(PhysAddr(at));
      const u8 expected = static_cast<u8>((at >> 12) + add);
      if (*memory->HostRw(PhysAddr(at)) != expected ||
          *(memory->ro_base() + offset).As<const u8>() != expected) {
        FAIL("other bytes at " << std::hex << at);
      }
    }
  };
  touch(1);
  for (u64 at = 0; at < kBase + kSize; at += kPageSize) {
    const u64 offset = memory->ArenaOffset(PhysAddr(at));
    if (offset != GuestMemory::kNotRam) memory->Back(offset);
  }
  check(1);
  touch(2);
  check(2);
  REQUIRE(memory->RemoveSlot(PhysAddr(kBase)).ok());
  REQUIRE(memory->AddSlot(PhysAddr(kBase), kSize).ok());
  memory->Back(memory->ArenaOffset(PhysAddr(kBase + kSize / 2)));
  CHECK(*memory->HostRw(PhysAddr(kBase + 0x81000)) == 0);
  touch(3);
  check(3);
}

TEST_CASE("a slot that has no room at an aligned place gets another", "[guest_memory]") {
  auto memory = Make(u64{4} << 20);
  REQUIRE(memory->AddSlot(PhysAddr(0x123000), u64{4} << 20).ok());
  memory->Back(0);
  *memory->HostRw(PhysAddr(0x123000)) = 5;
  CHECK(*memory->ro_base().As<const u8>() == 5);
}

}  // namespace
}  // namespace alibi::mmu
