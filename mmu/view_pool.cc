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
  const unsigned most = setup_.max_views < kMaxViews ? setup_.max_views : kMaxViews;
  if (count_ < most) {
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
  View* oldest = &views_[0];
  for (unsigned i = 1; i < count_; ++i) {
    if (views_[i].last_used < oldest->last_used) oldest = &views_[i];
  }
  ++counters_->view_recycles;
  return oldest;
}

void ViewPool::Adopt(View* view, ViewKey key, const PagingContext& context) {
  view->Retarget(key, context);
  keys_[view->id()] = key;
  hints_[Hash(key)] = view;
  follower_count_ = 0;
  for (unsigned i = 0; i < count_; ++i) {
    if (views_[i].key().follows_root()) followers_[follower_count_++] = &views_[i];
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
