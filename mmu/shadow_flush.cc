// SPDX-License-Identifier: Apache-2.0
// From the guest's TLB flushes to shadow entries, where those are not kept coherent by traces
// alone.
#include <utility>

#include "base/raw_copy.h"
#include "mmu/mmu.h"

namespace alibi::mmu {
namespace {

// Entries that one large page of the format can map.
u64 LargestPage(const PagingFormat& format) {
  if (format.levels == 0) return 1;
  unsigned level = format.levels;
  while (level > 1 && !format.level[level].may_be_leaf) --level;
  return u64{1} << (format.level[level].shift - 12);
}

}  // namespace

// --- Deferred ---

// Tables are traced now as they are in the beginning.
void Mmu::BeginDeferral() {
  if (coherence_ == Coherence::kEager) coherence_ = Coherence::kDeferred;
}

void Mmu::EndDeferral() {
  if (coherence_ == options_.coherence) return;
  FlushAllViews();
  coherence_ = options_.coherence;
}

// The guest is about to store to the page. If it is a leaf table, that store and those that follow
// go unseen; the copy says later which entries they changed. Tables above the leaves stay traced:
// so few stores reach them, and so much hangs on them.
void Mmu::LetGo(PhysAddr page) {
  const u64 offset = memory_->ArenaOffset(page);
  if (offset == GuestMemory::kNotRam) return;
  PageInfo& info = memory_->InfoAt(offset);
  // With a full list the store is followed as ever.
  if (info.flags != kPageTableTrace || out_of_sync_.full()) return;
  const unsigned entry_shift = EntryShiftOf(uses_[info.table_chain].use);
  for (u32 node = info.table_chain; node != 0; node = uses_[node].next) {
    const Use use = uses_[node].use;
    if (use.level() != 1 || EntryShiftOf(use) != entry_shift) return;
  }
  const unsigned place = out_of_sync_.Add(offset, entry_shift);
  for (u32 node = info.table_chain; node != 0; node = uses_[node].next) {
    const Use use = uses_[node].use;
    out_of_sync_.NoteUse(place, use.index(), use.view());
  }
  RawCopy(out_of_sync_.CopyOf(place), (memory_->rw_base() + offset).As<const void>(), kPageSize);
  info.flood = static_cast<u8>(place);
  info.flags &= static_cast<u8>(~kPageTableTrace);
  // A load of CR3 that goes by itself does not flush.
  if (std::exchange(roots_linked_, false)) pool_.ForgetRootPeersTo(nullptr);
  ++counters_.table_releases;
}

void Mmu::SyncTable(u64 arena_offset) {
  SyncPart(arena_offset, kPageSize);
  PageInfo& info = memory_->InfoAt(arena_offset);
  out_of_sync_.Remove(info.flood);
  info.flood = 0;
  SetTrace(arena_offset, kPageTableTrace);
  ++counters_.table_resyncs;
}

bool Mmu::IsUsedBy(const PageInfo& table, PhysAddr root) {
  for (u32 node = table.table_chain; node != 0; node = uses_[node].next) {
    if (pool_[uses_[node].use.view()].context().root == root) return true;
  }
  return false;
}

// --- The guest's flushes ---

// Of the running address space; others' turn comes when they are loaded. `all`: global pages, too,
// and tables of every address space.
void Mmu::FlushTranslations(bool all) {
  const bool drops = coherence_ == Coherence::kDropped;
  const OutOfSyncTables::Set tables = TablesToFlush(all);
  if (!drops && tables.empty()) return;
  const u64 begin = __builtin_ia32_rdtsc();
  if (drops) {
    EmptyViews(all);
  } else {
    SyncTables(tables, all);
  }
  ++counters_.tlb_flushes;
  counters_.tlb_flush_cycles += __builtin_ia32_rdtsc() - begin;
}

void Mmu::EmptyViews(bool all) {
  pool_.ForEachOfRoot(context_.root, [&](View& view) {
    // A global page is the same in all address spaces (SDM vol. 3, 4.10.2.4).
    if (all || !view.key().follows_root()) {
      view.Empty();
    } else {
      view.EmptyOfLocal();
    }
  });
}

// What only other address spaces use can wait for them, unless it crowds the list.
bool Mmu::IsCrowded() const { return out_of_sync_.all().count() > OutOfSyncTables::kMax / 2; }

// All, or those that the running address space may use.
OutOfSyncTables::Set Mmu::TablesToFlush(bool all) {
  if (all || out_of_sync_.empty() || IsCrowded()) return out_of_sync_.all();
  OutOfSyncTables::Set tables;
  pool_.ForEachOfRoot(context_.root, [&](const View& view) {
    if (view.context().root == context_.root) tables.Add(out_of_sync_.OfView(view.id()));
  });
  return tables;
}

void Mmu::SyncTables(const OutOfSyncTables::Set& tables, bool all) {
  const bool crowded = IsCrowded();
  tables.ForEach([&](unsigned place) {
    const u64 arena_offset = out_of_sync_.OffsetOf(place);
    if (all || IsUsedBy(memory_->InfoAt(arena_offset), context_.root)) {
      SyncTable(arena_offset);
    } else if (crowded) {
      DropTable(arena_offset);
    }
  });
}

void Mmu::FlushPage(LinearAddr address) {
  const u64 index = EntryIndex(Wrap(address));
  if (coherence_ == Coherence::kDropped) {
    pool_.ForEachOfRoot(context_.root, [&](View& view) {
      view.EmptyOfPage(index, LargestPage(*view.context().format));
    });
    return;
  }
  out_of_sync_.At(index).ForEach([&](unsigned place) {
    const unsigned shift = out_of_sync_.EntryShiftOf(place);
    const u64 unit = (index & ((kPageSize >> shift) - 1)) << shift >> 3;
    const u64 now = (memory_->rw_base() + out_of_sync_.OffsetOf(place)).As<const u64>()[unit];
    if (out_of_sync_.CopyOf(place)[unit] != now) SyncUnits(place, unit, 1);
  });
}

}  // namespace alibi::mmu
