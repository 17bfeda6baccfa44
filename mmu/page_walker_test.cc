// SPDX-License-Identifier: Apache-2.0
#include "mmu/page_walker.h"

#include <catch2/catch.hpp>

#include "mmu/test_machine.h"

namespace alibi::mmu {
namespace {

using M = TestMachine;
constexpr u64 kAll = M::kP | M::kW | M::kU;
constexpr u64 kLinear = 0x7f0012345000;

struct Walked {
  M m;
  PagingContext context;
  GuestMemory& memory = *m.memory;

  Walked() {
    context.format = &FormatOf(PagingMode::k4Level);
    context.root = PhysAddr(M::kRoot);
    context.write_protect = context.large_pages = context.no_execute = true;
    m.Map(kLinear, 0x300000, kAll);
  }
  WalkResult Walk(u64 linear = kLinear) { return mmu::Walk(memory, context, LinearAddr(linear)); }
};

// SDM vol. 3, 4.6.1, written out. Rows: page (user?, writable?, executable?); columns: what a
// supervisor may do with WP=0 / WP=1, and what a user may. Letters: r, w, x. SMEP takes x, and SMAP
// (with AC clear) takes r and w, from supervisors on user pages.
struct RightsRow {
  bool user, writable, executable;
  const char *supervisor_wp0, *supervisor_wp1, *as_user;
};
constexpr RightsRow kRights[] = {
    {false, false, false, "rw", "r", ""},  {false, false, true, "rwx", "rx", ""},
    {false, true, false, "rw", "rw", ""},  {false, true, true, "rwx", "rwx", ""},
    {true, false, false, "rw", "r", "r"},  {true, false, true, "rwx", "rx", "rx"},
    {true, true, false, "rw", "rw", "rw"}, {true, true, true, "rwx", "rwx", "rwx"},
};

bool Has(const char* letters, char letter) {
  for (; *letters != 0; ++letters) {
    if (*letters == letter) return true;
  }
  return false;
}

TEST_CASE("every permission permutation, wherever in the hierarchy it is set", "[walker]") {
  Walked w;
  unsigned checked = 0;
  // The level that takes the right away; all others grant everything.
  for (unsigned level = 1; level <= 4; ++level) {
    u64* entry = w.m.Host(w.m.EntryAddress(kLinear, level));
    const u64 original = *entry;
    for (const RightsRow& row : kRights) {
      *entry = original & ~(M::kW | M::kU);
      if (row.writable) *entry |= M::kW;
      if (row.user) *entry |= M::kU;
      if (!row.executable) *entry |= M::kNx;
      for (unsigned mode = 0; mode < 64; ++mode) {
        const bool wp = mode & 1, smep = mode & 2, smap = mode & 4, ac = mode & 8;
        const bool user = mode & 16, nxe = mode & 32;
        if (!nxe && !row.executable) continue;  // then bit 63 is reserved: another test
        w.context.write_protect = wp;
        w.context.smep = smep;
        w.context.smap = smap;
        w.context.no_execute = nxe;
        const WalkResult walk = w.Walk();
        REQUIRE(walk.status == WalkStatus::kMapped);
        const char* letters = user ? row.as_user : wp ? row.supervisor_wp1 : row.supervisor_wp0;
        for (char letter : {'r', 'w', 'x'}) {
          const Access access{letter == 'w', letter == 'x', user, ac};
          bool expected = Has(letters, letter);
          if (!user && row.user && letter == 'x' && smep) expected = false;
          if (!user && row.user && letter != 'x' && smap && !ac) expected = false;
          INFO(level << ' ' << row.user << row.writable << row.executable << ' ' << mode << letter);
          REQUIRE(Permits(w.context, walk.rights, access) == expected);
          u32 code = vcpu::kPfPresent;
          if (letter == 'w') code |= vcpu::kPfWrite;
          if (user) code |= vcpu::kPfUser;
          if (letter == 'x' && (smep || nxe)) code |= vcpu::kPfFetch;
          REQUIRE(PageFaultCode(w.context, WalkStatus::kMapped, access) == code);
          REQUIRE(PageFaultCode(w.context, WalkStatus::kReserved, access) ==
                  (code | vcpu::kPfReserved));
          REQUIRE(PageFaultCode(w.context, WalkStatus::kNotPresent, access) ==
                  (code & ~vcpu::kPfPresent));
          ++checked;
        }
      }
    }
    *entry = original;
  }
  CHECK(checked == 4 * (4 * 64 + 4 * 32) * 3);
}

TEST_CASE("absent entries at every level", "[walker]") {
  Walked w;
  for (unsigned level = 1; level <= 4; ++level) {
    u64* entry = w.m.Host(w.m.EntryAddress(kLinear, level));
    *entry ^= M::kP;
    CHECK(w.Walk().status == WalkStatus::kNotPresent);
    // Whatever else the entry holds.
    const u64 saved = *entry;
    *entry = ~M::kP;
    CHECK(w.Walk().status == WalkStatus::kNotPresent);
    *entry = saved ^ M::kP;
  }
  CHECK(w.Walk().status == WalkStatus::kMapped);
}

TEST_CASE("reserved bits, bit by bit, 4-level", "[walker]") {
  Walked w;
  // Per level, as a table and as a page of 2 MB or 1 GB.
  struct Row {
    unsigned level;
    bool large;
    u64 reserved;  // besides 51:40
  };
  const Row rows[] = {{4, false, u64{1} << 7}, {3, false, 0},       {3, true, 0x3fffe000},
                      {2, false, 0},           {2, true, 0x1fe000}, {1, false, 0}};
  for (const Row& row : rows) {
    u64* entry = w.m.Host(w.m.EntryAddress(kLinear, row.level));
    const u64 saved = *entry;
    const u64 original = row.large ? (kAll | M::kPs) : saved;
    for (unsigned bit = 0; bit < 64; ++bit) {
      // Bits that say something, and address bits inside RAM.
      if (bit == 0 || (bit == 7 && row.level != 4 && row.level != 1)) continue;
      const bool phys = bit >= 40 && bit <= 51;
      const bool reserved = phys || ((row.reserved >> bit) & 1);
      for (bool nxe : {false, true}) {
        w.context.no_execute = nxe;
        *entry = original | u64{1} << bit;
        if ((original >> bit) & 1) continue;
        const bool expected = reserved || (bit == 63 && !nxe);
        INFO(row.level << ' ' << row.large << ' ' << bit << ' ' << nxe);
        // Another address may lead to other memory, but never to a reserved bit of this level.
        const WalkResult walk = w.Walk();
        if (expected) {
          REQUIRE(walk.status == WalkStatus::kReserved);
        } else if (bit < 12 || bit > 51 || row.large || row.level == 1) {
          REQUIRE(walk.status == WalkStatus::kMapped);
        }
      }
      *entry = saved;
    }
    *entry = saved;
  }
}

TEST_CASE("an absent entry below hides nothing above, and the reverse", "[walker]") {
  Walked w;
  *w.m.Host(w.m.EntryAddress(kLinear, 1)) = 0;
  *w.m.Host(w.m.EntryAddress(kLinear, 3)) |= u64{1} << 45;
  CHECK(w.Walk().status == WalkStatus::kReserved);
  *w.m.Host(w.m.EntryAddress(kLinear, 4)) &= ~M::kP;
  CHECK(w.Walk().status == WalkStatus::kNotPresent);
}

TEST_CASE("A and D: exactly where the access went", "[walker]") {
  Walked w;
  for (bool write : {false, true}) {
    for (unsigned leaf = 1; leaf <= 3; ++leaf) {
      Walked fresh;
      u64* entry = fresh.m.Host(fresh.m.EntryAddress(kLinear, leaf));
      if (leaf > 1) *entry = kAll | M::kPs;
      WalkResult walk = fresh.Walk();
      CHECK(walk.leaf_level == leaf);
      for (unsigned level = leaf; level <= 4; ++level) {
        CHECK_FALSE(*fresh.m.Host(fresh.m.EntryAddress(kLinear, level)) & (M::kA | M::kD));
      }
      CHECK(MarkUsed(fresh.memory, fresh.context, &walk, write));
      for (unsigned level = leaf; level <= 4; ++level) {
        const u64 flags = *fresh.m.Host(fresh.m.EntryAddress(kLinear, level)) & (M::kA | M::kD);
        CHECK(flags == (write && level == leaf ? M::kA | M::kD : M::kA));
      }
    }
  }
}

TEST_CASE("frames and offsets of every page size", "[walker]") {
  Walked w;
  CHECK(w.Walk(kLinear + 0xabc).address.value == 0x300abc);
  *w.m.Host(w.m.EntryAddress(kLinear, 2)) = 0xffffe00000 | kAll | M::kPs | 0x1000;  // PAT
  CHECK(w.Walk().address.value == 0xffffe00000 + (kLinear & 0x1fffff));
  *w.m.Host(w.m.EntryAddress(kLinear, 3)) = 0xffc0000000 | kAll | M::kPs | 0x1000;
  CHECK(w.Walk().address.value == 0xffc0000000 + (kLinear & 0x3fffffff));
}

TEST_CASE("32-bit paging: PSE and PSE-36, reserved bit 21", "[walker]") {
  Walked w;
  w.context = PagingContext{};
  w.context.format = &FormatOf(PagingMode::k32Bit);
  w.context.root = PhysAddr(0x10000);
  auto* directory = reinterpret_cast<u32*>(w.m.Host(0x10000));
  auto* table = reinterpret_cast<u32*>(w.m.Host(0x11000));
  table[5] = 0xfffff000 | kAll;
  directory[1] = 0x11000 | kAll | M::kPs;
  // Without CR4.PSE, PS is ignored.
  CHECK(w.Walk(0x405123).address.value == 0xfffff123);
  w.context.large_pages = true;
  directory[1] = 0x80000000 | 0xff << 13 | kAll | M::kPs;
  CHECK(w.Walk(0x405123).address.value == 0xff80005123);
  directory[1] |= 1 << 21;
  CHECK(w.Walk(0x405123).status == WalkStatus::kReserved);
}

TEST_CASE("PAE: page-directory pointers are loaded, with what they reserve", "[walker]") {
  Walked w;
  w.context.format = &FormatOf(PagingMode::kPae);
  w.context.root = PhysAddr(0x10020);
  u64* top = &w.m.Host(0x10020)[3];
  w.m.Host(0x11000)[511] = 0x600000 | kAll | M::kPs;
  *top = 0x11000 | M::kP;
  CHECK(w.Walk(0xffe12345).status == WalkStatus::kNotPresent);  // not loaded
  // CR3 has flags below bit 5 and nothing above bit 31.
  REQUIRE(ReadPdptes(w.memory, 0x100000010020 | 0x1f, w.context.pdpte));
  CHECK(w.Walk(0xffe12345).address.value == 0x612345);
  *top = 0;
  CHECK(w.Walk(0xffe12345).address.value == 0x612345);
  u64 pdpte[4];
  for (unsigned bit = 1; bit < 64; ++bit) {
    const bool reserved = bit == 1 || bit == 2 || (bit >= 5 && bit <= 8) || bit >= 40;
    *top = 0x11000 | M::kP | u64{1} << bit;
    INFO(bit);
    CHECK(ReadPdptes(w.memory, 0x10020, pdpte) != reserved);
    *top &= ~M::kP;
    CHECK(ReadPdptes(w.memory, 0x10020, pdpte));
  }
  CHECK_FALSE(ReadPdptes(w.memory, M::kHole, pdpte));
}

TEST_CASE("visitors: tables of a translation, and a leaf table's entries", "[walker]") {
  Walked w;
  PhysAddr tables[4];
  REQUIRE(CollectTables(w.memory, w.context, LinearAddr(kLinear), tables) == 4);
  for (unsigned level = 4; level >= 1; --level) {
    CHECK(tables[4 - level] == PhysAddr(w.m.EntryAddress(kLinear, level)).PageBase());
  }
  w.m.Map(kLinear + 0x3000, 0x303000, kAll | u64{1} << 50);  // malformed
  w.m.Map(kLinear + 0x4000, 0x304000, kAll);
  std::vector<u64> slots;
  ForEachLeafEntry(w.memory, w.context, tables[3], [&](unsigned slot, u64 entry) {
    slots.push_back(slot);
    CHECK((entry & 0xffff) == ((slot == 0x145 ? 0x0 : 0x4000) | kAll));
  });
  CHECK(slots == std::vector<u64>{0x145, 0x149});
  PhysAddr pa;
  CHECK(LookUp(w.memory, w.context, LinearAddr(kLinear + 7), &pa));
  CHECK(pa.value == 0x300007);
  CHECK_FALSE(LookUp(w.memory, w.context, LinearAddr(kLinear + 0x1000), &pa));
}

TEST_CASE("tables where there is no memory read as ones, and nothing is stored", "[walker]") {
  Walked w;
  w.context.root = PhysAddr(kPhysLimit - kPageSize);
  CHECK(w.Walk().status == WalkStatus::kReserved);
  w.context.root = PhysAddr(~u64{0} << 12);
  CHECK(w.Walk().status == WalkStatus::kReserved);
  w.context = PagingContext{};
  w.context.format = &FormatOf(PagingMode::k32Bit);
  w.context.root = PhysAddr(M::kHole);
  WalkResult walk = w.Walk(0x1000);
  CHECK(walk.status == WalkStatus::kMapped);  // all ones is a valid entry of 32-bit paging
  CHECK(walk.address.value == 0xfffff000);
  CHECK(MarkUsed(w.memory, w.context, &walk, true));
}

TEST_CASE("paging off is the identity, whatever the access", "[walker]") {
  Walked w;
  w.context = PagingContext{};
  w.context.format = &FormatOf(PagingMode::kNone);
  WalkResult walk = w.Walk(0x1234567);
  CHECK(walk.status == WalkStatus::kMapped);
  CHECK(walk.address.value == 0x1234567);
  for (unsigned bits = 0; bits < 16; ++bits) {
    CHECK(Permits(w.context, walk.rights,
                  Access{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0}));
  }
  CHECK(MarkUsed(w.memory, w.context, &walk, true));
}

}  // namespace
}  // namespace alibi::mmu
