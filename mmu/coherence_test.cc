// SPDX-License-Identifier: Apache-2.0
// What coherence leaves to the guest's TLB flushes under each strategy, and what it must not.
#include "mmu/coherence.h"

#include <catch2/catch.hpp>

#include "mmu/test_machine.h"

namespace alibi::mmu {
namespace {

using M = TestMachine;

constexpr u64 kUsed = M::kP | M::kW | M::kU | M::kA | M::kD;
constexpr u64 kLinear = 0x40000000, kWindow = 0x50000000;
constexpr u64 kFirst = 0x300000, kSecond = 0x301000;

// kLinear leads to kFirst, and at kWindow the guest sees the leaf table of kLinear.
class Guest : public M {
 public:
  explicit Guest(Coherence coherence) : M(ViewPool::kMaxViews, coherence) {
    *Host(kFirst) = 1;
    *Host(kSecond) = 2;
    Map(kLinear, kFirst, kUsed);
    leaf = EntryAddress(kLinear) & ~kPageMask;
    Map(kWindow, leaf, kUsed);
    EnterLongMode();
    REQUIRE(Load(kLinear) == 1);
  }
  u64 Load(u64 linear) {
    u64 value = 0;
    REQUIRE(Read64(linear, &value));
    return value;
  }
  // A store of the guest's to the entry of kLinear, or of a page behind it.
  void StoreEntry(u64 entry, u64 page = 0) { REQUIRE(Write64(kWindow + 8 * page, entry)); }
  const Counters& counters() const { return mmu->counters(); }

  u64 leaf = 0;
};

TEST_CASE("names of strategies", "[coherence]") {
  for (const char* name : kCoherenceNames) CHECK(NameOf(ParseCoherence(name).value()) == name);
  CHECK(ParseCoherence("lazy").error().message ==
        "there is no coherence strategy 'lazy'; there are eager, deferred, dropped");
}

TEST_CASE("a changed entry counts at once, or from the flush on", "[coherence]") {
  const Coherence coherence =
      GENERATE(Coherence::kEager, Coherence::kDeferred, Coherence::kDropped);
  CAPTURE(NameOf(coherence));
  const u64 before = coherence == Coherence::kEager ? 2 : 1;
  SECTION("CR3") {
    Guest g(coherence);
    g.StoreEntry(kSecond | kUsed);
    CHECK(g.Load(kLinear) == before);
    g.mmu->AddressSpaceLoaded();
    CHECK(g.Load(kLinear) == 2);
  }
  SECTION("INVLPG") {
    Guest g(coherence);
    g.StoreEntry(kSecond | kUsed);
    g.mmu->InvalidatePage(LinearAddr(kLinear + 0x1000));
    CHECK(g.Load(kLinear) == before);
    g.mmu->InvalidatePage(LinearAddr(kLinear + 0x123));
    CHECK(g.Load(kLinear) == 2);
  }
  SECTION("all") {
    Guest g(coherence);
    g.StoreEntry(kSecond | kUsed);
    g.mmu->InvalidateAll();
    CHECK(g.Load(kLinear) == 2);
  }
  SECTION("a store is faster with rights it has lost, but a fault is decided by the tables") {
    Guest g(coherence);
    g.StoreEntry(kFirst | (kUsed & ~M::kW));
    CHECK(g.Write64(kLinear, 7) == (coherence != Coherence::kEager));
    g.mmu->InvalidatePage(LinearAddr(kLinear));
    CHECK_FALSE(g.Write64(kLinear, 8));
    CHECK(g.fault.error_code == (vcpu::kPfPresent | vcpu::kPfWrite));
    g.StoreEntry(kFirst | kUsed);  // more rights: no flush
    CHECK(g.Write64(kLinear, 9));
  }
  SECTION("an absent entry is in nobody's cache") {
    Guest g(coherence);
    CHECK(g.Resolve(kLinear + 0x1000, false) == Resolution::kGuestFault);
    g.StoreEntry(kSecond | kUsed, 1);
    CHECK(g.Load(kLinear + 0x1000) == 2);
  }
  SECTION("what a page is fetched from") {
    Guest g(coherence);
    PhysAddr pa;
    REQUIRE(g.mmu->Fetch(LinearAddr(kLinear), &pa, &g.fault));
    g.StoreEntry(kSecond | kUsed);
    REQUIRE(g.mmu->Fetch(LinearAddr(kLinear), &pa, &g.fault));
    CHECK(pa.value == (before == 2 ? kSecond : kFirst));
    g.mmu->InvalidatePage(LinearAddr(kLinear));
    REQUIRE(g.mmu->Fetch(LinearAddr(kLinear), &pa, &g.fault));
    CHECK(pa.value == kSecond);
  }
}

TEST_CASE("deferred: the first store ends a leaf table's trace, the flush begins it again",
          "[coherence]") {
  Guest g(Coherence::kDeferred);
  CHECK(g.memory->Info(PhysAddr(g.leaf))->flags == kPageTableTrace);
  CHECK(g.Resolve(kWindow, true) == Resolution::kFilled);
  CHECK(g.InRw(g.HostOf(kWindow)));
  CHECK(g.memory->Info(PhysAddr(g.leaf))->flags == 0);
  // Stores that nobody sees.
  for (u64 i = 0; i < 8; ++i) *g.Host(g.leaf + 8 * i) = kSecond | kUsed;
  CHECK(g.Load(kLinear) == 1);
  g.mmu->AddressSpaceLoaded();
  CHECK(g.counters().table_releases == 1);
  CHECK(g.counters().table_resyncs == 1);
  CHECK(g.counters().trace_writes == 0);
  CHECK(g.memory->Info(PhysAddr(g.leaf))->flags == kPageTableTrace);
  CHECK(g.InRo(g.HostOf(kWindow)));
  // Writable is what is stored through.
  CHECK(g.HostOf(kLinear) == g.memory->ro_base() + kSecond);
  CHECK(g.Resolve(kLinear, true) == Resolution::kFilled);
  CHECK(g.HostOf(kLinear) == g.memory->rw_base() + kSecond);
  // Nothing is out of sync: nothing to do.
  g.mmu->AddressSpaceLoaded();
  CHECK(g.counters().tlb_flushes == 1);
}

TEST_CASE("deferred: tables above the leaves, code and roots stay traced", "[coherence]") {
  Guest g(Coherence::kDeferred);
  const u64 directory = g.EntryAddress(kLinear, 2);
  g.Map(kWindow + 0x1000, directory & ~kPageMask, kUsed);
  CHECK(g.Resolve(kWindow + 0x1000, true) == Resolution::kSimulate);
  REQUIRE(g.Write64(kWindow + 0x1000 + (directory & kPageMask), 0));
  CHECK(g.InGuard(g.HostOf(kLinear)));
  CHECK(g.Resolve(kLinear, false) == Resolution::kGuestFault);

  Guest h(Coherence::kDeferred);
  h.mmu->TraceCode(PhysAddr(h.leaf));
  h.StoreEntry(kSecond | kUsed);
  CHECK(h.Load(kLinear) == 2);
  CHECK(h.code_writes == std::vector<M::CodeWrite>{{h.leaf, 8}});
}

TEST_CASE("deferred: an entry that was changed, used and changed back", "[coherence]") {
  Guest g(Coherence::kDeferred);
  g.StoreEntry(kSecond | kUsed);
  g.mmu->InvalidatePage(LinearAddr(kLinear));
  CHECK(g.Load(kLinear) == 2);
  g.StoreEntry(kFirst | kUsed);
  CHECK(g.Load(kLinear) == 2);
  g.mmu->AddressSpaceLoaded();
  CHECK(g.Load(kLinear) == 1);
  // ... and used by a fill of its neighbour.
  g.StoreEntry(kSecond | kUsed);
  g.StoreEntry(kSecond | M::kP | M::kW | M::kU, 1);
  CHECK(g.Load(kLinear + 0x1000) == 2);
  g.StoreEntry(kFirst | kUsed);
  g.mmu->AddressSpaceLoaded();
  CHECK(g.Load(kLinear) == 1);
}

// Without room for a view's entries only the pages that code is fetched from are known.
TEST_CASE("found: deferred, code that was fetched by an entry without room in the shadow",
          "[coherence]") {
  constexpr u64 kCode = 0x80000000, kNearby = kLinear + 0x1000;
  M m(ViewPool::kMaxViews, Coherence::kDeferred, 1);
  m.Map(kLinear, kFirst, kUsed);
  m.Map(kCode + 0x1000, kFirst, kUsed);
  m.Map(kNearby, m.EntryAddress(kCode) & ~kPageMask, kUsed);
  m.EnterLongMode();
  REQUIRE(m.Resolve(kLinear, false) == Resolution::kFilled);
  PhysAddr pa;
  REQUIRE(m.mmu->Fetch(LinearAddr(kCode + 0x1000), &pa, &m.fault));
  CHECK(m.Resolve(kNearby, true) == Resolution::kFilled);
  CHECK(m.mmu->counters().table_releases == 1);
  *m.Host(m.EntryAddress(kCode)) = kFirst | kUsed;
  REQUIRE(m.mmu->Fetch(LinearAddr(kCode), &pa, &m.fault));
  CHECK(pa.value == kFirst);
  *m.Host(m.EntryAddress(kCode)) = kSecond | kUsed;
  m.mmu->InvalidatePage(LinearAddr(kCode));
  REQUIRE(m.mmu->Fetch(LinearAddr(kCode), &pa, &m.fault));
  CHECK(pa.value == kSecond);
}

TEST_CASE("deferred: flushes look at the tables that they concern", "[coherence]") {
  Guest g(Coherence::kDeferred);
  // Of another address space, which maps the same address.
  const u64 other = g.NewTable();
  g.Map(kLinear, kFirst, kUsed, kUsed, other);
  g.Map(kWindow, g.EntryAddress(kLinear, 1, kUsed, other) & ~kPageMask, kUsed, kUsed, other);
  g.state->cr3 = other;
  g.mmu->AddressSpaceLoaded();
  CHECK(g.Load(kLinear) == 1);
  g.StoreEntry(kSecond | kUsed);
  CHECK(g.counters().table_releases == 1);
  g.state->cr3 = M::kRoot;
  g.mmu->AddressSpaceLoaded();
  CHECK(g.counters().tlb_flushes == 0);
  // Far away, and at the same place.
  g.StoreEntry(kSecond | kUsed);
  CHECK(g.counters().table_releases == 2);
  g.mmu->InvalidatePage(LinearAddr(kLinear + (u64{1} << 30)));
  CHECK(g.Load(kLinear) == 1);
  g.mmu->InvalidatePage(LinearAddr(kLinear));
  CHECK(g.Load(kLinear) == 2);
  CHECK(g.counters().table_resyncs == 0);
  // Each by its own load.
  g.mmu->AddressSpaceLoaded();
  CHECK(g.counters().table_resyncs == 1);
  g.state->cr3 = other;
  g.mmu->AddressSpaceLoaded();
  CHECK(g.Load(kLinear) == 2);
}

TEST_CASE("deferred: an out-of-sync table that goes away, or gets another use", "[coherence]") {
  Guest g(Coherence::kDeferred);
  const u64 entry = kSecond | kUsed;
  SECTION("its upper entry is cleared, and the page is data") {
    g.StoreEntry(entry);
    const u64 zero = 0;
    g.memory->WritePhys(PhysAddr(g.EntryAddress(kLinear, 2)), &zero, 8);
    g.mmu->AddressSpaceLoaded();
    CHECK(g.counters().table_resyncs == 0);
    CHECK(g.memory->Info(PhysAddr(g.leaf))->flags == 0);
  }
  SECTION("a second place") {
    g.StoreEntry(entry);
    *g.Host(g.EntryAddress(0x60000000, 2)) = g.leaf | kUsed;
    CHECK(g.Load(0x60000000) == 2);
    CHECK(g.Load(kLinear) == 2);
    CHECK(g.memory->Info(PhysAddr(g.leaf))->flags == kPageTableTrace);
  }
  SECTION("a table above the leaves") {
    g.StoreEntry(kFirst | kUsed);
    *g.Host(g.EntryAddress(0x8000000000, 3)) = g.leaf | kUsed;
    CHECK(g.Resolve(0x8000000000, false) == Resolution::kFilled);
    CHECK(g.Resolve(kWindow, true) == Resolution::kSimulate);
  }
  SECTION("the memory map changes") {
    g.StoreEntry(entry);
    REQUIRE(g.memory->AddSlot(PhysAddr(0x80000000), 0x10000).ok());
    CHECK(g.Load(kLinear) == 2);
    g.mmu->AddressSpaceLoaded();
    CHECK(g.counters().table_resyncs == 0);
  }
}

TEST_CASE("deferred: more tables than the list holds are followed, others' wait", "[coherence]") {
  Guest g(Coherence::kDeferred);
  constexpr u64 kTables = OutOfSyncTables::kMax + 10;
  std::vector<u64> leaves;
  for (u64 i = 0; i < kTables; ++i) {
    const u64 linear = 0x100000000 + i * 0x200000;
    g.Map(linear, kFirst, kUsed);
    leaves.push_back(g.EntryAddress(linear) & ~kPageMask);
    g.Map(kWindow + (i + 1) * kPageSize, leaves[i], kUsed);
    CHECK(g.Load(linear) == 1);
  }
  const auto store_all = [&](u64 entry) {
    for (u64 i = 0; i < kTables; ++i) REQUIRE(g.Write64(kWindow + (i + 1) * kPageSize, entry));
  };
  store_all(kSecond | kUsed);
  CHECK(g.counters().table_releases == OutOfSyncTables::kMax);
  for (u64 i = 0; i < kTables; ++i) {
    CHECK(g.Load(0x100000000 + i * 0x200000) == (i < OutOfSyncTables::kMax ? 1 : 2));
  }
  // Another address space: a crowd of tables that it does not use is forgotten.
  const u64 other = g.NewTable();
  g.Map(kLinear, kFirst, kUsed, kUsed, other);
  g.state->cr3 = other;
  g.mmu->AddressSpaceLoaded();
  CHECK(g.counters().table_resyncs == 0);
  CHECK(g.counters().table_drops == OutOfSyncTables::kMax);
  g.state->cr3 = M::kRoot;
  g.mmu->AddressSpaceLoaded();
  for (u64 i = 0; i < kTables; ++i) CHECK(g.Load(0x100000000 + i * 0x200000) == 2);
  // A few wait for their CR3.
  g.StoreEntry(kSecond | kUsed);
  g.state->cr3 = other;
  g.mmu->AddressSpaceLoaded();
  CHECK(g.counters().table_resyncs == 0);
  g.state->cr3 = M::kRoot;
  g.mmu->AddressSpaceLoaded();
  CHECK(g.counters().table_resyncs == 1);
  CHECK(g.Load(kLinear) == 2);
}

TEST_CASE("dropped: nothing is traced, and only global pages of the kernel outlive CR3",
          "[coherence]") {
  M m(ViewPool::kMaxViews, Coherence::kDropped);
  constexpr u64 kKernel = M::kP | M::kW | M::kA | M::kD, kG = 0x100;
  constexpr u64 kGlobal = 0x40000000, kLocal = 0x40200000, kMixed = 0x40400000;
  m.Map(kGlobal, kFirst, kKernel | kG);
  m.Map(kLocal, kFirst, kKernel);
  m.Map(kMixed, kFirst, kKernel | kG);
  m.Map(kMixed + 0x1000, kFirst, kKernel);
  m.state->cr4 = vcpu::kCr4Smap | vcpu::kCr4Pge;
  m.EnterLongMode();
  const auto load_all = [&] {
    for (u64 at : {kGlobal, kLocal, kMixed, kMixed + 0x1000}) {
      REQUIRE(m.Resolve(at, false) == Resolution::kFilled);
    }
  };
  load_all();
  CHECK(m.memory->Info(PhysAddr(m.EntryAddress(kGlobal)))->flags == 0);
  m.mmu->AddressSpaceLoaded();
  CHECK(m.InRw(m.HostOf(kGlobal)));
  CHECK(m.InGuard(m.HostOf(kLocal)));
  CHECK(m.InGuard(m.HostOf(kMixed)));  // shares its 512 entries with a local one
  load_all();
  m.mmu->InvalidateAll();
  CHECK(m.InGuard(m.HostOf(kGlobal)));
  m.state->cr4 &= ~vcpu::kCr4Pge;
  load_all();
  m.mmu->AddressSpaceLoaded();
  CHECK(m.InGuard(m.HostOf(kGlobal)));
}

TEST_CASE("dropped: INVLPG of any page of a large one takes all of it", "[coherence]") {
  M m(ViewPool::kMaxViews, Coherence::kDropped);
  constexpr u64 kHuge = 0x8000000000;
  *m.Host(m.EntryAddress(kHuge, 3)) = kUsed | M::kPs;
  *m.Host(m.EntryAddress(kLinear, 2)) = kUsed | M::kPs;
  m.EnterLongMode();
  for (u64 distance : {u64{0x1000}, u64{0x200000}, u64{0x3ffff000}}) {
    REQUIRE(m.Resolve(kHuge, false) == Resolution::kFilled);
    REQUIRE(m.Resolve(kLinear, false) == Resolution::kFilled);
    m.mmu->InvalidatePage(LinearAddr(kHuge + distance));
    CHECK(m.InGuard(m.HostOf(kHuge)));
    CHECK_FALSE(m.InGuard(m.HostOf(kLinear)));
  }
}

// The shadow fuzzer found it: 4 MB are two of the view's 512 entries.
TEST_CASE("found: dropped, INVLPG in the other half of a 4 MB page", "[coherence]") {
  M m(ViewPool::kMaxViews, Coherence::kDropped);
  const u32 entry = static_cast<u32>(kUsed | M::kPs);
  const PhysAddr root(0x100000);
  REQUIRE(m.memory->LoadPhys(root + 4, &entry, 4));
  m.Enter32Bit(root.value, false);
  REQUIRE(m.Resolve(0x400000, false) == Resolution::kFilled);
  m.mmu->InvalidatePage(LinearAddr(0x7ff000));
  CHECK(m.InGuard(m.HostOf(0x400000)));
}

TEST_CASE("dropped: the other address space is emptied when it is loaded", "[coherence]") {
  Guest g(Coherence::kDropped);
  const u64 other = g.NewTable();
  g.Map(kLinear, kFirst, kUsed, kUsed, other);
  g.state->cr3 = other;
  g.mmu->AddressSpaceLoaded();
  *g.Host(g.EntryAddress(kLinear)) = kSecond | kUsed;
  CHECK(g.Load(kLinear) == 1);
  g.state->cr3 = M::kRoot;
  g.mmu->AddressSpaceLoaded();
  CHECK(g.Load(kLinear) == 2);
}

}  // namespace
}  // namespace alibi::mmu
