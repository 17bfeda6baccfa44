// SPDX-License-Identifier: Apache-2.0
#include "mmu/followed_pages.h"

#include <sys/mman.h>

#include "base/raw_copy.h"

namespace alibi::mmu {
namespace {

constexpr u64 kChangedBytes = FollowedPages::kMaxChanged * sizeof(u64);

}  // namespace

std::unique_ptr<FollowedPages> FollowedPages::Create() {
  std::unique_ptr<FollowedPages> pages(new FollowedPages);
  void* memory = mmap(nullptr, kSlots * sizeof(u64) + kChangedBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  pages->slots_ = static_cast<u64*>(memory);
  pages->changed_ = pages->slots_ + kSlots;
  return pages;
}

FollowedPages::~FollowedPages() {
  if (slots_ != nullptr) munmap(slots_, kSlots * sizeof(u64) + kChangedBytes);
}

u32 FollowedPages::Find(u64 index) const {
  u32 at = Hash(index);
  while (slots_[at] != 0 && IndexOf(slots_[at]) != index) at = (at + 1) & (kSlots - 1);
  return at;
}

bool FollowedPages::Add(u64 index, u8 rights) {
  const u32 at = Find(index);
  if (slots_[at] == 0) {
    if (count_ == kMaxPages) return false;
    ++count_;
  }
  slots_[at] = (index + 1) << kRightsBits | rights;
  return true;
}

u8 FollowedPages::RightsOf(u64 index) const { return static_cast<u8>(slots_[Find(index)]); }

// Backward-shift deletion: no tombstones.
void FollowedPages::Erase(u32 at) {
  u32 hole = at;
  for (u32 next = (at + 1) & (kSlots - 1); slots_[next] != 0; next = (next + 1) & (kSlots - 1)) {
    const u32 home = Hash(IndexOf(slots_[next]));
    // Movable unless its home lies cyclically after the hole.
    if (((next - home) & (kSlots - 1)) >= ((next - hole) & (kSlots - 1))) {
      slots_[hole] = slots_[next];
      hole = next;
    }
  }
  slots_[hole] = 0;
  --count_;
}

void FollowedPages::Note(u64 index) {
  if (all_changed_) return;
  if (changed_count_ == kMaxChanged) {
    ChangedAll();
    return;
  }
  changed_[changed_count_++] = index;
}

void FollowedPages::Changed(u64 index) {
  const u32 at = Find(index);
  if (slots_[at] == 0) return;
  StopUser();
  Erase(at);
  Note(index);
}

void FollowedPages::Changed(u64 first, u64 count) {
  if (count_ == 0) return;
  if (count <= kSlots / 8) {
    for (u64 index = first; index < first + count; ++index) Changed(index);
    return;
  }
  // Erasing moves slots: what is to go is noted first.
  const u32 begin = changed_count_;
  for (u32 at = 0; at < kSlots && !all_changed_; ++at) {
    if (slots_[at] == 0 || IndexOf(slots_[at]) - first >= count) continue;
    StopUser();
    Note(IndexOf(slots_[at]));
  }
  if (all_changed_) return;
  for (u32 i = begin; i < changed_count_; ++i) Erase(Find(changed_[i]));
}

void FollowedPages::ChangedAll() {
  StopUser();
  if (count_ != 0) RawFill(slots_, 0, kSlots);
  if (count_ != 0 || changed_count_ != 0) all_changed_ = true;
  count_ = 0;
  changed_count_ = 0;
}

}  // namespace alibi::mmu
