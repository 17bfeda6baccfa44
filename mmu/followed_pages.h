// SPDX-License-Identifier: Apache-2.0
// The pages of a view that somebody outside maps as the view's entries are (a satellite of direct
// execution), and which of them are no longer what they were: the follower must let go of these
// before it uses any page again.
//
// Nothing here allocates after Create() or touches vector registers: entries change in callouts.
#ifndef ALIBI_MMU_FOLLOWED_PAGES_H_
#define ALIBI_MMU_FOLLOWED_PAGES_H_

#include <memory>
#include <utility>

#include "base/types.h"

namespace alibi::mmu {

class FollowedPages {
 public:
  // The follower while it uses its pages beside whoever changes them.
  class User {
   public:
    virtual ~User() = default;
    // Returns when no page is used any more, and none will be before set_user(). Vector registers
    // stay as they are.
    virtual void StopUsing() = 0;
  };

  // What the follower may do with a page. Pages can be read if they can be anything.
  enum Right : u8 { kRead = 1, kWrite = 2, kExecute = 4 };

  // Each may be a VMA of its own, of which Linux gives 65,530 to a process.
  static constexpr u32 kMaxPages = 60'000;
  static constexpr u32 kMaxChanged = 4096;

  // Null if the host has no memory.
  static std::unique_ptr<FollowedPages> Create();
  ~FollowedPages();
  FollowedPages(const FollowedPages&) = delete;
  FollowedPages& operator=(const FollowedPages&) = delete;

  // --- The follower ---
  // Maps the page now, or with other rights than so far. False: it has too many.
  bool Add(u64 index, u8 rights);
  // 0: it does not map the page.
  u8 RightsOf(u64 index) const;
  u32 count() const { return count_; }
  // What must go: everything, or these.
  bool all_changed() const { return all_changed_; }
  u32 changed_count() const { return changed_count_; }
  u64 changed(u32 i) const { return changed_[i]; }
  // From now on nothing that is mapped changes before the user has been stopped, once: then there
  // is none any more. Null: nobody uses the pages.
  void set_user(User* user) { user_ = user; }
  // All that had changed has gone.
  void ForgetChanged() {
    all_changed_ = false;
    changed_count_ = 0;
  }

  // --- The view ---
  void Changed(u64 index);
  void Changed(u64 first, u64 count);
  void ChangedAll();
  // The next one of the same view, by View.
  FollowedPages* next = nullptr;

 private:
  static constexpr u32 kSlots = 1u << 17;
  static constexpr unsigned kRightsBits = 8;

  FollowedPages() = default;
  static u32 Hash(u64 index) {
    return static_cast<u32>((index * 0x9e3779b97f4a7c15u) >> 40) & (kSlots - 1);
  }
  // 0 is free; else the page's number plus one, and its rights.
  static u64 IndexOf(u64 slot) { return (slot >> kRightsBits) - 1; }
  u32 Find(u64 index) const;  // its slot, or the free one where it would be
  void Erase(u32 at);
  void Note(u64 index);
  void StopUser() {
    if (user_ != nullptr) std::exchange(user_, nullptr)->StopUsing();
  }

  u64* slots_ = nullptr;    // kSlots
  u64* changed_ = nullptr;  // kMaxChanged
  u32 count_ = 0;
  u32 changed_count_ = 0;
  bool all_changed_ = false;
  User* user_ = nullptr;
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_FOLLOWED_PAGES_H_
