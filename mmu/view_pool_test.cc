// SPDX-License-Identifier: Apache-2.0
// More address spaces than views: whose view goes, and what stands in for it.
#include "mmu/view_pool.h"

#include <catch2/catch.hpp>
#include <set>

#include "mmu/test_machine.h"

namespace alibi::mmu {
namespace {

using M = TestMachine;

constexpr u64 kUser = M::kP | M::kW | M::kU | M::kA | M::kD;
constexpr u64 kKernel = kUser & ~M::kU;
constexpr u64 kProgram = 0x400000, kStack = 0x7fff00000000, kData = 0xffff888000000000;

// Processes under a kernel that knows SMAP and is the same in all of them.
struct Processes : M {
  static constexpr unsigned kMax = 12;
  u64 root[kMax];

  explicit Processes(unsigned max_views, Coherence coherence = Coherence::kEager)
      : M(max_views, coherence) {
    for (unsigned i = 0; i < kMax; ++i) root[i] = NewTable();
    Map(kData, 0x300000, kKernel, kKernel, root[0]);
    for (unsigned i = 0; i < kMax; ++i) {
      *Host(EntryAddress(kData, 4, 0, root[i])) = *Host(EntryAddress(kData, 4, 0, root[0]));
      Map(kProgram, FrameOf(i), kUser, kUser, root[i]);
      Map(kStack, FrameOf(i) + kPageSize, kUser, kUser, root[i]);
    }
    state->cr4 |= vcpu::kCr4Smap;
    EnterLongMode(root[0]);
  }
  static constexpr u64 FrameOf(unsigned process) { return 0x400000 + process * 2 * kPageSize; }

  void Load(unsigned process) {
    SetCpl(0);
    state->cr3 = root[process];
    mmu->AddressSpaceLoaded();
  }
  HostAddr SetAc(bool ac) {
    state->system_flags = ac ? vcpu::kAc : 0;
    mmu->PrivilegeChanged();
    return mmu->gs_base();
  }
  void Touch(u64 linear, u64 frame) {
    if (!InRw(HostOf(linear))) REQUIRE(Resolve(linear, true) == Resolution::kFilled);
    CHECK(HostOf(linear) == memory->rw_base() + frame);
  }
  // What a process does in the kernel, with a copy from and to its memory, and then outside.
  void Turn(unsigned process) {
    Load(process);
    Touch(kData, 0x300000);
    CHECK(InGuard(HostOf(kProgram)));
    SetAc(true);
    Touch(kData, 0x300000);
    Touch(kProgram, FrameOf(process));
    Touch(kStack, FrameOf(process) + kPageSize);
    SetAc(false);
    CHECK(InGuard(HostOf(kProgram)));
    SetCpl(3);
    Touch(kProgram, FrameOf(process));
    CHECK(InGuard(HostOf(kData)));
  }
};

TEST_CASE("with room for it a root has an open view of its own", "[view_pool]") {
  Processes m(ViewPool::kMaxViews);
  for (unsigned i = 0; i < Processes::kMax; ++i) m.Turn(i);
  const Counters before = m.mmu->counters();
  std::set<HostAddr> open;
  for (unsigned i = 0; i < Processes::kMax; ++i) {
    m.Turn(i);
    m.SetCpl(0);
    open.insert(m.SetAc(true));
    m.SetAc(false);
  }
  CHECK(open.size() == Processes::kMax);
  CHECK(m.mmu->counters().entries_filled == before.entries_filled);
  CHECK(m.mmu->counters().range_poisons == before.range_poisons);
}

TEST_CASE("without room for it the group's open view serves all", "[view_pool]") {
  const Coherence coherence =
      GENERATE(Coherence::kEager, Coherence::kDeferred, Coherence::kDropped);
  // The kernel's, the group's open one, a user view per process.
  Processes m(2 + Processes::kMax, coherence);
  for (unsigned round = 0; round < 3; ++round) {
    for (unsigned i = 0; i < Processes::kMax; ++i) m.Turn(i);
  }
  const Counters before = m.mmu->counters();
  std::set<HostAddr> open;
  for (unsigned i = 0; i < Processes::kMax; ++i) {
    m.Turn(i);
    m.Load(i);
    const HostAddr closed = m.mmu->gs_base();
    open.insert(m.SetAc(true));
    // STAC and CLAC find their way, and the last process's pages are not this one's.
    const HostAddr gs_base = m.mmu->gs_base();
    CHECK(SmapPeerOf(closed).no_stac == 0);
    CHECK(SmapPeerOf(closed).gs_base == gs_base);
    CHECK(SmapPeerOf(gs_base).no_clac == 0);
    CHECK(SmapPeerOf(gs_base).gs_base == closed);
    m.Load((i + 1) % Processes::kMax);
    CHECK_FALSE(m.InRw(m.HostOf(kProgram)));
    m.SetAc(false);
  }
  CHECK(open.size() == 1);
  CHECK(m.mmu->counters().view_recycles == before.view_recycles);
  if (coherence == Coherence::kEager) {
    // Of the kernel nothing is filled again.
    CHECK(m.mmu->counters().entries_filled - before.entries_filled <= 3 * Processes::kMax);
  }
}

TEST_CASE("a view whose address space has gone is taken first", "[view_pool]") {
  Processes m(6);
  // A kernel's and an open one of the root; user views of four processes.
  m.Load(0);
  m.Touch(kData, 0x300000);
  m.SetAc(true);
  m.Touch(kProgram, Processes::FrameOf(0));
  m.SetAc(false);
  HostAddr user[4];
  for (unsigned i = 0; i < 4; ++i) {
    m.Load(i);
    m.SetCpl(3);
    m.Touch(kProgram, Processes::FrameOf(i));
    user[i] = m.mmu->gs_base();
  }
  REQUIRE(m.mmu->views().count() == 6);
  // Process 2 ends: its root's entries go.
  const u64 nothing = 0;
  m.memory->WritePhys(PhysAddr(m.EntryAddress(kProgram, 4, 0, m.root[2])), &nothing, 8);
  m.memory->WritePhys(PhysAddr(m.root[2]), std::vector<u64>(512).data(), kPageSize);
  m.Load(4);
  m.SetCpl(3);
  CHECK(m.mmu->gs_base() == user[2]);
  m.Touch(kProgram, Processes::FrameOf(4));
  // Then the open one, then any.
  m.Load(5);
  m.SetCpl(3);
  m.Touch(kProgram, Processes::FrameOf(5));
  m.Load(0);
  m.SetCpl(3);
  CHECK(m.mmu->gs_base() == user[0]);
  CHECK(m.InRw(m.HostOf(kProgram)));
}

TEST_CASE("that a program has ended is known from its page tables", "[view_pool]") {
  Processes m(ViewPool::kMaxViews);
  const View* view[2];
  for (unsigned i = 0; i < 2; ++i) {
    m.Load(i);
    m.SetCpl(3);
    m.Touch(kProgram, Processes::FrameOf(i));
    m.Touch(kStack, Processes::FrameOf(i) + kPageSize);
    view[i] = &m.mmu->current_view();
  }
  const u32 before = m.mmu->EndingsOf(*view[1]);
  // It gives a page back, and then one of its tables.
  const auto clear = [&](u64 linear, unsigned level) {
    const u64 nothing = 0;
    m.memory->WritePhys(PhysAddr(m.EntryAddress(linear, level, 0, m.root[1])), &nothing, 8);
  };
  clear(kStack, 1);
  clear(kStack, 2);
  CHECK(m.mmu->EndingsOf(*view[1]) == before);
  clear(kStack, 4);
  CHECK(m.mmu->EndingsOf(*view[1]) == before);
  clear(kProgram, 4);
  const u32 ended = m.mmu->EndingsOf(*view[1]);
  CHECK(ended != before);
  CHECK(m.mmu->EndingsOf(*view[0]) == 0);
  // The next program there.
  m.Load(1);
  m.SetCpl(3);
  CHECK(&m.mmu->current_view() == view[1]);
  CHECK(m.mmu->EndingsOf(*view[1]) == ended);
}

TEST_CASE("processes that take turns do not all lose their views", "[view_pool]") {
  constexpr unsigned kViews = Processes::kMax;  // a few less than are wanted
  Processes m(kViews);
  constexpr unsigned kRounds = 100;
  for (unsigned round = 0; round < kRounds; ++round) {
    for (unsigned i = 0; i < Processes::kMax; ++i) m.Turn(i);
  }
  CHECK(m.mmu->views().count() == kViews);
  // The oldest view would have been the next process's each time.
  CHECK(m.mmu->counters().view_recycles < kRounds * Processes::kMax / 2);
}

}  // namespace
}  // namespace alibi::mmu
