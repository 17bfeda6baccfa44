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

CodeVotes::Result CodeVotes::ResultOf(unsigned last, u32 starts_below) const {
  Result result;
  const unsigned first = last >= kLongest ? last - kLongest + 1 : 0;
  for (unsigned at = first; at <= last && at < size_; ++at) {
    if (starts_below >> (last - at) & 1) {
      result.in_favour += votes_[at];
    } else if (at + length_[at] > last) {
      result.against += votes_[at];
    }
  }
  return result;
}

bool CodeVotes::Begins(unsigned last, u32 starts_below) const {
  const Result result = ResultOf(last, starts_below);
  return result.in_favour * kAgainst >= result.against * kInFavour;
}

bool CodeVotes::IsOutvoted(unsigned last, u32 starts_below) const {
  const Result result = ResultOf(last, starts_below);
  return result.in_favour * kOutvoted < result.against;
}

}  // namespace alibi::direct
