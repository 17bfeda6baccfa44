// SPDX-License-Identifier: Apache-2.0
#include "devices/net/combine.h"

#include <cstdlib>

#include "devices/lance/test_util.h"

namespace alibi::devices::lance {
namespace {

constexpr u32 kTx = Rig::kTransmitRing;
constexpr net::Optimize kCombining = {.ports = true, .combine = true, .notify = true};

TEST_CASE("Send combining: the rate of crossings decays") {
  net::Traffic traffic;
  u64 now = 5'000'000'000;
  CHECK_FALSE(traffic.busy(now));
  for (u32 i = 0; i < net::Traffic::kHigh; ++i) traffic.Crossed(now);
  CHECK(traffic.busy(now));
  CHECK(traffic.busy(now + net::Traffic::kHalfLifeNs - 1));
  CHECK_FALSE(traffic.busy(now + net::Traffic::kHalfLifeNs));
  CHECK_FALSE(traffic.busy(now + 1'000 * net::Traffic::kHalfLifeNs));
  // Seven per half-life are many, five are not.
  for (const u32 each : {7u, 5u}) {
    net::Traffic steady;
    for (int i = 0; i < 50; ++i, now += net::Traffic::kHalfLifeNs) {
      for (u32 j = 0; j < each; ++j) steady.Crossed(now);
    }
    CHECK(steady.busy(now - 1) == (each == 7));
  }
}

TEST_CASE("Send combining: who receives does not wait") {
  net::Traffic traffic;
  u64 now = 1'000'000'000;
  for (u32 i = 0; i < 4 * net::Traffic::kHigh; ++i) traffic.Crossed(now);
  CHECK_FALSE(traffic.may_combine(now));  // nobody has sent anything
  traffic.Sent(60);
  CHECK(traffic.may_combine(now));
  traffic.Received(1514);
  CHECK_FALSE(traffic.may_combine(now));
  traffic.Sent(1514);
  CHECK(traffic.may_combine(now));
  // What was long ago does not count.
  now += 20 * net::Traffic::kHalfLifeNs;
  for (u32 i = 0; i < net::Traffic::kHigh; ++i) traffic.Crossed(now);
  CHECK_FALSE(traffic.may_combine(now));
}

struct Busy : Rig {
  // It has sent a frame.
  Busy() : Rig(true, kCombining) {
    Begin(2);
    Transmission(0, FrameTo(kStranger));
    Demand();
    Begin(2);
    for (u32 i = 0; i < 2 * net::Traffic::kHigh; ++i) lance.Crossed();
  }
  bool Waits(u32 index) { return Flags(kTx, index) & kOwn; }
};

TEST_CASE("Send combining: a quiet machine sends at once") {
  Rig rig(true, kCombining);
  rig.Begin(2);
  rig.clock.Advance(1'000'000'000);
  rig.Transmission(0, FrameTo(kStranger));
  rig.Demand();
  CHECK((rig.Flags(kTx, 0) & kOwn) == 0);
}

TEST_CASE("Send combining: what waits goes out") {
  Busy rig;
  rig.Transmission(0, FrameTo(kStranger, 61));
  rig.Demand();
  REQUIRE(rig.Waits(0));
  SECTION("with the third") {
    rig.Transmission(1, FrameTo(kStranger, 62));
    rig.Demand();
    CHECK(rig.Waits(1));
    rig.Transmission(2, FrameTo(kStranger, 63));
    rig.Demand();
    CHECK_FALSE(rig.Waits(2));
    const auto taken = rig.wire->Taken(4);
    REQUIRE(taken.size() == 4);
    for (u32 i = 0; i < 3; ++i) CHECK(taken[1 + i].size() == 61 + i);
    CHECK(rig.lance.tallies().lance_held == 2);
    CHECK(rig.lance.tallies().lance_demands == 4);
  }
  SECTION("after a tick") {
    RunFor(rig.clock, rig.timers, net::kCombiningTickNs - 1);
    CHECK(rig.Waits(0));
    RunFor(rig.clock, rig.timers, 1);
    CHECK_FALSE(rig.Waits(0));
  }
  SECTION("when the guest is left for another reason") {
    rig.lance.Crossed();
    CHECK_FALSE(rig.Waits(0));
  }
  SECTION("with a frame from elsewhere") {
    rig.Put(FrameTo(kTestAddress));
    CHECK_FALSE(rig.Waits(0));
  }
  SECTION("with an access that the card must serve") {
    rig.SetCsr(4, 0x0115);
    CHECK_FALSE(rig.Waits(0));
  }
  SECTION("not after STOP") {
    rig.SetCsr(0, kStop);
    RunFor(rig.clock, rig.timers, 10 * net::kCombiningTickNs);
    CHECK(rig.Waits(0));
    rig.SetCsr(0, kStrt);
    CHECK_FALSE(rig.Waits(0));
  }
  CHECK(rig.lance.tallies().lance_transmitted >= 2);
}

TEST_CASE("Send combining: acknowledgements of what comes do not wait") {
  Busy rig;
  for (u32 i = 0; i < 4; ++i) rig.Receiver(i);
  rig.Put(FrameTo(kTestAddress, 1514));
  rig.Transmission(0, FrameTo(kStranger, 60));
  rig.Demand();
  CHECK_FALSE(rig.Waits(0));
}

TEST_CASE("Send combining: loops do not wait") {
  Busy rig;
  rig.Begin(2, kLoop | kIntl);
  rig.Transmission(0, FrameTo(kTestAddress));
  rig.Demand();
  CHECK_FALSE(rig.Waits(0));
}

// 20,000 frames; the long test has 1,000,000.
u32 FrameCount() {
  const char* text = std::getenv("ALIBI_LANCE_FRAMES");
  return text != nullptr ? static_cast<u32>(std::atoi(text)) : 20'000;
}

net::Frame NumberedFrame(u32 number, std::size_t size) {
  net::Frame frame = FrameTo(kStranger, size);
  for (u32 i = 0; i < 4; ++i) frame[20 + i] = static_cast<u8>(number >> 8 * i);
  for (std::size_t i = 24; i < frame.size(); ++i) frame[i] = static_cast<u8>(number * 31 + i);
  return frame;
}

// Stops, resets of the driver, pauses, and looks at the counters at random: each frame arrives
// once, whole, in order, and no later than a tick.
TEST_CASE("Send combining: many frames") {
  const u32 kFrames = FrameCount();
  Rig rig(true, kCombining);
  std::mt19937_64 random(1);
  rig.Begin(2);
  u32 slot = 0, sent = 0;
  std::size_t waited = 0;
  while (sent < kFrames) {
    rig.Transmission(slot, NumberedFrame(sent, 60 + random() % 100));
    rig.Demand();
    ++sent;
    const u32 last = slot;
    slot = (slot + 1) % 8;
    waited += (rig.Flags(kTx, last) & kOwn) != 0;
    switch (random() % 64) {
      case 0:
        rig.clock.Advance(random() % 3'000'000);
        rig.timers.RunExpired(rig.clock.NowNs());
        break;
      case 1:
        RunFor(rig.clock, rig.timers, net::kCombiningTickNs);
        REQUIRE((rig.Flags(kTx, last) & kOwn) == 0);
        break;
      case 2:
        rig.SetCsr(0, kTint | kRint | kIena);
        break;
      case 3:
        RunFor(rig.clock, rig.timers, net::kCombiningTickNs);
        rig.Begin(2);  // the driver is loaded anew
        slot = 0;
        break;
      case 4:
        rig.lance.Crossed();
        REQUIRE((rig.Flags(kTx, last) & kOwn) == 0);
        REQUIRE(rig.lance.tallies().lance_demands == sent);
        REQUIRE(rig.lance.tallies().lance_transmitted == sent);
        break;
      case 5:  // the link is taken down, and up again
        RunFor(rig.clock, rig.timers, net::kCombiningTickNs);
        rig.SetCsr(0, kStop);
        rig.clock.Advance(random() % 3'000'000);
        rig.SetCsr(0, kStrt | kIena);
        slot = 0;
        break;
      default:
        rig.clock.Advance(random() % 20'000);
    }
  }
  RunFor(rig.clock, rig.timers, net::kCombiningTickNs);
  CHECK(waited > kFrames / 10);
  const auto taken = rig.wire->Taken(kFrames);
  REQUIRE(taken.size() == kFrames);
  for (u32 i = 0; i < kFrames; ++i) {
    if (taken[i] != NumberedFrame(i, taken[i].size())) FAIL("frame " << i);
  }
}

}  // namespace
}  // namespace alibi::devices::lance
