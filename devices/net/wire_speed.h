// SPDX-License-Identifier: Apache-2.0
// How fast one direction of a wire is: a bucket of tokens, one for each bit, that fills at the
// wire's speed and holds a millisecond's worth.
#ifndef ALIBI_DEVICES_NET_WIRE_SPEED_H_
#define ALIBI_DEVICES_NET_WIRE_SPEED_H_

#include <algorithm>

#include "base/types.h"

namespace alibi::net {

class WireSpeed {
 public:
  static constexpr u64 kBurstNs = 1'000'000;
  // What surrounds a frame on an Ethernet wire: preamble, check sequence, the gap behind it.
  static constexpr u64 kAroundFrame = 8 + 4 + 12;
  static constexpr u64 kLeast = 1'000'000, kMost = 100'000'000'000;  // bits per second

  // 0: as fast as it may be.
  explicit WireSpeed(u64 bits_per_second = 0) : bits_per_second_(bits_per_second) {}

  bool limited() const { return bits_per_second_ != 0; }
  // How long the wire is still busy with what was taken; 0: the next frame may come.
  u64 WaitNs(u64 now_ns) const { return free_ns_ > now_ns ? free_ns_ - now_ns : 0; }
  // A frame of so many bytes passes now.
  void Take(u64 bytes, u64 now_ns) {
    if (!limited()) return;
    // An idle wire saves no more than the burst.
    free_ns_ = std::max(free_ns_, now_ns - std::min(now_ns, kBurstNs));
    free_ns_ += (bytes + kAroundFrame) * 8 * 1'000'000'000 / bits_per_second_;
  }
  // As many bytes as may wait for the wire: what it does in two bursts, and some frames.
  u64 Queue() const { return std::max<u64>(bits_per_second_ / 8 / 500, 16'384); }

 private:
  u64 bits_per_second_;
  u64 free_ns_ = 0;  // when all that was taken has passed
};

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_WIRE_SPEED_H_
