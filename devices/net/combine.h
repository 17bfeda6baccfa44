// SPDX-License-Identifier: Apache-2.0
// When transmissions may wait for a crossing that happens anyway (Sugerman, Venkitachalam and Lim,
// section 3.3): while crossings are frequent, by a counter that decays; and, what they do not have,
// while more is sent than received: acknowledgements that wait hold the sender up.
//
// Frames that wait stay in the guest's ring, so that nothing is copied and their order is kept.
// They go out with the next crossing (an access that the card must serve, a notice of the back
// end's, a timer, the VCPU's way to sleep), with the third of them, or after one tick.
#ifndef ALIBI_DEVICES_NET_COMBINE_H_
#define ALIBI_DEVICES_NET_COMBINE_H_

#include <initializer_list>

#include "base/types.h"

namespace alibi::net {

inline constexpr unsigned kMostCombined = 3;
inline constexpr u64 kCombiningTickNs = 1'000'000;

// What has passed a card lately. Bytes decay with the crossings around them, so that only
// crossings need the time.
class Traffic {
 public:
  static constexpr u64 kHalfLifeNs = 1'000'000;
  // Reached by some six crossings per half-life.
  static constexpr u64 kHigh = 12;

  void Crossed(u64 now_ns) {
    Decay(now_ns);
    ++crossings_;
  }
  void Sent(u64 bytes) { sent_ += bytes; }
  void Received(u64 bytes) { received_ += bytes; }

  bool busy(u64 now_ns) {
    Decay(now_ns);
    return crossings_ >= kHigh;
  }
  bool may_combine(u64 now_ns) { return busy(now_ns) && sent_ > received_; }

 private:
  void Decay(u64 now_ns) {
    const u64 halvings = (now_ns - last_ns_) / kHalfLifeNs;
    if (halvings == 0) return;
    for (u64* each : {&crossings_, &sent_, &received_}) {
      *each = halvings < 64 ? *each >> halvings : 0;
    }
    last_ns_ += halvings * kHalfLifeNs;
  }

  u64 crossings_ = 0, sent_ = 0, received_ = 0;
  u64 last_ns_ = 0;
};

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_COMBINE_H_
