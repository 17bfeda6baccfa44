// SPDX-License-Identifier: Apache-2.0
// Leaf page tables whose trace is off, each with a copy of what the shadow knows of it.
//
// A page with uses as a page table is either traced or in this list (PageInfo::flood is then its
// place here). A flush concerns few of the tables, and most flushes none: what it asks for is found
// without a look at the others.
#ifndef ALIBI_MMU_OUT_OF_SYNC_H_
#define ALIBI_MMU_OUT_OF_SYNC_H_

#include "base/types.h"

namespace alibi::mmu {

class OutOfSyncTables {
 public:
  static constexpr unsigned kMax = 128;
  static constexpr unsigned kUnits = kPageSize / 8;
  static constexpr u64 kCopyBytes = u64{kMax} * kPageSize;

  // Some of the places.
  class Set {
   public:
    bool empty() const { return (words_[0] | words_[1]) == 0; }
    bool full() const { return (words_[0] & words_[1]) == ~u64{0}; }
    unsigned count() const {
      return static_cast<unsigned>(__builtin_popcountll(words_[0]) +
                                   __builtin_popcountll(words_[1]));
    }
    void Add(unsigned place) { words_[place / 64] |= u64{1} << (place % 64); }
    void Remove(unsigned place) { words_[place / 64] &= ~(u64{1} << (place % 64)); }
    void Add(const Set& other) {
      words_[0] |= other.words_[0];
      words_[1] |= other.words_[1];
    }
    // Precondition: not full.
    unsigned FirstNotIn() const {
      return static_cast<unsigned>(~words_[0] != 0 ? __builtin_ctzll(~words_[0])
                                                   : 64 + __builtin_ctzll(~words_[1]));
    }
    template <class F>
    void ForEach(F f) const {
      for (unsigned word = 0; word < 2; ++word) {
        for (u64 bits = words_[word]; bits != 0; bits &= bits - 1) {
          f(64 * word + static_cast<unsigned>(__builtin_ctzll(bits)));
        }
      }
    }

   private:
    static_assert(kMax == 128, "two words of bits");
    u64 words_[2] = {};
  };

  // `copies` has kCopyBytes.
  void Init(u64* copies) { copies_ = copies; }
  void Clear() {
    taken_ = {};
    for (unsigned key = 0; key < kKeys; ++key) at_[key] = of_view_[key] = {};
  }
  bool full() const { return taken_.full(); }
  bool empty() const { return taken_.empty(); }
  const Set& all() const { return taken_; }

  // Precondition: not full. Entries have 1 << `entry_shift` bytes at all of its uses, which are to
  // be noted. Returns its place; the copy is the caller's to make.
  unsigned Add(u64 arena_offset, unsigned entry_shift) {
    const unsigned place = taken_.FirstNotIn();
    taken_.Add(place);
    tables_[place] = {arena_offset, entry_shift};
    return place;
  }
  // It maps from `index` on in that view. Uses that go are not taken back.
  void NoteUse(unsigned place, u64 index, unsigned view) {
    at_[KeyOf(index)].Add(place);
    of_view_[view % kKeys].Add(place);
  }
  void Remove(unsigned place) {
    taken_.Remove(place);
    for (unsigned key = 0; key < kKeys; ++key) {
      at_[key].Remove(place);
      of_view_[key].Remove(place);
    }
  }

  // Those that may map the linear page, in any view; those that the view may use. More than that,
  // but no fewer.
  const Set& At(u64 index) const { return at_[KeyOf(index)]; }
  const Set& OfView(unsigned view) const { return of_view_[view % kKeys]; }

  u64 OffsetOf(unsigned place) const { return tables_[place].arena_offset; }
  unsigned EntryShiftOf(unsigned place) const { return tables_[place].entry_shift; }
  u64* CopyOf(unsigned place) { return copies_ + u64{place} * kUnits; }

 private:
  // Each has to be cleared of a table that is removed.
  static constexpr unsigned kKeys = 64;
  // Leaf tables map 512 or 1,024 pages; kernels like round addresses.
  static unsigned KeyOf(u64 index) {
    return static_cast<unsigned>((index >> 10) * 0x9e3779b97f4a7c15u >> 58);
  }
  static_assert(kKeys == 1 << (64 - 58));

  struct Table {
    u64 arena_offset;
    unsigned entry_shift;
  };
  Set taken_;
  Set at_[kKeys], of_view_[kKeys];
  Table tables_[kMax];
  u64* copies_ = nullptr;
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_OUT_OF_SYNC_H_
