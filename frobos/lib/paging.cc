// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib/paging.h"

#include "frobos/common/console.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/string.h"

namespace alibi::frobos {

extern "C" {
extern u8 kernel_end[];
extern u8 user_start[];
extern u8 user_end[];
extern u64 boot_pml4[];
}

namespace {

u64 next_free;

u64* Table(u64 entry) { return reinterpret_cast<u64*>(entry & kPteAddress); }
unsigned Index(u64 va, int level) { return va >> (12 + 9 * (level - 1)) & 511; }
bool IsLeaf(u64 entry, int level) { return level == 1 || (entry & kPtePs) != 0; }

}  // namespace

u64 AllocRange(u64 size, u64 align) {
  const u64 at = (next_free + align - 1) & ~(align - 1);
  if (at + size > MemoryEnd()) Panic("out of memory: %lu bytes wanted", size);
  next_free = at + size;
  memset(reinterpret_cast<void*>(at), 0, size);
  return at;
}

u64 AllocPage() { return AllocRange(kPageSize, kPageSize); }

u64* Entry(u64 va, int level) {
  u64* table = Table(ReadCr3());
  for (int l = 4; l > level; l--) {
    u64* entry = &table[Index(va, l)];
    if ((*entry & kPteP) == 0) {
      SetTableEntry(entry, AllocPage() | kPteP | kPteW | kPteU, l);
    } else if (l < 4 && IsLeaf(*entry, l)) {
      return nullptr;
    }
    table = Table(*entry);
  }
  return &table[Index(va, level)];
}

u64* Walk(u64 va, int* level) {
  u64* table = Table(ReadCr3());
  for (int l = 4;; l--) {
    u64* entry = &table[Index(va, l)];
    *level = l;
    if ((*entry & kPteP) == 0 || (l < 4 && IsLeaf(*entry, l))) return entry;
    table = Table(*entry);
  }
}

void Map(u64 va, u64 pa, u64 flags, int level) {
  u64* entry = Entry(va, level);
  if (entry == nullptr) Panic("Map: a large page is in the way at %lx", va);
  SetTableEntry(entry, pa | flags | kPteP | (level > 1 ? kPtePs : 0), level);
  Invlpg(va);
}

void Unmap(u64 va, int level) {
  u64* entry = Entry(va, level);
  if (entry != nullptr) SetTableEntry(entry, 0, level);
  Invlpg(va);
}

void SplitLargePage(u64 va) {
  u64* entry = Entry(va, 2);
  if (entry == nullptr || (*entry & (kPteP | kPtePs)) != (kPteP | kPtePs)) return;
  const u64 table = AllocPage();
  const u64 base = *entry & kPteAddress & ~u64{0x1fffff};
  const u64 flags = *entry & ~kPteAddress & ~(kPtePs | kPteG);
  for (u64 i = 0; i < 512; i++) reinterpret_cast<u64*>(table)[i] = (base + i * kPageSize) | flags;
  SetTableEntry(entry, table | kPteP | kPteW | kPteU, 2);
  FlushTlb();
}

void Protect(u64 va, u64 flags) {
  SplitLargePage(va);
  u64* entry = Entry(va);
  SetTableEntry(entry, (*entry & kPteAddress) | flags | kPteP, 1);
  Invlpg(va);
}

void OpenToUsers(u64 from, u64 to) {
  for (u64 va = from; va < to;) {
    int level;
    u64* const entry = Walk(va, &level);
    SetTableEntry(entry, *entry | kPteU, level);
    Invlpg(va);
    va = (va | ((kPageSize << 9 * (level - 1)) - 1)) + 1;
  }
}

void MapShuffled(u64 va, u64 pages, u64 flags) {
  const u64 base = AllocRange(pages * kPageSize, kPageSize);
  // Stepping by an odd number close to the golden section visits every page of a power of two;
  // smaller counts skip what lies outside.
  u64 size = 1;
  while (size < pages) size *= 2;
  const u64 step = (size * 5 / 8) | 1;
  u64 at = 0;
  for (u64 i = 0; i < pages; i++) {
    do {
      at = (at + step) & (size - 1);
    } while (at >= pages);
    Map(va + i * kPageSize, base + at * kPageSize, flags);
  }
}

void InitPaging() {
  next_free = (reinterpret_cast<u64>(kernel_end) + kPageSize - 1) & ~(kPageSize - 1);
  for (u64 va = reinterpret_cast<u64>(user_start); va < reinterpret_cast<u64>(user_end);
       va += kPageSize) {
    Protect(va, kPteW | kPteU);
  }
}

}  // namespace alibi::frobos
