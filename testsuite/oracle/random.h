// SPDX-License-Identifier: Apache-2.0
// Deterministic random numbers: the same seed gives the same sequences on every host and compiler
// (the standard library's distributions do not promise that).
#ifndef ALIBI_TESTSUITE_ORACLE_RANDOM_H_
#define ALIBI_TESTSUITE_ORACLE_RANDOM_H_

#include <cstddef>
#include <iterator>

#include "base/types.h"

namespace alibi::oracle {

class Random {
 public:
  explicit Random(u64 seed) : state_(seed) {}
  // SplitMix64 (Steele, Lea, Flood 2014): every seed is good, also small ones in a row.
  u64 Next() {
    u64 z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, n).
  u64 Below(u64 n) { return Next() % n; }
  bool Percent(unsigned percent) { return Below(100) < percent; }
  template <class Container>
  const auto& Pick(const Container& container) {
    return *(std::begin(container) + static_cast<std::ptrdiff_t>(Below(std::size(container))));
  }

 private:
  u64 state_;
};

// The seed of one sequence of a run: any sequence can be made again without those before it.
inline u64 SeedOf(u64 run, u64 index) { return Random(run * 0x9e3779b97f4a7c15u + index).Next(); }

}  // namespace alibi::oracle

#endif  // ALIBI_TESTSUITE_ORACLE_RANDOM_H_
