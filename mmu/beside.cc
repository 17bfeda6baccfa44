// SPDX-License-Identifier: Apache-2.0
// What an Mmu does for those beside it, and they for it.
#include "mmu/beside.h"

#include <utility>

#include "mmu/mmu.h"

namespace alibi::mmu {

bool Mmu::TakeMachine() {
  if (group_ == nullptr || HasMachine() || !group_->vcpus->TakeMachine(state_->number))
    return false;
  ++machine_epoch_;
  return true;
}

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
  ForEachOther([&](Mmu& held, unsigned vcpu) {
    bool writable = false;
    WithHeld(held, vcpu, [&](Mmu& other) {
      other.memory_->InfoAt(arena_offset).flags |= kTracedElsewhere;
      writable = other.IsWritable(arena_offset);
    });
    if (!writable) return;
    ++counters_.beside_demotions;
    group_->vcpus->StopBeside(vcpu);
    held.Demote(arena_offset);
  });
}

// It does no more.
void Mmu::ForgetElsewhere(u64 arena_offset) {
  const auto traces = [&](const Mmu& mmu) {
    return (mmu.memory_->InfoAt(arena_offset).flags & kOwnTraces) != 0;
  };
  unsigned tracing = traces(*this);
  ForEachOther([&](Mmu& held, unsigned vcpu) {
    WithHeld(held, vcpu, [&](Mmu& other) { tracing += traces(other); });
  });
  const auto forget = [&](Mmu& mmu) {
    u8& flags = mmu.memory_->InfoAt(arena_offset).flags;
    if (tracing == unsigned{traces(mmu)}) flags &= static_cast<u8>(~kTracedElsewhere);
  };
  forget(*this);
  ForEachOther([&](Mmu& held, unsigned vcpu) { WithHeld(held, vcpu, forget); });
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

// Up to when others are told, they only know of a trace too much.
void Mmu::NoteForgotten(u32 page) {
  if (page == kAllPages || forgotten_->pages >= kMaxForgotten) {
    forgotten_->pages = kMaxForgotten + 1;
  } else {
    forgotten_->page[forgotten_->pages++] = page;
  }
  if (HasMachine()) TellForgotten();
}

void Mmu::TellForgotten() {
  const unsigned count = std::exchange(forgotten_->pages, 0);
  if (count > kMaxForgotten) return ForgetAllElsewhere();
  for (unsigned i = 0; i < count; ++i) {
    ForgetElsewhere(u64{forgotten_->page[i]} << 12);
  }
}

// --- Stores ---

// Of a page table: is it a leaf table wherever it is one?
bool Mmu::IsLeafTable(u64 arena_offset) {
  for (u32 node = memory_->InfoAt(arena_offset).table_chain; node != 0; node = uses_[node].next) {
    if (uses_[node].use.level() != 1) return false;
  }
  return true;
}

// Another Mmu, which holds this one, stores to the page: this one's VCPU does so with the machine
// alone from now on, if it traces the page. Returns its flags.
u8 Mmu::ShareStores(u64 arena_offset) {
  u8& flags = memory_->InfoAt(arena_offset).flags;
  if (flags & kOwnTraces) flags |= kTracedElsewhere;
  return flags;
}

void Mmu::BeginSharedStore(u64 arena_offset) {
  if (!(memory_->InfoAt(arena_offset).flags & kTracedElsewhere)) return;
  ForEachOther([&](Mmu& held, unsigned vcpu) {
    bool stores_alone = false;
    WithHeld(held, vcpu, [&](Mmu& other) {
      stores_alone = (other.ShareStores(arena_offset) & kTracedElsewhere) == 0;
    });
    // It has ceased to trace the page, and has not told yet.
    if (stores_alone) group_->vcpus->StopBeside(vcpu);
  });
}

void Mmu::BeforeStore(u64 arena_offset, u64 size) {
  ForEachOther([&](Mmu& held, unsigned vcpu) {
    bool drops = false, stops = false;
    WithHeld(held, vcpu, [&](Mmu& other) {
      const u8 flags = other.ShareStores(arena_offset);
      drops = (flags & kPageTableTrace) && size > kMaxFollowed;
      stops = drops || (flags & kCodeTraces) ||
              ((flags & kPageTableTrace) && !other.IsLeafTable(arena_offset));
    });
    if (!stops) return;
    ++counters_.beside_store_stops;
    group_->vcpus->StopBeside(vcpu);
    held.HearNews();
    if (drops) held.DropTable(arena_offset & ~kPageMask);
  });
}

// `units` from `first` on have had these values.
void Mmu::AfterStore(u64 first, unsigned units, const u64* old_values, PhysAddr address, u64 size) {
  const u64* values = (memory_->rw_base() + first).As<const u64>();
  const u64 page = memory_->ArenaOffset(address) & ~kPageMask;
  const auto for_each_changed = [&](auto f) {
    for (unsigned i = 0; i < units; ++i) {
      if (old_values[i] != values[i]) f(TableNews{first + i * 8, old_values[i], values[i]});
    }
  };
  ForEachOther([&](Mmu& held, unsigned vcpu) {
    bool at_once = false, attends = false;
    WithHeld(held, vcpu, [&](Mmu& other) {
      const u8 flags = other.memory_->InfoAt(page).flags;
      if ((flags & kPageTableTrace) && other.IsLeafTable(page) &&
          other.news_->tables + units <= kMaxTableNews) {
        for_each_changed([&](const TableNews& news) { other.AddTableNews(news); });
      } else {
        at_once = flags & kPageTableTrace;
      }
      attends = flags & kCodeTraces;
      if (attends) other.AddCodeNews({address, size});
    });
    if (attends) group_->vcpus->AttendBeside(vcpu);
    if (!at_once) return;
    group_->vcpus->StopBeside(vcpu);
    held.HearNews();
    held.pending_ = PendingStore{address.value & ~u64{7}, units, old_values};
    for_each_changed([&](const TableNews& news) {
      held.FollowStore(news.arena_offset, news.old_value, news.new_value);
    });
    held.pending_.units = 0;
  });
}

// --- News ---

// To this Mmu, from another VCPU's, which holds it.
void Mmu::AddTableNews(const TableNews& news) {
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

void Mmu::AddCodeNews(const CodeNews& news) {
  // Beyond the array there is one more, which stands for everything.
  if (news_->codes < kMaxCodeNews) news_->code[news_->codes] = news;
  if (news_->codes <= kMaxCodeNews) ++news_->codes;
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
