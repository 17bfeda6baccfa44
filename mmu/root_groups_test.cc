// SPDX-License-Identifier: Apache-2.0
// Groups of roots: which root joins which, and what alternating roots cost.
#include "mmu/root_groups.h"

#include <catch2/catch.hpp>

#include "mmu/test_machine.h"

namespace alibi::mmu {
namespace {

using M = TestMachine;
using Fit = RootGroups::Fit;

constexpr u64 kUsed = M::kP | M::kW | M::kU | M::kA | M::kD;
constexpr u64 kKernel = kUsed & ~M::kU;

TEST_CASE("a root joins the group that loses nothing by it", "[root_groups]") {
  RootGroups groups;
  const Fit none[RootGroups::kMax] = {};
  CHECK(groups.Choose(none) == 0);
  groups.Run(0, 0x1000);
  CHECK(groups.GroupOf(0x1000) == 0);
  CHECK(groups.GroupOf(0x2000) == RootGroups::kMax);
  const Fit conflict[RootGroups::kMax] = {{1, 4}};
  REQUIRE(groups.Choose(conflict) == 1);
  groups.Run(1, 0x2000);
  CHECK(groups.GroupOf(0x1000) == 0);
  CHECK(groups.GroupOf(0x2000) == 1);
  const Fit like_first[RootGroups::kMax] = {{5, 0}, {1, 1}};
  CHECK(groups.Choose(like_first) == 0);
  const Fit like_second[RootGroups::kMax] = {{1, 4}, {2, 0}};
  CHECK(groups.Choose(like_second) == 1);
  // One that keeps more, at a price, is no better than one without a price.
  const Fit cheaper[RootGroups::kMax] = {{20, 1}, {2, 0}};
  CHECK(groups.Choose(cheaper) == 1);
  groups.ForgetRoots();
  CHECK(groups.GroupOf(0x1000) == RootGroups::kMax);
}

TEST_CASE("a group of its own is due when as much was lost as it costs", "[root_groups]") {
  RootGroups groups;
  const Fit small_loss[RootGroups::kMax] = {{4, 1}};
  for (unsigned i = 0; i < 4; ++i) CHECK(groups.Choose(small_loss) == 0);
  CHECK(groups.Choose(small_loss) == 1);
}

TEST_CASE("beyond the last group the one unused for longest is taken", "[root_groups]") {
  RootGroups groups;
  groups.Run(0, 0x1000);
  Fit all_lose[RootGroups::kMax];
  for (Fit& fit : all_lose) fit = {0, 1};
  for (unsigned i = 1; i < RootGroups::kMax; ++i) {
    REQUIRE(groups.Choose(all_lose) == i);
    groups.Run(i, 0x1000 + i * kPageSize);
  }
  for (unsigned i = 0; i < 2 * RootGroups::kMax; ++i) {
    REQUIRE(groups.Choose(all_lose) == i % RootGroups::kMax);
    groups.Run(i % RootGroups::kMax, 0x100000 + i * kPageSize);
  }
}

// A kernel that isolates itself: per process one root that maps it, and one that maps its entry
// code only.
struct Isolated : M {
  static constexpr u64 kEntryCode = 0xfffffe0000000000, kData = 0xffff888000000000,
                       kText = 0xffffffff81000000, kProgram = 0x400000;
  static constexpr unsigned kProcesses = 3;
  u64 kernel_root[kProcesses], user_root[kProcesses];

  explicit Isolated(Coherence coherence = Coherence::kEager,
                    unsigned max_views = ViewPool::kMaxViews)
      : M(max_views, coherence) {
    for (unsigned i = 0; i < kProcesses; ++i) {
      kernel_root[i] = NewTable();
      user_root[i] = NewTable();
    }
    Map(kEntryCode, 0x300000, kKernel, kUsed, kernel_root[0]);
    Map(kText, 0x301000, kKernel, kUsed, kernel_root[0]);
    for (u64 i = 0; i < 4; ++i) {
      Map(kData + (i << 39), 0x302000 + i * kPageSize, kKernel, kUsed, kernel_root[0]);
    }
    // The entry code's own tables in the user root, with less in them; its data's are shared.
    Map(kText, 0x301000, kKernel, kUsed, user_root[0]);
    CopyEntry(kEntryCode, kernel_root[0], user_root[0]);
    for (unsigned i = 0; i < kProcesses; ++i) {
      for (u64 slot = 256; slot < 512; ++slot) {
        Host(kernel_root[i])[slot] = Host(kernel_root[0])[slot];
        Host(user_root[i])[slot] = Host(user_root[0])[slot];
      }
      Map(kProgram, 0x400000 + i * kPageSize, kUsed, kUsed, user_root[i]);
      CopyEntry(kProgram, user_root[i], kernel_root[i]);
    }
    state->cr4 |= vcpu::kCr4Smap;
    EnterLongMode(kernel_root[0]);
  }
  void CopyEntry(u64 linear, u64 from, u64 to) {
    *Host(EntryAddress(linear, 4, 0, to)) = *Host(EntryAddress(linear, 4, 0, from));
  }
  HostAddr Load(u64 root) {
    state->cr3 = root;
    mmu->AddressSpaceLoaded();
    return mmu->gs_base();
  }
  void Touch(u64 linear) {
    if (!InRo(HostOf(linear)) && !InRw(HostOf(linear))) {
      CHECK(Resolve(linear, false) == Resolution::kFilled);
    }
  }
  // From user mode into the kernel, and back.
  void Round(unsigned process) {
    SetCpl(3);
    Touch(kProgram);
    SetCpl(0);
    Touch(kEntryCode);
    Touch(kText);
    Load(kernel_root[process]);
    Touch(kText);
    for (u64 i = 0; i < 4; ++i) Touch(kData + (i << 39));
    Load(user_root[process]);
    Touch(kEntryCode);
    Touch(kText);
  }
};

TEST_CASE("two roots that alternate keep their views", "[root_groups]") {
  const Coherence coherence = GENERATE(Coherence::kEager, Coherence::kDeferred);
  Isolated m(coherence);
  m.Load(m.user_root[0]);
  for (unsigned i = 0; i < 3; ++i) m.Round(0);
  const Counters before = m.mmu->counters();
  for (unsigned i = 0; i < 1000; ++i) m.Round(0);
  const Counters& after = m.mmu->counters();
  CHECK(after.entries_filled == before.entries_filled);
  CHECK(after.leaf_fills == before.leaf_fills);
  CHECK(after.hidden_faults == before.hidden_faults);
  CHECK(after.range_poisons == before.range_poisons);
  CHECK(after.inline_tlb_clears == before.inline_tlb_clears);
  CHECK(after.jump_page_resets == before.jump_page_resets);
  CHECK(after.root_follows == before.root_follows);
  CHECK(after.root_groups == 1);
}

TEST_CASE("processes share the kernel's two views", "[root_groups]") {
  Isolated m;
  m.Load(m.user_root[0]);
  for (unsigned i = 0; i < 3; ++i) m.Round(0);
  const HostAddr kernel = m.Load(m.kernel_root[0]);
  const HostAddr entry = m.Load(m.user_root[0]);
  CHECK(kernel != entry);
  const u64 filled = m.mmu->counters().entries_filled;
  const u64 poisons = m.mmu->counters().range_poisons;
  for (unsigned i = 0; i < 30; ++i) {
    const unsigned process = i % Isolated::kProcesses;
    // As kernels do it: to the other kernel root first, from there to its user root.
    m.Load(m.kernel_root[(process + 2) % Isolated::kProcesses]);
    CHECK(m.Load(m.kernel_root[process]) == kernel);
    CHECK(m.Load(m.user_root[process]) == entry);
    m.Round(process);
    m.SetCpl(3);
    m.Touch(Isolated::kProgram);
    CHECK(m.InRw(m.HostOf(Isolated::kProgram)));
    CHECK(m.HostOf(Isolated::kProgram) == m.memory->rw_base() + 0x400000 + process * kPageSize);
    m.SetCpl(0);
  }
  CHECK(m.mmu->counters().range_poisons == poisons);
  CHECK(m.mmu->counters().root_groups == 1);
  // The other processes' programs, and nothing of the kernel.
  CHECK(m.mmu->counters().entries_filled == filled + Isolated::kProcesses - 1);
}

TEST_CASE("what a root of the other group maps changes", "[root_groups]") {
  Isolated m;
  m.Load(m.user_root[0]);
  for (unsigned i = 0; i < 3; ++i) m.Round(0);
  const u64 nothing = 0;
  const auto clear = [&](u64 root, u64 linear) {
    m.memory->WritePhys(PhysAddr(root + (linear >> 39 & 511) * 8), &nothing, 8);
  };
  SECTION("an entry that its views were filled through") {
    m.Load(m.user_root[0]);
    clear(m.kernel_root[0], Isolated::kData);
    m.Load(m.kernel_root[0]);
    CHECK(m.InGuard(m.HostOf(Isolated::kData)));
    CHECK(m.Resolve(Isolated::kData, false) == Resolution::kGuestFault);
    CHECK(m.InRw(m.HostOf(Isolated::kText)));
  }
  SECTION("a table that hangs below it") {
    m.Load(m.user_root[0]);
    const u64 entry = 0x310000 | kKernel;
    m.memory->WritePhys(PhysAddr(m.EntryAddress(Isolated::kData, 1, 0, m.kernel_root[0])), &entry,
                        8);
    m.Load(m.kernel_root[0]);
    CHECK(m.HostOf(Isolated::kData) == m.memory->rw_base() + 0x310000);
  }
  SECTION("one that they never used") {
    const u64 poisons = m.mmu->counters().range_poisons;
    clear(m.kernel_root[0], Isolated::kProgram);
    m.Load(m.kernel_root[0]);
    clear(m.kernel_root[0], Isolated::kProgram + (u64{1} << 39));
    CHECK(m.mmu->counters().range_poisons == poisons);
  }
  SECTION("the root becomes data") {
    m.Load(m.user_root[0]);
    const std::vector<u64> page(512, ~u64{0});
    m.memory->WritePhys(PhysAddr(m.kernel_root[0]), page.data(), kPageSize);
    CHECK(m.memory->Info(PhysAddr(m.kernel_root[0]))->flags == 0);
    CHECK(m.InRw(m.HostOf(Isolated::kText)));
    m.Load(m.kernel_root[1]);
    m.Touch(Isolated::kData);
    CHECK(m.InRw(m.HostOf(Isolated::kData)));
  }
}

TEST_CASE("SYSCALL and SYSRET stay on the user root, STAC and CLAC on the kernel's",
          "[root_groups]") {
  Isolated m;
  m.Load(m.user_root[0]);
  for (unsigned i = 0; i < 3; ++i) m.Round(0);
  const HostAddr entry = m.mmu->gs_base();
  m.SetCpl(3);
  const HostAddr user = m.mmu->gs_base();
  m.SetCpl(0);
  const HostAddr kernel = m.Load(m.kernel_root[0]);
  CHECK(PeerOf(kernel).missing != 0);
  m.state->system_flags |= vcpu::kAc;
  m.mmu->PrivilegeChanged();
  const HostAddr open = m.mmu->gs_base();
  m.state->system_flags &= ~u64{vcpu::kAc};
  m.mmu->PrivilegeChanged();
  for (unsigned i = 0; i < 3; ++i) {
    CHECK(m.Load(m.user_root[0]) == entry);
    CHECK(PeerOf(entry).missing == 0);
    CHECK(PeerOf(entry).gs_base == HostAddr(user));
    CHECK(PeerOf(user).missing == 0);
    CHECK(PeerOf(user).gs_base == HostAddr(entry));
    CHECK(SmapPeerOf(entry).no_stac != 0);
    CHECK(m.Load(m.kernel_root[0]) == kernel);
    CHECK(PeerOf(kernel).missing != 0);
    CHECK(SmapPeerOf(kernel).no_stac == 0);
    CHECK(SmapPeerOf(kernel).gs_base == HostAddr(open));
    CHECK(SmapPeerOf(open).gs_base == kernel);
  }
  SECTION("the next process has its own") {
    m.Load(m.kernel_root[1]);
    CHECK(m.mmu->gs_base() == kernel);
    CHECK(SmapPeerOf(kernel).no_stac != 0);
    CHECK(m.Load(m.user_root[1]) == entry);
    CHECK(PeerOf(entry).missing != 0);
  }
  SECTION("a user view that another user view leads to has none") {
    m.Load(m.user_root[1]);
    m.SetCpl(3);
    REQUIRE(PeerOf(m.mmu->gs_base()).missing == 0);
    m.Load(m.user_root[0]);  // the VMM's doing
    CHECK(m.mmu->gs_base() == HostAddr(user));
    CHECK(PeerOf(user).missing != 0);
  }
  SECTION("an open view that another open view leads to has none") {
    m.state->system_flags |= vcpu::kAc;
    m.Load(m.kernel_root[1]);
    m.mmu->PrivilegeChanged();
    CHECK(m.Load(m.kernel_root[0]) == open);
    CHECK(SmapPeerOf(open).no_clac != 0);
  }
}

// What emitted code does with the operand of MOV to CR3 (mask has no gaps but at bit 63).
bool Fits(const RootPeer& peer, u64 operand) { return (operand & peer.mask) + peer.negated == 0; }

TEST_CASE("MOV to CR3 stays in translated code where a root has its view", "[root_groups]") {
  Isolated m;
  m.Load(m.user_root[0]);
  for (unsigned i = 0; i < 3; ++i) m.Round(0);
  const HostAddr kernel = m.Load(m.kernel_root[0]);
  const HostAddr entry = m.Load(m.user_root[0]);
  CHECK(RootPeerOf(kernel).gs_base == HostAddr(entry));
  CHECK(RootPeerOf(kernel).cr3 == m.user_root[0]);
  CHECK(Fits(RootPeerOf(kernel), m.user_root[0]));
  CHECK_FALSE(Fits(RootPeerOf(kernel), m.user_root[0] | u64{1} << 63));
  CHECK_FALSE(Fits(RootPeerOf(kernel), m.user_root[1]));
  CHECK(RootPeerOf(entry).gs_base == kernel);
  CHECK(Fits(RootPeerOf(entry), m.kernel_root[0]));

  SECTION("the VMM notices") {
    m.SetCpl(3);
    const HostAddr user = m.mmu->gs_base();
    // SYSCALL and MOV to CR3, then a callout.
    m.state->cpl = 0;
    m.state->cr3 = m.kernel_root[0];
    m.mmu->ViewEntered(kernel);
    CHECK(m.mmu->gs_base() == kernel);
    CHECK(m.InRw(m.HostOf(Isolated::kData)));
    CHECK(m.mmu->current_view().context().root.value == m.kernel_root[0]);
    m.state->system_flags |= vcpu::kAc;
    m.mmu->PrivilegeChanged();
    CHECK(m.mmu->current_view().context().root.value == m.kernel_root[0]);
    m.Touch(Isolated::kProgram);
    m.state->system_flags &= ~u64{vcpu::kAc};
    m.mmu->PrivilegeChanged();
    // The way back.
    m.state->cr3 = m.user_root[0];
    m.state->cpl = 3;
    m.mmu->ViewEntered(HostAddr(user));
    CHECK(m.mmu->gs_base() == HostAddr(user));
    CHECK(PeerOf(user).missing == 0);
    CHECK(PeerOf(user).gs_base == HostAddr(entry));
    CHECK(PeerOf(entry).gs_base == HostAddr(user));
  }
  SECTION("a view that follows another root is nobody's any more") {
    m.Load(m.kernel_root[0]);
    m.Load(m.kernel_root[1]);
    CHECK(RootPeerOf(entry).mask == 0);
    CHECK_FALSE(Fits(RootPeerOf(entry), m.kernel_root[0]));
    CHECK_FALSE(Fits(RootPeerOf(entry), 0));
    CHECK(RootPeerOf(kernel).gs_base == kernel);
    CHECK(RootPeerOf(kernel).cr3 == m.kernel_root[1]);
  }
  SECTION("with PCIDs the no-flush bit does not count; CR4.PCIDE decides") {
    m.state->cr4 |= vcpu::kCr4Pcide;
    m.mmu->InvalidateAll();
    m.Load(m.kernel_root[0] | 1);
    m.Load(m.user_root[0] | 0x801);
    m.Load(m.kernel_root[0] | 1);
    CHECK(Fits(RootPeerOf(entry), m.kernel_root[0] | 1));
    CHECK(Fits(RootPeerOf(entry), m.kernel_root[0] | 1 | u64{1} << 63));
    CHECK_FALSE(Fits(RootPeerOf(entry), m.kernel_root[0] | 2));
    m.state->cr4 &= ~u64{vcpu::kCr4Pcide};
    m.mmu->InvalidateAll();
    CHECK(RootPeerOf(entry).mask == 0);
    CHECK(RootPeerOf(kernel).mask == 0);
  }
}

TEST_CASE("a group's view that is taken for another address space is nobody's", "[root_groups]") {
  Isolated m(Coherence::kEager, 3);
  m.Load(m.user_root[0]);
  for (unsigned i = 0; i < 3; ++i) m.Round(0);
  const HostAddr kernel = m.Load(m.kernel_root[0]);
  const HostAddr entry = m.Load(m.user_root[0]);
  REQUIRE(RootPeerOf(entry).gs_base == kernel);
  REQUIRE(RootPeerOf(kernel).gs_base == entry);
  m.SetCpl(3);
  // All three views have tables: the group's that ran longer ago must go.
  CHECK(m.Load(m.user_root[1]) == kernel);
  CHECK(m.mmu->current_view().user());
  CHECK(RootPeerOf(entry).mask == 0);
  CHECK(RootPeerOf(kernel).mask == 0);
}

TEST_CASE("where loads of CR3 flush, translated code does not load it", "[root_groups]") {
  Isolated m(Coherence::kDropped);
  m.Load(m.user_root[0]);
  for (unsigned i = 0; i < 3; ++i) m.Round(0);
  for (unsigned i = 0; i < m.mmu->views().count(); ++i) {
    CHECK(RootPeerOf(m.mmu->views()[i].gs_base()).mask == 0);
  }
}

TEST_CASE("deferred: translated code loads CR3 as long as there is nothing to flush",
          "[root_groups]") {
  Isolated m(Coherence::kDeferred);
  m.Load(m.user_root[0]);
  for (unsigned i = 0; i < 3; ++i) m.Round(0);
  const auto linked = [&] {
    unsigned count = 0;
    for (unsigned i = 0; i < m.mmu->views().count(); ++i) {
      count += RootPeerOf(m.mmu->views()[i].gs_base()).mask != 0;
    }
    return count;
  };
  CHECK(linked() == 2);
  // A leaf table is let go, though of the other root alone.
  constexpr u64 kWindow = Isolated::kData + 0x10000;
  m.Map(kWindow, m.EntryAddress(Isolated::kText, 1, kUsed, m.user_root[0]) & ~kPageMask, kKernel,
        kUsed, m.kernel_root[0]);
  m.Load(m.kernel_root[0]);
  REQUIRE(linked() != 0);
  const u64 releases = m.mmu->counters().table_releases;
  REQUIRE(m.Resolve(kWindow, true) == Resolution::kFilled);
  CHECK(m.mmu->counters().table_releases == releases + 1);
  CHECK(linked() == 0);
  // The loads that follow flush, and link again what has nothing to flush any more.
  m.Load(m.user_root[0]);
  CHECK(m.mmu->counters().table_resyncs == 1);
  m.Load(m.kernel_root[0]);
  m.Load(m.user_root[0]);
  CHECK(linked() == 2);
}

TEST_CASE("page tables of a program count as running while its kernel has its own root",
          "[root_groups]") {
  Isolated m;
  m.Load(m.user_root[0]);
  for (unsigned i = 0; i < 3; ++i) m.Round(0);
  m.Load(m.kernel_root[0]);
  const u64 leaf = m.EntryAddress(Isolated::kProgram, 1, 0, m.user_root[0]) & ~kPageMask;
  REQUIRE(m.memory->Info(PhysAddr(leaf))->flags == kPageTableTrace);
  for (u64 i = 0; i < 1000; ++i) {
    const u64 entry = (0x500000 + i % 8 * kPageSize) | kUsed;
    m.memory->WritePhys(PhysAddr(leaf + 511 * 8), &entry, 8);
  }
  CHECK(m.mmu->counters().table_drops == 0);
  m.Load(m.user_root[0]);
  m.SetCpl(3);
  CHECK(m.HostOf(Isolated::kProgram + 511 * kPageSize) ==
        m.memory->rw_base() + 0x500000 + 999 % 8 * kPageSize);
}

TEST_CASE("more roots that differ than groups: bounded, and right", "[root_groups]") {
  M m;
  constexpr u64 kShared = 0xffff800000000000, kOwn = kShared + (u64{1} << 39);
  constexpr unsigned kRoots = 3 * RootGroups::kMax;
  m.state->cr4 |= vcpu::kCr4Smap;
  m.Map(kShared, 0x300000, kKernel);
  std::vector<u64> roots;
  for (u64 i = 0; i < kRoots; ++i) {
    roots.push_back(m.NewTable());
    m.Host(roots[i])[256] = m.Host(M::kRoot)[256];
    m.Map(kOwn, 0x400000 + i * kPageSize, kKernel, kUsed, roots[i]);
  }
  m.EnterLongMode(roots[0]);
  for (unsigned round = 0; round < 5; ++round) {
    for (u64 i = 0; i < kRoots; ++i) {
      m.state->cr3 = roots[i];
      m.mmu->AddressSpaceLoaded();
      for (u64 linear : {kShared, kOwn}) {
        if (!m.InRw(m.HostOf(linear))) {
          REQUIRE(m.Resolve(linear, true) == Resolution::kFilled);
        }
      }
      CHECK(m.HostOf(kShared) == m.memory->rw_base() + 0x300000);
      CHECK(m.HostOf(kOwn) == m.memory->rw_base() + 0x400000 + i * kPageSize);
    }
  }
  CHECK(m.mmu->counters().root_groups == RootGroups::kMax - 1);
  CHECK(m.mmu->views().count() <= RootGroups::kMax + 1);
}

TEST_CASE("PAE: page-directory pointers that alternate keep their views", "[root_groups]") {
  M m;
  constexpr u64 kLinear = 0xc0000000, kLow = 0x40000000;
  constexpr u64 kRoots[] = {0x100000, 0x101020};
  u64 tables[2];
  for (unsigned i = 0; i < 2; ++i) {
    for (unsigned slot : {1u, 3u}) {
      const u64 directory = m.NewTable(), leaf = m.NewTable();
      m.Host(kRoots[i])[slot] = directory | M::kP;
      *m.Host(directory) = leaf | kUsed;
      *m.Host(leaf) = (0x300000 + i * 0x10000 + slot * kPageSize) | kKernel;
      if (slot == 3) tables[i] = leaf;
    }
  }
  m.state->cr4 = vcpu::kCr4Pae | vcpu::kCr4Smap;
  m.state->cr0 = vcpu::kCr0Pe | vcpu::kCr0Pg | vcpu::kCr0Wp;
  m.state->efer = vcpu::kEferNxe;
  m.state->segment[vcpu::kCs].attributes = 0x409b;
  const auto load = [&](unsigned i) {
    REQUIRE(m.mmu->LoadPdptes(kRoots[i]));
    m.state->cr3 = kRoots[i];
    m.mmu->AddressSpaceLoaded();
  };
  m.state->cr3 = kRoots[0];
  m.mmu->PagingModeChanged();
  const auto touch_all = [&](unsigned rounds) {
    for (unsigned round = 0; round < rounds; ++round) {
      for (unsigned i = 0; i < 2; ++i) {
        load(i);
        for (u64 linear : {kLinear, kLow}) {
          if (!m.InRw(m.HostOf(linear))) {
            REQUIRE(m.Resolve(linear, true) == Resolution::kFilled);
          }
          CHECK(m.HostOf(linear) ==
                m.memory->rw_base() + 0x300000 + i * 0x10000 + (linear >> 30) * kPageSize);
        }
      }
    }
  };
  touch_all(4);
  const u64 filled = m.mmu->counters().entries_filled;
  const u64 poisons = m.mmu->counters().range_poisons;
  touch_all(100);
  CHECK(m.mmu->counters().entries_filled == filled);
  CHECK(m.mmu->counters().range_poisons == poisons);
  // Other pointers at the same root.
  m.Host(kRoots[0])[3] = m.Host(kRoots[1])[3];
  load(1);
  load(0);
  CHECK(m.InGuard(m.HostOf(kLinear)));
  CHECK(m.InRw(m.HostOf(kLow)));
  REQUIRE(m.Resolve(kLinear, false) == Resolution::kFilled);
  CHECK(m.HostOf(kLinear) == m.memory->rw_base() + 0x313000);
  CHECK(tables[0] != tables[1]);
}

}  // namespace
}  // namespace alibi::mmu
