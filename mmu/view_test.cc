// SPDX-License-Identifier: Apache-2.0
#include "mmu/view.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "mmu/test_machine.h"

namespace alibi::mmu {
namespace {

using M = TestMachine;

constexpr u64 kEmpty = InlineTlbEntry::Empty().neg_page;

const InlineTlbEntry* Slots(const View& view) {
  return (view.gs_base() + kSlotsOffset).As<const InlineTlbEntry>();
}
const HostAddr* Jumps(const View& view) {
  return (view.gs_base() + kJumpTableOffset).As<const HostAddr>();
}
HostAddr Default() { return HostAddr(&M::kDefaultJump); }

TEST_CASE("layout: the VCPU block is the same memory in front of every view", "[view]") {
  M m;
  const HostAddr first = m.mmu->gs_base();
  m.EnterLongMode();
  const HostAddr second = m.mmu->gs_base();
  REQUIRE(first != second);
  m.state->gpr[10] = 0x1234567;
  for (const HostAddr base : {first, second}) {
    CHECK((base + kVcpuOffset).As<vcpu::VcpuState>()->gpr[10] == 0x1234567);
  }
  CHECK(HostAddr(m.state->ram_window[0]) == m.memory->ro_base());
  CHECK(m.state->ram_window_size[0] == 2 * m.memory->capacity());
  CHECK(HostAddr(m.state->ram_window[1]) == m.memory->rw_base());
}

TEST_CASE("a fresh view: empty slots, default jumps, no accessible chunk", "[view]") {
  M m;
  const View& view = m.mmu->current_view();
  for (int i = 0; i < 2 * kSlotCount; ++i) {
    REQUIRE(Slots(view)[i].neg_page == kEmpty);
  }
  for (int i = 0; i < kJumpTableEntries; ++i) REQUIRE(Jumps(view)[i] == Default());
  CHECK(view.chunk_count() == 0);
}

TEST_CASE("poison leads every page into the guard", "[view]") {
  M m;
  View& view = m.mmu->current_view();
  for (u64 index : {u64{0}, u64{1}, (u64{1} << 35) - 1, u64{1} << 35, kShadowEntries - 1}) {
    CHECK(view.HostOf(PageOfIndex(index)) == m.memory->guard());
    REQUIRE(view.EnsureChunk(index));
    const u64 chunk = index & ~(View::kChunkEntries - 1);
    const u64* table = view.gs_base().As<const u64>();
    for (u64 i = chunk; i < chunk + View::kChunkEntries; ++i) {
      REQUIRE(table[i] + PageOfIndex(i).value == m.memory->guard().value);
    }
  }
  CHECK(PageOfIndex(u64{1} << 35) == LinearAddr(0xffff800000000000));
  CHECK(EntryIndex(LinearAddr(~u64{0})) == kShadowEntries - 1);
}

TEST_CASE("ranges are poisoned exactly, across chunks and far apart", "[view]") {
  M m;
  View& view = m.mmu->current_view();
  const u64 indices[] = {0, 4095, 4096, 4097, 100000, u64{1} << 20, (u64{1} << 30) + 5};
  auto set_all = [&] {
    for (u64 index : indices) {
      REQUIRE(view.EnsureChunk(index));
      view.SetEntry(index, m.memory->ro_base().value - PageOfIndex(index).value);
    }
  };
  auto is_set = [&](u64 index) { return view.Entry(index) != view.Poison(index); };
  const u64 firsts[] = {0, 1, 4096, 4097, 99999, u64{1} << 20};
  const u64 counts[] = {1, 2, 4096, 100000, u64{1} << 21, u64{1} << 31, u64{1} << 35};
  for (u64 first : firsts) {
    for (u64 count : counts) {
      set_all();
      view.PoisonRange(first, count);
      for (u64 index : indices) {
        INFO(first << ' ' << count << ' ' << index);
        CHECK(is_set(index) == (index < first || index - first >= count));
      }
    }
  }
}

TEST_CASE("slots: only those of the changed page are cleared", "[view]") {
  M m;
  View& view = m.mmu->current_view();
  const u64 a = 0x5000, b = 0x5000 + 64 * kPageSize;  // share a filter bit
  for (u64 page : {a, b}) {
    REQUIRE(view.EnsureChunk(page >> 12));
    view.SetEntry(page >> 12, m.memory->rw_base().value);
  }
  view.FillSlot(0, 3, LinearAddr(a), 1);
  view.FillSlot(1, 127, LinearAddr(a), 2);
  view.FillSlot(1, 64, LinearAddr(b), 3);
  view.SetEntry(a >> 12, m.memory->ro_base().value);
  CHECK(Slots(view)[3].neg_page == kEmpty);
  CHECK(Slots(view)[kSlotCount + 127].neg_page == kEmpty);
  CHECK(Slots(view)[kSlotCount + 64].neg_page == 0 - b);
  view.SetEntry(b >> 12, m.memory->ro_base().value);
  CHECK(Slots(view)[kSlotCount + 64].neg_page == kEmpty);
  CHECK(m.mmu->counters().inline_tlb_clears == 3);
}

TEST_CASE("slots: those of a poisoned range are cleared, the directory knows the others",
          "[view]") {
  M m;
  View& view = m.mmu->current_view();
  const u64 a = 0x5000, b = a + SlotDirectory::kResidues * kPageSize, c = 0x7000;
  for (u64 page : {a, b, c}) {
    REQUIRE(view.EnsureChunk(page >> 12));
    view.SetEntry(page >> 12, m.memory->rw_base().value);
  }
  view.FillSlot(0, 3, LinearAddr(a), 1);
  view.FillSlot(1, 127, LinearAddr(b), 2);
  view.FillSlot(1, 64, LinearAddr(c), 3);
  view.PoisonRange(a >> 12, 1);
  CHECK(Slots(view)[3].neg_page == kEmpty);
  CHECK(Slots(view)[kSlotCount + 127].neg_page == 0 - b);
  CHECK(Slots(view)[kSlotCount + 64].neg_page == 0 - c);
  view.SetEntry(b >> 12, m.memory->ro_base().value);
  CHECK(Slots(view)[kSlotCount + 127].neg_page == kEmpty);
  CHECK(Slots(view)[kSlotCount + 64].neg_page == 0 - c);
}

TEST_CASE("slots: of those that look alike the right ones are cleared and counted", "[view]") {
  M m;
  View& view = m.mmu->current_view();
  constexpr u64 kAlike = SlotDirectory::kResidues * kPageSize;  // the same residue, the same tag
  constexpr u64 kTag = 128 * kPageSize;                         // the same tag alone
  const u64 page = 0x5000;
  for (u64 other : {page, page + kAlike, page + 2 * kAlike, page + kTag, page + kPageSize}) {
    REQUIRE(view.EnsureChunk(other >> 12));
    view.SetEntry(other >> 12, m.memory->rw_base().value);
  }
  // Neighbours in the directory, so that a search by eights sees them together.
  view.FillSlot(0, 0, LinearAddr(page), 1);
  view.FillSlot(0, 1, LinearAddr(page + kPageSize), 2);
  view.FillSlot(0, 2, LinearAddr(page + kTag), 3);
  view.FillSlot(0, 3, LinearAddr(page + kAlike), 4);
  view.FillSlot(0, 4, LinearAddr(page), 5);
  view.FillSlot(1, 7, LinearAddr(page + 2 * kAlike), 6);
  const auto filled = [&](unsigned slot) { return Slots(view)[slot].neg_page != kEmpty; };
  view.SetEntry(page >> 12, m.memory->ro_base().value);
  for (const unsigned slot : {0u, 4u}) CHECK_FALSE(filled(slot));
  for (const unsigned slot : {1u, 2u, 3u, kSlotCount + 7u}) CHECK(filled(slot));
  // Two of that residue are left, and are found.
  view.SetEntry((page + kAlike) >> 12, m.memory->ro_base().value);
  CHECK_FALSE(filled(3));
  view.SetEntry((page + 2 * kAlike) >> 12, m.memory->ro_base().value);
  CHECK_FALSE(filled(kSlotCount + 7));
  for (const unsigned slot : {1u, 2u}) CHECK(filled(slot));
  CHECK(m.mmu->counters().inline_tlb_clears == 4);
}

TEST_CASE("a jump page: its entries and those of the 15 bytes before, wrapping round", "[view]") {
  M m;
  View& view = m.mmu->current_view();
  for (u64 page : {u64{0x20000}, u64{0x3000}, u64{0x5f000}}) {  // colours 0, 3, 31
    std::set<u64> filled, expected;
    for (const JumpKind kind : kJumpKinds) {
      for (u64 pc = 0; pc < 64 * kPageSize; ++pc) {
        view.SetJump(LinearAddr(pc), kind, HostAddr(&m));
        filled.insert(JumpIndex(LinearAddr(pc), kind));
      }
      for (u64 pc = page - 15; pc < page + kPageSize; ++pc) {
        expected.insert(JumpIndex(LinearAddr(pc), kind));
      }
    }
    view.ResetJumpPage(page >> 12);
    for (u64 slot = 0; slot < u64{kJumpTableEntries}; ++slot) {
      INFO(page << ' ' << slot);
      REQUIRE((Jumps(view)[slot] == Default()) ==
              (expected.count(slot) != 0 || filled.count(slot) == 0));
    }
    view.ResetAllJumps();
    for (int i = 0; i < kJumpTableEntries; ++i) REQUIRE(Jumps(view)[i] == Default());
  }
}

TEST_CASE("all jumps are reset, few of them and many, and behind pages", "[view]") {
  M m;
  View& view = m.mmu->current_view();
  std::mt19937_64 random(7);
  for (const unsigned count : {0u, 1u, 31u, 32u, 33u, 500u, 2u}) {
    INFO(count);
    for (unsigned i = 0; i < count; ++i) {
      const LinearAddr pc(random() % (64 * kPageSize));
      view.SetJump(pc, kJumpKinds[random() % 2], HostAddr(&m));
      if (random() % 4 == 0) view.ResetJumpPage(EntryIndex(pc));
    }
    view.ResetAllJumps();
    for (int i = 0; i < kJumpTableEntries; ++i) REQUIRE(Jumps(view)[i] == Default());
  }
}

TEST_CASE("a jump page of a kernel: an instruction that crosses into it", "[view]") {
  M m;
  View& view = m.mmu->current_view();
  const LinearAddr page(0xffff'ffff'8123'4000);
  for (const JumpKind kind : kJumpKinds) {
    view.SetJump(page - 3, kind, HostAddr(&m));
    view.ResetJumpPage(EntryIndex(page));
    CHECK(view.Jump(page - 3, kind) == Default());
  }
}

TEST_CASE("a jump page: what is in the conflict table goes with it", "[view]") {
  M m;
  View& view = m.mmu->current_view();
  const auto* conflicts = (view.gs_base() + kConflictTableOffset).As<ConflictEntry>();
  const auto known = [&](LinearAddr pc) {
    return conflicts[ConflictEntry::IndexOf(pc)].negated == 0 - pc.value;
  };
  for (const LinearAddr page :
       {LinearAddr(0), LinearAddr(0x7f12'3457'0000), LinearAddr(0xffff'ffff'8123'4000)}) {
    INFO(std::hex << page.value);
    const LinearAddr inside = page + 0x237, before = page - 15, far = page + 0x40'0000;
    for (const LinearAddr pc : {inside, before, far}) {
      view.SetConflict(pc, HostAddr(&m));
      REQUIRE(known(pc));
    }
    view.ResetJumpPage(EntryIndex(page + kPageSize * 64));
    for (const LinearAddr pc : {inside, before, far}) CHECK(known(pc));
    view.ResetJumpPage(EntryIndex(page));
    CHECK_FALSE(known(inside));
    CHECK_FALSE(known(before));
    CHECK(known(far));
    view.ResetAllJumps();
    CHECK_FALSE(known(far));
  }
}

TEST_CASE("executed pages: a set under insertion and removal", "[view]") {
  M m;
  View& view = m.mmu->current_view();
  std::mt19937_64 random(5);
  std::set<u64> expected;
  for (unsigned step = 0; step < 60000; ++step) {
    const u64 index = random() % 3000 * 0x10001;
    if (random() % 3 != 0) {
      view.RecordExecuted(index, PhysPage(index >> 8));
      expected.insert(index);
    } else {
      view.DropExecuted(index);
      expected.erase(index);
    }
    if (step % 5000 == 0) {
      const u64 first = random() % (3000 * 0x10001), count = 100 * 0x10001;
      view.DropExecutedRange(first, count);
      std::erase_if(expected, [&](u64 i) { return i - first < count; });
    }
  }
  for (u64 i = 0; i < 3000; ++i) {
    const u64 index = i * 0x10001;
    REQUIRE(view.ExecutedAs(index) ==
            (expected.count(index) ? PhysPage(index >> 8) : View::kNoPage));
  }
  // More than the set holds: it starts over.
  for (u64 index = 0; index < View::kExecuteSlots; ++index) {
    view.RecordExecuted(u64{1} << 30 | index, PhysPage(0));
  }
  CHECK(view.ExecutedAs(u64{1} << 30 | (View::kExecuteSlots - 1)) == PhysPage(0));
  CHECK(view.ExecutedAs(u64{1} << 30) == View::kNoPage);
}

TEST_CASE("clearing with and without release leaves poison only", "[view]") {
  M m;
  View& view = m.mmu->current_view();
  for (bool release : {false, true, false}) {
    for (u64 i = 0; i < 100; ++i) {
      REQUIRE(view.EnsureChunk(i * 5000));
      view.SetEntry(i * 5000, m.memory->rw_base().value);
    }
    view.FillSlot(0, 0, LinearAddr(0x1000), 0);
    view.Clear(release);
    CHECK((view.chunk_count() == 0) == release);
    for (u64 i = 0; i < 100; ++i) {
      REQUIRE(view.Entry(i * 5000) == view.Poison(i * 5000));
      REQUIRE(view.ChunkReady(i * 5000) == !release);
    }
    CHECK(Slots(view)[0].neg_page == kEmpty);
  }
}

}  // namespace
}  // namespace alibi::mmu
