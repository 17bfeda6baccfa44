// SPDX-License-Identifier: Apache-2.0
// Leaf page tables whose trace is off, each with a copy of what the shadow knows of it.
//
// A page with uses as a page table is either traced or in this list (PageInfo::flood is then its
// place here).
#ifndef ALIBI_MMU_OUT_OF_SYNC_H_
#define ALIBI_MMU_OUT_OF_SYNC_H_

#include "base/types.h"

namespace alibi::mmu {

class OutOfSyncTables {
 public:
  static constexpr unsigned kMax = 128;
  static constexpr unsigned kUnits = kPageSize / 8;
  static constexpr u64 kCopyBytes = u64{kMax} * kPageSize;

  // `copies` has kCopyBytes.
  void Init(u64* copies) { copies_ = copies; }
  void Clear() { taken_[0] = taken_[1] = 0; }
  unsigned count() const {
    return static_cast<unsigned>(__builtin_popcountll(taken_[0]) + __builtin_popcountll(taken_[1]));
  }
  bool full() const { return (taken_[0] & taken_[1]) == ~u64{0}; }
  bool empty() const { return (taken_[0] | taken_[1]) == 0; }

  // Precondition: not full. Returns its place; the copy is the caller's to make.
  unsigned Add(u64 arena_offset) {
    const unsigned word = ~taken_[0] != 0 ? 0 : 1;
    const unsigned bit = static_cast<unsigned>(__builtin_ctzll(~taken_[word]));
    taken_[word] |= u64{1} << bit;
    offsets_[64 * word + bit] = arena_offset;
    return 64 * word + bit;
  }
  void Remove(unsigned place) { taken_[place / 64] &= ~(u64{1} << (place % 64)); }
  u64* CopyOf(unsigned place) { return copies_ + u64{place} * kUnits; }

  // f(arena offset of the table) for each; f may remove it.
  template <class F>
  void ForEach(F f) {
    for (unsigned word = 0; word < 2; ++word) {
      for (u64 bits = taken_[word]; bits != 0; bits &= bits - 1) {
        f(offsets_[64 * word + static_cast<unsigned>(__builtin_ctzll(bits))]);
      }
    }
  }

 private:
  static_assert(kMax == 128, "two words of bits");
  u64 taken_[2] = {};
  u64 offsets_[kMax];
  u64* copies_ = nullptr;
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_OUT_OF_SYNC_H_
