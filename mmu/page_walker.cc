// SPDX-License-Identifier: Apache-2.0
#include "mmu/page_walker.h"

namespace alibi::mmu {
namespace {

// Bits from MAXPHYADDR up to `top`, inclusive.
constexpr u64 PhysReserved(unsigned top) {
  return ((u64{2} << top) - 1) & ~((u64{1} << kPhysBits) - 1);
}
constexpr u64 Bits(unsigned low, unsigned high) {
  return ((u64{2} << high) - 1) & ~((u64{1} << low) - 1);
}
constexpr u64 kFrame64 = Bits(12, 51);

// Indexed by PagingMode; levels by their number, leaf tables are 1.
constexpr PagingFormat kFormats[] = {
    // Paging off. Level 1 only says how far "around" a page reaches when its neighbours are filled.
    {0, 8, 0, 0, {{}, {12, 9, false, false, 0, 0}, {}, {}, {}}},
    // 32-bit, figure 4-4; PSE-36 with MAXPHYADDR 40 leaves bit 21 reserved.
    {2,
     4,
     Bits(12, 31),
     0,
     {{}, {12, 10, false, true, 0, 0}, {22, 10, true, true, 0, Bits(21, 21)}, {}, {}}},
    // PAE, figure 4-7.
    {3,
     8,
     kFrame64,
     kPteNoExecute,
     {{},
      {12, 9, false, true, PhysReserved(62), 0},
      {21, 9, true, true, PhysReserved(62), PhysReserved(62) | Bits(13, 20)},
      {30, 2, false, false, PhysReserved(63) | Bits(1, 2) | Bits(5, 8), 0},
      {}}},
    // 4-level, figure 4-11.
    {4,
     8,
     kFrame64,
     kPteNoExecute,
     {{},
      {12, 9, false, true, PhysReserved(51), 0},
      {21, 9, true, true, PhysReserved(51), PhysReserved(51) | Bits(13, 20)},
      {30, 9, true, true, PhysReserved(51), PhysReserved(51) | Bits(13, 29)},
      {39, 9, false, true, PhysReserved(51) | kPteLarge, 0}}},
};

PagingMode ModeOf(const vcpu::VcpuState& state) {
  if (!(state.cr0 & vcpu::kCr0Pg)) return PagingMode::kNone;
  if (state.efer & vcpu::kEferLma) return PagingMode::k4Level;
  return (state.cr4 & vcpu::kCr4Pae) ? PagingMode::kPae : PagingMode::k32Bit;
}

// CR3's address bits by mode: bits 4:0 are ignored for PAE's table of 32 bytes, 11:0 else.
u64 RootOf(PagingMode mode, u64 cr3) {
  switch (mode) {
    case PagingMode::kNone:
      return 0;
    case PagingMode::k32Bit:
      return cr3 & Bits(12, 31);
    case PagingMode::kPae:
      return cr3 & Bits(5, 31);
    case PagingMode::k4Level:
      return cr3 & Bits(12, kPhysBits - 1);
  }
  return 0;
}

bool SetFlags(const GuestMemory& memory, PhysAddr address, unsigned bytes, u64 flags) {
  const u64 offset = memory.ArenaOffset(address);
  if (offset == GuestMemory::kNotRam || (memory.InfoAt(offset).flags & kRomPage)) return false;
  u8* host = (memory.rw_base() + offset).As();
  if (bytes == 4) {
    __atomic_fetch_or(reinterpret_cast<u32*>(host), static_cast<u32>(flags), __ATOMIC_SEQ_CST);
  } else {
    __atomic_fetch_or(reinterpret_cast<u64*>(host), flags, __ATOMIC_SEQ_CST);
  }
  return true;
}

}  // namespace

const PagingFormat& FormatOf(PagingMode mode) { return kFormats[static_cast<unsigned>(mode)]; }

PagingContext ContextOf(const vcpu::VcpuState& state) {
  const PagingMode mode = ModeOf(state);
  PagingContext context;
  context.format = &FormatOf(mode);
  context.root = PhysAddr(RootOf(mode, state.cr3));
  if (mode == PagingMode::kNone) return context;
  context.write_protect = state.cr0 & vcpu::kCr0Wp;
  context.large_pages = mode != PagingMode::k32Bit || (state.cr4 & vcpu::kCr4Pse);
  context.no_execute = mode != PagingMode::k32Bit && (state.efer & vcpu::kEferNxe);
  context.smep = state.cr4 & vcpu::kCr4Smep;
  context.smap = state.cr4 & vcpu::kCr4Smap;
  return context;
}

bool ReadPdptes(const GuestMemory& memory, u64 cr3, u64 pdpte[4]) {
  const PagingFormat& format = FormatOf(PagingMode::kPae);
  const PhysAddr table(RootOf(PagingMode::kPae, cr3));
  bool valid = true;
  for (unsigned slot = 0; slot < 4; ++slot) {
    const u64 entry = ReadEntry(memory, table + slot * 8, 8);
    pdpte[slot] = entry;
    valid = valid && (!(entry & kPtePresent) || !(entry & format.level[kPdpteLevel].reserved));
  }
  return valid;
}

WalkResult Walk(const GuestMemory& memory, const PagingContext& context, LinearAddr linear) {
  WalkResult walk;
  walk.top_level = context.format->levels;
  if (context.format->levels == 0) {
    walk.status = WalkStatus::kMapped;
    walk.rights = walk.upper_rights = kRightsAll;
    walk.address = PhysAddr(linear.value & 0xffffffff);
    return walk;
  }
  walk.upper_rights = walk.rights = kRightsAll;
  walk.status = WalkTables(memory, context, linear, [&](const WalkStep& step) {
    walk.entry_address[step.level] = step.entry_address;
    walk.entry[step.level] = step.entry;
    walk.leaf_level = static_cast<u8>(step.level);
    walk.upper_rights = walk.rights;
    walk.rights = step.rights;
  });
  if (walk.status == WalkStatus::kMapped) {
    const u64 in_page =
        linear.value & ((u64{1} << context.format->level[walk.leaf_level].shift) - 1);
    walk.address = FrameOf(context, walk.leaf_level, walk.entry[walk.leaf_level]) + in_page;
  }
  return walk;
}

bool LookUp(const GuestMemory& memory, const PagingContext& context, LinearAddr linear,
            PhysAddr* address) {
  const WalkResult walk = Walk(memory, context, linear);
  *address = walk.address;
  return walk.status == WalkStatus::kMapped;
}

unsigned CollectTables(const GuestMemory& memory, const PagingContext& context, LinearAddr linear,
                       PhysAddr tables[4]) {
  unsigned count = 0;
  WalkTables(memory, context, linear,
             [&](const WalkStep& step) { tables[count++] = step.table.PageBase(); });
  return count;
}

bool Permits(const PagingContext& context, u8 rights, const Access& access) {
  if (context.format->levels == 0) return true;
  const bool user_page = rights & kRightUser;
  if (access.user) {
    if (!user_page) return false;
    if (access.write && !(rights & kRightWrite)) return false;
    return !access.fetch || (rights & kRightExecute);
  }
  if (access.fetch) return (rights & kRightExecute) && !(user_page && context.smep);
  if (user_page && context.smap && !access.smap_open) return false;
  return !access.write || (rights & kRightWrite) || !context.write_protect;
}

u32 PageFaultCode(const PagingContext& context, WalkStatus status, const Access& access) {
  u32 code = status == WalkStatus::kNotPresent ? 0 : vcpu::kPfPresent;
  if (status == WalkStatus::kReserved) code |= vcpu::kPfReserved;
  if (access.write) code |= vcpu::kPfWrite;
  if (access.user) code |= vcpu::kPfUser;
  // context.no_execute implies PAE or 4-level paging.
  if (access.fetch && (context.smep || context.no_execute)) code |= vcpu::kPfFetch;
  return code;
}

bool MarkUsed(const GuestMemory& memory, const PagingContext& context, WalkResult* walk,
              bool write) {
  bool stored = true;
  for (unsigned level = walk->top_level; level >= walk->leaf_level && level != 0; --level) {
    if (!context.format->level[level].has_flags) continue;
    u64 flags = kPteAccessed;
    if (write && level == walk->leaf_level) flags |= kPteDirty;
    if ((walk->entry[level] & flags) == flags) continue;
    stored &= SetFlags(memory, walk->entry_address[level], context.format->entry_bytes, flags);
    walk->entry[level] |= flags;
  }
  return stored;
}

}  // namespace alibi::mmu
