// SPDX-License-Identifier: Apache-2.0
// Shared by the device tests: a line that records, and a seeded hammer for register files.
#ifndef ALIBI_DEVICES_TEST_UTIL_H_
#define ALIBI_DEVICES_TEST_UTIL_H_

#include <functional>
#include <random>

#include "base/check.h"
#include "base/types.h"
#include "devices/device.h"
#include "devices/irq.h"
#include "devices/time/clock.h"
#include "devices/time/timer_queue.h"

namespace alibi::devices {

// Counts rising edges and remembers the level.
class RecordingLine : public IrqLine {
 public:
  void Set(bool level) override {
    if (level && !level_) ++rises_;
    level_ = level;
  }
  bool level() const { return level_; }
  int rises() const { return rises_; }

 private:
  bool level_ = false;
  int rises_ = 0;
};

// Moves the clock deadline by deadline, as a punctual VCPU loop would.
inline void RunFor(ManualClock& clock, TimerQueue& timers, u64 ns) {
  const u64 end = clock.NowNs() + ns;
  while (timers.NextDeadlineNs() <= end) {
    if (timers.NextDeadlineNs() > clock.NowNs()) clock.Set(timers.NextDeadlineNs());
    timers.RunExpired(clock.NowNs());
  }
  clock.Set(end);
}

// What Peek() tells is what Read() yields, and that again.
inline void CheckedRead(Device& device, u64 offset, unsigned size) {
  const u64 mask = size < 8 ? (u64{1} << (size * 8)) - 1 : ~u64{0};
  u64 before = 0, after = 0;
  const bool known = device.Peek(offset, size, &before);
  const u64 read = device.Read(offset, size);
  if (!known) return;
  ALIBI_CHECK(((before ^ read) & mask) == 0, "what Peek() has told is what Read() yields");
  ALIBI_CHECK(device.Peek(offset, size, &after) && ((after ^ read) & mask) == 0,
              "such a read has no effect");
}

// Random accesses of every permitted size inside [0, range); `step` runs after each.
inline void Hammer(Device& device, u64 range, u64 seed, int accesses,
                   const std::function<void(std::mt19937_64&)>& step) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < accesses; ++i) {
    unsigned size = 1u << (random() % 4);
    while (size > device.MaxAccessSize() || size > range) size /= 2;
    const u64 offset = random() % (range - size + 1);
    if (random() % 3 == 0) {
      CheckedRead(device, offset, size);
    } else {
      // Half of the values are small or single bits: those reach the odd modes.
      u64 value = random();
      if (value & 1) value = u64{1} << (random() % 32);
      if (size < 8) value &= (u64{1} << (size * 8)) - 1;
      device.Write(offset, size, value);
    }
    step(random);
  }
}

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_TEST_UTIL_H_
