// SPDX-License-Identifier: Apache-2.0
// Page tables: a physical page allocator, map/unmap at every level, and regions for tests.
#ifndef ALIBI_FROBOS_LIB_PAGING_H_
#define ALIBI_FROBOS_LIB_PAGING_H_

#include "frobos/lib/privileged.h"
#include "frobos/lib/types.h"

namespace alibi::frobos {

inline constexpr u64 kPageSize = 4096;
inline constexpr u64 kPteP = 1u << 0, kPteW = 1u << 1, kPteU = 1u << 2, kPtePwt = 1u << 3,
                     kPtePcd = 1u << 4, kPteA = 1u << 5, kPteD = 1u << 6, kPtePs = 1u << 7,
                     kPteG = 1u << 8, kPteNx = 1ull << 63;
inline constexpr u64 kPteAddress = 0x000f'ffff'ffff'f000ull;

// A region of the higher half that only tests use: nothing is mapped there at the start.
inline constexpr u64 kHighBase = 0xffff'8000'0000'0000ull;
// A region of the lower half for user mappings, above the identity map.
inline constexpr u64 kUserBase = 0x0000'0080'0000'0000ull;

void InitPaging();

// A zeroed physical page (identity mapped, so also its address). Panics when RAM is used up.
u64 AllocPage();
// size bytes of contiguous RAM aligned to align (a power of two), zeroed.
u64 AllocRange(u64 size, u64 align);

// The entry for va at a level: 1 = PTE, 2 = PDE, 3 = PDPTE, 4 = PML4E. Missing upper tables are
// made, with the most liberal rights; nullptr if a large page is in the way.
u64* Entry(u64 va, int level = 1);
// As the hardware would walk: the lowest entry present or not that decides va, and its level.
u64* Walk(u64 va, int* level);

// Maps one page of the level's size (1: 4 KB, 2: 2 MB, 3: 1 GB). flags need not contain kPteP.
void Map(u64 va, u64 pa, u64 flags, int level = 1);
// Clears the entry and invalidates va.
void Unmap(u64 va, int level = 1);
// Turns the 2 MB page around va into 512 PTEs with the same rights.
void SplitLargePage(u64 va);
// Sets the flags of a 4 KB page and invalidates it (splitting a large page if need be).
void Protect(u64 va, u64 flags);

// Lets users at everything that is mapped from one address to the other (and around, as pages
// have it), and invalidates it.
void OpenToUsers(u64 from, u64 to);

// Maps pages 4 KB pages at va to RAM whose physical order is shuffled: no two neighbours are
// physical neighbours. Same seed, same layout.
void MapShuffled(u64 va, u64 pages, u64 flags);

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_PAGING_H_
