// SPDX-License-Identifier: Apache-2.0
#include "mmu/root_groups.h"

namespace alibi::mmu {

unsigned RootGroups::Choose(const Fit fits[kMax]) {
  // A group that loses nothing is better than any that does; then what stays counts.
  const auto better = [&](unsigned a, unsigned b) {
    const bool free_a = fits[a].lost == 0 && fits[a].kept != 0;
    const bool free_b = fits[b].lost == 0 && fits[b].kept != 0;
    if (free_a != free_b) return free_a;
    const i64 gain_a = i64{fits[a].kept} - fits[a].lost;
    const i64 gain_b = i64{fits[b].kept} - fits[b].lost;
    if (gain_a != gain_b) return gain_a > gain_b;
    return a == running_ || (b != running_ && last_used_[a] > last_used_[b]);
  };
  unsigned best = 0, oldest = 0;
  for (unsigned group = 1; group < count_; ++group) {
    if (better(group, best)) best = group;
    if (last_used_[group] < last_used_[oldest]) oldest = group;
  }
  const Fit fit = fits[best];
  if (fit.lost == 0) return best;
  // What is lost now is lost again whenever the other root comes back. A group of its own costs
  // what would have been kept, once: it is due when as much has been lost.
  paid_[best] += fit.lost;
  if (paid_[best] <= fit.kept) return best;
  paid_[best] = 0;
  return count_ < kMax ? count_++ : oldest;
}

}  // namespace alibi::mmu
