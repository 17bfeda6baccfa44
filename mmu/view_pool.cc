// SPDX-License-Identifier: Apache-2.0
#include "mmu/view_pool.h"

namespace alibi::mmu {

View* ViewPool::FindSlow(ViewKey key) {
  for (unsigned i = 0; i < count_; ++i) {
    if (keys_[i] == key) {
      hints_[Hash(key)] = &views_[i];
      return &views_[i];
    }
  }
  return nullptr;
}

Result<View*> ViewPool::Obtain() {
  if (has_fresh()) {
    View& fresh = views_[count_];
    Status reserved = fresh.Reserve(count_, setup_.guard, setup_.default_jumps, setup_.vcpu_fd,
                                    setup_.vcpu_offset, counters_);
    if (reserved) {
      ++counters_->view_creates;
      ++count_;
      return &fresh;
    }
    if (count_ == 0) return reserved.error();
    // The host gives no more address space: live with the views there are.
    setup_.max_views = count_;
  }
  ++counters_->view_recycles;
  return Victim();
}

// In this order: the oldest of those without page tables, since their address spaces have gone; the
// oldest of those with SMAP open, in whose place a group's view can serve; any but a group's and
// those that ran last. "Any", because processes that take turns, one more than there are views,
// would each find the oldest view taken.
View* ViewPool::Victim() {
  constexpr unsigned kDraws = 8;
  constexpr u64 kRecent = 4;
  constexpr unsigned kNone = kMaxViews;
  unsigned empty = kNone, open = kNone, oldest = 0;
  const auto older = [&](unsigned i, unsigned than) {
    return than == kNone || last_used_[i] < last_used_[than];
  };
  for (unsigned i = 0; i < count_; ++i) {
    if (older(i, oldest)) oldest = i;
    if (last_used_[i] == clock_) continue;  // runs
    if (tables_[i] == 0 && older(i, empty)) empty = i;
    if (keys_[i].smap_open() && !keys_[i].follows_root() && older(i, open)) open = i;
  }
  if (empty != kNone) return &views_[empty];
  if (open != kNone) return &views_[open];
  for (unsigned draw = 0; draw < kDraws; ++draw) {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    const unsigned i = static_cast<unsigned>(random_ >> 33) % count_;
    if (!keys_[i].follows_root() && last_used_[i] + kRecent <= clock_) return &views_[i];
  }
  return &views_[oldest];
}

void ViewPool::Adopt(View* view, ViewKey key, const PagingContext& context) {
  view->Retarget(key, context);
  keys_[view->id()] = key;
  hints_[Hash(key)] = view;
  follower_count_ = 0;
  for (unsigned i = 0; i < count_; ++i) {
    if (keys_[i].follows_root()) followers_[follower_count_++] = &views_[i];
  }
}

u32 ViewPool::TotalChunks() const {
  u32 total = 0;
  for (unsigned i = 0; i < count_; ++i) total += views_[i].chunk_count();
  return total;
}

View* ViewPool::Largest(const View* except) {
  View* largest = nullptr;
  for (unsigned i = 0; i < count_; ++i) {
    View* view = &views_[i];
    if (view == except || view->chunk_count() == 0) continue;
    if (largest == nullptr || view->chunk_count() > largest->chunk_count()) largest = view;
  }
  return largest;
}

}  // namespace alibi::mmu
