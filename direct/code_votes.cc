// SPDX-License-Identifier: Apache-2.0
#include "direct/code_votes.h"

#include "base/check.h"

namespace alibi::direct {
void CodeVotes::Reset(unsigned size) {
  ALIBI_CHECK(size <= kMostBytes, "a page and what lies around it");
  size_ = size;
  for (unsigned at = 0; at < size + kLongest; ++at) votes_[at] = 0;
}

const CodeLengths& CodeVotes::LengthsOf(unsigned code_bits) {
  static const CodeLengths of_32(32), of_64(64);
  return code_bits == 64 ? of_64 : of_32;
}

bool CodeVotes::Begins(unsigned last, u32 starts_below) const {
  u64 in_favour = 0, against = 0;
  const unsigned first = last >= kLongest ? last - kLongest + 1 : 0;
  for (unsigned at = first; at <= last && at < size_; ++at) {
    if (starts_below >> (last - at) & 1) {
      in_favour += votes_[at];
    } else if (at + length_[at] > last) {
      against += votes_[at];
    }
  }
  return in_favour * kAgainst >= against * kInFavour;
}

}  // namespace alibi::direct
