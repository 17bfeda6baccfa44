// SPDX-License-Identifier: Apache-2.0
// What an Mmu does for those beside it, and they for it.
#include "mmu/beside.h"

#include <utility>

#include "mmu/mmu.h"

namespace alibi::mmu {

void Mmu::StopOthers() {
  if (group_ == nullptr) return;
  ForEachOther([&](Mmu&, unsigned vcpu) { group_->vcpus->StopBeside(vcpu); });
}

// --- Traces ---

// Can the VCPU store to the page directly?
bool Mmu::IsWritable(u64 arena_offset) {
  const HostAddr page = memory_->rw_base() + (arena_offset & ~kPageMask);
  for (u32 node = memory_->InfoAt(arena_offset).writable_chain; node != 0;
       node = uses_[node].next) {
    const Use use = uses_[node].use;
    if (pool_[use.view()].HostOf(PageOfIndex(use.index())) == page) return true;
  }
  return false;
}

// This Mmu begins to trace the page.
void Mmu::TraceElsewhere(u64 arena_offset) {
  ForEachOther([&](Mmu& other, unsigned vcpu) {
    other.memory_->InfoAt(arena_offset).flags |= kTracedElsewhere;
    if (!other.IsWritable(arena_offset)) return;
    ++counters_.beside_demotions;
    group_->vcpus->StopBeside(vcpu);
    other.Demote(arena_offset);
  });
}

// It does no more.
void Mmu::ForgetElsewhere(u64 arena_offset) {
  unsigned tracing = 0;
  for (unsigned vcpu = 0; vcpu < group_->count; ++vcpu) {
    const Mmu* const mmu = group_->mmu[vcpu];
    tracing += mmu != nullptr && (mmu->memory_->InfoAt(arena_offset).flags & kOwnTraces) != 0;
  }
  for (unsigned vcpu = 0; vcpu < group_->count; ++vcpu) {
    if (group_->mmu[vcpu] == nullptr) continue;
    u8& flags = group_->mmu[vcpu]->memory_->InfoAt(arena_offset).flags;
    const unsigned itself = (flags & kOwnTraces) != 0;
    if (tracing == itself) flags &= static_cast<u8>(~kTracedElsewhere);
  }
}

// The same for all pages, whose chains this Mmu has forgotten at once.
void Mmu::ForgetAllElsewhere() {
  memory_->ForEachSlot([&](const SlotInfo& slot) {
    const u64 first = slot.host - memory_->rw_base();
    for (u64 at = first; at < first + slot.size; at += kPageSize) {
      bool known = false;
      for (unsigned vcpu = 0; vcpu < group_->count; ++vcpu) {
        known |= group_->mmu[vcpu] != nullptr &&
                 (group_->mmu[vcpu]->memory_->InfoAt(at).flags & kTracedElsewhere) != 0;
      }
      if (known) ForgetElsewhere(at);
    }
  });
}

// --- Stores ---

// Of a page table: is it a leaf table wherever it is one?
bool Mmu::IsLeafTable(u64 arena_offset) {
  for (u32 node = memory_->InfoAt(arena_offset).table_chain; node != 0; node = uses_[node].next) {
    if (uses_[node].use.level() != 1) return false;
  }
  return true;
}

void Mmu::BeforeStore(u64 arena_offset, u64 size) {
  ForEachOther([&](Mmu& other, unsigned vcpu) {
    const u8 flags = other.memory_->InfoAt(arena_offset).flags;
    const bool drops = (flags & kPageTableTrace) && size > kMaxFollowed;
    const bool upper = (flags & kPageTableTrace) && !other.IsLeafTable(arena_offset);
    if (!(flags & kCodeTraces) && !drops && !upper) return;
    ++counters_.beside_store_stops;
    group_->vcpus->StopBeside(vcpu);
    other.HearNews();
    if (drops) other.DropTable(arena_offset & ~kPageMask);
  });
}

// `units` from `first` on have had these values.
void Mmu::AfterStore(u64 first, unsigned units, const u64* old_values, PhysAddr address, u64 size) {
  const u64* values = (memory_->rw_base() + first).As<const u64>();
  const u64 page = memory_->ArenaOffset(address) & ~kPageMask;
  ForEachOther([&](Mmu& other, unsigned vcpu) {
    const u8 flags = other.memory_->InfoAt(page).flags;
    if (flags & kPageTableTrace) {
      const bool leaf = other.IsLeafTable(page);
      if (!leaf) other.pending_ = PendingStore{address.value & ~u64{7}, units, old_values};
      for (unsigned i = 0; i < units; ++i) {
        const TableNews news{first + i * 8, old_values[i], values[i]};
        if (news.old_value == news.new_value) continue;
        if (leaf) {
          other.AddTableNews(vcpu, news);
        } else {
          other.FollowStore(news.arena_offset, news.old_value, news.new_value);
        }
      }
      other.pending_.units = 0;
    }
    if (flags & kCodeTraces) other.AddCodeNews(vcpu, {address, size});
  });
}

// --- News ---

// To this Mmu, from another VCPU's.
void Mmu::AddTableNews(unsigned vcpu, const TableNews& news) {
  if (news_->tables == kMaxTableNews) {
    group_->vcpus->StopBeside(vcpu);
    HearTableNews();
  }
  news_->table[news_->tables++] = news;
  // A load of CR3 flushes.
  if (news_->tables == 1) pool_.CutRootPeers();
}

void Mmu::HearTableNews() {
  counters_.beside_table_news += news_->tables;
  // Whom following one makes look at news finds none.
  const unsigned count = std::exchange(news_->tables, 0);
  for (unsigned i = 0; i < count; ++i) {
    const TableNews& news = news_->table[i];
    FollowStore(news.arena_offset, news.old_value, news.new_value);
  }
}

void Mmu::AddCodeNews(unsigned vcpu, const CodeNews& news) {
  // Beyond the array there is one more, which stands for everything.
  if (news_->codes < kMaxCodeNews) news_->code[news_->codes] = news;
  if (news_->codes <= kMaxCodeNews) ++news_->codes;
  group_->vcpus->AttendBeside(vcpu);
}

void Mmu::HearCodeNews() {
  if (news_ == nullptr || news_->codes == 0) return;
  const unsigned count = std::exchange(news_->codes, 0);
  counters_.beside_code_news += count;
  if (listener_ == nullptr) return;
  if (count > kMaxCodeNews) return listener_->MemoryMapChanged();
  for (unsigned i = 0; i < count; ++i) {
    listener_->CodeWritten(news_->code[i].address, news_->code[i].size);
  }
}

}  // namespace alibi::mmu
