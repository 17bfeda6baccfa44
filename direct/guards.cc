// SPDX-License-Identifier: Apache-2.0
#include "direct/guards.h"

#include <algorithm>
#include <bit>
#include <ranges>

namespace alibi::direct {
namespace {

u64 PageOf(LinearAddr place) { return place.value / kPageSize; }

}  // namespace

// The page's, or that of the page which matters least.
Guards::Candidate& Guards::CandidateOf(u64 index) {
  Candidate* least = &candidates_[0];
  for (Candidate& candidate : candidates_) {
    if (candidate.index == index) return candidate;
    if (candidate.refusals < least->refusals) least = &candidate;
  }
  *least = {.index = index};
  return *least;
}

bool Guards::Refused(u64 index) {
  Candidate& candidate = CandidateOf(index);
  ++candidate.refusals;
  return !candidate.banned && candidate.refusals >= kRefusals &&
         std::has_single_bit(candidate.refusals);
}

bool Guards::Has(u64 index) const {
  return std::ranges::any_of(places(), [&](LinearAddr at) { return PageOf(at) == index; });
}

bool Guards::Guard(u64 index, std::span<const LinearAddr> places, std::vector<u64>* evicted) {
  const auto here = [&](LinearAddr place) { return PageOf(place) == index; };
  if (std::ranges::equal(this->places() | std::views::filter(here), places)) return true;
  Release(index);
  if (count_ + places.size() > kBreakpoints && CandidateOf(index).refusals < kToEvict) return false;
  while (count_ + places.size() > kBreakpoints) {
    const u64 oldest = PageOf(places_[0]);
    evicted->push_back(oldest);
    Release(oldest);
  }
  for (const LinearAddr place : places) places_[count_++] = place;
  changed_ = true;
  CandidateOf(index).refusals = 0;
  return true;
}

void Guards::Release(u64 index) {
  LinearAddr* const end = std::remove_if(places_, places_ + count_,
                                         [&](LinearAddr place) { return PageOf(place) == index; });
  const auto left = static_cast<unsigned>(end - places_);
  changed_ |= left != count_;
  count_ = left;
}

bool Guards::Hit(u64 index) {
  Candidate& candidate = CandidateOf(index);
  if (++candidate.hits < kMostHits) return false;
  candidate.banned = true;
  Release(index);
  return true;
}

void Guards::Forget() { std::ranges::fill(candidates_, Candidate()); }

}  // namespace alibi::direct
