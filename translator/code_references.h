// SPDX-License-Identifier: Apache-2.0
// Where emitted code depends on where things lie: on its own place, on the stubs', on its
// descriptors' and on the guest's. By offset of the value in the hot or in the cold code.
//
// With them a CCF can be taken out of one TC and put into another (portable_ccf.h).
#ifndef ALIBI_TRANSLATOR_CODE_REFERENCES_H_
#define ALIBI_TRANSLATOR_CODE_REFERENCES_H_

#include <array>

#include "base/types.h"

namespace alibi::translator {

// Of 4 KB of code at most (kMaxHotBytes, kMaxColdBytes), which have no more places than that.
class PlaceList {
 public:
  void clear() { count_ = 0; }
  void Add(u64 place) { places_[count_++ % kMost] = static_cast<u16>(place); }
  const u16* begin() const { return places_.data(); }
  const u16* end() const { return places_.data() + count_; }

 private:
  static constexpr unsigned kMost = 1024;
  std::array<u16, kMost> places_;
  unsigned count_ = 0;
};

struct CodeReferences {
  PlaceList jumps;         // 32 bits, relative to the next byte
  PlaceList descriptors;   // 64 bits, addresses of descriptors
  PlaceList misses;        // 64 bits, MissWord
  PlaceList branch_notes;  // 32 bits, for VcpuState::last_branch
  PlaceList pcs32, pcs64;  // what moves with a kernel's PC (isa/moving_parts.h)

  void Clear() {
    for (auto* list : {&jumps, &descriptors, &misses, &branch_notes, &pcs32, &pcs64}) list->clear();
  }
};

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_CODE_REFERENCES_H_
