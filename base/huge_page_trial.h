// SPDX-License-Identifier: Apache-2.0
// Are huge pages of the host worth asking for? Mostly they cost less than the small ones of which
// they take the place. But a host without 2 MB in one piece looks for them and moves other pages;
// and one that is a guest itself and was never given that memory waits for its own host, 4 KB at a
// time (12 million cycles). So many in a row that were dear or refused, and no more are worth it.
#ifndef ALIBI_BASE_HUGE_PAGE_TRIAL_H_
#define ALIBI_BASE_HUGE_PAGE_TRIAL_H_

#include <atomic>

#include "base/types.h"

namespace alibi {

// By several threads at once.
class HugePageTrial {
 public:
  // More than the first touches of 512 small ones.
  static bool IsDear(u64 tsc_cycles) { return tsc_cycles >= kDearCycles; }
  // One was asked for.
  void Note(bool worth_it) {
    if (worth_it) {
      in_vain_.store(0, std::memory_order_relaxed);
    } else {
      in_vain_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  bool Failed() const { return in_vain_.load(std::memory_order_relaxed) >= kMostInVain; }

 private:
  static constexpr u64 kDearCycles = 4'000'000;
  static constexpr unsigned kMostInVain = 2;
  std::atomic<unsigned> in_vain_ = 0;  // in a row
};

}  // namespace alibi

#endif  // ALIBI_BASE_HUGE_PAGE_TRIAL_H_
