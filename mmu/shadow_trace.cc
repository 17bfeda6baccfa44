// SPDX-License-Identifier: Apache-2.0
// From stores to traced pages, and from new traces, to shadow entries.
#include <algorithm>

#include "base/check.h"
#include "base/raw_copy.h"
#include "mmu/mmu.h"

namespace alibi::mmu {
namespace {

// Bits of a leaf entry that fetches do not depend on: W, PWT, PCD, D, PAT, G, available.
constexpr u64 kNotForExecution = 0xfda;
// Stores to a page table of address spaces that do not run, after which it counts as data.
constexpr u8 kFlood = 255;
constexpr u64 kUnit = 8;
// Nodes of an execute chain that are not worth looking for stale ones.
constexpr u32 kLeastExecuted = 64;
// The same of a writable chain.
constexpr u32 kLeastWritable = 8;

}  // namespace

// --- Stores ---

void Mmu::StoreTo(const View::WriteTarget& target, u64 in_page, const void* data, unsigned size) {
  PageInfo& info = *target.info;
  u8* host = target.host + in_page;
  if (size == kUnit && (in_page & (kUnit - 1)) == 0 && info.flags == kPageTableTrace) {
    ++counters_.trace_writes;
    const u64 value = *static_cast<const AnyU64*>(data);
    u64* entry = reinterpret_cast<u64*>(host);
    const u64 old_value = __atomic_load_n(entry, __ATOMIC_RELAXED);
    if (old_value == value) return;
    __atomic_store_n(entry, value, __ATOMIC_RELAXED);
    pending_ = PendingStore{target.phys.value + in_page, 1, &old_value};
    FollowStore(HostAddr(host) - memory_->rw_base(), old_value, value);
    pending_.units = 0;
    return;
  }
  if (info.flags == 0) {
    RawCopy(host, data, size);
    return;
  }
  WriteTraced(target.phys + in_page, data, size);
}

void Mmu::WriteTraced(PhysAddr address, const void* data, u64 size) {
  const u64 offset = memory_->ArenaOffset(address);
  PageInfo& info = memory_->InfoAt(offset);
  u8* host = (memory_->rw_base() + offset).As();
  // Meanwhile the page may have become no memory.
  if ((info.flags & kTracedElsewhere) && TakeMachine()) {
    return memory_->WritePhys(address, data, size);
  }
  ++counters_.trace_writes;
  const bool elsewhere = info.flags & kTracedElsewhere;
  if ((info.flags & kPageTableTrace) && size > kMaxFollowed) DropTable(offset & ~kPageMask);
  if (elsewhere) BeforeStore(offset, size);
  if ((info.flags & kPageTableTrace) || (elsewhere && size <= kMaxFollowed)) {
    // Stored first, as one access; then every touched unit is followed from its old value.
    const u64 first = offset & ~(kUnit - 1);
    const unsigned units = static_cast<unsigned>((offset + size - first + kUnit - 1) / kUnit);
    u64* values = (memory_->rw_base() + first).As<u64>();
    u64 old_values[kMaxFollowed / kUnit + 1];
    for (unsigned i = 0; i < units; ++i) old_values[i] = values[i];
    RawCopy(host, data, size);
    pending_ = PendingStore{address.value & ~(kUnit - 1), units, old_values};
    for (unsigned i = 0; i < units; ++i) {
      if (old_values[i] != values[i]) FollowStore(first + i * kUnit, old_values[i], values[i]);
    }
    pending_.units = 0;
    if (elsewhere) AfterStore(first, units, old_values, address, size);
  } else {
    RawCopy(host, data, size);
    if (elsewhere) AfterStore(offset, 0, nullptr, address, size);
  }
  if ((info.flags & kCodeTraces) && listener_ != nullptr) listener_->CodeWritten(address, size);
}

// An aligned 8-byte unit of a page table changed: one entry, or two of 32-bit paging. Is it a table
// of an address space that runs?
[[gnu::always_inline]] inline bool Mmu::FollowUnit(u64 arena_offset, u64 old_value, u64 new_value) {
  const PageInfo& info = memory_->InfoAt(arena_offset);
  const u64 in_page = arena_offset & kPageMask;
  bool running = false;
  for (u32 node = info.table_chain; node != 0;) {
    const Use use = uses_[node].use;
    running |= Runs(pool_[use.view()].context().root);
    // A removal may have taken nodes of this very chain (a table that leads to itself); what was
    // followed already is harmless to follow again.
    node = FollowUse(use, in_page, old_value, new_value) ? info.table_chain : uses_[node].next;
  }
  return running;
}

void Mmu::FollowStore(u64 arena_offset, u64 old_value, u64 new_value) {
  const bool running = FollowUnit(arena_offset, old_value, new_value);
  PageInfo& info = memory_->InfoAt(arena_offset);
  if (running) {
    info.flood = 0;
  } else if (++info.flood == kFlood) {
    DropTable(arena_offset & ~kPageMask);
  }
}

// What is known of the page beside its entry in the shadow.
[[gnu::always_inline]] inline void Mmu::ForgetLeaf(View& view, u64 index, u64 old_entry,
                                                   u64 new_entry) {
  view.DropWriteTarget(index);
  if ((old_entry ^ new_entry) & ~kNotForExecution) view.DropExecuted(index);
}

// What was derived from the old entry goes, or loses the rights that the new one does not give. An
// entry of the shadow that there is not yet is made when it is needed, and one that becomes
// writable when it is stored through: most of a batch is not, before it changes again.
[[gnu::always_inline]] inline void Mmu::SyncEntry(View& view, u64 index, u64 old_entry,
                                                  u64 new_entry, u8 upper_rights) {
  if (!(old_entry & kPtePresent) || old_entry == new_entry) return;
  if (view.ChunkReady(index) && view.Entry(index) != view.Poison(index) &&
      view.SetEntry(index, DesiredEntry(view, index, new_entry, upper_rights, Writable::kIfItIs))) {
    ++counters_.pte_updates;
  }
  ForgetLeaf(view, index, old_entry, new_entry);
}

template <class Entry>
[[gnu::always_inline]] inline void Mmu::SyncUse(Use use, u64 first_unit, const u64* known,
                                                const u64* now, u64 units) {
  constexpr u64 kPerUnit = kUnit / sizeof(Entry);
  View& view = pool_[use.view()];
  const Entry* before = reinterpret_cast<const Entry*>(known);
  const Entry* after = reinterpret_cast<const Entry*>(now);
  const u64 first = use.index() + first_unit * kPerUnit;
  const u8 upper_rights = static_cast<u8>(use.rights());
  for (u64 i = 0; i < units * kPerUnit; ++i) {
    SyncEntry(view, first + i, before[i], after[i], upper_rights);
  }
}

// Units of an out-of-sync table that have changed become known to the shadow: at each of its
// places, which are leaf tables all.
void Mmu::SyncUnits(unsigned place, u64 first, u64 units) {
  const u64 table = out_of_sync_.OffsetOf(place);
  u64* known = out_of_sync_.CopyOf(place) + first;
  const u64* now = (memory_->rw_base() + table).As<const u64>() + first;
  const bool narrow = out_of_sync_.EntryShiftOf(place) == 2;
  for (u32 node = memory_->InfoAt(table).table_chain; node != 0; node = uses_[node].next) {
    if (narrow) {
      SyncUse<u32>(uses_[node].use, first, known, now, units);
    } else {
      SyncUse<u64>(uses_[node].use, first, known, now, units);
    }
  }
  RawCopy(known, now, units * kUnit);
}

// The same for those of `bytes`, aligned to units.
void Mmu::SyncPart(u64 arena_offset, u64 bytes) {
  const unsigned place = memory_->InfoAt(arena_offset).flood;
  const u64* known = out_of_sync_.CopyOf(place);
  const u64* now = (memory_->rw_base() + (arena_offset & ~kPageMask)).As<const u64>();
  u64 begin = (arena_offset & kPageMask) / kUnit;
  const u64 stop = begin + bytes / kUnit;
  while (begin < stop) {
    u64 end = begin;
    while (end < stop && known[end] != now[end]) ++end;
    if (end != begin) SyncUnits(place, begin, end - begin);
    begin = end + 1;
  }
}

bool Mmu::FollowUse(Use use, u64 in_page, u64 old_value, u64 new_value) {
  View& view = pool_[use.view()];
  const PagingContext& context = view.context();
  if (context.format->entry_bytes == 8) {
    const u64 slot = in_page / 8;
    if (use.level() == 1) {
      ApplyLeafChange(view, use.index() + slot, old_value, new_value,
                      static_cast<u8>(use.rights()));
      return false;
    }
    return ApplyUpperChange(view, use, slot, old_value, new_value);
  }
  bool removed = false;
  for (unsigned half = 0; half < 2; ++half) {
    const u64 old_entry = static_cast<u32>(old_value >> (32 * half));
    const u64 new_entry = static_cast<u32>(new_value >> (32 * half));
    if (old_entry == new_entry) continue;
    const u64 slot = in_page / 4 + half;
    if (use.level() == 1) {
      ApplyLeafChange(view, use.index() + slot, old_entry, new_entry,
                      static_cast<u8>(use.rights()));
    } else {
      removed |= ApplyUpperChange(view, use, slot, old_entry, new_entry);
    }
  }
  return removed;
}

void Mmu::ApplyLeafChange(View& view, u64 index, u64 old_entry, u64 new_entry, u8 upper_rights) {
  if (!((old_entry | new_entry) & kPtePresent)) return;
  if (view.ChunkReady(index) &&
      view.SetEntry(index, DesiredEntry(view, index, new_entry, upper_rights))) {
    ++counters_.pte_updates;
  }
  if (old_entry & kPtePresent) ForgetLeaf(view, index, old_entry, new_entry);
}

// Returns whether page-table uses were removed.
bool Mmu::ApplyUpperChange(View& view, Use use, u64 slot, u64 old_entry, u64 new_entry) {
  const PagingContext& context = view.context();
  const unsigned level = use.level();
  if (!(old_entry & kPtePresent)) return false;
  // Never used by a walk: nothing was derived from it.
  if (!(old_entry & kPteAccessed)) return false;
  if (level == context.format->levels && view.key().follows_root() &&
      !view.UsesRootEntry(static_cast<unsigned>(slot))) {
    return false;
  }
  const bool leaf = IsLeaf(context, level, old_entry);
  const u64 changed =
      (old_entry ^ new_entry) & ~(leaf ? kPteIgnoredAbove : kPteIgnoredAbove | kPteDirty);
  constexpr u64 kUsed = kPteAccessed | kPteDirty;
  if ((changed & ~kUsed) == 0 && (new_entry & changed) == changed) return false;
  return DropUpperEntry(view, level, use.index(), slot, old_entry);
}

// What was derived from a present entry of a table that maps from `base` on. Returns whether
// page-table uses were removed.
bool Mmu::DropUpperEntry(View& view, unsigned level, u64 base, u64 slot, u64 old_entry) {
  const PagingContext& context = view.context();
  const u64 span = u64{1} << (context.format->level[level].shift - 12);
  const u64 first = base + slot * span;
  ++counters_.range_poisons;
  view.PoisonRange(first, span);
  if (level == context.format->levels) view.ForgetRootEntry(static_cast<unsigned>(slot));
  return !IsLeaf(context, level, old_entry) &&
         RemoveTable(view, level - 1, PhysAddr(old_entry & context.format->address_mask), first);
}

u64 Mmu::EntryBeforeStore(PhysAddr address, unsigned bytes) const {
  const u64 unit = (address.value - pending_.first) / kUnit;
  if (address.value < pending_.first || unit >= pending_.units) {
    return ReadEntry(*memory_, address, bytes);
  }
  const u64 value = pending_.old_values[unit];
  return bytes == 8 ? value : static_cast<u32>(value >> (8 * (address.value & 4)));
}

// What the node knew of the table's parts (ReverseMap::Node); nothing: the page was no table there.
std::optional<u32> Mmu::UnregisterTable(PageInfo& info, Use use) {
  u32* link = &info.table_chain;
  while (*link != 0 && !uses_[*link].use.SamePlace(use)) link = &uses_[*link].next;
  if (*link == 0) return std::nullopt;
  const u32 parts = uses_[*link].parts;
  RemoveTableUse(info, link);
  return parts;
}

// Forgets a table at one place in a view, and the tables below it there. The range it maps has been
// poisoned.
bool Mmu::RemoveTable(View& view, unsigned level, PhysAddr table, u64 base) {
  const u64 offset = memory_->ArenaOffset(table);
  if (offset == GuestMemory::kNotRam) return false;
  const std::optional<u32> found =
      UnregisterTable(memory_->InfoAt(offset), Use::Make(base, view.id(), level));
  if (!found) return false;
  if (level == view.context().format->levels) {
    view.root_page = View::kNoArenaPage;
    view.ForgetRootEntries();
  }
  if (level == 1) {
    View::LeafCache& cache = view.LeafCacheOf(base);
    if (cache.base == base) cache.base = View::kNoTable;
    return true;
  }
  const PagingContext& context = view.context();
  const LevelFormat& format = context.format->level[level];
  const unsigned bytes = context.format->entry_bytes;
  const u64 span = u64{1} << (format.shift - 12);
  const bool stored_to = pending_.units != 0 && PhysAddr(pending_.first).PageBase() == table;
  const u8* host = (memory_->rw_base() + offset).As<const u8>();
  const u64 slots_of_part = u64{1} << format.part_bits();
  for (u32 parts = *found; parts != 0; parts &= parts - 1) {
    const u64 first = static_cast<u64>(__builtin_ctz(parts)) * slots_of_part;
    for (u64 slot = first; slot < first + slots_of_part; ++slot) {
      const u64 entry = stored_to ? EntryBeforeStore(table + slot * bytes, bytes)
                                  : LoadEntry(host + slot * bytes, bytes);
      if (!(entry & kPtePresent) || IsLeaf(context, level, entry)) continue;
      RemoveTable(view, level - 1, PhysAddr(entry & context.format->address_mask),
                  base + slot * span);
    }
  }
  return true;
}

// The page is not used as a page table any more, as far as one can guess; if it is, the next walk
// registers it again.
void Mmu::DropTable(u64 arena_offset) {
  PageInfo& info = memory_->InfoAt(arena_offset);
  ++counters_.table_drops;
  while (info.table_chain != 0) {
    const Use use = uses_[info.table_chain].use;
    View& view = pool_[use.view()];
    const PagingContext& context = view.context();
    const LevelFormat& format = context.format->level[use.level()];
    const u64 count = u64{1} << (format.shift + format.index_bits - 12);
    view.PoisonRange(use.index(), count);
    const PhysAddr table = memory_->PhysOf(arena_offset);
    const bool removed = RemoveTable(view, use.level(), table, use.index());
    ALIBI_CHECK(removed, "a page-table use is found through its own page");
  }
}

void Mmu::TableReleased(PhysAddr page) {
  const u64 offset = memory_->ArenaOffset(page.PageBase());
  if (offset != GuestMemory::kNotRam && memory_->InfoAt(offset).table_chain != 0) {
    DropTable(offset);
  }
}

// --- Traces ---

// The page is a table at this place from now on.
void Mmu::TraceTable(u64 arena_offset, Use use) {
  PageInfo& info = memory_->InfoAt(arena_offset);
  if (OutOfSync(info)) SyncTable(arena_offset);
  info.flood = 0;
  uses_.Push(&info.table_chain, use);
  uses_[info.table_chain].parts = 0;
  pool_.CountTable(use.view(), 1);
  SetTrace(arena_offset, kPageTableTrace);
}

// `link` is one of the table chain's.
void Mmu::RemoveTableUse(PageInfo& info, u32* link) {
  const bool out_of_sync = OutOfSync(info);
  pool_.CountTable(uses_[*link].use.view(), -1);
  uses_.Remove(link);
  if (info.table_chain != 0) return;
  if (out_of_sync) out_of_sync_.Remove(info.flood);
  ClearTrace(OffsetOf(info), kPageTableTrace);
}

void Mmu::SetTrace(u64 arena_offset, u8 flag) {
  PageInfo& info = memory_->InfoAt(arena_offset);
  if (group_ != nullptr && !(info.flags & kOwnTraces)) {
    TakeMachine();
    traced_anew_ |= !(info.flags & kTracedElsewhere);
    TraceElsewhere(arena_offset);
  }
  info.flags |= flag;
  Demote(arena_offset);
}

void Mmu::ClearTrace(u64 arena_offset, u8 flag) {
  PageInfo& info = memory_->InfoAt(arena_offset);
  const bool traced = info.flags & kOwnTraces;
  info.flags &= static_cast<u8>(~flag);
  if (group_ != nullptr && traced && !(info.flags & kOwnTraces)) {
    NoteForgotten(static_cast<u32>(arena_offset >> 12));
  }
}

// No entry leads to the page read-write any more.
void Mmu::Demote(u64 arena_offset) {
  PageInfo& info = memory_->InfoAt(arena_offset);
  const HostAddr page = memory_->rw_base() + (arena_offset & ~kPageMask);
  while (info.writable_chain != 0) {
    const Use use = uses_[info.writable_chain].use;
    View& view = pool_[use.view()];
    const u64 entry = page.value - PageOfIndex(use.index()).value;
    if (view.Entry(use.index()) == entry) {
      view.SetEntry(use.index(), entry - memory_->capacity());
      ++counters_.demotions;
    }
    uses_.Remove(&info.writable_chain);
  }
  info.writable_count = 0;
}

// --- Watched pages ---

void Mmu::WatchPages(LinearAddr first, LinearAddr last, bool loads) {
  constexpr u64 kFew = 4;
  if (!IsCanonical(first) && !IsCanonical(last)) return;
  const WatchedPages::Range range{IsCanonical(first) ? EntryIndex(first) : 0,
                                  IsCanonical(last) ? EntryIndex(last) : kShadowEntries - 1, loads};
  ALIBI_CHECK(!watched_.full(), "who watches pages counts them");
  watched_.Add(range);
  for (unsigned id = 0; id < pool_.count(); ++id) {
    View& view = pool_[id];
    if (range.last - range.first >= kFew) {
      view.PoisonRange(range.first, range.last - range.first + 1);
      continue;
    }
    for (u64 index = range.first; index <= range.last; ++index) {
      if (!view.ChunkReady(index)) continue;
      if (loads) {
        view.SetEntry(index, view.Poison(index));
      } else if (Usable(view, index, true)) {
        view.SetEntry(index, view.Entry(index) - memory_->capacity());
      }
    }
  }
}

void Mmu::ForgetWatchedPages() { watched_.Clear(); }

// --- Traces ---

void Mmu::TraceCode(PhysAddr page) {
  const u64 offset = memory_->ArenaOffset(page);
  if (offset != GuestMemory::kNotRam) SetTrace(offset, kCodeTrace);
}

void Mmu::UntraceCode(PhysAddr page) {
  const u64 offset = memory_->ArenaOffset(page);
  if (offset != GuestMemory::kNotRam) ClearTrace(offset, kCodeTrace);
}

void Mmu::TraceDirectCode(PhysAddr page) {
  const u64 offset = memory_->ArenaOffset(page);
  if (offset != GuestMemory::kNotRam) SetTrace(offset, kDirectTrace);
}

bool Mmu::UntraceDirectCode(PhysAddr page) {
  PageInfo* info = memory_->Info(page);
  if (info == nullptr || !(info->flags & kDirectTrace)) return false;
  ClearTrace(OffsetOf(*info), kDirectTrace);
  ResetJumpEntriesForPhysPage(page);
  return true;
}

// False if there is no room: the entry must then stay in the read-only alias.
bool Mmu::AddWritable(u64 arena_offset, View& view, u64 index) {
  PageInfo& info = memory_->InfoAt(arena_offset);
  const Use use = Use::Make(index, view.id());
  // Entries come and go at the same place; the two latest are enough to notice that mostly.
  if (info.writable_chain != 0) {
    const ReverseMap::Node& newest = uses_[info.writable_chain];
    if (newest.use == use) return true;
    if (newest.next != 0 && uses_[newest.next].use == use) return true;
  }
  // Full: the page's other entries become read-only and come back when they are stored through.
  if (uses_.available() == 0 || info.writable_count == 0xffff) Demote(arena_offset);
  if (uses_.available() == 0) return false;
  const bool compact = uses_.PushCounted(&info.writable_chain, use, kLeastWritable);
  ++info.writable_count;
  if (compact) CompactWritable(arena_offset);
  return true;
}

// The newest node, whose entry is about to be written, stays. As many as stay may come before the
// next time.
void Mmu::CompactWritable(u64 arena_offset) {
  PageInfo& info = memory_->InfoAt(arena_offset);
  const HostAddr page = memory_->rw_base() + (arena_offset & ~kPageMask);
  const auto change = [&](Use use, HostAddr from, HostAddr to) {
    const u64 linear = PageOfIndex(use.index()).value;
    return pool_[use.view()].ReplaceEntry(use.index(), from.value - linear, to.value - linear);
  };
  const HostAddr read_only = page - memory_->capacity();
  const u32 kept = uses_.Compact(
      &uses_[info.writable_chain].next, [&](Use use) { return change(use, page, read_only); },
      [&](Use use) { change(use, read_only, page); });
  info.writable_count = static_cast<u16>(kept + 1);
  uses_[info.writable_chain].room = std::max(kept, kLeastWritable);
}

// --- Executed pages ---

void Mmu::AddExecuted(View& view, u64 index, u64 arena_offset, PhysAddr page) {
  PageInfo& info = memory_->InfoAt(arena_offset);
  if (uses_.PushCounted(&info.execute_chain, Use::Make(index, view.id()), kLeastExecuted)) {
    CompactExecuted(info, page);
  }
}

// As many as stay may come before the next time: a page that is executed at many places is not
// looked through for each of them.
void Mmu::CompactExecuted(PageInfo& info, PhysAddr page) {
  const PhysPage code = page.InPage();
  const PhysPage mark(code.number | u64{1} << 63);  // no page
  const u32 kept = uses_.Compact(
      &info.execute_chain,
      [&](Use use) {
        ++counters_.executed_steps;
        return pool_[use.view()].RenameExecuted(use.index(), code, mark);
      },
      [&](Use use) { pool_[use.view()].RenameExecuted(use.index(), mark, code); });
  uses_[info.execute_chain].room = std::max(kept, kLeastExecuted);
}

bool Mmu::MayExecuteAt(PhysAddr page, LinearAddr linear) {
  constexpr unsigned kMostSteps = 256;
  const PageInfo* info = memory_->Info(page);
  if (info == nullptr) return true;
  const u64 index = EntryIndex(linear);
  unsigned steps = 0;
  for (u32 node = info->execute_chain; node != 0; node = uses_[node].next) {
    if (++steps > kMostSteps) return true;
    const Use use = uses_[node].use;
    if (use.index() == index && pool_[use.view()].ExecutedAs(index) == page.InPage()) {
      return true;
    }
  }
  return false;
}

// Code of the page has changed. Views know the page as executed no more until they fetch from it
// again: the next change concerns those that have done so, and no others.
void Mmu::ResetJumpEntriesForPhysPage(PhysAddr address) {
  PageInfo* info = memory_->Info(address);
  if (info == nullptr) return;
  const PhysPage page = address.InPage();
  while (info->execute_chain != 0) {
    const Use use = uses_[info->execute_chain].use;
    uses_.Remove(&info->execute_chain);
    ++counters_.executed_steps;
    View& view = pool_[use.view()];
    if (view.ExecutedAs(use.index()) == page) view.DropExecuted(use.index());
  }
}

// --- Views as a whole ---

void Mmu::FlushView(View& view, bool release) {
  ForgetRoot(view);
  for (u32 i = 0; i < view.table_count(); ++i) {
    PageInfo& info = memory_->InfoAt(u64{view.tables()[i]} << 12);
    for (u32* link = &info.table_chain; *link != 0;) {
      if (uses_[*link].use.view() == view.id()) {
        RemoveTableUse(info, link);
      } else {
        link = &uses_[*link].next;
      }
    }
  }
  view.Clear(release);
}

}  // namespace alibi::mmu
