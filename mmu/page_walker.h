// SPDX-License-Identifier: Apache-2.0
// The guest's page tables: one walker over a table of level descriptions, and visitors.
//
// SDM vol. 3: 4.3 (32-bit), 4.4 (PAE), 4.5 (4-level), 4.6 (access rights), 4.7 (error codes),
// 4.8 (accessed and dirty flags). PAE's four top entries are those that were loaded with CR3
// (4.4.1), whatever their memory holds now: PagingContext::pdpte.
#ifndef ALIBI_MMU_PAGE_WALKER_H_
#define ALIBI_MMU_PAGE_WALKER_H_

#include "base/types.h"
#include "mmu/guest_memory.h"
#include "vcpu/fault.h"
#include "vcpu/state.h"

namespace alibi::mmu {

inline constexpr u64 kPtePresent = 1, kPteWritable = 2, kPteUser = 4, kPteAccessed = 0x20,
                     kPteDirty = 0x40, kPteLarge = 0x80, kPteGlobal = 0x100,
                     kPteNoExecute = u64{1} << 63;
// Bits of an entry above the leaves that no translation depends on: PWT, PCD, G, available.
inline constexpr u64 kPteIgnoredAbove = 0xf18;

// What a translation allows, as the conjunction over its levels.
inline constexpr u8 kRightExecute = 1, kRightWrite = 2, kRightUser = 4, kRightsAll = 7;

// The level of PAE's page-directory pointers; PAE has as many levels.
inline constexpr unsigned kPdpteLevel = 3;

enum class PagingMode : u8 { kNone, k32Bit, kPae, k4Level };

struct LevelFormat {
  u8 shift;           // of the linear address
  u8 index_bits;      // entries per table, log2
  bool may_be_leaf;   // PS is meaningful (for 32-bit paging if CR4.PSE)
  bool has_flags;     // W, U, A (PAE's top level has none)
  u64 reserved;       // must be zero in an entry that leads to a table (or is a level-1 leaf)
  u64 reserved_leaf;  // must be zero in a large page's entry

  // A table has 32 parts (that of PAE's top level has none): a bit for the one that holds the entry
  // of a linear page (EntryIndex).
  constexpr unsigned part_bits() const { return index_bits - 5u; }
  constexpr u32 PartOf(u64 index) const {
    return u32{1} << (index >> (shift - 12 + part_bits()) & 31);
  }
};

struct PagingFormat {
  u8 levels;       // 0: paging is off
  u8 entry_bytes;  // 4 or 8
  u64 address_mask;
  u64 no_execute;        // the bit, or 0
  LevelFormat level[5];  // [1] = leaf tables
};

const PagingFormat& FormatOf(PagingMode mode);

// All that decides how linear addresses translate, apart from the access itself.
struct PagingContext {
  const PagingFormat* format = nullptr;
  PhysAddr root;
  bool write_protect = false;  // CR0.WP
  bool large_pages = false;    // CR4.PSE; true with PAE and in long mode
  bool no_execute = false;     // EFER.NXE
  bool smep = false;
  bool smap = false;
  u64 pdpte[4] = {};  // PAE's top level
};

struct Access {
  bool write = false;
  bool fetch = false;
  bool user = false;       // a user-mode access
  bool smap_open = false;  // EFLAGS.AC, and the access is explicit
};

enum class WalkStatus : u8 { kMapped, kNotPresent, kReserved };

struct WalkStep {
  unsigned level;
  bool leaf;
  PhysAddr table;  // page (or for PAE's top level, 32-byte aligned)
  PhysAddr entry_address;
  u64 entry;
  u8 rights;  // of the path down to and including this entry
};

struct WalkResult {
  WalkStatus status = WalkStatus::kNotPresent;
  u8 leaf_level = 0;  // 0 with paging off
  u8 rights = 0;
  u8 upper_rights = 0;  // of the levels above the leaf
  u8 top_level = 0;
  PhysAddr address;           // of the byte; valid if mapped
  PhysAddr entry_address[5];  // by level, valid from top_level down to leaf_level
  u64 entry[5];
};

// Without the page-directory pointers of PAE paging.
PagingContext ContextOf(const vcpu::VcpuState& state);
// The page-directory pointers at a CR3; false: a present one has a reserved bit set.
bool ReadPdptes(const GuestMemory& memory, u64 cr3, u64 pdpte[4]);

// An entry, which another VCPU may store meanwhile.
inline u64 LoadEntry(const u8* host, unsigned bytes) {
  return bytes == 4 ? __atomic_load_n(reinterpret_cast<const u32*>(host), __ATOMIC_RELAXED)
                    : __atomic_load_n(reinterpret_cast<const u64*>(host), __ATOMIC_RELAXED);
}
// Entry at a table's physical address; all ones where there is no memory, as on an idle bus.
inline u64 ReadEntry(const GuestMemory& memory, PhysAddr address, unsigned bytes) {
  const u64 offset = memory.ArenaOffset(address);
  if (offset == GuestMemory::kNotRam) return bytes == 4 ? 0xffffffffu : ~u64{0};
  return LoadEntry((memory.rw_base() + offset).As<const u8>(), bytes);
}

inline bool IsLeaf(const PagingContext& context, unsigned level, u64 entry) {
  return level == 1 ||
         (context.format->level[level].may_be_leaf && context.large_pages && (entry & kPteLarge));
}
// A present entry with a reserved bit set?
inline bool HasReservedBits(const PagingContext& context, unsigned level, bool leaf, u64 entry) {
  const LevelFormat& format = context.format->level[level];
  u64 reserved = leaf && level > 1 ? format.reserved_leaf : format.reserved;
  if (!context.no_execute) reserved |= context.format->no_execute;
  return entry & reserved;
}
inline u8 RightsOf(const PagingContext& context, unsigned level, u64 entry) {
  const u8 data = context.format->level[level].has_flags
                      ? static_cast<u8>(entry & (kRightWrite | kRightUser))
                      : u8{kRightWrite | kRightUser};
  return data | ((entry & context.format->no_execute) ? 0 : kRightExecute);
}
// First byte of the page a leaf entry maps (PSE-36 in 32-bit paging).
inline PhysAddr FrameOf(const PagingContext& context, unsigned level, u64 entry) {
  if (level == 1) return PhysAddr(entry & context.format->address_mask);
  const u64 frame =
      entry & context.format->address_mask & ~((u64{1} << context.format->level[level].shift) - 1);
  return PhysAddr(context.format->entry_bytes == 4 ? frame | (entry & 0x1fe000) << 19 : frame);
}

// Walks from the root to the leaf or to the first entry that is absent or malformed. The visitor
// sees every well-formed present entry: visitor(const WalkStep&).
template <class Visitor>
WalkStatus WalkTables(const GuestMemory& memory, const PagingContext& context, LinearAddr linear,
                      Visitor&& visitor) {
  const PagingFormat& format = *context.format;
  PhysAddr table = context.root;
  u8 rights = kRightsAll;
  for (unsigned level = format.levels; level != 0; --level) {
    const LevelFormat& here = format.level[level];
    const u64 slot = (linear.value >> here.shift) & ((u64{1} << here.index_bits) - 1);
    const PhysAddr address = table + slot * format.entry_bytes;
    const u64 entry = level == kPdpteLevel && format.levels == kPdpteLevel
                          ? context.pdpte[slot]
                          : ReadEntry(memory, address, format.entry_bytes);
    if (!(entry & kPtePresent)) return WalkStatus::kNotPresent;
    const bool leaf = IsLeaf(context, level, entry);
    if (HasReservedBits(context, level, leaf, entry)) return WalkStatus::kReserved;
    rights &= RightsOf(context, level, entry);
    visitor(WalkStep{level, leaf, table, address, entry, rights});
    if (leaf) return WalkStatus::kMapped;
    table = PhysAddr(entry & format.address_mask);
  }
  return WalkStatus::kMapped;
}

// Calls visitor(slot, entry) for every present, well-formed entry of a leaf table.
template <class Visitor>
void ForEachLeafEntry(const GuestMemory& memory, const PagingContext& context, PhysAddr table,
                      Visitor&& visitor) {
  const unsigned bytes = context.format->entry_bytes;
  const unsigned count = 1u << context.format->level[1].index_bits;
  for (unsigned slot = 0; slot < count; ++slot) {
    const u64 entry = ReadEntry(memory, table + slot * bytes, bytes);
    if ((entry & kPtePresent) && !HasReservedBits(context, 1, true, entry)) visitor(slot, entry);
  }
}

// --- Visitors at work ---
// Translates without looking at rights and without touching A or D.
WalkResult Walk(const GuestMemory& memory, const PagingContext& context, LinearAddr linear);
// For debuggers: false if unmapped.
bool LookUp(const GuestMemory& memory, const PagingContext& context, LinearAddr linear,
            PhysAddr* address);
// Pages that hold the tables of one translation, root first; returns how many (at most 4).
unsigned CollectTables(const GuestMemory& memory, const PagingContext& context, LinearAddr linear,
                       PhysAddr tables[4]);

// SDM vol. 3, 4.6.1.
bool Permits(const PagingContext& context, u8 rights, const Access& access);
// SDM vol. 3, 4.7.
u32 PageFaultCode(const PagingContext& context, WalkStatus status, const Access& access);
// SDM vol. 3, 4.8: A in every entry used, D in the leaf of a store. Returns false if some flag had
// to be set where nothing can be stored (ROM, no memory). Call it only for accesses that succeed.
bool MarkUsed(const GuestMemory& memory, const PagingContext& context, WalkResult* walk,
              bool write);

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_PAGE_WALKER_H_
