// SPDX-License-Identifier: Apache-2.0
// A CCF's side data: the lists that only faults, callouts and tools look at. They grow here while
// code is emitted, and are packed behind the CCF when it is done.
#ifndef ALIBI_TRANSLATOR_SIDE_DATA_H_
#define ALIBI_TRANSLATOR_SIDE_DATA_H_

#include <array>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "base/types.h"
#include "translator/ccf.h"
#include "translator/translation_unit.h"

namespace alibi::translator {

// Of so few that their number is a byte.
template <class T>
class ShortList {
 public:
  void push_back(const T& one) {
    ALIBI_CHECK(count_ < kMost, "a CCF's lists are short");
    all_[count_++] = one;
  }
  void clear() { count_ = 0; }
  u8 size() const { return static_cast<u8>(count_); }
  u64 bytes() const { return count_ * sizeof(T); }
  T& back() { return all_[count_ - 1]; }
  const T& operator[](unsigned i) const { return all_[i]; }
  const T* begin() const { return all_.data(); }
  const T* end() const { return all_.data() + count_; }
  // To `to`, in pieces whose size is known here: which size of a copy comes next, no branch
  // predictor knows. They may reach over the list's end, but not over `end`.
  void CopyTo(u8* to, const u8* end) const {
    constexpr u64 kPiece = 16;
    static_assert(std::is_trivially_copyable_v<T> && sizeof(all_) % kPiece == 0);
    const auto* from = reinterpret_cast<const u8*>(all_.data());
    u64 done = 0;
    for (; done < bytes() && to + done + kPiece <= end; done += kPiece) {
      std::memcpy(to + done, from + done, kPiece);
    }
    if (done < bytes()) std::memcpy(to + done, from + done, bytes() - done);
  }

 private:
  static constexpr unsigned kMost = 255;
  std::array<T, kMost + 1> all_;
  unsigned count_ = 0;
};

class SideData {
 public:
  ShortList<ExitDesc*> exits;
  ShortList<SiteDesc*> sites;
  ShortList<FaultPoint> faults;
  ShortList<CodeMapEntry> map;
  ShortList<ColdMapEntry> cold_map;
  ShortList<PcPlace> pcs;

  void Clear();
  // What Keep() writes.
  u64 BytesFor(const TranslationUnit& tu) const;
  // Packs the lists at `to`, 8-byte aligned, for ccf's accessors. `ccf` has its pc and mode, and
  // `shown` is what the TU was built with (null: everything); it outlives the CCF.
  void Keep(const TranslationUnit& tu, std::span<const SitePlan> plans,
            const isa::FeatureSet* shown, u8* to, Ccf* ccf) const;
};

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_SIDE_DATA_H_
