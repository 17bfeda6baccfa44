// SPDX-License-Identifier: Apache-2.0
// When transmissions may wait for a crossing that happens anyway (Sugerman, Venkitachalam and Lim,
// section 3.3): while crossings are frequent, by a counter that decays.
//
// Frames that wait stay in the guest's ring, so that nothing is copied and their order is kept.
// They go out with the next crossing (an access that the card must serve, a notice of the back
// end's, a timer, the VCPU's way to sleep), with the third of them, or after one tick.
#ifndef ALIBI_DEVICES_LANCE_COMBINE_H_
#define ALIBI_DEVICES_LANCE_COMBINE_H_

#include <algorithm>

#include "base/types.h"

namespace alibi::devices::lance {

class CrossingRate {
 public:
  static constexpr u64 kHalfLifeNs = 1'000'000;
  // Reached by some six crossings per half-life.
  static constexpr u32 kHigh = 12;

  void Note(u64 now_ns) {
    Decay(now_ns);
    count_ = std::min<u32>(count_ + 1, kMost);
  }
  bool high(u64 now_ns) {
    Decay(now_ns);
    return count_ >= kHigh;
  }

 private:
  static constexpr u32 kMost = 1u << 16;

  void Decay(u64 now_ns) {
    const u64 halvings = (now_ns - last_ns_) / kHalfLifeNs;
    if (halvings == 0) return;
    count_ = halvings < 32 ? count_ >> halvings : 0;
    last_ns_ += halvings * kHalfLifeNs;
  }

  u32 count_ = 0;
  u64 last_ns_ = 0;
};

}  // namespace alibi::devices::lance

#endif  // ALIBI_DEVICES_LANCE_COMBINE_H_
