// SPDX-License-Identifier: Apache-2.0
// Linear pages in which somebody waits for an access: no view, of whichever address space, has an
// entry for such accesses, so that each of them comes to the runtime.
#ifndef ALIBI_MMU_WATCHED_PAGES_H_
#define ALIBI_MMU_WATCHED_PAGES_H_

#include "base/types.h"

namespace alibi::mmu {

class WatchedPages {
 public:
  static constexpr unsigned kMax = 128;

  // Of shadow entries; stores there are waited for, and loads, too, if it says so.
  struct Range {
    u64 first = 0, last = 0;
    bool loads = false;
  };

  bool ForStores(u64 index) const { return Has(index, false); }
  bool ForLoads(u64 index) const { return Has(index, true); }
  bool full() const { return count_ == kMax; }
  // Precondition: not full.
  void Add(const Range& range) { ranges_[count_++] = range; }
  void Clear() { count_ = 0; }

 private:
  bool Has(u64 index, bool loads) const {
    for (unsigned i = 0; i < count_; ++i) {
      const Range& range = ranges_[i];
      if (range.loads >= loads && index - range.first <= range.last - range.first) return true;
    }
    return false;
  }

  Range ranges_[kMax];
  unsigned count_ = 0;
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_WATCHED_PAGES_H_
