// SPDX-License-Identifier: Apache-2.0
// From guest code to CCFs: by PC (to run it), by page (to offer a view what is there), by physical
// bytes (to find what a store has changed).
//
// A guest makes as many CCFs of one physical page as it likes: it runs the page at as many linear
// addresses, and changes it as often. No operation here walks a list that grows with either;
// steps() counts the CCFs looked at, for tests.
//
//   mapping  a linear and a physical page that code was translated for, with the CCFs there. It can
//            be moved to another linear page, as programs are loaded at random ones.
//   version  the CCFs of one PC and mode, by mapping and offset in the page, the newest first:
//            kMaxVersions of them and the first one ever made
//   place    the CCFs that depend on the same bytes of a physical page
//
// Mappings and places drop CCFs that are not valid any more when they are walked, so that each is
// looked at once. The links lie in the CCFs. General registers only; only Add() and Renew()
// allocate.
#ifndef ALIBI_RUNTIME_CODE_INDEX_H_
#define ALIBI_RUNTIME_CODE_INDEX_H_

#include <algorithm>
#include <deque>
#include <vector>

#include "base/types.h"
#include "translator/ccf.h"

namespace alibi::runtime {

// May it be run (again)?
inline bool IsCurrent(const translator::Ccf& ccf) { return ccf.valid && !ccf.retired; }

// The guest-physical address of the CCF's guest code at `pc`.
inline PhysAddr PhysOf(const translator::Ccf& ccf, LinearAddr pc) {
  return ccf.phys_page.Base() + (pc - ccf.pc.PageBase());
}

class CodeIndex {
 public:
  static constexpr unsigned kMaxVersions = 8;

  CodeIndex() { Clear(); }
  void Clear();

  // A new CCF, whose examined range is known. Returns the version that was given up for it, or
  // null; see First().
  translator::Ccf* Add(translator::Ccf* ccf);
  // It is valid again.
  void Renew(translator::Ccf* ccf);

  // The newest version; Ccf::older leads on. Null: none.
  translator::Ccf* Newest(LinearAddr pc, PhysPage phys_page,
                          const translator::CodeMode& mode) const;
  // The one to run. Of an instruction that crosses into another page, which one that is may differ:
  // `second_page` says which, and kNoPage takes any.
  translator::Ccf* Find(LinearAddr pc, PhysPage phys_page, const translator::CodeMode& mode,
                        PhysPage second_page = translator::kNoPage) const;
  // The first version ever made, which is never given up.
  translator::Ccf* First(const translator::Ccf& ccf) const;

  // f(ccf) for each one that can be run and entered by jumps.
  template <class F>
  void ForEachInMapping(LinearAddr linear_page, PhysPage phys_page,
                        const translator::CodeMode& mode, F f);

  // Null: nothing was translated for it.
  translator::CodeMapping* FindMapping(LinearAddr linear_page, PhysPage phys_page) const;
  // f(mapping) for each of that linear page. Looks at every mapping there is.
  template <class F>
  void ForEachMappingAt(LinearAddr linear_page, F f) {
    steps_ += all_mappings_.size();
    for (const translator::CodeMapping& mapping : all_mappings_) {
      if (mapping.linear_page == linear_page) f(mapping);
    }
  }
  // Of the mappings of that physical page one for which `unused(mapping)` holds, or null: a few are
  // asked, others the next time.
  template <class F>
  translator::CodeMapping* FindUnused(PhysPage phys_page, F unused);
  // The physical page has no mapping there. The CCFs' own PCs are the caller's.
  void Move(translator::CodeMapping* mapping, LinearAddr linear_page);
  // f(ccf) for each CCF of the mapping that can be run.
  template <class F>
  void ForEachCurrent(translator::CodeMapping* mapping, F f) {
    Walk(&mapping->enterable, f);
    Walk(&mapping->crossing, f);
  }

  // f(ccf), which makes it invalid, for each valid one that depends on bytes [first, last) of the
  // page. Returns whether the page has others.
  template <class F>
  bool ForEachDependent(PhysPage phys_page, u64 first, u64 last, F f);

  u64 steps() const { return steps_; }
  void CountSteps(u64 steps) const { steps_ += steps; }

 private:
  struct Place {
    u16 begin = 0, end = 0;  // offsets in the page
    translator::Ccf* head = nullptr;
  };
  struct Page {
    PhysPage number = translator::kNoPage;
    u32 longest = 0;            // of its places
    u32 compact_at = 64;        // so many places: those without CCFs go
    std::vector<Place> places;  // sorted
    // Instructions that end in this page and begin in another.
    std::vector<translator::Ccf*> crossing;
    translator::CodeMapping* mappings = nullptr;  // a ring: the one to ask next
  };
  // Open addressing; a slot points to what has the key. It keeps the key's hash beside it: what is
  // pointed to lies far from the host's caches, and is looked at only where the hash is the same.
  template <class T>
  class Table {
   public:
    struct Slot {
      u64 hash = 0;
      T* one = nullptr;
    };
    void Clear();
    // The slot of the key, or the free one where it belongs: Slot::hash is its hash. `same(t)`
    // compares keys.
    template <class Same>
    Slot* Find(u64 hash, Same same) const {
      u64 at = hash & mask_;
      while (slots_[at].one != nullptr && !(slots_[at].hash == hash && same(*slots_[at].one))) {
        at = (at + 1) & mask_;
      }
      slots_[at].hash = hash;
      return &slots_[at];
    }
    void Reserve();  // room for one more
    void Taken() { ++used_; }
    void Erase(Slot* slot);

   private:
    mutable std::vector<Slot> slots_;
    u64 mask_ = 0, used_ = 0;
  };
  using VersionSlot = Table<translator::Ccf>::Slot;
  using MappingSlot = Table<translator::CodeMapping>::Slot;

  // How many bytes of the second page an instruction depends on that crosses into it.
  static constexpr u64 kLongestTail = 16;

  static u64 VersionHash(const translator::CodeMapping* mapping, u64 offset,
                         const translator::CodeMode& mode);
  static u64 MappingHash(LinearAddr linear_page, PhysPage phys_page);
  VersionSlot* FindVersions(const translator::CodeMapping* mapping, u64 offset,
                            const translator::CodeMode& mode) const;
  MappingSlot* FindMappingSlot(LinearAddr linear_page, PhysPage phys_page) const;
  translator::CodeMapping* FindOrAddMapping(const translator::Ccf& ccf);
  Page* FindOrAddPage(PhysPage phys_page);
  Page* FindPage(PhysPage phys_page) const;
  void GrowPages();
  // f(ccf) for each of a mapping's list that can be run; drops the others.
  template <class F>
  void Walk(translator::Ccf** head, F f);
  void AddToMapping(translator::Ccf* ccf);
  void AddToPlace(translator::Ccf* ccf);
  void DropEmptyPlaces(Page* page);
  // Of the place's CCFs the first that is valid, or null.
  translator::Ccf* ValidHead(Place* place);

  // How many mappings of a page FindUnused() asks.
  static constexpr unsigned kAsked = 8;

  Table<translator::Ccf> versions_;
  Table<translator::CodeMapping> mappings_;
  std::deque<translator::CodeMapping> all_mappings_;
  mutable std::vector<Page> pages_;  // open addressing
  u32 pages_used_ = 0;
  mutable u64 steps_ = 0;
};

inline translator::Ccf* CodeIndex::ValidHead(Place* place) {
  while (place->head != nullptr && !place->head->valid) {
    translator::Ccf* gone = place->head;
    place->head = gone->next_in_place;
    gone->in_place = false;
    ++steps_;
  }
  return place->head;
}

template <class F>
void CodeIndex::Walk(translator::Ccf** head, F f) {
  for (translator::Ccf** link = head; *link != nullptr;) {
    translator::Ccf* ccf = *link;
    ++steps_;
    if (IsCurrent(*ccf)) {
      f(ccf);
      link = &ccf->next_in_mapping;
    } else {
      *link = ccf->next_in_mapping;
      ccf->in_mapping = false;
    }
  }
}

template <class F>
void CodeIndex::ForEachInMapping(LinearAddr linear_page, PhysPage phys_page,
                                 const translator::CodeMode& mode, F f) {
  translator::CodeMapping* mapping = FindMapping(linear_page, phys_page);
  if (mapping == nullptr) return;
  Walk(&mapping->enterable, [&](translator::Ccf* ccf) {
    if (ccf->mode == mode) f(ccf);
  });
}

template <class F>
translator::CodeMapping* CodeIndex::FindUnused(PhysPage phys_page, F unused) {
  Page* page = FindPage(phys_page);
  if (page->number != phys_page || page->mappings == nullptr) return nullptr;
  const translator::CodeMapping* const first = page->mappings;
  for (unsigned i = 0; i < kAsked && (i == 0 || page->mappings != first); ++i) {
    translator::CodeMapping* mapping = page->mappings;
    ++steps_;
    page->mappings = mapping->next_of_page;
    if (unused(*mapping)) return mapping;
  }
  return nullptr;
}

template <class F>
bool CodeIndex::ForEachDependent(PhysPage phys_page, u64 first, u64 last, F f) {
  Page* page = FindPage(phys_page);
  if (page->number != phys_page) return false;
  const u64 from = first > page->longest ? first - page->longest : 0;
  auto place = std::lower_bound(page->places.begin(), page->places.end(), from,
                                [](const Place& at, u64 offset) { return at.begin < offset; });
  for (; place != page->places.end() && place->begin < last; ++place) {
    ++steps_;
    if (place->end <= first) continue;
    while (translator::Ccf* ccf = ValidHead(&*place)) f(ccf);
  }
  if (first < kLongestTail) {
    steps_ += page->crossing.size();
    for (translator::Ccf* ccf : page->crossing) {
      if (ccf->valid) f(ccf);
    }
    page->crossing.clear();
  }
  while (!page->crossing.empty() && !page->crossing.back()->valid) {
    page->crossing.pop_back();
    ++steps_;
  }
  if (!page->crossing.empty()) return true;
  for (Place& other : page->places) {
    ++steps_;
    if (ValidHead(&other) != nullptr) return true;
  }
  return false;
}

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_CODE_INDEX_H_
