// SPDX-License-Identifier: Apache-2.0
#include "adapt/site_table.h"

#include <algorithm>

#include "base/check.h"

namespace alibi::adapt {
namespace {

// Fibonacci hashing: the high bits of the product are the well-mixed ones.
constexpr u64 kGolden = 0x9e3779b97f4a7c15u;

}  // namespace

SiteTable::SiteTable(u32 capacity_log2) : mask_((u32{1} << capacity_log2) - 1) {
  ALIBI_CHECK(capacity_log2 >= 2 && capacity_log2 <= 24, "a site table has 4 to 2^24 places");
  const u32 capacity = mask_ + 1;
  records_.resize(capacity);
  states_.resize(capacity, State::kEmpty);
  page_heads_.resize(capacity, kNone);
  next_in_page_.resize(capacity, kNone);
  most_ = capacity / 4 * 3;
}

u32 SiteTable::HashOf(PhysAddr phys) const {
  return static_cast<u32>(((phys.value ^ phys.InPage().number) * kGolden) >> 32) & mask_;
}

u32 SiteTable::PageHash(PhysPage page) const {
  return static_cast<u32>((page.number * kGolden) >> 32) & mask_;
}

u32 SiteTable::Locate(PhysAddr phys, u32* vacant) const {
  u32 forgotten = kNone;
  u32 at = HashOf(phys);
  for (; states_[at] != State::kEmpty; at = (at + 1) & mask_) {
    const SiteRecord& record = records_[at];
    if (record.phys == phys) return at;
    if (states_[at] == State::kForgotten && forgotten == kNone) forgotten = at;
  }
  // Forgotten records are of interest to reports: they give way only when there is no more room.
  *vacant = size_ < most_ ? at : forgotten;
  return kNone;
}

void SiteTable::Link(u32 index) {
  u32& head = page_heads_[PageHash(records_[index].phys.InPage())];
  next_in_page_[index] = head;
  head = index;
}

SiteRecord* SiteTable::Find(PhysAddr phys) {
  u32 vacant;
  const u32 at = Locate(phys, &vacant);
  return at != kNone && states_[at] == State::kInUse ? &records_[at] : nullptr;
}

SiteRecord& SiteTable::FindOrInsert(LinearAddr pc, PhysAddr phys) {
  u32 vacant;
  u32 at = Locate(phys, &vacant);
  if (at != kNone) {
    if (states_[at] == State::kForgotten) {
      records_[at].pc = pc;
      Link(at);
    }
    states_[at] = State::kInUse;
    return records_[at];
  }
  if (vacant == kNone) {
    overflow_ = SiteRecord();
    overflow_.phys = kSharedSite;
    overflowed_ = true;
    return overflow_;
  }
  at = vacant;
  if (states_[at] == State::kEmpty) ++size_;
  records_[at] = SiteRecord();
  records_[at].pc = pc;
  records_[at].phys = phys;
  states_[at] = State::kInUse;
  Link(at);
  return records_[at];
}

void SiteTable::Clear() {
  std::fill(states_.begin(), states_.end(), State::kEmpty);
  std::fill(page_heads_.begin(), page_heads_.end(), kNone);
  // Locate() compares the records in use only.
  size_ = 0;
  overflowed_ = false;
}

void SiteTable::ForgetPage(PhysPage page) {
  for (u32* link = &page_heads_[PageHash(page)]; *link != kNone;) {
    const u32 at = *link;
    SiteRecord& record = records_[at];
    if (record.phys.InPage() != page) {
      link = &next_in_page_[at];
      continue;
    }
    *link = next_in_page_[at];
    // What it cost so far stays true; its character does not.
    record.kind = Kind::kDirect;
    record.alone = false;
    record.table_lookup = false;
    record.shows_flags = false;
    record.faulted_page = {};
    record.recent_guilty = 0;
    record.recent_clean = 0;
    record.policy_data[0] = record.policy_data[1] = 0;
    states_[at] = State::kForgotten;
  }
}

std::vector<const SiteRecord*> SiteTable::All() const {
  std::vector<const SiteRecord*> all;
  all.reserve(size_);
  for (u32 i = 0; i <= mask_; ++i) {
    if (states_[i] != State::kEmpty) all.push_back(&records_[i]);
  }
  return all;
}

}  // namespace alibi::adapt
