// SPDX-License-Identifier: Apache-2.0
// Links, entries and versions of CCFs that are made by hand: what their jumps say.
#include "runtime/fragments.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "runtime/fragments_bench.h"
#include "translator/entry_check.h"

namespace alibi::runtime {
namespace {

using translator::Ccf;
using translator::CodeMode;
using translator::ExitDesc;
using translator::ExitKind;
using Bench = FragmentsBench;

// Two pages where programs are loaded at random.
constexpr LinearAddr kHere{0x7f12'3456'7000}, kThere{0x55ab'cdef'0000};

u8 ByteAt(HostAddr host) { return *host.As(); }

// Where the jump at `host` leads; null: there is none.
HostAddr TargetOf(HostAddr host) {
  if (ByteAt(host) != 0xe9) return {};
  i32 rel;
  std::memcpy(&rel, (host + 1).As(), 4);
  return host + 5 + static_cast<u64>(i64{rel});
}

// Where one comes out who enters there.
HostAddr Follow(HostAddr host) {
  while (const HostAddr target = TargetOf(host)) host = target;
  return host;
}

ExitDesc To(LinearAddr pc) { return {.target = pc}; }

TEST_CASE("An exit is chained to its successor once, in its page, and not from a single step") {
  Bench bench;
  Ccf* to = bench.Make(kPc + 16);
  Ccf* from = bench.Make(kPc, {To(kPc + 16)});
  ExitDesc* exit = from->exits()[0];
  CHECK(TargetOf(exit->patch) == exit->stub);
  bench.fragments.Chain(exit, to);
  CHECK(TargetOf(exit->patch) == to->entry);
  CHECK(exit->linked == to);
  CHECK(to->incoming == exit);
  bench.fragments.Chain(exit, from);
  CHECK(exit->linked == to);
  CHECK(bench.counters.chained_exits == 1);

  Ccf* elsewhere = bench.Emit(kPc + 32);
  elsewhere->phys_page = PhysPage(kPhysPage.number + 1);
  CodeMode single;
  single.single = true;
  Ccf* stepped = bench.Make(kPc, {To(kPc + 16)}, single);
  Ccf* other = bench.Make(kPc + 64, {To(kPc + 32)});
  bench.fragments.Chain(other->exits()[0], elsewhere);
  bench.fragments.Chain(stepped->exits()[0], to);
  CHECK(bench.counters.chained_exits == 1);
}

TEST_CASE(
    "A CCF that is invalidated is left by its predecessors, and left alone by its successors") {
  Bench bench;
  Ccf* last = bench.Make(kPc + 32);
  Ccf* ccf = bench.Make(kPc + 16, {To(kPc + 32)});
  Ccf* first = bench.Make(kPc, {To(kPc + 16)});
  bench.fragments.Chain(ccf->exits()[0], last);
  bench.fragments.Chain(first->exits()[0], ccf);
  bench.fragments.Invalidate(ccf);
  CHECK_FALSE(ccf->valid);
  REQUIRE(bench.replacements.pages.size() == 1);
  CHECK(bench.replacements.pages[0] == kPhysPage.Base());
  CHECK(TargetOf(first->exits()[0]->patch) == first->exits()[0]->stub);
  CHECK(TargetOf(ccf->exits()[0]->patch) == ccf->exits()[0]->stub);
  CHECK(TargetOf(ccf->entry) == ccf->redirect);
  CHECK(last->incoming == nullptr);
  CHECK(bench.Find(ccf->pc) == nullptr);
  CHECK(bench.Find(first->pc) == first);
}

TEST_CASE("A CCF that is retired looks up, and forwards once its successor is there") {
  Bench bench;
  Ccf* old = bench.Make(kPc + 16);
  CHECK(bench.replaced == Fragments::Replaced::kNothing);
  Ccf* first = bench.Make(kPc, {To(kPc + 16)});
  bench.fragments.Chain(first->exits()[0], old);
  bench.fragments.Retire(old);
  CHECK(TargetOf(first->exits()[0]->patch) == old->entry);  // not visited
  CHECK(TargetOf(old->entry) == old->redirect);
  CHECK(bench.replacements.pages.empty());
  CHECK(old->valid);
  CHECK(bench.Find(old->pc) == nullptr);
  Ccf* now = bench.Make(kPc + 16);
  CHECK(bench.replaced == Fragments::Replaced::kRetired);
  CHECK(TargetOf(old->entry) == now->entry);
  CHECK_FALSE(old->valid);
  CHECK(bench.Find(old->pc) == now);
  REQUIRE(bench.replacements.seen.size() == 1);
  CHECK(bench.replacements.seen[0] == std::pair<const Ccf*, const Ccf*>(old, now));
}

TEST_CASE("A CCF is revived if its bytes are what they were, and nobody wants to stop in it") {
  Bench bench;
  Ccf* ccf = bench.Make(kPc);
  bench.fragments.Invalidate(ccf);
  bench.page[1] = 0xcc;
  CHECK(bench.Revive(kPc) == nullptr);
  Ccf* patched = bench.Make(kPc);
  CHECK(bench.replaced == Fragments::Replaced::kOverwritten);
  CHECK(Follow(ccf->entry) == patched->entry);
  bench.fragments.Invalidate(patched);
  CHECK(Follow(ccf->entry) != ccf->entry);

  bench.page[1] = 0;
  bench.points.AddBreakpoint(kPc);
  CHECK(bench.Revive(kPc) == nullptr);
  bench.points.RemoveBreakpoint(kPc);
  CHECK(bench.Revive(kPc) == ccf);
  CHECK(ByteAt(ccf->entry) == kNop);
  CHECK(ccf->valid);
  CHECK(Follow(patched->entry) == ccf->entry);
  CHECK(bench.Find(kPc) == ccf);
  CHECK(bench.counters.ccf_revivals == 1);

  bench.fragments.Retire(ccf);  // a verdict: this translation of the bytes is not wanted again
  CHECK(bench.Revive(kPc) == nullptr);
}

TEST_CASE("A CCF takes the place of its predecessor's last jump") {
  Bench bench;
  Ccf* first = bench.Make(kPc, {To(kPc + 64), To(kPc + 16)});
  ExitDesc* taken = first->exits()[0];
  ExitDesc* falls = first->exits()[1];
  CHECK_FALSE(bench.fragments.DropJump(taken, kPc + 64, kPhysPage));  // others lie behind
  CHECK_FALSE(bench.fragments.DropJump(falls, kPc + 17, kPhysPage));  // leads elsewhere
  CHECK_FALSE(bench.fragments.DropJump(falls, kPc + 16,
                                       PhysPage(kPhysPage.number + 1)));  // and in another page
  const HostAddr end = first->hot_end;
  CHECK(bench.fragments.DropJump(falls, kPc + 16, kPhysPage));
  CHECK(first->hot_end == end - 5);
  Ccf* next = bench.Emit(kPc + 16);
  bench.fragments.Elide(falls, next);
  bench.fragments.Add(next);
  CHECK(next->entry == falls->patch);
  CHECK(falls->elided);
  CHECK(next->incoming == falls);

  // It is not there any more: its entry says so, because there is no jump to take back.
  bench.fragments.Invalidate(next);
  CHECK(falls->linked == nullptr);
  CHECK(TargetOf(falls->patch) == next->redirect);
}

TEST_CASE("A CCF that begins with its last jump keeps it: its entry needs the room") {
  Bench bench;
  Ccf* ccf = bench.Make(kPc, {To(kPc + 16)});
  ccf->entry = ccf->exits()[0]->patch;
  CHECK_FALSE(bench.fragments.DropJump(ccf->exits()[0], kPc + 16, kPhysPage));
}

TEST_CASE("A request to stop unlinks all exits, and they are relinked as they were") {
  Bench bench;
  Ccf* target = bench.Make(kPc + 64);
  Ccf* ccf =
      bench.Make(kPc, {To(kPc + 64), To(kPc + 32), {.kind = ExitKind::kIndirect}, To(kPc + 16)});
  const auto exits = ccf->exits();
  bench.fragments.Chain(exits[0], target);
  REQUIRE(bench.fragments.DropJump(exits[3], kPc + 16, kPhysPage));
  Ccf* next = bench.Emit(kPc + 16);
  bench.fragments.Elide(exits[3], next);
  bench.fragments.Add(next);
  const HostAddr indirect = TargetOf(exits[2]->patch);

  bench.fragments.UnlinkExits(ccf);
  bench.fragments.UnlinkExits(ccf);  // again, before anybody has come out
  CHECK(bench.counters.async_stops == 1);
  CHECK(TargetOf(exits[0]->patch) == exits[0]->stub);
  CHECK(TargetOf(exits[1]->patch) == exits[1]->stub);
  CHECK(TargetOf(exits[2]->patch) == bench.stubs.at(Callout::kStop));
  CHECK(TargetOf(next->entry) == exits[3]->stub);
  bench.fragments.RelinkExits();
  CHECK(TargetOf(exits[0]->patch) == target->entry);
  CHECK(TargetOf(exits[2]->patch) == indirect);
  CHECK(ByteAt(next->entry) == kNop);

  // What was unlinked is not what a link is taken back from.
  bench.fragments.UnlinkExits(ccf);
  bench.fragments.Invalidate(target);
  bench.fragments.RelinkExits();
  CHECK(TargetOf(exits[0]->patch) == exits[0]->stub);
}

TEST_CASE("Bytes are overwritten: the CCFs that depend on them go, and no others") {
  Bench bench;
  Ccf* first = bench.Make(kPc);
  Ccf* second = bench.Make(kPc + 2);
  Ccf* third = bench.Make(kPc + 16);
  std::vector<const Ccf*> gone;
  const auto note = [&](const Ccf* ccf) { gone.push_back(ccf); };
  CHECK(bench.fragments.InvalidateBytes(kPhysPage, 3, 4, note));
  CHECK(gone.size() == 2);
  CHECK_FALSE(first->valid);
  CHECK_FALSE(second->valid);
  CHECK(third->valid);
  CHECK_FALSE(bench.fragments.InvalidateBytes(kPhysPage, 0, kPageSize, note));
  CHECK(gone.size() == 3);
  CHECK_FALSE(bench.fragments.InvalidateBytes(PhysPage(kPhysPage.number + 1), 0, kPageSize, note));
}

TEST_CASE("However often a verdict changes, each old entry leads to the newest CCF") {
  Bench bench;
  std::vector<Ccf*> all;
  for (unsigned i = 0; i < 3 * CodeIndex::kMaxVersions; ++i) {
    if (!all.empty()) bench.fragments.Retire(all.back());
    all.push_back(bench.Make(kPc));
    for (const Ccf* ccf : all) CHECK(Follow(ccf->entry) == all.back()->entry);
  }
}

TEST_CASE("A CCF's entry for jumps through tables is made once") {
  Bench bench;
  Ccf* ccf = bench.Make(kPc);
  const HostAddr entry = bench.fragments.IndirectEntry(ccf);
  CHECK(entry);
  CHECK(bench.fragments.IndirectEntry(ccf) == entry);
  CHECK(bench.fragments.IndirectEntry(bench.Make(kPc + 16)) != entry);
}

TEST_CASE("A page's CCFs move to another address, links and all") {
  Bench bench;
  Ccf* to = bench.Make(kHere + 16);
  Ccf* from = bench.Make(kHere, {To(kHere + 16), To(kHere + 32)});
  bench.fragments.Chain(from->exits()[0], to);
  const HostAddr check = bench.fragments.IndirectEntry(to);
  REQUIRE(bench.Move(kThere));
  CHECK(bench.Find(kHere) == nullptr);
  CHECK(bench.Find(kHere + 16) == nullptr);
  CHECK(bench.Find(kThere) == from);
  CHECK(bench.Find(kThere + 16) == to);
  CHECK(from->pc == kThere);
  CHECK((to->examined_begin == kThere + 16 && to->examined_end == kThere + 16 + kGuestBytes));
  CHECK(from->exits()[0]->target == kThere + 16);
  CHECK(from->exits()[1]->target == kThere + 32);
  CHECK(TargetOf(from->exits()[0]->patch) == to->entry);
  CHECK(bench.fragments.IndirectEntry(to) == check);
  u8 expected[translator::kMaxEntryCheckBytes];
  const u32 size = translator::WriteEntryCheck(kThere + 16, to->flags_live_in,
                                               bench.stubs.entry_miss, check, expected);
  CHECK(std::memcmp(check.As(), expected, size) == 0);
  CHECK(bench.counters.moved_mappings == 1);
  CHECK(bench.counters.moved_ccfs == 2);
  // What is translated from now on belongs to the same place.
  Ccf* next = bench.Make(kThere + 32);
  bench.fragments.Chain(from->exits()[1], next);
  CHECK(from->exits()[1]->linked == next);
}

// Its PCs are encoded in 32 bits: the places where 64 would be patched are others.
TEST_CASE("Kernel code in the highest 2 GB does not move") {
  constexpr LinearAddr kKernel{0xffff'ffff'8123'4000}, kModule{0xffff'ffff'c012'3000};
  Bench bench;
  Ccf* ccf = bench.Make(kKernel);
  CHECK_FALSE(bench.Move(kModule));
  CHECK_FALSE(bench.Move(kHere));
  CHECK(bench.Find(kKernel) == ccf);
  CHECK_FALSE(translator::IsMovable(LinearAddr(~u64{0} - kPageSize)));
}

TEST_CASE("A CCF whose exits are unlinked moves as it is without") {
  Bench bench;
  Ccf* to = bench.Make(kHere + 16);
  Ccf* from = bench.Make(kHere, {To(kHere + 16)});
  bench.fragments.Chain(from->exits()[0], to);
  bench.fragments.UnlinkExits(from);
  REQUIRE(bench.Move(kThere));
  CHECK(TargetOf(from->exits()[0]->patch) == to->entry);
}

TEST_CASE("A page's CCFs stay where they run, where others are, and where PCs are short") {
  Bench bench;
  Ccf* ccf = bench.Make(kHere);
  CHECK_FALSE(bench.fragments.Move(kPhysPage, kThere, [](LinearAddr page) {
    CHECK(page == kHere);
    return false;
  }));
  CHECK_FALSE(bench.fragments.Move(PhysPage(kPhysPage.number + 1), kThere,
                                   [](LinearAddr) { return true; }));
  CHECK_FALSE(bench.Move(kPc));
  CHECK_FALSE(bench.Move(LinearAddr(0xffff'8000'0000'0000)));
  Ccf* other = bench.Make(kThere);
  CHECK_FALSE(bench.Move(kThere));
  CHECK(bench.Find(kHere) == ccf);
  CHECK(bench.Find(kThere) == other);
  // Of two that are not used one comes, and is not asked for again.
  REQUIRE(bench.Move(kHere + kPageSize));
  CHECK((bench.Find(kHere) == nullptr) != (bench.Find(kThere) == nullptr));
  CHECK(bench.Find(kHere + kPageSize) != nullptr);
}

TEST_CASE("What cannot move is invalidated when its page does") {
  Bench bench;
  Ccf* ccf = bench.Make(kHere);
  ccf->movable = false;
  REQUIRE(bench.Move(kThere));
  CHECK_FALSE(ccf->valid);
  CHECK(bench.Find(kThere) == nullptr);
  CHECK(bench.Revive(kThere) == nullptr);
  REQUIRE(bench.Move(kHere));
  CHECK(bench.Revive(kHere) == ccf);  // where it came from it is right again
}

TEST_CASE("CCFs that are not current are where their page is, and are revived there") {
  Bench bench;
  Ccf* overwritten = bench.Make(kHere);
  Ccf* retired = bench.Make(kHere + 16);
  bench.fragments.Invalidate(overwritten);
  bench.fragments.Retire(retired);
  REQUIRE(bench.Move(kThere));
  CHECK(overwritten->Pc() == kThere);
  CHECK(retired->Pc() == kThere + 16);
  CHECK(TargetOf(retired->entry) == retired->redirect);
  CHECK(bench.Revive(kThere) == overwritten);
  CHECK(overwritten->pc == kThere);
  Ccf* now = bench.Make(kThere + 16);
  CHECK(TargetOf(retired->entry) == now->entry);
}

// Whoever is stopped may be taken for a CCF that resumed last, however long ago.
TEST_CASE("A replaced CCF's exit, borrowed for its elided successor, leads where that has moved") {
  Bench bench;
  Ccf* old = bench.Make(kHere, {To(kHere + 16)});
  ExitDesc* exit = old->exits()[0];
  REQUIRE(bench.fragments.DropJump(exit, kHere + 16, kPhysPage));
  Ccf* next = bench.Emit(kHere + 16);
  bench.fragments.Elide(exit, next);
  bench.fragments.Add(next);
  bench.fragments.Retire(old);
  bench.Make(kHere);
  REQUIRE(bench.Move(kThere));
  bench.fragments.UnlinkExits(old);
  CHECK(TargetOf(next->entry) == exit->stub);
  CHECK(exit->Target() == next->pc);
  bench.fragments.RelinkExits();
}

TEST_CASE("A breakpoint is held by the CCF that would be revived over it, wherever that was made") {
  Bench bench;
  Ccf* ccf = bench.Make(kHere);
  bench.fragments.Invalidate(ccf);
  REQUIRE(bench.Move(kThere));
  bench.points.AddBreakpoint(kThere);
  CHECK(bench.Revive(kThere) == nullptr);
  bench.points.RemoveBreakpoint(kThere);
  bench.points.AddBreakpoint(kHere);
  CHECK(bench.Revive(kThere) == ccf);
}

TEST_CASE("However many places a page has, few are asked whether they are used") {
  Bench bench;
  for (u64 i = 0; i < 200; ++i) bench.Make(kHere + i * kPageSize);
  unsigned asked = 0;
  CHECK_FALSE(bench.fragments.Move(kPhysPage, kThere, [&](LinearAddr) {
    ++asked;
    return false;
  }));
  CHECK(asked <= 8);
  // In turn: the one that is not used is found in the end.
  unsigned tries = 0;
  while (!bench.fragments.Move(kPhysPage, kThere, [](LinearAddr page) { return page == kHere; })) {
    REQUIRE(++tries < 200);
  }
  CHECK(bench.Find(kHere) == nullptr);
  CHECK(bench.Find(kThere) != nullptr);
}

TEST_CASE("The index against a map: places come, move and are found") {
  Bench bench;
  std::mt19937_64 random(20261123);
  std::map<LinearAddr, Ccf*> model;  // by page
  for (int step = 0; step < 3000; ++step) {
    const LinearAddr page = kHere + random() % 64 * kPageSize;
    if (random() % 3 != 0) {
      if (!bench.fragments.tc().HasRoom()) break;
      if (model.size() < 32 && model.count(page) == 0) model[page] = bench.Make(page);
    } else if (!model.empty()) {
      const LinearAddr from =
          std::next(model.begin(), static_cast<long>(random() % model.size()))->first;
      bool moved = false;
      for (unsigned i = 0; i < 16 && !moved; ++i) {
        moved = bench.fragments.Move(kPhysPage, page, [&](LinearAddr old) { return old == from; });
      }
      if (moved) {
        REQUIRE(model.count(page) == 0);
        model[page] = model[from];
        model.erase(from);
      }
    }
    const LinearAddr asked = kHere + random() % 64 * kPageSize;
    const auto known = model.find(asked);
    REQUIRE(bench.Find(asked) == (known == model.end() ? nullptr : known->second));
  }
  CHECK(bench.counters.moved_mappings > 100);
}

TEST_CASE("A flush leaves nothing but the peaks") {
  Bench bench;
  bench.Make(kPc);
  bench.Make(kPc + 16);
  const u64 bytes = bench.fragments.tc().used();
  bench.fragments.Flush();
  CHECK(bench.Find(kPc) == nullptr);
  CHECK(bench.fragments.tc().used() == 0);
  bench.Make(kPc);
  CHECK(bench.fragments.tc_bytes_peak() == bytes);
  CHECK(bench.fragments.ccfs_peak() == 2);
  CHECK(bench.counters.tc_flushes == 1);
}

}  // namespace
}  // namespace alibi::runtime
