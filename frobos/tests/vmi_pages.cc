// SPDX-License-Identifier: Apache-2.0
// VMI's calls for page tables: what is in force when, as the kernel is promised.
#include "frobos/tests/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u32 kP = 1, kW = 2, kU = 4, kA = 0x20, kD = 0x40, kPs = 0x80;
constexpr u32 kAll = kP | kW | kU;
constexpr u32 kLevelPt = 1, kLevelPd = 2, kCurrent = 0x10, kMayWait = 0x20;
constexpr u32 kArea = 0x02000000;    // the linear addresses under test
constexpr u32 kFrames = 0x02400000;  // where they lead: page i to frame i, at first
constexpr u32 kPages = 512;

// Of two address spaces, in both formats.
alignas(4096) u32 directory[2][1024];
alignas(4096) u32 table[2][1024];
alignas(4096) u64 pae_directories[2][4][512];
alignas(4096) u64 pae_table[2][512];
alignas(32) u64 pae_pointers[2][4];

const void* read_code;
const void* write_code;

u32 FrameAt(u32 i) { return kFrames + i * 4096; }

// What both formats do, with entries of 32 bits.
struct Tables {
  bool pae;

  u32 Root(u32 space) const { return pae ? At(pae_pointers[space]) : At(directory[space]); }
  u32 Place(u32 space, u32 i) const {
    return pae ? At(&pae_table[space][i]) : At(&table[space][i]);
  }
  u32 Entry(u32 space, u32 i) const {
    return pae ? static_cast<u32>(pae_table[space][i]) : table[space][i];
  }
  // By hand, without a call.
  void Store(u32 space, u32 i, u32 entry) const {
    if (pae) {
      pae_table[space][i] = entry;
    } else {
      table[space][i] = entry;
    }
  }
  Outcome Set(u32 place, u32 entry, u32 flags) const {
    const u32 words[1] = {flags};
    return pae ? Vmi(kVmiSetPxeLong, entry, 0, place, words, 1)
               : Vmi(kVmiSetPxe, entry, place, flags);
  }
  void SetPage(u32 space, u32 i, u32 entry, u32 flags = kLevelPt) const {
    const Outcome o = Set(Place(space, i), entry, flags);
    // It is in memory when the call returns, however long its effect may wait.
    if (!o.Done() || (Entry(space, i) & ~(kA | kD)) != (entry & ~(kA | kD))) {
      Check(false, "Set stores the entry");
    }
  }
  void Update(u32 space, u32 i, u32 flags) const {
    const VmiCall call = pae ? kVmiUpdatePxeLong : kVmiUpdatePxe;
    const Relocation relocation = RelocationOf(call);
    if (relocation.type == Relocation::kCall) Vmi(call, Place(space, i), flags);
  }

  void Enter() const {
    for (u32 space = 0; space < 2; space++) {
      for (u32 i = 0; i < kPages; i++) Store(space, i, 0);
      if (pae) {
        for (u32 i = 0; i < 2048; i++) {
          pae_directories[space][i / 512][i % 512] = u64{i} << 21 | kPs | kAll;
        }
        for (u32 i = 0; i < 4; i++) pae_pointers[space][i] = At(pae_directories[space][i]) | kP;
        pae_directories[space][0][kArea >> 21] = At(pae_table[space]) | kAll;
      } else {
        for (u32 i = 0; i < 1024; i++) directory[space][i] = i << 22 | kPs | kAll;
        directory[space][kArea >> 22] = At(table[space]) | kAll;
      }
    }
    WriteCr4((ReadCr4() & ~kCr4Pae) | kCr4Pse | (pae ? kCr4Pae : 0));
    WriteCr3(Root(0));
    WriteCr0(ReadCr0() | kCr0Pg | kCr0Wp);
  }
  static void Leave() {
    WriteCr0(ReadCr0() & ~(kCr0Pg | kCr0Wp));
    WriteCr4(ReadCr4() & ~kCr4Pae);
  }
};

void Lazy(u32 mode) {
  const Relocation relocation = RelocationOf(kVmiSetLazyMode);
  if (relocation.type == Relocation::kCall) Vmi(kVmiSetLazyMode, mode);
}
void Announce(VmiCall call, u32 page, u32 flags, u32 from = 0, u32 first = 0, u32 count = 0) {
  const Relocation relocation = RelocationOf(call);
  const u32 words[2] = {first, count};
  if (relocation.type == Relocation::kCall) Vmi(call, page >> 12, flags, from >> 12, words, 2);
}

Outcome Read(u32 address, unsigned ring = 0) { return Run(read_code, {.ebx = address}, ring); }
Outcome Write(u32 address, unsigned ring = 0) {
  return Run(write_code, {.eax = 0xabcd, .ebx = address}, ring);
}
bool ReadsFrame(u32 i, u32 frame) {
  const Outcome o = Read(kArea + i * 4096);
  return o.Done() && o.frame.eax == FrameAt(frame);
}
bool FaultsAt(u32 i, const Outcome& o, u32 error) {
  return o.Is(kPageFault, error) && o.cr2 == kArea + i * 4096;
}

const Tables* mending;

// A kernel's handler in the middle of a batch: it maps what is missing, and uses it at once.
void MapAndGoOn(Outcome* at) {
  const u32 i = (at->cr2 - kArea) >> 12;
  // Not by a probe, in which this is: the site alone.
  mending->Store(0, i, FrameAt(i) | kAll);
  if (*reinterpret_cast<volatile u32*>(at->cr2) != FrameAt(i)) Panic("the new page is not there");
}

void TestBatches(const Tables& tables) {
  // A long batch: entries change, and what is right afterwards is read.
  Lazy(1);
  for (u32 i = 0; i < kPages; i++) {
    tables.SetPage(0, i, FrameAt(i) | kAll, kLevelPt | kCurrent | kMayWait | (kArea + i * 4096));
  }
  Lazy(0);
  Group present("pages that were absent are there without a flush");
  for (u32 i = 0; i < kPages; i++) present.Case(ReadsFrame(i, i));

  Lazy(1);
  for (u32 i = 0; i < kPages; i++) {
    tables.SetPage(0, i, FrameAt(i ^ 1) | (i % 3 == 0 ? kP : kAll),
                   kLevelPt | kCurrent | kMayWait | (kArea + i * 4096));
  }
  Lazy(0);
  Vmi(kVmiFlushTlb, 1);
  Group changed("after a flush all is as the entries say");
  for (u32 i = 0; i < kPages; i++) {
    const Outcome stored = Write(kArea + i * 4096 + 4);
    const bool may_write = i % 3 != 0;
    changed.Case(ReadsFrame(i, i ^ 1) &&
                 (may_write ? stored.Done() : stored.Is(kPageFault, kP | kW)) &&
                 ((tables.Entry(0, i) & kD) != 0) == may_write);
  }
  // Other ways to flush; global pages are for a flush of kind 3.
  for (const u32 kind : List{0u, 1u, 3u}) {
    tables.SetPage(0, 7, FrameAt(8 + kind) | kAll);
    if (kind == 0) {
      CheckDone("InvalPage", Vmi(kVmiInvalPage, kArea + 7 * 4096));
    } else {
      CheckDone("FlushTLB", Vmi(kVmiFlushTlb, kind));
    }
    Check(ReadsFrame(7, 8 + kind), "... a page leads elsewhere");
    tables.SetPage(0, 7, 0);
    if (kind == 0) {
      Vmi(kVmiInvalPage, kArea + 7 * 4096);
    } else {
      Vmi(kVmiFlushTlb, kind);
    }
    Check(FaultsAt(7, Read(kArea + 7 * 4096), 0), "... or nowhere");
  }

  // Changed in memory, and announced after it.
  tables.Store(0, 9, FrameAt(20) | kAll);
  tables.Update(0, 9, kLevelPt | kCurrent | (kArea + 9 * 4096));
  Vmi(kVmiInvalPage, kArea + 9 * 4096);
  Check(ReadsFrame(9, 20), "Update");
}

void TestFaultsInBatches(const Tables& tables) {
  for (u32 i = 0; i < kPages; i++) tables.SetPage(0, i, 0);
  Vmi(kVmiFlushTlb, 3);
  mending = &tables;
  Lazy(1);
  Group batch("faults in the middle of a batch");
  for (u32 i = 0; i < kPages; i += 2) {
    tables.SetPage(0, i, FrameAt(i) | kAll, kLevelPt | kMayWait);
    SetHandler(kPageFault, MapAndGoOn);
    const Outcome o = Read(kArea + (i + 1) * 4096);
    SetHandler(kPageFault, nullptr);
    batch.Case(o.Done() && o.frame.eax == FrameAt(i + 1) && ReadsFrame(i, i));
  }
  Lazy(0);
  // Its own table is not mapped: the store faults, in the ROM or where its effect waits.
  const Outcome o = tables.Set(kArea + 0x1ff800, FrameAt(0) | kAll, kLevelPt);
  Check(o.Done() || o.vector == kPageFault, "Set through a page of the area");
  tables.SetPage(0, 3, 0);
  Vmi(kVmiFlushTlb, 3);
  const u32 entry = kArea + 3 * 4096 + 8;
  const Outcome absent = tables.Set(entry, FrameAt(0) | kAll, kLevelPt);
  Check(absent.Is(kPageFault, kW) && absent.cr2 - entry < 8, "Set of an entry that is not mapped");
  // From ring 3 it is a store of that ring: to a page of the kernel's.
  const Relocation set = RelocationOf(tables.pae ? kVmiSetPxeLong : kVmiSetPxe);
  tables.SetPage(0, 3, FrameAt(3) | kP | kW);
  Vmi(kVmiFlushTlb, 3);
  const Outcome user = Run(reinterpret_cast<const void*>(set.address),
                           {.eax = 0, .ecx = tables.pae ? entry : kLevelPt, .edx = entry}, 3);
  Check(user.Is(kPageFault, kP | kW | kU), "Set by a user of the kernel's page");
}

void TestSpaces(const Tables& tables) {
  // Entries of an address space that does not run are in force when it does.
  for (const u32 i : List{0u, 1u, 511u}) {
    tables.SetPage(0, i, FrameAt(i) | kAll);
    tables.SetPage(1, i, FrameAt(100 + i % 3) | kAll);
  }
  Vmi(kVmiFlushTlb, 3);
  Group spaces("two address spaces in turn, each changed while the other runs");
  for (u32 turn = 0; turn < 200; turn++) {
    const u32 running = turn & 1;
    CallVmi(RelocationOf(kVmiSetCr3), {.eax = tables.Root(running)});
    bool ok = ReadsFrame(511, turn == 0 ? 511 : turn);
    tables.SetPage(running ^ 1, 511, FrameAt(turn + 1) | kAll, kLevelPt | kMayWait);
    ok = ok && ReadsFrame(0, running == 0 ? 0 : 100);
    spaces.Case(ok);
  }
  WriteCr3(tables.Root(0));
}

void TestUpperLevels(const Tables& tables) {
  // A table is announced, filled, linked, unlinked and released; then its page is data.
  for (u32 i = 0; i < kPages; i++) tables.Store(1, i, FrameAt(200 + i % 8) | kAll);
  const u32 flags = tables.pae ? 0x50 : 0x40;
  const u32 place =
      tables.pae ? At(&pae_directories[0][0][kArea >> 21]) : At(&directory[0][kArea >> 22]);
  const u32 first = tables.pae ? At(pae_table[0]) : At(table[0]);
  const u32 second = tables.pae ? At(pae_table[1]) : At(table[1]);
  for (u32 round = 0; round < 20; round++) {
    Announce(kVmiAllocatePage, second, flags | kLevelPt);
    // A wrong level, as kernels give it for large pages, changes nothing.
    tables.Set(place, second | kAll, round % 4 == 3 ? kLevelPt : kLevelPd);
    Vmi(kVmiFlushTlb, 3);
    if (!ReadsFrame(12, 204)) Check(false, "another table");
    tables.Set(place, 0, kLevelPd);
    Vmi(kVmiFlushTlb, 3);
    if (!FaultsAt(12, Read(kArea + 12 * 4096), 0)) Check(false, "no table");
    Announce(kVmiReleasePage, second, flags | kLevelPt);
    for (u32 i = 0; i < kPages; i++)
      tables.Store(1, i, i % 2 == 0 ? 0 : FrameAt(200 + i % 8) | kAll);
    tables.Set(place, first | kAll, kLevelPd);
    if (!ReadsFrame(0, 0)) Check(false, "the first table again");
    for (u32 i = 0; i < kPages; i++) tables.Store(1, i, FrameAt(200 + i % 8) | kAll);
  }
  // Large, by the level of a small one.
  *reinterpret_cast<volatile u32*>(kFrames) = 0x1a46e;
  tables.Set(place, kFrames | kPs | kAll, kLevelPt);
  Vmi(kVmiFlushTlb, 3);
  CheckEq("a large page", Read(kArea).frame.eax, 0x1a46e);
  tables.Set(place, first | kAll, kLevelPd);
  Vmi(kVmiFlushTlb, 3);
  *reinterpret_cast<volatile u32*>(kFrames) = FrameAt(0);
  Check(ReadsFrame(0, 0), "... and small ones again");
  // Announcements of pages that are no tables, that are not there, in any order.
  for (const u32 page : List{At(read_code) & ~0xfffu, 0x0u, 0xfffff000u, 0xe0000000u}) {
    Announce(kVmiReleasePage, page, ~0u);
    Announce(kVmiAllocatePage, page, ~0u, ~0u, ~0u, ~0u);
  }
  Check(ReadsFrame(0, 0), "announcements of pages that are no tables");
  // Tables that are in use, and go on to be: what they say counts, before and after.
  const u32 top = tables.pae ? At(pae_directories[0][0]) : At(directory[0]);
  for (u32 round = 0; round < 20; round++) {
    const u32 released = round % 3 == 0 ? tables.Root(0) : round % 3 == 1 ? top : first;
    tables.SetPage(0, 5, FrameAt(30 + round) | kAll);
    Announce(kVmiReleasePage, released, flags | (released == first ? kLevelPt : kLevelPd));
    Vmi(kVmiInvalPage, kArea + 5 * 4096);
    if (!ReadsFrame(5, 30 + round)) Check(false, "a released table that is in use");
    tables.SetPage(0, 5, 0);
    Announce(kVmiReleasePage, released, flags);
    Vmi(kVmiFlushTlb, 1);
    if (!FaultsAt(5, Read(kArea + 5 * 4096), 0)) Check(false, "... loses a page");
  }
}

void TestPages(const Tables& tables) {
  read_code = CODE32("mov eax, [ebx]");
  write_code = CODE32("mov [ebx], eax");
  for (u32 i = 0; i < kPages; i++) *reinterpret_cast<volatile u32*>(FrameAt(i)) = FrameAt(i);
  tables.Enter();
  TestBatches(tables);
  TestFaultsInBatches(tables);
  TestSpaces(tables);
  TestUpperLevels(tables);
  Tables::Leave();
}

}  // namespace

void TestPages32() { TestPages({.pae = false}); }
void TestPagesPae() { TestPages({.pae = true}); }

}  // namespace alibi::frobos
