// SPDX-License-Identifier: Apache-2.0
// From guest page tables to shadow entries.
#include <utility>

#include "mmu/mmu.h"

namespace alibi::mmu {
namespace {

using vcpu::GuestFault;

// One access adds at most: 4 tables, 1,024 entries of a leaf table, 1 executed page.
constexpr u32 kNodesPerAccess = 2048;
// So many places of one table are kept up to date: several for each view that there can be.
constexpr u32 kMaxPlaces = 1024;
// What one large page (or the identity mapping) fills at once.
constexpr u64 kLargeFill = 512;
// What is filled around a user page in a view that follows the root: until the next load of CR3.
constexpr unsigned kPassingFill = 64;
// What making a chunk costs, in simulated accesses.
constexpr u64 kRefusalsPerChunk = 32;

}  // namespace

void Mmu::ReserveNodes() {
  if (__builtin_expect(uses_.available() >= kNodesPerAccess, 1)) return;
  ++counters_.view_flushes;
  FlushAllViews();
}

bool Mmu::MakeChunk(View& view, u64 index) {
  if (__builtin_expect(view.ChunkReady(index), 1)) return true;
  if (pool_.TotalChunks() >= pool_.max_chunks()) {
    View* victim = pool_.Largest(&view);
    if (victim == nullptr && !MayEmpty(view)) return false;
    if (victim == nullptr) victim = &view;
    ++counters_.view_flushes;
    FlushView(*victim, true);
  }
  if (!view.EnsureChunk(index)) {
    if (!MayEmpty(view)) return false;
    ++counters_.view_flushes;
    FlushView(view, true);
    // Still no: the host is out of memory or mappings, and every access is simulated.
    if (!view.EnsureChunk(index)) return false;
  }
  peak_chunks_ = std::max(peak_chunks_, pool_.TotalChunks());
  return true;
}

// A walk over more places than a view has chunks would empty it again and again, and make chunks at
// the price of some 30 simulated accesses each. So it is emptied when not having emptied it has
// cost as much: twice the least there is, whatever the guest does.
bool Mmu::MayEmpty(const View& view) {
  if (++chunks_refused_ <= kRefusalsPerChunk * view.chunk_count()) return false;
  chunks_refused_ = 0;
  return true;
}

WalkResult Mmu::WalkIn(View* view, const PagingContext& context, LinearAddr linear) const {
  if (view == nullptr || context.format->levels == 0) return Walk(*memory_, context, linear);
  const u64 index = EntryIndex(linear);
  const LevelFormat& leaf = context.format->level[1];
  const View::LeafCache& cache = view->LeafCacheOf(index);
  const u64 slot = index & ((u64{1} << leaf.index_bits) - 1);
  if (cache.base != index - slot) return Walk(*memory_, context, linear);
  const unsigned bytes = context.format->entry_bytes;
  const u64 entry = LoadEntry(cache.host + slot * bytes, bytes);
  WalkResult walk;
  // The levels above are as they were when the table was registered: A set, rights known.
  walk.top_level = walk.leaf_level = 1;
  walk.entry_address[1] = cache.table + slot * bytes;
  walk.entry[1] = entry;
  walk.upper_rights = cache.rights;
  if (!(entry & kPtePresent)) return walk;
  if (HasReservedBits(context, 1, true, entry)) {
    walk.status = WalkStatus::kReserved;
    return walk;
  }
  walk.status = WalkStatus::kMapped;
  walk.rights = cache.rights & RightsOf(context, 1, entry);
  walk.address = PhysAddr((entry & context.format->address_mask) + linear.PageOffset());
  return walk;
}

// False: the machine had to be waited for, and nothing is marked: the walk is out of date.
bool Mmu::MarkWalk(const PagingContext& context, WalkResult* walk, bool write) {
  if (context.format->levels == 0) return true;
  const u64 leaf_flags = write ? kPteAccessed | kPteDirty : kPteAccessed;
  bool complete = (walk->entry[walk->leaf_level] & leaf_flags) == leaf_flags;
  for (unsigned level = walk->top_level; level > walk->leaf_level; --level) {
    complete &= !context.format->level[level].has_flags || (walk->entry[level] & kPteAccessed);
  }
  if (__builtin_expect(complete, 1)) return true;
  // Another VCPU may be in the middle of an atomic instruction on the entry.
  for (unsigned level = walk->top_level; group_ != nullptr && level >= walk->leaf_level; --level) {
    const PageInfo* info = memory_->Info(walk->entry_address[level]);
    if (info != nullptr && (info->flags & kTracedElsewhere) && TakeMachine()) return false;
  }
  MarkUsed(*memory_, context, walk, write);
  // Code in a page table: the flags are part of its bytes.
  for (unsigned level = walk->top_level; level >= walk->leaf_level; --level) {
    const PageInfo* info = memory_->Info(walk->entry_address[level]);
    if (info != nullptr && (info->flags & kCodeTraces) && listener_ != nullptr) {
      listener_->CodeWritten(walk->entry_address[level], context.format->entry_bytes);
    }
  }
  return true;
}

// Puts every table of the walk under trace, with its place in this view; or notes what flushes must
// know of the walk.
// Is the walk's entry of that level what it was when the page was traced?
bool Mmu::StoodStill(const WalkResult& walk, unsigned level) {
  if (__builtin_expect(!std::exchange(traced_anew_, false), 1)) return true;
  const unsigned bytes = context_.format->entry_bytes;
  const u64 now = ReadEntry(*memory_, walk.entry_address[level], bytes);
  return ((now ^ walk.entry[level]) & ~(kPteAccessed | kPteDirty)) == 0;
}

// False: an entry has changed between the walk and the trace of its table, or may have while the
// machine was waited for, and those below are not registered: the walk is out of date.
bool Mmu::RegisterTables(View& view, u64 index, const WalkResult& walk) {
  const PagingContext& context = view.context();
  // A walk from the leaf cache begins at level 1: its tables are known.
  if (walk.top_level != context.format->levels || walk.top_level == 0) return true;
  if (coherence_ == Coherence::kDropped) {
    const bool global = (walk.entry[walk.leaf_level] & kPteGlobal) && (state_->cr4 & vcpu::kCr4Pge);
    view.NoteDerived(index, !global, u64{1} << (context.format->level[walk.leaf_level].shift - 12));
    return true;
  }
  u8 rights = kRightsAll;
  u32* parent_parts = nullptr;
  for (unsigned level = walk.top_level; level >= walk.leaf_level; --level) {
    const LevelFormat& format = context.format->level[level];
    const u8 upper_rights = rights;
    rights &= RightsOf(context, level, walk.entry[level]);
    if (level == walk.top_level && view.key().follows_root()) {
      const u64 slot = index >> (format.shift - 12);
      view.UseRootEntry(static_cast<unsigned>(slot) & ((1u << format.index_bits) - 1),
                        walk.entry[level]);
    }
    // Page-directory pointers are loaded with CR3: stores to them change nothing.
    if (level == kPdpteLevel && context.format->levels == kPdpteLevel) continue;
    const PhysAddr table = walk.entry_address[level].PageBase();
    const u64 offset = memory_->ArenaOffset(table);
    u32* const above = std::exchange(parent_parts, nullptr);
    // Where there is no memory, entries never change.
    if (offset == GuestMemory::kNotRam) continue;
    const u64 base = index & ~((u64{1} << (format.shift + format.index_bits - 12)) - 1);
    const Use use = Use::Make(base, view.id(), level, upper_rights);
    PageInfo& info = memory_->InfoAt(offset);
    if (info.flags & kPageTableTrace) info.flood = 0;
    if (level == walk.top_level && view.key().follows_root()) {
      if (view.root_page == View::kNoArenaPage) {
        if (TakeMachineToTrace(info)) return false;
        RegisterRoot(view, table);
      }
      if (!StoodStill(walk, level)) return false;
      continue;
    }
    u32 node = info.table_chain;
    u32 others = 0;
    for (; node != 0 && !uses_[node].use.SamePlace(use); node = uses_[node].next) ++others;
    counters_.table_steps += others;
    const bool fresh = node == 0;
    if (fresh) {
      if (TakeMachineToTrace(info)) return false;
      if (others >= kMaxPlaces) {
        // Each store to it would be followed to all of them. Begin again with this walk, some of
        // whose tables may be gone, too.
        DropTable(offset);
        return RegisterTables(view, index, walk);
      }
      if (!view.AddTable(static_cast<u32>(offset >> 12))) {
        // The list is full of tables that came and went. Begin again with this walk.
        ++counters_.view_flushes;
        FlushView(view, false);
        return RegisterTables(view, index, walk);
      }
      TraceTable(offset, use);
      node = info.table_chain;
      if (!StoodStill(walk, level)) return false;
    }
    if (above != nullptr) *above |= context.format->level[level + 1].PartOf(index);
    parent_parts = &uses_[node].parts;
    if (level == 1) {
      View::LeafCache& cache = view.LeafCacheOf(index);
      cache.base = base;
      cache.table = table;
      cache.host = (memory_->rw_base() + offset).As();
      cache.rights = upper_rights;
      if (fresh && view.ChunkReady(index)) {
        ++counters_.leaf_fills;
        const bool stays = !view.key().follows_root() || !(rights & kRightUser);
        FillSlice(view, index, walk, stays ? 1u << format.index_bits : kPassingFill);
      }
    }
  }
  return true;
}

u64 Mmu::EntryForPage(View& view, u64 index, PhysAddr page, bool may_write, Writable allowed) {
  const u64 offset = memory_->ArenaOffset(page);
  if (offset == GuestMemory::kNotRam || watched_.ForLoads(index)) return view.Poison(index);
  const u64 readable = (memory_->ro_base() + offset).value - PageOfIndex(index).value;
  if (!may_write || memory_->InfoAt(offset).flags != 0 || watched_.ForStores(index)) {
    return readable;
  }
  const u64 writable = readable + memory_->capacity();
  if (view.Entry(index) == writable) return writable;
  // Whatever is read-write is in the page's chain, so that a trace finds it.
  return allowed == Writable::kYes && AddWritable(offset, view, index) ? writable : readable;
}

// What a leaf-table entry makes of a shadow entry.
u64 Mmu::DesiredEntry(View& view, u64 index, u64 entry, u8 upper_rights, Writable allowed) {
  constexpr u64 kUsed = kPtePresent | kPteAccessed;
  const PagingContext& context = view.context();
  if ((entry & kUsed) != kUsed || HasReservedBits(context, 1, true, entry)) {
    return view.Poison(index);
  }
  const u8 rights = upper_rights & RightsOf(context, 1, entry);
  const bool user_page = rights & kRightUser;
  if (view.user() ? !user_page : user_page && view.smap_closed()) return view.Poison(index);
  const bool may_write =
      (entry & kPteDirty) && ((rights & kRightWrite) || (!view.user() && !context.write_protect));
  const PhysAddr page(entry & context.format->address_mask);
  return EntryForPage(view, index, page, may_write, allowed);
}

void Mmu::FillEntry(View& view, u64 index, u64 entry) {
  if (view.SetEntry(index, entry) && entry != view.Poison(index)) ++counters_.entries_filled;
}

// Fills the `count` (a power of two) entries around the walk's from their guest entries, if there
// is room for them; what the walk has read is known in any case.
void Mmu::FillSlice(View& view, u64 index, const WalkResult& walk, unsigned count) {
  const PagingContext& context = view.context();
  const unsigned bytes = context.format->entry_bytes;
  const u64 first = index & ~u64{count - 1};
  const PhysAddr address = walk.entry_address[1] - (index - first) * bytes;
  const u64 offset = memory_->ArenaOffset(address);
  if (offset == GuestMemory::kNotRam) return;
  if (OutOfSync(memory_->InfoAt(offset))) SyncPart(offset, count * bytes);
  if (!view.ChunkReady(index)) return;
  const u8* host = (memory_->rw_base() + offset).As<const u8>();
  // Without traces, global pages and others share no more than they must (View::NoteDerived).
  const u64 alike =
      coherence_ == Coherence::kDropped ? kPteAccessed | kPteGlobal : u64{kPteAccessed};
  const u64 wanted = (walk.entry[1] | kPteAccessed) & alike;
  for (unsigned i = 0; i < count; ++i) {
    const u64 entry = LoadEntry(host + i * bytes, bytes);
    if ((entry & alike) != wanted) continue;
    FillEntry(view, first + i, DesiredEntry(view, first + i, entry, walk.upper_rights));
  }
}

// Part of a page of 2 MB or more (or of the identity mapping): all its small pages look the same,
// so the ones around come along, unless they are there already.
void Mmu::FillLargePage(View& view, u64 index, PhysAddr page, bool may_write) {
  const bool alone = Usable(view, index ^ 1, may_write) || Usable(view, index ^ 2, may_write);
  const u64 count = alone ? 1 : kLargeFill;
  const u64 first = index & ~(count - 1);
  const PhysAddr first_page = page - ((index - first) << 12);
  if (!alone) ++counters_.leaf_fills;
  for (u64 i = 0; i < count; ++i) {
    FillEntry(view, first + i, EntryForPage(view, first + i, first_page + (i << 12), may_write));
  }
}

bool Mmu::Usable(const View& view, u64 index, bool write) const {
  const HostAddr host = view.HostOf(PageOfIndex(index));
  return write ? host - memory_->rw_base() < memory_->capacity()
               : host - memory_->ro_base() < 2 * memory_->capacity();
}

Resolution Mmu::Resolve(View& view, LinearAddr address, unsigned size, bool write,
                        GuestFault* fault) {
  if (!Addressable(address) || address.PageOffset() + u64{size} > kPageSize) {
    return Resolution::kSimulate;
  }
  const u64 index = EntryIndex(address);
  // Of the VCPU, not of the view: a user view serves several settings of CR0.WP and CR4.
  const PagingContext& context = context_;
  ReserveNodes();
  if (!MakeChunk(view, index)) return Resolution::kSimulate;

  Access access;
  access.write = write;
  access.user = view.user();
  access.smap_open = !view.smap_closed();
  WalkResult walk;
  if (!CheckedWalk(address, context, access, &view, &walk, fault)) {
    ++counters_.true_faults;
    return Resolution::kGuestFault;
  }
  if (!MarkWalk(context, &walk, write) || !RegisterTables(view, index, walk)) {
    return Resolve(view, address, size, write, fault);
  }

  const PhysAddr page = walk.address.PageBase();
  if (write && coherence_ == Coherence::kDeferred) LetGo(page);
  const bool dirty = write || walk.leaf_level == 0 || (walk.entry[walk.leaf_level] & kPteDirty);
  const bool may_write =
      dirty && ((walk.rights & kRightWrite) || (!view.user() && !context.write_protect));
  const u64 offset = memory_->ArenaOffset(page);
  if (offset == GuestMemory::kNotRam) {
    // Devices have no entries, so each access comes here.
    FillEntry(view, index, EntryForPage(view, index, page, may_write));
  } else if (walk.leaf_level == 1) {
    // The whole table was filled when it was first met, and stores to it are followed; what is
    // new since then are flags that walks set, and those come in neighbourhoods.
    FillSlice(view, index, walk, 8);
    FillEntry(view, index, EntryForPage(view, index, page, may_write));
  } else {
    FillLargePage(view, index, page, may_write);
  }
  if (Usable(view, index, write)) {
    if (offset != GuestMemory::kNotRam) memory_->Back(offset);
    ++counters_.hidden_faults;
    return Resolution::kFilled;
  }
  ++counters_.simulate_verdicts;
  if (write && offset != GuestMemory::kNotRam && !(memory_->InfoAt(offset).flags & kRomPage)) {
    const LinearAddr linear_page = address.PageBase();
    view.WriteTargetOf(linear_page) = View::WriteTarget{linear_page, &memory_->InfoAt(offset),
                                                        (memory_->rw_base() + offset).As(), page};
  }
  return Resolution::kSimulate;
}

Resolution Mmu::ResolveAccess(LinearAddr address, unsigned size, bool write, GuestFault* fault) {
  // Emitted code of 32-bit modes truncates by itself; a longer address is not one of its accesses.
  if (address != Wrap(address)) return Resolution::kSimulate;
  return Resolve(*current_, address, size, write, fault);
}

bool Mmu::FillSlot(bool store, unsigned slot, LinearAddr address) {
  const u64 index = EntryIndex(address);
  const LinearAddr page = address.PageBase();
  if (page != PageOfIndex(index) || !Usable(*current_, index, store)) return false;
  current_->FillSlot(store ? 1 : 0, slot & (kSlotCount - 1), page, current_->Entry(index));
  return true;
}

}  // namespace alibi::mmu
