// SPDX-License-Identifier: Apache-2.0
#include "mmu/mmu.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "mmu/test_machine.h"

namespace alibi::mmu {
namespace {

using M = TestMachine;
using vcpu::GuestFault;
using vcpu::Privilege;

constexpr u64 kAll = M::kP | M::kW | M::kU;
constexpr u64 kUsed = kAll | M::kA | M::kD;
constexpr u64 kLinear = 0x7f0012345000;

TEST_CASE("paging off: the view is the identity, around the page at once", "[mmu]") {
  M m;
  CHECK(m.InGuard(m.HostOf(0x5123)));
  REQUIRE(m.Resolve(0x5123, true) == Resolution::kFilled);
  CHECK(m.HostOf(0x5123) == m.memory->rw_base() + 0x5123);
  CHECK(m.HostOf(0x0) == m.memory->rw_base());
  CHECK(m.HostOf(0x1fffff) == m.memory->rw_base() + 0x1fffff);
  CHECK(m.InGuard(m.HostOf(0x200000)));
  CHECK(m.Resolve(M::kHole, false) == Resolution::kSimulate);
  CHECK(m.Resolve(0x100000000, false) == Resolution::kSimulate);
  REQUIRE(m.Resolve(M::kRomBase, false) == Resolution::kFilled);
  CHECK(m.InRo(m.HostOf(M::kRomBase)));
  CHECK(m.Resolve(M::kRomBase, true) == Resolution::kSimulate);
}

TEST_CASE("a load fills read-only, a store sets D and fills read-write", "[mmu]") {
  M m;
  m.Map(kLinear, 0x300000, kAll);
  m.EnterLongMode();
  REQUIRE(m.Resolve(kLinear + 8, false) == Resolution::kFilled);
  CHECK(m.HostOf(kLinear) == m.memory->ro_base() + 0x300000);
  CHECK(*m.Host(m.EntryAddress(kLinear)) == (0x300000 | kAll | M::kA));
  REQUIRE(m.Resolve(kLinear + 8, true) == Resolution::kFilled);
  CHECK(m.HostOf(kLinear) == m.memory->rw_base() + 0x300000);
  CHECK(*m.Host(m.EntryAddress(kLinear)) == (0x300000 | kUsed));
  for (unsigned level = 2; level <= 4; ++level) {
    CHECK(*m.Host(m.EntryAddress(kLinear, level)) & M::kA);
    CHECK_FALSE(*m.Host(m.EntryAddress(kLinear, level)) & M::kD);
  }
  CHECK(m.mmu->counters().hidden_faults == 2);
}

TEST_CASE("the whole leaf table is filled as far as A is set", "[mmu]") {
  M m;
  for (u64 i = 0; i < 512; ++i) {
    const u64 bits = i % 4 == 0 ? kAll : i % 4 == 1 ? kAll | M::kA : kUsed;
    m.Map(0x40000000 + i * kPageSize, 0x400000 + i * kPageSize, i % 4 == 3 ? kUsed & ~M::kW : bits);
  }
  m.EnterLongMode();
  REQUIRE(m.Resolve(0x40001000, false) == Resolution::kFilled);
  for (u64 i = 0; i < 512; ++i) {
    const HostAddr host = m.HostOf(0x40000000 + i * kPageSize);
    INFO(i);
    switch (i % 4) {
      case 0:
        CHECK(m.InGuard(HostAddr(host)));
        break;
      case 2:
        CHECK(HostAddr(host) == m.memory->rw_base() + 0x400000 + i * kPageSize);
        break;
      default:
        CHECK(HostAddr(host) == m.memory->ro_base() + 0x400000 + i * kPageSize);
    }
  }
  CHECK(m.mmu->counters().leaf_fills == 1);
}

TEST_CASE("true faults: code and CR2, and no A or D bit", "[mmu]") {
  M m;
  m.Map(kLinear, 0x300000, M::kP | M::kW);
  m.EnterLongMode();
  CHECK(m.Resolve(kLinear + 0x1000, true) == Resolution::kGuestFault);
  CHECK(m.fault == GuestFault::Page(LinearAddr(kLinear + 0x1000), vcpu::kPfWrite));
  m.SetCpl(3);
  CHECK(m.Resolve(kLinear + 3, false) == Resolution::kGuestFault);
  CHECK(m.fault == GuestFault::Page(LinearAddr(kLinear + 3), vcpu::kPfPresent | vcpu::kPfUser));
  CHECK(*m.Host(m.EntryAddress(kLinear)) == (0x300000 | M::kP | M::kW));
  for (unsigned level = 2; level <= 4; ++level) {
    CHECK_FALSE(*m.Host(m.EntryAddress(kLinear, level)) & M::kA);
  }
  CHECK(m.mmu->counters().true_faults == 2);
}

TEST_CASE("a user view never sees supervisor pages that share its leaf table", "[mmu]") {
  M m;
  m.Map(kLinear, 0x300000, kUsed);
  m.Map(kLinear + 0x1000, 0x301000, kUsed & ~M::kU);
  m.EnterLongMode();
  REQUIRE(m.Resolve(kLinear, true) == Resolution::kFilled);
  CHECK(m.InRw(m.HostOf(kLinear + 0x1000)));
  const HostAddr supervisor = m.mmu->gs_base();
  m.SetCpl(3);
  CHECK(m.mmu->gs_base() != HostAddr(supervisor));
  REQUIRE(m.Resolve(kLinear, true) == Resolution::kFilled);
  CHECK(m.InRw(m.HostOf(kLinear)));
  CHECK(m.InGuard(m.HostOf(kLinear + 0x1000)));
  m.SetCpl(0);
  CHECK(m.mmu->gs_base() == HostAddr(supervisor));
}

struct PteFixture : M {
  PteFixture() {
    Map(kLinear, 0x300000, kUsed);
    // The leaf table itself, where the guest can store to it.
    leaf = EntryAddress(kLinear) & ~kPageMask;
    Map(kTables, leaf, kUsed);
    EnterLongMode();
    Require(Resolve(kLinear, true) == Resolution::kFilled);
  }
  void StorePte(u64 value, u64 linear = kLinear) {
    CHECK(Write64(kTables + ((linear >> 12) & 511) * 8, value));
  }
  static constexpr u64 kTables = 0xffff800000000000;
  u64 leaf;
};

TEST_CASE("stores to a page table reach the shadow at once", "[mmu]") {
  PteFixture m;
  CHECK(m.memory->Info(PhysAddr(m.leaf))->flags == kPageTableTrace);
  CHECK(m.Resolve(PteFixture::kTables, true) == Resolution::kSimulate);
  CHECK(m.InRo(m.HostOf(PteFixture::kTables)));

  SECTION("P -> NP") {
    m.StorePte(0);
    CHECK(m.InGuard(m.HostOf(kLinear)));
    CHECK(m.Resolve(kLinear, false) == Resolution::kGuestFault);
  }
  SECTION("NP -> P with A: filled without a fault") {
    m.StorePte(0);
    m.StorePte(0x305000 | kUsed);
    CHECK(m.HostOf(kLinear) == m.memory->rw_base() + 0x305000);
  }
  SECTION("NP -> P without A: hidden") {
    m.StorePte(0);
    m.StorePte(0x305000 | kAll);
    CHECK(m.InGuard(m.HostOf(kLinear)));
    CHECK(m.Resolve(kLinear, true) == Resolution::kFilled);
    CHECK(m.HostOf(kLinear) == m.memory->rw_base() + 0x305000);
    CHECK(*m.Host(m.leaf + ((kLinear >> 12) & 511) * 8) == (0x305000 | kUsed));
  }
  SECTION("write protection, and back") {
    m.StorePte(0x300000 | (kUsed & ~M::kW));
    CHECK(m.InRo(m.HostOf(kLinear)));
    CHECK(m.Resolve(kLinear, true) == Resolution::kGuestFault);
    CHECK(m.fault.error_code == (vcpu::kPfPresent | vcpu::kPfWrite));
    m.StorePte(0x300000 | kUsed);
    CHECK(m.InRw(m.HostOf(kLinear)));
  }
  SECTION("the guest clears D, then A") {
    m.StorePte(0x300000 | (kUsed & ~M::kD));
    CHECK(m.InRo(m.HostOf(kLinear)));
    m.StorePte(0x300000 | kAll);
    CHECK(m.InGuard(m.HostOf(kLinear)));
  }
  SECTION("half a PTE by a 4-byte store, a byte, and an unaligned store") {
    const u64 slot = PteFixture::kTables + ((kLinear >> 12) & 511) * 8;
    u32 low = 0x307000 | static_cast<u32>(kUsed);
    CHECK(m.mmu->Write(LinearAddr(slot), &low, 4, Privilege::kCpl, &m.fault));
    CHECK(m.HostOf(kLinear) == m.memory->rw_base() + 0x307000);
    u8 byte = static_cast<u8>(kUsed & ~M::kP);
    CHECK(m.mmu->Write(LinearAddr(slot), &byte, 1, Privilege::kCpl, &m.fault));
    CHECK(m.InGuard(m.HostOf(kLinear)));
    const u64 both = (0x309000 | kUsed) >> 32 | u64{0} << 32;
    CHECK(m.mmu->Write(LinearAddr(slot + 4), &both, 8, Privilege::kCpl, &m.fault));
    byte = static_cast<u8>(kUsed);
    CHECK(m.mmu->Write(LinearAddr(slot), &byte, 1, Privilege::kCpl, &m.fault));
    CHECK(m.HostOf(kLinear) == m.memory->rw_base() + 0x307000);
  }
  SECTION("by DMA") {
    const u64 zero = 0;
    m.memory->WritePhys(PhysAddr(m.leaf + ((kLinear >> 12) & 511) * 8), &zero, 8);
    CHECK(m.InGuard(m.HostOf(kLinear)));
  }
  SECTION("in a view that is not running") {
    m.SetCpl(3);
    REQUIRE(m.Resolve(kLinear, true) == Resolution::kFilled);
    m.SetCpl(0);
    m.StorePte(0);
    CHECK(m.InGuard(m.HostOf(kLinear)));
    m.SetCpl(3);
    CHECK(m.InGuard(m.HostOf(kLinear)));
  }
  SECTION("an upper level goes, and with it the trace of the table below") {
    const u64 pd = m.EntryAddress(kLinear, 2);
    m.Map(PteFixture::kTables + 0x1000, pd & ~kPageMask, kUsed);
    const u64 old = *m.Host(pd);
    const u64 at = PteFixture::kTables + 0x1000 + (pd & kPageMask);
    CHECK(m.Write64(at, 0));
    CHECK(m.InGuard(m.HostOf(kLinear)));
    CHECK(m.Resolve(kLinear, true) == Resolution::kGuestFault);
    CHECK(m.memory->Info(PhysAddr(m.leaf))->flags == 0);
    // Now the table is plain memory.
    CHECK(m.Resolve(PteFixture::kTables, true) == Resolution::kFilled);
    m.StorePte(0x30a000 | kUsed);
    CHECK(m.InGuard(m.HostOf(kLinear)));
    CHECK(m.Write64(at, old));
    CHECK(m.Resolve(kLinear, true) == Resolution::kFilled);
    CHECK(m.HostOf(kLinear) == m.memory->rw_base() + 0x30a000);
    // It was writable for the guest a moment ago, and must not be now.
    CHECK(m.InRo(m.HostOf(PteFixture::kTables)));
  }
  SECTION("a bulk store turns the table into data") {
    std::vector<u8> zeros(kPageSize, 0);
    CHECK(m.mmu->Write(LinearAddr(PteFixture::kTables), zeros.data(), kPageSize, Privilege::kCpl,
                       &m.fault));
    CHECK(m.InGuard(m.HostOf(kLinear)));
    CHECK(m.Resolve(kLinear, false) == Resolution::kGuestFault);
    CHECK(m.mmu->counters().table_drops == 1);
  }
}

TEST_CASE("a page table that leads to itself", "[mmu]") {
  M m;
  *m.Host(M::kRoot + 511 * 8) = M::kRoot | kAll;
  m.Map(kLinear, 0x300000, kUsed);
  m.EnterLongMode();
  auto window = [](u64 i4, u64 i3, u64 i2, u64 i1) {
    return u64{0xffff} << 48 | i4 << 39 | i3 << 30 | i2 << 21 | i1 << 12;
  };
  const u64 i4 = (kLinear >> 39) & 511, i3 = (kLinear >> 30) & 511, i2 = (kLinear >> 21) & 511,
            i1 = (kLinear >> 12) & 511;
  const u64 pte = window(511, i4, i3, i2) + i1 * 8;
  const u64 root_itself = window(511, 511, 511, 511);
  u64 value = 0;
  REQUIRE(m.Read64(pte, &value));
  CHECK((value & ~(M::kA | M::kD)) == (0x300000 | kAll));
  REQUIRE(m.Resolve(kLinear, true) == Resolution::kFilled);
  REQUIRE(m.Write64(pte, 0x310000 | kUsed));
  CHECK(m.HostOf(kLinear) == m.memory->rw_base() + 0x310000);
  CHECK(m.Read64(root_itself + 511 * 8, &value));
  // The root unmaps itself through itself; nothing of the window survives.
  REQUIRE(m.Write64(root_itself + 511 * 8, 0));
  CHECK(m.InGuard(m.HostOf(root_itself)));
  CHECK(m.InGuard(m.HostOf(pte)));
  CHECK(m.Resolve(pte, false) == Resolution::kGuestFault);
  CHECK(m.HostOf(kLinear) == m.memory->rw_base() + 0x310000);
  CHECK(m.Resolve(root_itself, true) == Resolution::kGuestFault);
}

TEST_CASE("two linear pages on one physical: a trace demotes both, in all views", "[mmu]") {
  M m;
  m.Map(kLinear, 0x300000, kUsed);
  m.Map(kLinear + 0x200000, 0x300000, kUsed);
  m.EnterLongMode();
  REQUIRE(m.Resolve(kLinear, true) == Resolution::kFilled);
  REQUIRE(m.Resolve(kLinear + 0x200000, true) == Resolution::kFilled);
  m.SetCpl(3);
  REQUIRE(m.Resolve(kLinear, true) == Resolution::kFilled);
  REQUIRE(m.mmu->FillSlot(true, 5, LinearAddr(kLinear)));
  auto* slots = (m.mmu->gs_base() + kSlotsOffset).As<InlineTlbEntry>() + kSlotCount;
  CHECK(slots[5].neg_page == 0 - kLinear);
  CHECK(HostAddr(kLinear + slots[5].displacement) == m.memory->rw_base() + 0x300000);
  m.mmu->TraceCode(PhysAddr(0x300000));
  CHECK(m.mmu->counters().demotions == 3);
  CHECK(m.InRo(m.HostOf(kLinear)));
  CHECK(slots[5].neg_page == InlineTlbEntry::Empty().neg_page);
  m.SetCpl(0);
  CHECK(m.InRo(m.HostOf(kLinear)));
  CHECK(m.InRo(m.HostOf(kLinear + 0x200000)));
  CHECK(m.Resolve(kLinear, true) == Resolution::kSimulate);
  CHECK(m.Write64(kLinear + 0x200000 + 16, 0xabcd));
  CHECK(m.code_writes == std::vector<M::CodeWrite>{{0x300010, 8}});
  CHECK(*m.Host(0x300010) == 0xabcd);
  m.mmu->UntraceCode(PhysAddr(0x300000));
  CHECK(m.Resolve(kLinear, true) == Resolution::kFilled);
  CHECK(m.InRw(m.HostOf(kLinear)));
}

TEST_CASE("page-crossing accesses of every size: exact faults, nothing half done", "[mmu]") {
  M m;
  m.Map(kLinear, 0x300000, kAll);
  m.Map(kLinear + 0x1000, 0x500000, kAll);
  m.Map(kLinear + 0x3000, 0x501000, kAll);
  m.EnterLongMode();
  u8 data[64], back[64];
  for (unsigned i = 0; i < 64; ++i) data[i] = static_cast<u8>(i * 7 + 1);
  for (unsigned size = 2; size <= 64; ++size) {
    for (unsigned first = 1; first < size; ++first) {
      const LinearAddr at(kLinear + 0x1000 - first);
      CHECK(m.mmu->ResolveAccess(at, size, true, &m.fault) == Resolution::kSimulate);
      std::memset(m.Host(0x300000), 0, 4096);
      std::memset(m.Host(0x500000), 0, 4096);
      REQUIRE(m.mmu->Write(at, data, size, Privilege::kCpl, &m.fault));
      REQUIRE(std::memcmp(reinterpret_cast<u8*>(m.Host(0x300000)) + 4096 - first, data, first) ==
              0);
      REQUIRE(std::memcmp(m.Host(0x500000), data + first, size - first) == 0);
      REQUIRE(m.mmu->Read(at, back, size, Privilege::kCpl, &m.fault));
      REQUIRE(std::memcmp(back, data, size) == 0);

      // Into the hole at +0x2000: the second page's first byte is the address of the fault.
      const LinearAddr into(kLinear + 0x2000 - first);
      const u64 before = *m.Host(0x500ff8);
      const u64 pte = m.EntryAddress(kLinear + 0x1000);
      *m.Host(pte) &= ~(M::kA | M::kD);
      REQUIRE_FALSE(m.mmu->Write(into, data, size, Privilege::kCpl, &m.fault));
      REQUIRE(m.fault == GuestFault::Page(LinearAddr(kLinear + 0x2000), vcpu::kPfWrite));
      REQUIRE_FALSE(m.mmu->Read(into, back, size, Privilege::kCpl, &m.fault));
      REQUIRE(m.fault == GuestFault::Page(LinearAddr(kLinear + 0x2000), 0));
      REQUIRE(*m.Host(0x500ff8) == before);
      REQUIRE_FALSE(*m.Host(pte) & (M::kA | M::kD));
      // Out of the hole: the access's own address.
      const LinearAddr out(kLinear + 0x3000 - first);
      REQUIRE_FALSE(m.mmu->ProbeWrite(out, size, Privilege::kCpl, &m.fault));
      REQUIRE(m.fault == GuestFault::Page(out, vcpu::kPfWrite));
    }
  }
}

TEST_CASE("devices and ROM", "[mmu]") {
  M m;
  m.Map(kLinear, M::kHole, kAll);
  m.Map(kLinear + 0x1000, M::kRomBase, kAll);
  const char text[] = "firmware";
  REQUIRE(m.memory->LoadPhys(PhysAddr(M::kRomBase), text, sizeof text));
  m.EnterLongMode();
  CHECK(m.Resolve(kLinear, false) == Resolution::kSimulate);
  u64 value = 0;
  CHECK(m.Read64(kLinear + 8, &value));
  CHECK(value == 0x1122334455667788);
  CHECK(m.Write64(kLinear + 8, 42));
  CHECK(m.mmio_value == 42);
  CHECK(m.mmio_log == std::vector<M::CodeWrite>{{M::kHole + 8, 8}, {M::kHole + 8, 8}});
  CHECK((*m.Host(m.EntryAddress(kLinear)) & (M::kA | M::kD)) == (M::kA | M::kD));
  u32 narrow = 0;
  CHECK(m.mmu->Read(LinearAddr(kLinear), &narrow, 4, Privilege::kCpl, &m.fault));
  CHECK(narrow == 0x55667788);

  CHECK(m.Resolve(kLinear + 0x1000, true) == Resolution::kSimulate);
  m.mmio_log.clear();
  CHECK(m.Write64(kLinear + 0x1000, 0));
  CHECK(m.mmio_log == std::vector<M::CodeWrite>{{M::kRomBase, 8}});
  char back[sizeof text];
  CHECK(m.mmu->Read(LinearAddr(kLinear + 0x1000), back, sizeof back, Privilege::kCpl, &m.fault));
  CHECK(std::strcmp(back, text) == 0);
}

TEST_CASE("page tables in ROM, in device memory and beyond", "[mmu]") {
  M m;
  u64 entry = 0x300000 | kAll;  // A and D clear for ever
  REQUIRE(m.memory->LoadPhys(PhysAddr(M::kRomBase), &entry, 8));
  *m.Host(m.EntryAddress(kLinear, 2)) = M::kRomBase | kAll;
  *m.Host(m.EntryAddress(kLinear + 0x200000, 2)) = M::kHole | kAll;
  *m.Host(m.EntryAddress(kLinear + 0x400000, 2)) = 0xfffffff000 | kAll;
  m.EnterLongMode();
  const u64 base = kLinear & ~u64{0x1fffff};
  for (bool write : {false, true}) {
    CHECK(m.Resolve(base, write) == Resolution::kFilled);
    CHECK(m.Resolve(base + 0x200000, write) == Resolution::kGuestFault);
    CHECK(m.fault.error_code == (vcpu::kPfPresent | vcpu::kPfReserved | (write ? 2 : 0)));
    CHECK(m.Resolve(base + 0x400000, write) == Resolution::kGuestFault);
  }
  CHECK(*m.Host(M::kRomBase) == entry);
  m.state->cr3 = 0xfffffff000;
  m.mmu->AddressSpaceLoaded();
  CHECK(m.Resolve(base, false) == Resolution::kGuestFault);
  u64 value;
  CHECK_FALSE(m.Read64(base, &value));
}

TEST_CASE("large pages fill around the access; half over a hole is safe", "[mmu]") {
  M m;
  *m.Host(m.EntryAddress(0x40000000, 2)) = 0x400000 | kUsed | M::kPs;
  *m.Host(m.EntryAddress(0x8000000000, 3)) = 0 | kAll | M::kPs;  // 1 GB, 32 MB of RAM
  *m.Host(m.EntryAddress(0x40200000, 2)) = M::kHole | kUsed | M::kPs;
  m.EnterLongMode();
  REQUIRE(m.Resolve(0x40012345, false) == Resolution::kFilled);
  CHECK(m.HostOf(0x40000000) == m.memory->rw_base() + 0x400000);
  CHECK(m.HostOf(0x401ff000) == m.memory->rw_base() + 0x5ff000);
  CHECK(m.InGuard(m.HostOf(0x40200000)));
  // Around a device nothing is looked for, however often it is accessed.
  const u64 fills = m.mmu->counters().leaf_fills;
  CHECK(m.Resolve(0x40200000, false) == Resolution::kSimulate);
  CHECK(m.Resolve(0x40200000, true) == Resolution::kSimulate);
  CHECK(m.mmu->counters().leaf_fills == fills);

  REQUIRE(m.Resolve(0x8000000000 + 0x1234567, false) == Resolution::kFilled);
  CHECK(m.HostOf(0x8000000000 + 0x1200000) == m.memory->ro_base() + 0x1200000);
  REQUIRE(m.Resolve(0x8000000000 + 0x1234567, true) == Resolution::kFilled);
  CHECK(m.HostOf(0x8000000000 + 0x1200000) == m.memory->rw_base() + 0x1200000);
  CHECK((*m.Host(m.EntryAddress(0x8000000000, 3)) & M::kD) != 0);
  CHECK(m.Resolve(0x8000000000 + M::kRamBytes, true) == Resolution::kSimulate);
  // The tables lie in this page: traced, so never read-write.
  REQUIRE(m.Resolve(0x8000000000 + M::kRoot, false) == Resolution::kFilled);
  CHECK(m.InRo(m.HostOf(0x8000000000 + M::kRoot)));
  CHECK(m.Resolve(0x8000000000 + M::kRoot, true) == Resolution::kSimulate);
  // The large entry is changed through its own mapping.
  const u64 pdpt_entry = m.EntryAddress(0x8000000000, 3);
  REQUIRE(m.Write64(0x8000000000 + pdpt_entry, 0));
  CHECK(m.InGuard(m.HostOf(0x8000000000 + 0x1200000)));
}

TEST_CASE("32-bit paging: two levels, 4 MB pages, user and supervisor views", "[mmu]") {
  M m;
  auto* directory = reinterpret_cast<u32*>(m.Host(0x10000));
  auto* table = reinterpret_cast<u32*>(m.Host(0x11000));
  directory[1] = 0x11000 | kAll;
  directory[2] = 0x400000 | kAll | M::kPs;
  table[0] = 0x300000 | kAll;
  table[1] = 0x301000 | M::kP;
  m.Enter32Bit(0x10000, false);
  REQUIRE(m.Resolve(0x400004, true) == Resolution::kFilled);
  CHECK(m.HostOf(0x400004) == m.memory->rw_base() + 0x300004);
  CHECK(table[0] == (0x300000 | kUsed));
  CHECK(directory[1] == (0x11000 | kAll | M::kA));
  CHECK(m.Resolve(0x401000, true) == Resolution::kGuestFault);
  CHECK(m.fault.error_code == (vcpu::kPfPresent | vcpu::kPfWrite));
  REQUIRE(m.Resolve(0x812345, true) == Resolution::kFilled);
  CHECK(m.HostOf(0x812345) == m.memory->rw_base() + 0x412345);
  m.SetCpl(3);
  CHECK(m.Resolve(0x401000, false) == Resolution::kGuestFault);
  // One 8-byte unit holds two entries.
  const u64 both = (u64{0x303000 | kUsed} << 32) | 0x302000 | kUsed;
  REQUIRE(m.Resolve(0x400000, false) == Resolution::kFilled);
  m.memory->WritePhys(PhysAddr(0x11000), &both, 8);
  CHECK(m.HostOf(0x400000) == m.memory->rw_base() + 0x302000);
  CHECK(m.HostOf(0x401000) == m.memory->rw_base() + 0x303000);
  m.SetCpl(0);
  CHECK(m.HostOf(0x401000) == m.memory->rw_base() + 0x303000);
  // Accesses wrap at 4 GB.
  directory[1023] = directory[0] = 0x12000 | kAll;
  auto* ends = reinterpret_cast<u32*>(m.Host(0x12000));
  ends[1023] = 0x305000 | kAll;
  ends[0] = 0x306000 | kAll;
  CHECK(m.Write64(0xfffffffc, 0x1122334455667788));
  CHECK(*reinterpret_cast<u32*>(m.Host(0x305ff8) + 0) == 0);
  CHECK(reinterpret_cast<u32*>(m.Host(0x305ff8))[1] == 0x55667788);
  CHECK(reinterpret_cast<u32*>(m.Host(0x306000))[0] == 0x11223344);
}

// With page-directory pointers at 0x10020: the first page directory maps 0x40003000 to 0x303000;
// there is another one at 0x13000, with 0x304000.
void EnterPae(M& m) {
  m.Host(0x10020)[1] = 0x11000 | M::kP;
  m.Host(0x11000)[0] = 0x12000 | kAll;
  m.Host(0x12000)[3] = 0x303000 | kAll;
  m.Host(0x13000)[0] = 0x14000 | kAll;
  m.Host(0x14000)[3] = 0x304000 | kAll;
  m.Enter32Bit(0x10020, true);
  REQUIRE(m.Resolve(0x40003010, true) == Resolution::kFilled);
  CHECK(m.HostOf(0x40003010) == m.memory->rw_base() + 0x303010);
}

TEST_CASE("PAE: page-directory pointers stay as they were loaded", "[mmu]") {
  M m;
  EnterPae(m);
  CHECK(m.Host(0x10020)[1] == (0x11000 | M::kP));
  const u64 other = 0x13000 | M::kP;
  m.memory->WritePhys(PhysAddr(0x10028), &other, 8);
  CHECK(m.HostOf(0x40003010) == m.memory->rw_base() + 0x303010);
  // The tables below are followed as ever.
  u64 entry = 0x305000 | kAll | M::kA | M::kD;
  m.memory->WritePhys(PhysAddr(0x12018), &entry, 8);
  CHECK(m.HostOf(0x40003010) == m.memory->rw_base() + 0x305010);
  // MOV to CR3 loads them, in every view of the root.
  m.SetCpl(3);
  REQUIRE(m.Resolve(0x40003010, true) == Resolution::kFilled);
  REQUIRE(m.mmu->LoadPdptes(0x10020));
  m.mmu->AddressSpaceLoaded();
  CHECK(m.InGuard(m.HostOf(0x40003010)));
  REQUIRE(m.Resolve(0x40003010, true) == Resolution::kFilled);
  CHECK(m.HostOf(0x40003010) == m.memory->rw_base() + 0x304010);
  m.SetCpl(0);
  CHECK(m.InGuard(m.HostOf(0x40003010)));
  // The old page directory is a table no more: a store to it is a store to data.
  entry = 0;
  m.memory->WritePhys(PhysAddr(0x11000), &entry, 8);
  REQUIRE(m.Resolve(0x40003010, true) == Resolution::kFilled);
  CHECK(m.HostOf(0x40003010) == m.memory->rw_base() + 0x304010);
  // A reserved bit refuses the load and leaves what there is.
  const u64 malformed = 0x11000 | M::kP | 2;
  m.memory->WritePhys(PhysAddr(0x10020), &malformed, 8);
  CHECK_FALSE(m.mmu->LoadPdptes(0x10020));
  CHECK(m.HostOf(0x40003010) == m.memory->rw_base() + 0x304010);
}

TEST_CASE("PAE: each VCPU has the page-directory pointers that it has loaded", "[mmu]") {
  M m;
  EnterPae(m);
  const u64 other = 0x13000 | M::kP;
  m.memory->WritePhys(PhysAddr(0x10028), &other, 8);
  // The other one loads the same root now.
  m.mmu->VcpuSwitched(0, 1);
  REQUIRE(m.mmu->LoadPdptes(0x10020));
  m.mmu->AddressSpaceLoaded();
  REQUIRE(m.Resolve(0x40003010, true) == Resolution::kFilled);
  CHECK(m.HostOf(0x40003010) == m.memory->rw_base() + 0x304010);
  m.mmu->VcpuSwitched(1, 0);
  CHECK(m.InGuard(m.HostOf(0x40003010)));
  REQUIRE(m.Resolve(0x40003010, true) == Resolution::kFilled);
  CHECK(m.HostOf(0x40003010) == m.memory->rw_base() + 0x303010);
  m.mmu->VcpuSwitched(0, 1);
  REQUIRE(m.Resolve(0x40003010, true) == Resolution::kFilled);
  CHECK(m.HostOf(0x40003010) == m.memory->rw_base() + 0x304010);
}

TEST_CASE("views: mode bits and roots select, and come back unchanged", "[mmu]") {
  M m;
  m.Map(kLinear, 0x300000, kUsed & ~M::kW);
  m.EnterLongMode();
  REQUIRE(m.Resolve(kLinear, false) == Resolution::kFilled);
  const HostAddr base = m.mmu->gs_base();
  m.state->cr0 &= ~vcpu::kCr0Wp;
  m.mmu->PagingModeChanged();
  CHECK(m.mmu->gs_base() != HostAddr(base));
  CHECK(m.Resolve(kLinear, true) == Resolution::kFilled);
  CHECK(m.InRw(m.HostOf(kLinear)));
  m.state->cr0 |= vcpu::kCr0Wp;
  m.mmu->PagingModeChanged();
  CHECK(m.mmu->gs_base() == HostAddr(base));
  CHECK(m.InRo(m.HostOf(kLinear)));
  m.state->cr4 |= vcpu::kCr4Pge | vcpu::kCr4Osfxsr;
  m.mmu->PagingModeChanged();
  CHECK(m.mmu->gs_base() == HostAddr(base));
  m.mmu->AddressSpaceLoaded();
  CHECK(m.mmu->gs_base() == HostAddr(base));
  m.state->cr3 |= 0xfff;  // PCID or flags
  m.mmu->AddressSpaceLoaded();
  CHECK(m.mmu->gs_base() == HostAddr(base));

  m.state->cr4 |= vcpu::kCr4Smap;
  m.mmu->PagingModeChanged();
  CHECK(m.Resolve(kLinear, false) == Resolution::kGuestFault);
  CHECK(m.InGuard(m.HostOf(kLinear)));
  m.state->system_flags |= vcpu::kAc;
  m.mmu->PrivilegeChanged();
  CHECK(m.Resolve(kLinear, false) == Resolution::kFilled);
  // An implicit access does not see AC.
  u64 value;
  CHECK_FALSE(m.mmu->Read(LinearAddr(kLinear), &value, 8, Privilege::kSupervisor, &m.fault));
  CHECK(m.fault.error_code == vcpu::kPfPresent);
}

TEST_CASE("SMAP: the closed supervisor view follows CR3 and keeps what both roots map", "[mmu]") {
  M m;
  constexpr u64 kUpper = 0xffff800000000000, kSupervisor = kUsed & ~M::kU;
  // Enough that is the same for one group (mmu/root_groups.h).
  constexpr u64 kAlike = 4;
  const u64 other = m.NewTable();
  const u64 upper_entry = 256 * 8;
  for (u64 i = 0; i < kAlike; ++i) {
    m.Map(kUpper + (i << 39), 0x300000, kSupervisor);
    m.Host(other + upper_entry)[i] = m.Host(M::kRoot + upper_entry)[i];
  }
  m.Map(kLinear, 0x301000, kSupervisor);
  m.Map(kLinear, 0x302000, kSupervisor, M::kP | M::kW | M::kU, other);
  m.EnterLongMode();
  m.state->cr4 |= vcpu::kCr4Smap;
  m.mmu->PagingModeChanged();
  const auto load = [&](u64 root) {
    m.state->cr3 = root;
    m.mmu->AddressSpaceLoaded();
  };
  const HostAddr view = m.mmu->gs_base();
  for (u64 i = 0; i < kAlike; ++i) {
    REQUIRE(m.Resolve(kUpper + (i << 39), true) == Resolution::kFilled);
  }
  REQUIRE(m.Resolve(kLinear, true) == Resolution::kFilled);
  REQUIRE_FALSE(*m.Host(other + upper_entry) & M::kA);
  load(other);
  CHECK(m.mmu->gs_base() == HostAddr(view));
  CHECK(m.HostOf(kUpper) == m.memory->rw_base() + 0x300000);
  CHECK(*m.Host(other + upper_entry) & M::kA);
  CHECK(m.InGuard(m.HostOf(kLinear)));
  REQUIRE(m.Resolve(kLinear, true) == Resolution::kFilled);
  CHECK(m.HostOf(kLinear) == m.memory->rw_base() + 0x302000);

  const u64 nothing = 0;
  SECTION("an entry of the root that runs goes") {
    m.memory->WritePhys(PhysAddr(other + upper_entry), &nothing, 8);
    CHECK(m.InGuard(m.HostOf(kUpper)));
    load(M::kRoot);
    CHECK(m.Resolve(kUpper, true) == Resolution::kFilled);
  }
  SECTION("an entry of another root goes") {
    m.memory->WritePhys(PhysAddr(M::kRoot + upper_entry), &nothing, 8);
    CHECK(m.HostOf(kUpper) == m.memory->rw_base() + 0x300000);
    load(M::kRoot);
    CHECK(m.InGuard(m.HostOf(kUpper)));
    CHECK(m.Resolve(kUpper, true) == Resolution::kGuestFault);
  }
  SECTION("what both roots lead to changes") {
    const u64 entry = 0x303000 | kSupervisor;
    m.memory->WritePhys(PhysAddr(m.EntryAddress(kUpper)), &entry, 8);
    CHECK(m.HostOf(kUpper) == m.memory->rw_base() + 0x303000);
    load(M::kRoot);
    CHECK(m.HostOf(kUpper) == m.memory->rw_base() + 0x303000);
  }
  SECTION("user views stay with their root") {
    m.SetCpl(3);
    const HostAddr user = m.mmu->gs_base();
    m.SetCpl(0);
    load(M::kRoot);
    m.SetCpl(3);
    CHECK(m.mmu->gs_base() != HostAddr(user));
    m.SetCpl(0);
    CHECK(m.mmu->gs_base() == HostAddr(view));
  }
}

TEST_CASE("SMAP: what SYSCALL, SYSRET, STAC and CLAC may do by themselves", "[mmu]") {
  M m;
  m.Map(kLinear, 0x300000, kUsed);
  m.EnterLongMode();
  m.state->cr4 |= vcpu::kCr4Smap;
  m.mmu->PagingModeChanged();
  const auto set_ac = [&](bool ac) {
    m.state->system_flags = ac ? vcpu::kAc : 0;
    m.mmu->PrivilegeChanged();
    return m.mmu->gs_base();
  };
  const HostAddr closed = m.mmu->gs_base();
  CHECK(SmapPeerOf(closed).no_stac != 0);
  CHECK(SmapPeerOf(closed).no_clac != 0);
  const HostAddr open = set_ac(true);
  REQUIRE(open != closed);
  CHECK(SmapPeerOf(closed).no_stac == 0);
  CHECK(SmapPeerOf(closed).no_clac != 0);
  CHECK(SmapPeerOf(closed).gs_base == HostAddr(open));
  CHECK(SmapPeerOf(open).no_stac != 0);
  CHECK(SmapPeerOf(open).no_clac == 0);
  CHECK(SmapPeerOf(open).gs_base == HostAddr(closed));
  REQUIRE(m.Resolve(kLinear, true) == Resolution::kFilled);
  CHECK(set_ac(false) == HostAddr(closed));
  CHECK(m.InGuard(m.HostOf(kLinear)));  // whatever the open view has

  SECTION("a user view is a peer of closed views only") {
    m.SetCpl(3);
    const HostAddr user = m.mmu->gs_base();
    CHECK(PeerOf(user).missing == 0);
    CHECK(PeerOf(user).gs_base == HostAddr(closed));
    CHECK(PeerOf(closed).gs_base == HostAddr(user));
    CHECK(SmapPeerOf(user).no_stac != 0);
    CHECK(SmapPeerOf(user).no_clac != 0);
    m.SetCpl(0);
    set_ac(true);
    m.SetCpl(3);  // with AC, as after an IRET
    CHECK(m.mmu->gs_base() == HostAddr(user));
    CHECK(PeerOf(user).missing != 0);
    CHECK(PeerOf(open).missing != 0);
  }
  SECTION("links are one VCPU's, and its turn ends them") {
    m.SetCpl(3);
    const HostAddr user = m.mmu->gs_base();
    m.SetCpl(0);
    CHECK(PeerOf(user).missing == 0);
    m.state->cr0 ^= vcpu::kCr0Wp;  // the other one's, which is in the same address space
    m.mmu->VcpuSwitched(0, 1);
    CHECK(m.mmu->gs_base() != HostAddr(closed));
    for (unsigned i = 0; i < m.mmu->views().count(); ++i) {
      const HostAddr view = m.mmu->views()[i].gs_base();
      CHECK(PeerOf(view).missing != 0);
      CHECK(SmapPeerOf(view).no_stac != 0);
      CHECK(SmapPeerOf(view).no_clac != 0);
      CHECK(RootPeerOf(view).mask == 0);
    }
    const HostAddr other = m.mmu->gs_base();
    m.SetCpl(3);
    CHECK(PeerOf(user).gs_base == HostAddr(other));
  }
  SECTION("without SMAP there is one view, and AC means nothing") {
    m.state->cr4 &= ~vcpu::kCr4Smap;
    m.mmu->PagingModeChanged();
    const HostAddr plain = m.mmu->gs_base();
    CHECK(set_ac(true) == HostAddr(plain));
    CHECK(SmapPeerOf(plain).no_stac != 0);
    CHECK(SmapPeerOf(plain).no_clac != 0);
    CHECK(m.Resolve(kLinear, true) == Resolution::kFilled);
  }
  SECTION("a recycled view is nobody's peer") {
    for (u64 i = 1; i <= ViewPool::kMaxViews; ++i) {
      m.SetCpl(3);
      m.state->cr3 = 0x100000 + i * kPageSize;
      m.mmu->AddressSpaceLoaded();
    }
    for (unsigned i = 0; i < m.mmu->views().count(); ++i) {
      CHECK(SmapPeerOf(m.mmu->views()[i].gs_base()).no_stac != 0);
      CHECK(SmapPeerOf(m.mmu->views()[i].gs_base()).no_clac != 0);
    }
  }
  SECTION("the VMM changes control registers while user code runs: the peer is forgotten") {
    m.SetCpl(3);
    const HostAddr user = m.mmu->gs_base();
    m.state->cr0 &= ~vcpu::kCr0Wp;
    m.mmu->PagingModeChanged();
    CHECK(m.mmu->gs_base() == HostAddr(user));
    CHECK(PeerOf(user).missing != 0);
  }
}

TEST_CASE("more address spaces than views: the oldest is recycled, and nothing leaks", "[mmu]") {
  M m(4);
  for (u64 i = 0; i < 10; ++i) {
    const u64 root = 0x100000 + i * 0x10000;
    *m.Host(root + ((kLinear >> 39) & 511) * 8) = (root + 0x1000) | kAll;
    *m.Host(root + 0x1000 + ((kLinear >> 30) & 511) * 8) = (root + 0x2000) | kAll;
    *m.Host(root + 0x2000 + ((kLinear >> 21) & 511) * 8) = (root + 0x3000) | kAll;
    *m.Host(root + 0x3000 + ((kLinear >> 12) & 511) * 8) = (0x400000 + i * 0x1000) | kUsed;
  }
  for (u64 round = 0; round < 3; ++round) {
    for (u64 i = 0; i < 10; ++i) {
      m.EnterLongMode(0x100000 + i * 0x10000);
      CHECK(m.InGuard(m.HostOf(kLinear)));
      REQUIRE(m.Resolve(kLinear, true) == Resolution::kFilled);
      CHECK(m.HostOf(kLinear) == m.memory->rw_base() + 0x400000 + i * 0x1000);
    }
  }
  CHECK(m.mmu->views().count() == 4);
  // Only the tables of living views stay traced.
  unsigned traced = 0;
  for (u64 i = 0; i < 10; ++i) {
    traced += m.memory->Info(PhysAddr(0x103000 + i * 0x10000))->flags == kPageTableTrace;
  }
  CHECK(traced == 4);
  // A page-table store in a recycled space costs nothing any more.
  CHECK(m.memory->Info(PhysAddr(0x103000))->flags == 0);
}

TEST_CASE("fetches: rights, recording, and jump entries that die with the mapping", "[mmu]") {
  PteFixture m;
  const u64 code = kLinear;
  int target = 0;
  PhysAddr pa;
  REQUIRE(m.mmu->Fetch(LinearAddr(code + 5), &pa, &m.fault));
  CHECK(pa.value == 0x300005);
  m.mmu->current_view().SetJump(LinearAddr(code + 5), JumpKind::kComputed, HostAddr(&target));
  m.mmu->current_view().SetJump(LinearAddr(code - 3), JumpKind::kComputed, HostAddr(&target));
  m.mmu->current_view().SetJump(LinearAddr(code - 100), JumpKind::kComputed, HostAddr(&target));
  auto entry = [&](u64 pc) {
    return (m.mmu->gs_base() + kJumpTableOffset)
        .As<const void*>()[JumpIndex(LinearAddr(pc), JumpKind::kComputed)];
  };
  CHECK(entry(code + 5) == &target);
  CHECK(entry(code + 6) == &M::kDefaultJump);
  // D and W do not matter to execution, A and NX do.
  m.StorePte(0x300000 | (kUsed & ~M::kD & ~M::kW));
  CHECK(entry(code + 5) == &target);
  SECTION("no execute") {
    m.StorePte(0x300000 | kUsed | M::kNx);
    CHECK(entry(code + 5) == &M::kDefaultJump);
    CHECK(entry(code - 3) == &M::kDefaultJump);
    CHECK(entry(code - 100) == &target);
    CHECK_FALSE(m.mmu->Fetch(LinearAddr(code), &pa, &m.fault));
    CHECK(m.fault == GuestFault::Page(LinearAddr(code), vcpu::kPfPresent | vcpu::kPfFetch));
  }
  SECTION("another page") {
    m.StorePte(0x306000 | kUsed);
    CHECK(entry(code + 5) == &M::kDefaultJump);
    REQUIRE(m.mmu->Fetch(LinearAddr(code + 5), &pa, &m.fault));
    CHECK(pa.value == 0x306005);
  }
  SECTION("an upper level") {
    u64 zero = 0;
    m.memory->WritePhys(PhysAddr(m.EntryAddress(code, 3)), &zero, 8);
    CHECK(entry(code + 5) == &M::kDefaultJump);
    CHECK_FALSE(m.mmu->Fetch(LinearAddr(code), &pa, &m.fault));
    CHECK(m.fault.error_code == vcpu::kPfFetch);
  }
  SECTION("by physical page, in every view") {
    m.StorePte(0x300000 | kUsed);
    const HostAddr supervisor = m.mmu->gs_base();
    m.SetCpl(3);
    REQUIRE(m.mmu->Fetch(LinearAddr(code), &pa, &m.fault));
    m.mmu->current_view().SetJump(LinearAddr(code), JumpKind::kComputed, HostAddr(&target));
    m.mmu->ResetJumpEntriesForPhysPage(PhysAddr(0x300fff));
    CHECK(entry(code) == &M::kDefaultJump);
    CHECK((supervisor + kJumpTableOffset)
              .As<const void*>()[JumpIndex(LinearAddr(code + 5), JumpKind::kComputed)] ==
          &M::kDefaultJump);
  }
  SECTION("SMEP") {
    m.state->cr4 |= vcpu::kCr4Smep;
    m.mmu->PagingModeChanged();
    CHECK_FALSE(m.mmu->Fetch(LinearAddr(code), &pa, &m.fault));
    CHECK(m.fault.error_code == (vcpu::kPfPresent | vcpu::kPfFetch));
  }
}

TEST_CASE("adding and removing slots under a live shadow", "[mmu]") {
  M m;
  m.Map(kLinear, 0x40000000, kUsed);
  m.EnterLongMode();
  CHECK(m.Resolve(kLinear, true) == Resolution::kSimulate);
  REQUIRE(m.memory->AddSlot(PhysAddr(0x40000000), 0x100000).ok());
  CHECK(m.Resolve(kLinear, true) == Resolution::kFilled);
  REQUIRE(m.memory->RemoveSlot(PhysAddr(0x40000000)).ok());
  CHECK(m.InGuard(m.HostOf(kLinear)));
  CHECK(m.Resolve(kLinear, true) == Resolution::kSimulate);
}

TEST_CASE("debug reads leave no trace and stop at the first hole", "[mmu]") {
  M m;
  m.Map(kLinear, 0x300000, M::kP);
  *m.Host(0x300ff8) = 0x1234;
  m.EnterLongMode();
  m.SetCpl(3);
  u64 value[2] = {};
  CHECK(m.mmu->DebugRead(LinearAddr(kLinear + 0xff8), value, 16) == 8);
  CHECK(value[0] == 0x1234);
  CHECK(*m.Host(m.EntryAddress(kLinear)) == (0x300000 | M::kP));
  CHECK(m.mmu->DebugRead(LinearAddr(0x800000000000), value, 8) == 0);
}

TEST_CASE("sparse accesses stay within the bound on table memory", "[mmu]") {
  M m;
  // One leaf table everywhere: 512 * 512 * 8 distinct chunks of linear addresses.
  const u64 leaf = 0x800000, pd = 0x801000, pdpt = 0x802000;
  for (u64 i = 0; i < 512; ++i) {
    m.Host(leaf)[i] = 0x300000 | kUsed;
    m.Host(pd)[i] = leaf | kAll | M::kA;
    m.Host(pdpt)[i] = pd | kAll | M::kA;
    m.Host(M::kRoot)[i] = pdpt | kAll | M::kA;
  }
  m.EnterLongMode();
  const auto place = [](u64 i) {
    return static_cast<u64>(static_cast<i64>((i * 0x1001 * 0x1000000) << 16) >> 16);
  };
  // As many as there can be, and no view is emptied for one more: that is simulated ...
  for (u64 i = 0; i < 10000; ++i) {
    const Resolution got = m.Resolve(place(i), true);
    REQUIRE(got == (i < View::kMaxChunks ? Resolution::kFilled : Resolution::kSimulate));
    if (got == Resolution::kFilled) {
      REQUIRE(m.HostOf(place(i)) == m.memory->rw_base() + 0x300000);
    }
  }
  CHECK(m.mmu->views().TotalChunks() == View::kMaxChunks);
  CHECK(m.mmu->counters().view_flushes == 0);
  // One page mapped more often than its chain can be long: a trace still reaches every entry.
  m.mmu->TraceCode(PhysAddr(0x300000));
  for (u64 i = 0; i < 10000; ++i) REQUIRE_FALSE(m.InRw(m.HostOf(place(i))));
  // ... until that has cost as much as making all of them again would.
  u64 simulated = 0;
  while (m.Resolve(place(9999), false) != Resolution::kFilled) {
    REQUIRE(++simulated <= u64{32} * View::kMaxChunks);
  }
  CHECK(simulated > u64{30} * View::kMaxChunks);
  CHECK(m.mmu->counters().view_flushes == 1);
  CHECK(m.mmu->views().TotalChunks() == 1);
}

}  // namespace
}  // namespace alibi::mmu
