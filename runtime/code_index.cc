// SPDX-License-Identifier: Apache-2.0
#include "runtime/code_index.h"

// Scalar: the index is used while guest vector state is live.
#define XXH_INLINE_ALL
#define XXH_VECTOR 0
#include <xxhash.h>

namespace alibi::runtime {

using translator::Ccf;
using translator::CodeMapping;
using translator::CodeMode;
using translator::kNoPage;

// --- Table ---

template <class T>
void CodeIndex::Table<T>::Clear() {
  slots_.assign(1u << 12, {});
  mask_ = slots_.size() - 1;
  used_ = 0;
}

template <class T>
void CodeIndex::Table<T>::Reserve() {
  if (2 * (used_ + 1) <= slots_.size()) return;
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.one != nullptr) Find(slot.hash, [](const T&) { return false; })->one = slot.one;
  }
}

// Backward-shift deletion: no tombstones.
template <class T>
void CodeIndex::Table<T>::Erase(Slot* slot) {
  u64 hole = static_cast<u64>(slot - slots_.data());
  for (u64 at = (hole + 1) & mask_; slots_[at].one != nullptr; at = (at + 1) & mask_) {
    const u64 home = slots_[at].hash & mask_;
    if (((at - home) & mask_) < ((at - hole) & mask_)) continue;  // it would come before its home
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = {};
  --used_;
}

// --- Mappings and versions ---

// What begins in one of the guest's cache lines is mostly asked for together, and so lies together
// in the table: the low half, which is the place, is the line's.
u64 CodeIndex::VersionHash(const CodeMapping* mapping, u64 offset, const CodeMode& mode) {
  constexpr u64 kLine = 64;
  const u64 line[2] = {reinterpret_cast<u64>(mapping), offset / kLine << 32 | mode.Bits()};
  return (XXH3_64bits(line, sizeof(line)) & 0xffff'ffff) | offset % kLine << 32;
}

u64 CodeIndex::MappingHash(LinearAddr linear_page, PhysPage phys_page) {
  const u64 key[2] = {linear_page.value, phys_page.number};
  return XXH3_64bits(key, sizeof(key));
}

CodeIndex::VersionSlot* CodeIndex::FindVersions(const CodeMapping* mapping, u64 offset,
                                                const CodeMode& mode) const {
  return versions_.Find(VersionHash(mapping, offset, mode), [&](const Ccf& ccf) {
    return ccf.mapping == mapping && ccf.pc.PageOffset() == offset && ccf.mode == mode;
  });
}

CodeIndex::MappingSlot* CodeIndex::FindMappingSlot(LinearAddr linear_page,
                                                   PhysPage phys_page) const {
  return mappings_.Find(MappingHash(linear_page, phys_page), [&](const CodeMapping& one) {
    return one.linear_page == linear_page && one.phys_page == phys_page;
  });
}

CodeMapping* CodeIndex::FindMapping(LinearAddr linear_page, PhysPage phys_page) const {
  return FindMappingSlot(linear_page, phys_page)->one;
}

CodeMapping* CodeIndex::FindOrAddMapping(const Ccf& ccf) {
  const LinearAddr linear_page = ccf.pc.PageBase();
  mappings_.Reserve();
  CodeMapping*& mapping = FindMappingSlot(linear_page, ccf.phys_page)->one;
  if (mapping != nullptr) return mapping;
  mappings_.Taken();
  mapping = &all_mappings_.emplace_back(
      CodeMapping{.linear_page = linear_page, .phys_page = ccf.phys_page});
  CodeMapping*& ring = FindOrAddPage(ccf.phys_page)->mappings;
  if (ring == nullptr) ring = mapping;
  mapping->next_of_page = ring->next_of_page == nullptr ? mapping : ring->next_of_page;
  ring->next_of_page = mapping;
  return mapping;
}

void CodeIndex::Move(CodeMapping* mapping, LinearAddr linear_page) {
  mappings_.Erase(FindMappingSlot(mapping->linear_page, mapping->phys_page));
  mapping->linear_page = linear_page;
  FindMappingSlot(linear_page, mapping->phys_page)->one = mapping;
  mappings_.Taken();
}

// --- The index ---

void CodeIndex::Clear() {
  versions_.Clear();
  mappings_.Clear();
  all_mappings_.clear();
  pages_.clear();
  pages_.resize(1u << 8);
  pages_used_ = 0;
}

Ccf* CodeIndex::Newest(LinearAddr pc, PhysPage phys_page, const CodeMode& mode) const {
  const CodeMapping* mapping = FindMapping(pc.PageBase(), phys_page);
  return mapping == nullptr ? nullptr : FindVersions(mapping, pc.PageOffset(), mode)->one;
}

Ccf* CodeIndex::Find(LinearAddr pc, PhysPage phys_page, const CodeMode& mode,
                     PhysPage second_page) const {
  for (Ccf* ccf = Newest(pc, phys_page, mode); ccf != nullptr; ccf = ccf->older) {
    if (IsCurrent(*ccf) && (second_page == kNoPage || ccf->phys_page2 == second_page)) return ccf;
  }
  return nullptr;
}

Ccf* CodeIndex::First(const Ccf& ccf) const {
  Ccf* first = FindVersions(ccf.mapping, ccf.pc.PageOffset(), ccf.mode)->one;
  while (first->older != nullptr) first = first->older;
  return first;
}

Ccf* CodeIndex::Add(Ccf* ccf) {
  ccf->mapping = FindOrAddMapping(*ccf);
  versions_.Reserve();
  Ccf*& head = FindVersions(ccf->mapping, ccf->pc.PageOffset(), ccf->mode)->one;
  if (head == nullptr) versions_.Taken();
  ccf->older = head;
  head = ccf;
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
  Ccf** head = ccf->phys_page2 == kNoPage ? &ccf->mapping->enterable : &ccf->mapping->crossing;
  ccf->next_in_mapping = *head;
  *head = ccf;
  ccf->in_mapping = true;
}

// --- Pages and places ---

CodeIndex::Page* CodeIndex::FindPage(PhysPage phys_page) const {
  const u64 mask = pages_.size() - 1;
  u64 at = phys_page.number * 0x9e3779b97f4a7c15u >> 40 & mask;
  while (pages_[at].number != phys_page && pages_[at].number != kNoPage) at = (at + 1) & mask;
  return &pages_[at];
}

void CodeIndex::GrowPages() {
  std::vector<Page> old(pages_.size() * 2);
  old.swap(pages_);
  for (Page& page : old) {
    if (page.number != kNoPage) *FindPage(page.number) = std::move(page);
  }
}

CodeIndex::Page* CodeIndex::FindOrAddPage(PhysPage phys_page) {
  if (2 * (pages_used_ + 1) > pages_.size()) GrowPages();
  Page* page = FindPage(phys_page);
  if (page->number == kNoPage) {
    page->number = phys_page;
    ++pages_used_;
  }
  return page;
}

void CodeIndex::DropEmptyPlaces(Page* page) {
  std::erase_if(page->places, [&](Place& place) { return ValidHead(&place) == nullptr; });
  page->compact_at = std::max<u32>(64, 2 * static_cast<u32>(page->places.size()));
}

void CodeIndex::AddToPlace(Ccf* ccf) {
  Page* page = FindOrAddPage(ccf->phys_page);
  if (page->places.size() >= page->compact_at) DropEmptyPlaces(page);
  const LinearAddr linear_page = ccf->pc.PageBase();
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
    std::vector<Ccf*>& crossing = FindOrAddPage(ccf->phys_page2)->crossing;
    if (crossing.size() == crossing.capacity()) {
      std::erase_if(crossing, [](const Ccf* old) { return !old->valid; });
      crossing.reserve(std::max<std::size_t>(4, 2 * crossing.size()));
    }
    crossing.push_back(ccf);
  }
}

}  // namespace alibi::runtime
