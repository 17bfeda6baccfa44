// SPDX-License-Identifier: Apache-2.0
// The sites that misbehaved, keyed by the physical address of their instruction: verdicts hold
// wherever its page is mapped.
#ifndef ALIBI_ADAPT_SITE_TABLE_H_
#define ALIBI_ADAPT_SITE_TABLE_H_

#include <vector>

#include "adapt/policy.h"

namespace alibi::adapt {

// Fixed capacity, open addressing; no allocation after construction and no vector registers, so
// that the fault handler and fast callouts may use it. When full, unknown sites share one record
// that is never convicted (its phys is kSharedSite).
class SiteTable {
 public:
  explicit SiteTable(u32 capacity_log2 = 16);
  SiteRecord* Find(PhysAddr phys);  // null: innocent, never seen (or forgotten)
  // False: Find() has nothing for any site of phys's page.
  bool MayHaveInPage(PhysAddr phys) const { return page_heads_[PageHash(phys.InPage())] != kNone; }
  // f(record) for those in use until it is true, and whether it was.
  template <class F>
  bool AnyInPage(PhysPage page, F f) const {
    for (u32 i = page_heads_[PageHash(page)]; i != kNone; i = next_in_page_[i]) {
      if (records_[i].phys.InPage() == page && f(records_[i])) return true;
    }
    return false;
  }
  // It stays where it is until its page is forgotten. `pc` is where a new one was first seen.
  SiteRecord& FindOrInsert(LinearAddr pc, PhysAddr phys);
  // For reports: every record in use, forgotten ones included as long as their place is not needed.
  std::vector<const SiteRecord*> All() const;
  // Some site had to do with the shared record.
  bool overflowed() const { return overflowed_; }
  // Every site is innocent again, and all records are invalid.
  void Clear();
  u32 size() const { return size_; }
  u32 capacity() const { return most_; }
  void ForgetPage(PhysPage page);  // code was replaced: its sites start innocent again

 private:
  enum class State : u8 { kEmpty, kInUse, kForgotten };
  static constexpr u32 kNone = ~u32{0};

  u32 HashOf(PhysAddr phys) const;
  u32 PageHash(PhysPage page) const;
  // The place of the key, or kNone; *vacant is where it would go (kNone: the table is full).
  u32 Locate(PhysAddr phys, u32* vacant) const;
  void Link(u32 index);

  std::vector<SiteRecord> records_;
  std::vector<State> states_;
  // Sites of one code page hang together while they are in use, so that forgetting a page is no
  // search of the table, and no second look at what is forgotten.
  std::vector<u32> page_heads_;
  std::vector<u32> next_in_page_;
  SiteRecord overflow_;
  bool overflowed_ = false;
  u32 mask_;
  u32 most_;  // in use; beyond it probing would become slow
  u32 size_ = 0;
};

}  // namespace alibi::adapt

#endif  // ALIBI_ADAPT_SITE_TABLE_H_
