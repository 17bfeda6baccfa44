// SPDX-License-Identifier: Apache-2.0
// Page tables as the manual describes them (SDM vol. 3A ch. 4): rights, A and D bits, invalidation,
// address-space switches, page tables that change their nature, crossing accesses.

#include "frobos/tests/paging.h"

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u64 kPage = kHighBase + 0x40000000;
constexpr u64 kFull = kPteP | kPteW | kPteU;

u64 Load(u64 va) {
  u64 v;
  asm volatile("mov (%1), %0" : "=r"(v) : "r"(va) : "memory");
  return v;
}
void Store(u64 va, u64 v) { asm volatile("mov %1, (%0)" : : "r"(va), "r"(v) : "memory"); }
bool Faults(u64 va) {
  return Catch([va] { Load(va); }).Is(kPageFault);
}

// A page whose first word is its own mark.
u64 MarkedPage(u64 mark) {
  const u64 page = AllocPage();
  Store(page, mark);
  return page;
}

void TestAccessedDirty() {
  const u64 frame = AllocPage();
  u64* const pte = Entry(kPage);
  const auto reset = [&](u64 flags) {
    *pte = frame | flags;
    Invlpg(kPage);
  };
  const auto bits = [&] { return *pte & (kPteA | kPteD); };
  reset(kFull);
  CheckEq("A, D clear at first", bits(), 0);
  Load(kPage);
  CheckEq("A by a load", bits(), kPteA);
  Store(kPage, 1);
  CheckEq("D by a store after the load", bits(), kPteA | kPteD);
  reset(kFull);
  Store(kPage, 1);
  CheckEq("A and D by a store", bits(), kPteA | kPteD);
  reset(kFull | kPteD);
  Load(kPage);
  CheckEq("D is never cleared", bits(), kPteA | kPteD);
  reset(kFull);
  asm volatile("orl $0, (%0)" : : "r"(kPage) : "memory", "cc");
  CheckEq("D by or with 0", bits(), kPteA | kPteD);
  Store(kPage, 5);
  reset(kFull);
  u64 rax = 1;
  asm volatile("lock cmpxchg %2, (%1)" : "+a"(rax) : "r"(kPage), "r"(9ull) : "memory", "cc");
  CheckEq("D by a failing cmpxchg", bits(), kPteA | kPteD);
  CheckEq("... which wrote nothing", Load(kPage), 5);
  reset(kFull);
  asm volatile("btl $3, (%0)" : : "r"(kPage) : "memory", "cc");
  CheckEq("A only by bt", bits(), kPteA);
  asm volatile("cmpl $3, (%0)" : : "r"(kPage) : "memory", "cc");
  CheckEq("A only by cmp", bits(), kPteA);
  Store(kPage, 0x7fcd);  // int 0x7f
  reset(kFull);
  CheckDone("fetch", RunKernel(reinterpret_cast<const void*>(kPage)));
  CheckEq("A only by a fetch", bits(), kPteA);
  reset(kFull);
  CheckDone("push", RunKernel(KERNEL_CODE("push rax; pop rax"), {.rsp = kPage + 64}));
  CheckEq("A and D by a push", bits(), kPteA | kPteD);
  reset(kFull);
  asm volatile("prefetcht0 (%0); invlpg (%0)" : : "r"(kPage));
  Load(frame);
  CheckEq("the alias's bits are its own", bits() & kPteD, 0);
  // Clearing the bits needs invlpg to be seen; then they come again.
  for (int round = 0; round < 3; round++) {
    Store(kPage, 2);
    *pte &= ~(kPteA | kPteD);
    Invlpg(kPage);
    if (round == 1) Load(kPage);
  }
  Store(kPage, 2);
  CheckEq("A and D come again after clearing", bits(), kPteA | kPteD);

  int level;
  u64* upper[3] = {Entry(kPage, 2), Entry(kPage, 3), Entry(kPage, 4)};
  for (u64* e : upper) *e &= ~kPteA;
  FlushTlb();
  Load(kPage);
  bool all = true;
  for (u64* e : upper) all &= (*e & kPteA) != 0 && (e == upper[2] || (*e & kPtePs) == 0);
  Check(all, "A in all upper entries");
  CheckEq("Walk finds the PTE", reinterpret_cast<u64>(Walk(kPage, &level)),
          reinterpret_cast<u64>(pte));
  Unmap(kPage);

  const u64 large = AllocRange(2u << 20, 2u << 20);
  const u64 va = kPage + (4u << 20);
  u64* const pde = Entry(va, 2);
  Map(va, large, kPteW, 2);
  Load(va + 0x12345);
  CheckEq("2 MB page: A by a load", *pde & (kPteA | kPteD), kPteA);
  Store(va + 0x1f0000, 3);
  CheckEq("2 MB page: D by a store", *pde & (kPteA | kPteD), kPteA | kPteD);
  CheckEq("2 MB page: the store arrived", Load(large + 0x1f0000), 3);
  Unmap(va, 2);
}

u64 fault_count;

void TestInvalidation() {
  u64* const pte = Entry(kPage);
  const u64 a = MarkedPage(0xa), b = MarkedPage(0xb);
  *pte = a | kFull;
  Invlpg(kPage);
  CheckEq("first mapping", Load(kPage), 0xa);
  *pte = b | kFull;
  Invlpg(kPage);
  CheckEq("invlpg shows the new frame", Load(kPage), 0xb);
  *pte = a | kFull;
  WriteCr3(ReadCr3());
  CheckEq("CR3 reload shows the new frame", Load(kPage), 0xa);
  *pte = 0;
  Invlpg(kPage + 0xfff);
  Check(Faults(kPage), "invlpg of the page's last byte");
  *pte = b | kFull;
  CheckEq("a present entry is seen without invlpg", Load(kPage), 0xb);
  Check(!Catch([] { Invlpg(0x0000800000000000ull); }).Is(kGeneralProtection),
        "invlpg of a non-canonical address does nothing");

  // More rights need no invlpg: at most one spurious fault, then the access goes through.
  *pte = a | kPteP;
  Invlpg(kPage);
  Load(kPage);
  *pte = a | kFull;
  fault_count = 0;
  SetHandler(kPageFault, [](TrapFrame*) {
    if (++fault_count > 3) Panic("a fault repeats although the entry allows the access");
  });
  Store(kPage, 0xaa);
  SetHandler(kPageFault, nullptr);
  Check(fault_count <= 1, "read-only to writable without invlpg");
  CheckEq("... and stored", Load(a), 0xaa);

  // Fewer rights need it.
  *pte = a | kPteP;
  Invlpg(kPage);
  CheckFault("writable to read-only", Catch([] { Store(kPage, 1); }), kPageFault,
             kPfPresent | kPfWrite);
  CheckEq("... nothing stored", Load(a), 0xaa);

  // A whole table at a time.
  const u64 table_va = kPage + (2u << 20);
  u64* const pde = Entry(table_va, 2);
  const u64 table1 = AllocPage(), table2 = AllocPage();
  reinterpret_cast<u64*>(table1)[5] = a | kFull;
  reinterpret_cast<u64*>(table2)[5] = b | kFull;
  *pde = table1 | kFull;
  CheckEq("first table", Load(table_va + 5 * kPageSize), 0xaa);
  *pde = table2 | kFull;
  Invlpg(table_va + 5 * kPageSize);
  CheckEq("second table", Load(table_va + 5 * kPageSize), 0xb);
  Check(Faults(table_va + 6 * kPageSize), "its other entries are absent");
  *pde = (table2 | kFull) & ~kPteW;
  FlushTlb();
  CheckFault("W cleared in the PDE", Catch([=] { Store(table_va + 5 * kPageSize, 1); }), kPageFault,
             kPfPresent | kPfWrite);
  *pde = 0;
  FlushTlb();
  Check(Faults(table_va + 5 * kPageSize), "table removed");
  // 2 MB page and table in the same place.
  const u64 large = AllocRange(2u << 20, 2u << 20);
  Store(large + 5 * kPageSize, 0x22);
  *pde = large | kPteP | kPteW | kPtePs;
  CheckEq("2 MB page instead", Load(table_va + 5 * kPageSize), 0x22);
  *pde = table1 | kFull;
  Invlpg(table_va);
  FlushTlb();
  CheckEq("table again", Load(table_va + 5 * kPageSize), 0xaa);
  *pde = 0;
  FlushTlb();

  if (HasPge()) {
    const u64 cr4 = ReadCr4();
    WriteCr4(cr4 | kCr4Pge);
    *pte = a | kFull | kPteG;
    Invlpg(kPage);
    CheckEq("global page", Load(kPage), 0xaa);
    *pte = b | kFull | kPteG;
    Invlpg(kPage);
    CheckEq("invlpg flushes a global page", Load(kPage), 0xb);
    *pte = a | kFull | kPteG;
    WriteCr4(cr4 & ~kCr4Pge);
    CheckEq("CR4.PGE flushes global pages", Load(kPage), 0xaa);
    WriteCr4(cr4);
  }
  Unmap(kPage);
}

void TestPageTablesAsMemory() {
  const u64 a = MarkedPage(0xa), b = MarkedPage(0xb);
  u64* const pte = Entry(kPage);
  *pte = a | kFull;
  Invlpg(kPage);
  Load(kPage);
  // Through a second mapping of the page table.
  const u64 alias = kPage + (16u << 20);
  Map(alias, reinterpret_cast<u64>(pte) & ~(kPageSize - 1), kPteW);
  const u64 slot = alias + (reinterpret_cast<u64>(pte) & (kPageSize - 1));
  Store(slot, b | kFull);
  Invlpg(kPage);
  CheckEq("PTE changed through an alias", Load(kPage), 0xb);
  // By an instruction that does not look like a PTE store.
  asm volatile("rep movsb" : : "S"(&a), "D"(slot), "c"(8) : "memory");
  *reinterpret_cast<volatile u8*>(slot) = kFull;
  Invlpg(kPage);
  CheckEq("PTE changed by rep movsb and a byte store", Load(kPage), 0xa);
  asm volatile("lock btrq $0, (%0)" : : "r"(slot) : "memory", "cc");
  Invlpg(kPage);
  Check(Faults(kPage), "P cleared by lock btr");
  const u64 value = b | kFull;
  asm volatile("lock cmpxchg8b (%0)"
               :
               : "r"(slot), "a"(static_cast<u32>(Load(slot))),
                 "d"(static_cast<u32>(Load(slot) >> 32)), "b"(static_cast<u32>(value)),
                 "c"(static_cast<u32>(value >> 32))
               : "memory", "cc");
  CheckEq("PTE set by cmpxchg8b", Load(kPage), 0xb);
  *reinterpret_cast<volatile u8*>(slot + 1) = static_cast<u8>(a >> 8);
  *reinterpret_cast<volatile u8*>(slot + 2) = static_cast<u8>(a >> 16);
  *reinterpret_cast<volatile u8*>(slot + 3) = static_cast<u8>(a >> 24);
  Invlpg(kPage);
  CheckEq("PTE changed byte by byte", Load(kPage), 0xa);
  // An unaligned store that changes two entries at once.
  u64* const next = pte + 1;
  *pte = a | kFull;
  *next = a | kFull;
  Invlpg(kPage);
  Invlpg(kPage + kPageSize);
  Load(kPage), Load(kPage + kPageSize);
  Store(slot + 4, 0);  // the upper half of one, the lower half of the other
  Invlpg(kPage + kPageSize);
  Check(Faults(kPage + kPageSize) && !Faults(kPage), "unaligned store over two entries");

  // The recursive slot: the tables appear as memory under themselves.
  constexpr u64 kSlot = 510;
  u64* const pml4 = reinterpret_cast<u64*>(ReadCr3() & kPteAddress);
  pml4[kSlot] = (ReadCr3() & kPteAddress) | kPteP | kPteW;
  FlushTlb();
  const u64 recursive =
      0xffff000000000000ull | kSlot << 39 | (kPage >> 12 & ((1ull << 36) - 1)) << 3;
  CheckEq("recursive mapping shows the PTE", Load(recursive) & kPteAddress, a);
  Store(recursive, b | kFull);
  Invlpg(kPage);
  CheckEq("PTE changed through the recursive mapping", Load(kPage), 0xb);
  pml4[kSlot] = 0;
  FlushTlb();

  // A page that was a table becomes data, and the other way round.
  const u64 va = kPage + (32u << 20);
  u64* const pde = Entry(va, 2);
  const u64 page = AllocPage();
  reinterpret_cast<u64*>(page)[0] = a | kFull;
  *pde = page | kFull;
  CheckEq("as a table", Load(va), 0xa);
  *pde = 0;
  FlushTlb();
  for (u64 i = 0; i < 512; i++) Store(page + 8 * i, i * 0x0101010101010101ull);
  bool kept = true;
  for (u64 i = 0; i < 512; i++) kept &= Load(page + 8 * i) == i * 0x0101010101010101ull;
  Check(kept, "as data");
  for (u64 i = 0; i < 512; i++) Store(page + 8 * i, (i % 2 == 0 ? a : b) | kFull);
  *pde = page | kFull;
  CheckEq("as a table again", Load(va + kPageSize), 0xb);
  // A table that maps itself as data.
  Store(page + 8 * 7, page | kPteP | kPteW);
  Invlpg(va + 7 * kPageSize);
  Store(va + 7 * kPageSize + 8 * 9, b | kFull);
  Store(va + 7 * kPageSize + 8 * 2, 0);
  Invlpg(va + 2 * kPageSize);
  CheckEq("a table changed through its own mapping", Load(va + 9 * kPageSize), 0xb);
  Check(Faults(va + 2 * kPageSize), "... removed through its own mapping");
  *pde = 0;
  Unmap(alias);
  Unmap(kPage);
  *next = 0;
  FlushTlb();
}

void TestAddressSpaces() {
  constexpr u64 kSpaces = 24;
  const u64 kernel_cr3 = ReadCr3();
  const u64* const kernel_pml4 = reinterpret_cast<const u64*>(kernel_cr3 & kPteAddress);
  static u64 cr3[kSpaces];
  static u64* pte[kSpaces];
  constexpr u64 kVa = kUserBase * 5 + 0x7000;
  for (u64 i = 0; i < kSpaces; i++) {
    u64* const pml4 = reinterpret_cast<u64*>(AllocPage());
    memcpy(pml4, kernel_pml4, kPageSize);
    pml4[kVa >> 39 & 511] = 0;
    cr3[i] = reinterpret_cast<u64>(pml4);
    WriteCr3(cr3[i]);
    Map(kVa, MarkedPage(0x1000 + i), kFull);
    pte[i] = Entry(kVa);
  }
  Group group("switching between address spaces");
  const u64 other = MarkedPage(0x999);
  for (int round = 0; round < 4; round++) {
    for (u64 i = 0; i < kSpaces; i++) {
      WriteCr3(cr3[i]);
      group.Case(Load(kVa) == 0x1000 + i);
      const Outcome o = RunUser(USER_CODE("mov rax, [rdi]"), {.rdi = kVa});
      group.Case(o.Done() && o.frame.rax == 0x1000 + i);
      // Change a space that is not in use: its next switch must show it.
      const u64 victim = (i + 5) % kSpaces;
      const u64 saved = *pte[victim];
      *pte[victim] = round % 2 == 0 ? other | kFull : 0;
      WriteCr3(cr3[victim]);
      group.Case(round % 2 == 0 ? Load(kVa) == 0x999 : Faults(kVa));
      WriteCr3(cr3[i]);
      group.Case(Load(kVa) == 0x1000 + i);
      *pte[victim] = saved;
    }
  }
  // A PML4 that is torn down and reused for another space.
  WriteCr3(cr3[0]);
  u64* const reused = reinterpret_cast<u64*>(cr3[1]);
  const u64 slot = kVa >> 39 & 511;
  reused[slot] = reinterpret_cast<u64*>(cr3[2])[slot];
  WriteCr3(cr3[1]);
  group.Case(Load(kVa) == 0x1002);
  reused[slot] = 0;
  FlushTlb();
  group.Case(Faults(kVa));
  WriteCr3(kernel_cr3);
  group.Case(Faults(kVa));
}

void TestReservedBits() {
  const u64 frame = AllocPage();
  const u64 max_physical = Cpuid(0x80000000).eax >= 0x80000008 ? Cpuid(0x80000008).eax & 0xff : 36;
  const auto reserved = [](const Outcome& o) {
    return o.Is(kPageFault) && (o.frame.error & kPfReserved) != 0;
  };
  u64* const pte = Entry(kPage);
  if (max_physical < 52) {
    Group group("reserved physical address bits");
    for (u64 bit = max_physical; bit < 52; bit++) {
      *pte = frame | kFull | 1ull << bit;
      Invlpg(kPage);
      group.Case(reserved(Catch([] { Load(kPage); })));
    }
  } else {
    Skip("reserved physical address bits", "all 52 bits are physical");
  }
  Unmap(kPage);
  const u64 va = kPage + (64u << 20);
  *Entry(va, 2) = kPteP | kPteW | kPtePs | 1u << 13;
  Check(reserved(Catch([=] { Load(va); })), "reserved bit 13 of a 2 MB PDE");
  *Entry(va, 2) = 0;
  FlushTlb();
  // Bits the hardware ignores.
  *pte = frame | kFull | 7u << 9 | 0x3full << 52;
  Invlpg(kPage);
  CheckDone("ignored bits 9-11 and 52-57", Catch([] { Load(kPage); }));
  Unmap(kPage);
}

void TestUserInUpperHalf() {
  const u64 frame = MarkedPage(0x77);
  Map(kPage, frame, kPteW | kPteU);
  const Outcome o =
      RunUser(USER_CODE("mov rax, [rdi]; mov qword ptr [rdi + 8], 5"), {.rdi = kPage});
  Check(o.Done() && o.frame.rax == 0x77 && Load(frame + 8) == 5, "a user page of the upper half");
  Store(frame + 16, 0x7fcd);
  CheckDone("user code in the upper half", RunUser(reinterpret_cast<const void*>(kPage + 16)));
  Map(kPage, frame, kPteW);
  CheckFault("a supervisor page of the upper half",
             RunUser(USER_CODE("mov rax, [rdi]"), {.rdi = kPage}), kPageFault,
             kPfUser | kPfPresent);
  CheckFault("an absent page of the upper half",
             RunUser(USER_CODE("mov [rdi], rax"), {.rdi = kPage + kPageSize}), kPageFault,
             kPfUser | kPfWrite);
  Unmap(kPage);
}

void TestSmap() {
  if (!HasSmap()) return Skip("SMAP", "CPUID has no SMAP");
  const u64 cr4 = ReadCr4();
  const u64 frame = MarkedPage(0x5a);
  Map(kPage, frame, kPteW | kPteU);
  WriteCr4(cr4 | kCr4Smap);
  const Outcome clear = RunKernel(KERNEL_CODE("mov rax, [rdi]"), {.rdi = kPage});
  const Outcome set =
      RunKernel(KERNEL_CODE("mov rax, [rdi]"), {.rdi = kPage, .rflags = kFlagsFixed | kFlagAc});
  const Outcome stac =
      RunKernel(KERNEL_CODE("stac; mov [rdi], rax; clac; mov rax, [rdi]"), {.rdi = kPage});
  WriteCr4(cr4);
  CheckFault("SMAP: kernel load of a user page", clear, kPageFault, kPfPresent);
  CheckDone("SMAP: allowed by EFLAGS.AC", set);
  CheckFault("SMAP: stac, clac", stac, kPageFault, kPfPresent);
  Unmap(kPage);
}

void TestShuffledRegion() {
  constexpr u64 kPages = 37;
  MapShuffled(kPage, kPages, kPteW);
  bool apart = true;
  for (u64 i = 0; i + 1 < kPages; i++) {
    apart &= (*Entry(kPage + i * kPageSize) & kPteAddress) + kPageSize !=
             (*Entry(kPage + (i + 1) * kPageSize) & kPteAddress);
  }
  Check(apart, "no two neighbours are physical neighbours");
  for (u64 i = 0; i < kPages * kPageSize; i += 8) Store(kPage + i, i ^ 0x5555);
  bool good = true;
  for (u64 i = 0; i < kPages * kPageSize; i += 8) good &= Load(kPage + i) == (i ^ 0x5555);
  Check(good, "a shuffled region holds its data");
  // Unaligned words over every border, against the physical bytes.
  bool borders = true;
  for (u64 i = 1; i < kPages; i++) {
    const u64 va = kPage + i * kPageSize - 3;
    Store(va, 0x1122334455667788 + i);
    const u8* low = reinterpret_cast<u8*>((*Entry(va) & kPteAddress) + kPageSize - 3);
    const u8* high = reinterpret_cast<u8*>(*Entry(va + 8) & kPteAddress);
    u64 got = 0;
    for (u64 k = 0; k < 8; k++) got |= u64{k < 3 ? low[k] : high[k - 3]} << (8 * k);
    borders &= got == 0x1122334455667788 + i && Load(va) == got;
  }
  Check(borders, "words over the borders of a shuffled region");
  for (u64 i = 0; i < kPages; i++) Unmap(kPage + i * kPageSize);
}

// Linear page 0 is a page like any other (identity-mapped here; the BIOS data area is left intact).
void TestPageZero() {
  const u64 old = Load(0x1f8);
  Store(0x1f8, 0x123456789abcdef0);
  Check(Load(0x1f8) == 0x123456789abcdef0, "a word of page 0");
  Store(0x1f8, old);
  Check(Load(0x1f8) == old, "... and back");
}

constexpr Section kSections[] = {
    {"ad", TestAccessedDirty},
    {"invalidation", TestInvalidation},
    {"tables", TestPageTablesAsMemory},
    {"spaces", TestAddressSpaces},
    {"reserved", TestReservedBits},
    {"upper", TestUserInUpperHalf},
    {"smap", TestSmap},
    {"shuffled", TestShuffledRegion},
    {"zero", TestPageZero},
    {"crossing", TestCrossing},
    {"permutations", TestPermutations},
};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
