// SPDX-License-Identifier: Apache-2.0
#include "runtime/code_index.h"

// Scalar: the index is used while guest vector state is live.
#define XXH_INLINE_ALL
#define XXH_VECTOR 0
#include <xxhash.h>

namespace alibi::runtime {

using translator::Ccf;
using translator::CodeMode;
using translator::kNoPage;

// --- Heads ---

void CodeIndex::Heads::Clear() {
  slots_.assign(1u << 12, nullptr);
  mask_ = slots_.size() - 1;
  used_ = 0;
}

void CodeIndex::Heads::Reserve() {
  if (2 * (used_ + 1) <= slots_.size()) return;
  std::vector<Ccf*> old(slots_.size() * 2, nullptr);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  for (Ccf* ccf : old) {
    if (ccf != nullptr) *Find(hash_(*ccf), [](const Ccf&) { return false; }) = ccf;
  }
}

u64 CodeIndex::VersionHash(u64 pc, u64 phys_page, const CodeMode& mode) {
  const u64 key[2] = {pc, phys_page << 16 | mode.Bits()};
  return XXH3_64bits(key, sizeof(key));
}

u64 CodeIndex::MappingHash(u64 linear_page, u64 phys_page, const CodeMode& mode) {
  return VersionHash(linear_page, phys_page, mode);
}

u64 CodeIndex::VersionHashOf(const Ccf& ccf) {
  return VersionHash(ccf.pc, ccf.phys_page, ccf.mode);
}

u64 CodeIndex::MappingHashOf(const Ccf& ccf) {
  return MappingHash(ccf.pc & ~kPageMask, ccf.phys_page, ccf.mode);
}

Ccf** CodeIndex::VersionHead(u64 pc, u64 phys_page, const CodeMode& mode) const {
  return versions_.Find(VersionHash(pc, phys_page, mode), [&](const Ccf& ccf) {
    return ccf.pc == pc && ccf.phys_page == phys_page && ccf.mode == mode;
  });
}

Ccf** CodeIndex::MappingHead(u64 linear_page, u64 phys_page, const CodeMode& mode) const {
  return mappings_.Find(MappingHash(linear_page, phys_page, mode), [&](const Ccf& ccf) {
    return (ccf.pc & ~kPageMask) == linear_page && ccf.phys_page == phys_page && ccf.mode == mode;
  });
}

// --- The index ---

void CodeIndex::Clear() {
  versions_.Clear();
  mappings_.Clear();
  pages_.clear();
  pages_.resize(1u << 8);
  pages_used_ = 0;
}

Ccf* CodeIndex::Newest(u64 pc, u64 phys_page, const CodeMode& mode) const {
  return *VersionHead(pc, phys_page, mode);
}

Ccf* CodeIndex::Find(u64 pc, u64 phys_page, const CodeMode& mode, u64 second_page) const {
  for (Ccf* ccf = Newest(pc, phys_page, mode); ccf != nullptr; ccf = ccf->older) {
    if (IsCurrent(*ccf) && (second_page == kNoPage || ccf->phys_page2 == second_page)) return ccf;
  }
  return nullptr;
}

Ccf* CodeIndex::First(const Ccf& ccf) const {
  Ccf* first = Newest(ccf.pc, ccf.phys_page, ccf.mode);
  while (first->older != nullptr) first = first->older;
  return first;
}

Ccf* CodeIndex::Add(Ccf* ccf) {
  versions_.Reserve();
  Ccf** head = VersionHead(ccf->pc, ccf->phys_page, ccf->mode);
  if (*head == nullptr) versions_.Taken();
  ccf->older = *head;
  *head = ccf;
  AddToMapping(ccf);
  AddToPlace(ccf);
  Ccf* last = ccf;
  for (unsigned i = 1; i < kMaxVersions && last != nullptr; ++i) last = last->older;
  if (last == nullptr || last->older == nullptr || last->older->older == nullptr) return nullptr;
  Ccf* given_up = last->older;
  last->older = given_up->older;
  return given_up;
}

void CodeIndex::Renew(Ccf* ccf) {
  if (!ccf->in_mapping) AddToMapping(ccf);
  if (!ccf->in_place) AddToPlace(ccf);
}

void CodeIndex::AddToMapping(Ccf* ccf) {
  if (!ccf->mode.UsesJumpTable() || ccf->mode.single || ccf->mode.simulate ||
      ccf->phys_page2 != kNoPage) {
    return;
  }
  mappings_.Reserve();
  Ccf** head = MappingHead(ccf->pc & ~kPageMask, ccf->phys_page, ccf->mode);
  if (*head == nullptr) mappings_.Taken();
  ccf->next_in_mapping = *head;
  *head = ccf;
  ccf->in_mapping = true;
}

// --- Pages and places ---

CodeIndex::Page* CodeIndex::FindPage(u64 phys_page) const {
  const u64 mask = pages_.size() - 1;
  u64 at = phys_page * 0x9e3779b97f4a7c15u >> 40 & mask;
  while (pages_[at].number != phys_page && pages_[at].number != ~u64{0}) at = (at + 1) & mask;
  return &pages_[at];
}

void CodeIndex::GrowPages() {
  std::vector<Page> old(pages_.size() * 2);
  old.swap(pages_);
  for (Page& page : old) {
    if (page.number != ~u64{0}) *FindPage(page.number) = std::move(page);
  }
}

void CodeIndex::DropEmptyPlaces(Page* page) {
  std::erase_if(page->places, [&](Place& place) { return ValidHead(&place) == nullptr; });
  page->compact_at = std::max<u32>(64, 2 * static_cast<u32>(page->places.size()));
}

void CodeIndex::AddToPlace(Ccf* ccf) {
  auto page_of = [this](u64 number) {
    if (2 * (pages_used_ + 1) > pages_.size()) GrowPages();
    Page* page = FindPage(number);
    if (page->number == ~u64{0}) {
      page->number = number;
      ++pages_used_;
    }
    return page;
  };
  Page* page = page_of(ccf->phys_page);
  if (page->places.size() >= page->compact_at) DropEmptyPlaces(page);
  const u64 linear_page = ccf->pc & ~kPageMask;
  // An instruction that crosses was examined beyond the page, too.
  const u64 begin = ccf->examined_begin - linear_page;
  const u64 end = std::min(ccf->examined_end - linear_page, kPageSize);
  const Place wanted{static_cast<u16>(begin), static_cast<u16>(end), nullptr};
  auto at = std::lower_bound(page->places.begin(), page->places.end(), wanted,
                             [](const Place& a, const Place& b) {
                               return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
                             });
  if (at == page->places.end() || at->begin != wanted.begin || at->end != wanted.end) {
    at = page->places.insert(at, wanted);
    page->longest = std::max(page->longest, static_cast<u32>(end - begin));
  }
  ccf->next_in_place = at->head;
  ccf->in_place = true;
  at->head = ccf;
  if (ccf->phys_page2 != kNoPage) {
    std::vector<Ccf*>& crossing = page_of(ccf->phys_page2)->crossing;
    if (crossing.size() == crossing.capacity()) {
      std::erase_if(crossing, [](const Ccf* old) { return !old->valid; });
      crossing.reserve(std::max<std::size_t>(4, 2 * crossing.size()));
    }
    crossing.push_back(ccf);
  }
}

}  // namespace alibi::runtime
