// SPDX-License-Identifier: Apache-2.0
#include "direct/code_votes.h"

#include <bit>

#include "base/check.h"
#include "direct/code_length.h"

namespace alibi::direct {
namespace {

constexpr unsigned kLongest = 15;

}  // namespace

void CodeVotes::Reset(unsigned size) {
  ALIBI_CHECK(size <= kMostBytes, "a page and what lies around it");
  size_ = size;
  for (unsigned at = 0; at < size + kLongest; ++at) votes_[at] = 0;
}

void CodeVotes::Count(const u8* bytes, unsigned at, unsigned code_bits) {
  const unsigned length = CodeLength(bytes + at, code_bits);
  length_[at] = static_cast<u8>(length <= kLongest ? length : 0);
  if (length_[at] == 0) return;
  votes_[at + length] += kVote + votes_[at] - votes_[at] / kFade;
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
  return in_favour * kAgainst >= against;
}

}  // namespace alibi::direct
