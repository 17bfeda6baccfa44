// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <optional>
#include <random>

#include "devices/net/test_wire.h"
#include "devices/virtio/net.h"
#include "devices/virtio/test_util.h"

namespace alibi::devices::virtio {
namespace {

// A driver with event indices that has sent a frame, on a machine with many crossings.
struct Busy {
  static constexpr u64 kBuffers = 0x40000, kBufferBytes = 0x800;

  explicit Busy(u64 rings = kRingEventIndex, const net::Optimize& optimize = {}, u16 new_size = 64)
      : features(kVersion1 | rings),
        size(new_size),
        wire(new net::TestWire),
        net({0x52, 0x54, 0, 1, 2, 3}, std::unique_ptr<net::Backend>(wire), optimize,
            {.clock = clock, .timers = timers}),
        rig(net) {
    REQUIRE(net.Connect(mailbox).ok());
    clock.Set(1'000'000'000);
    Load();
    Send(Numbered(0, 60));
    REQUIRE(waiting() == 0);
    Load();
    for (u32 i = 0; i < 2 * net::Traffic::kHigh; ++i) net.Crossed();
    rig.Kick(Net::kTransmit);
  }
  // The driver is loaded, perhaps anew.
  void Load() {
    for (u64 at = 0; at < 0x8000; at += 2) rig.memory.Set(0x20000 + at, u16{0});
    REQUIRE(rig.Negotiate(features));
    transmit.emplace(rig.AddQueue(Net::kTransmit, size));
    offered = 0;
    rig.Go();
  }
  static net::Frame Numbered(u32 number, std::size_t bytes) {
    net::Frame frame(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
      frame[i] = static_cast<u8>(i < 4 ? number >> 8 * i : number * 31 + i);
    }
    return frame;
  }
  // As Linux does it: it notifies if the event index lies among the entries that are new.
  void Send(const net::Frame& frame) {
    const u64 at = kBuffers + kBufferBytes * (offered % size);
    for (u64 i = 0; i < Net::kHeaderBytes; ++i) rig.memory.Set(at + i, u8{0});
    rig.memory.Write(PhysAddr(at + Net::kHeaderBytes), frame.data(), frame.size());
    transmit->Add(at, static_cast<u32>(Net::kHeaderBytes + frame.size()), false);
    const u16 before = offered++;
    const u16 event = rig.memory.Get<u16>(transmit->used() + 4 + 8 * size);
    if (!(features & kRingEventIndex) ||
        static_cast<u16>(offered - event - 1) < static_cast<u16>(offered - before)) {
      rig.Kick(Net::kTransmit);
    }
  }
  // All frames but the first.
  std::vector<net::Frame> Taken(std::size_t count) {
    std::vector<net::Frame> taken = wire->Taken(1 + count);
    if (!taken.empty()) taken.erase(taken.begin());
    return taken;
  }
  unsigned waiting() { return static_cast<u16>(offered - transmit->UsedIndex()); }
  void RunFor(u64 ns) {
    const u64 end = clock.NowNs() + ns;
    while (timers.NextDeadlineNs() <= end) {
      clock.Set(timers.NextDeadlineNs());
      timers.RunExpired(clock.NowNs());
    }
    clock.Set(end);
  }

  const u64 features;
  const u16 size;
  ManualClock clock;
  TimerQueue timers;
  Mailbox mailbox{[] {}};
  net::TestWire* wire;
  Net net;
  TestRig rig;
  std::optional<TestQueue> transmit;
  u16 offered = 0;
};

TEST_CASE("Net, send combining: a quiet machine sends at once") {
  Busy r;
  r.RunFor(1'000'000'000);
  for (u32 i = 0; i < 5; ++i) {
    r.Send(Busy::Numbered(i, 61));
    CHECK(r.waiting() == 0);
    r.RunFor(10'000'000);
  }
  CHECK(r.timers.NextDeadlineNs() == TimerQueue::kNever);
}

TEST_CASE("Net, send combining: where it is off, or cannot be, each frame goes at once") {
  const auto check = [](Busy& r) {
    for (u32 i = 0; i < 10; ++i) {
      r.Send(Busy::Numbered(i, 61));
      CHECK(r.waiting() == 0);
    }
    CHECK(r.net.tallies().virtio_net_notified >= 10);
  };
  Busy off(kRingEventIndex, {.combine = false}), no_index(0), small(kRingEventIndex, {}, 8);
  check(off);
  check(no_index);
  check(small);
}

TEST_CASE("Net, send combining: what waits goes out") {
  Busy r;
  const u64 notified = r.net.tallies().virtio_net_notified;
  r.Send(Busy::Numbered(0, 61));
  REQUIRE(r.waiting() == 1);
  SECTION("with the third") {
    r.Send(Busy::Numbered(1, 62));
    CHECK(r.waiting() == 2);
    r.Send(Busy::Numbered(2, 63));
    CHECK(r.waiting() == 0);
    const auto taken = r.Taken(3);
    REQUIRE(taken.size() == 3);
    for (u32 i = 0; i < 3; ++i) CHECK(taken[i] == Busy::Numbered(i, 61 + i));
    CHECK(r.net.tallies().virtio_net_notified == notified + 1);
    CHECK(r.net.tallies().virtio_net_transmitted == 4);
  }
  SECTION("after a tick") {
    r.RunFor(net::kCombiningTickNs);
    CHECK(r.waiting() == 0);
  }
  SECTION("when the guest is left for another reason") {
    r.net.Crossed();
    CHECK(r.waiting() == 0);
  }
  SECTION("with a frame from elsewhere") {
    r.wire->Put(Busy::Numbered(9, 60));
    r.mailbox.Drain();
    CHECK(r.waiting() == 0);
  }
  SECTION("with a notification of the other queue") {
    r.rig.AddQueue(Net::kReceive);
    r.rig.Kick(Net::kReceive);
    CHECK(r.waiting() == 0);
  }
  SECTION("not from a card that may not reach memory") {
    r.rig.SetConfig(4, 3, 2);
    r.RunFor(10 * net::kCombiningTickNs);
    CHECK(r.waiting() == 1);
    r.rig.SetConfig(4, 7, 2);
    CHECK(r.waiting() == 0);
  }
  SECTION("not after a reset") {
    r.Load();
    r.RunFor(10 * net::kCombiningTickNs);
    CHECK(r.net.tallies().virtio_net_transmitted == 1);
    r.Send(Busy::Numbered(5, 70));  // the event index is a new queue's
    CHECK(r.waiting() == 0);
    const auto taken = r.Taken(1);
    REQUIRE(taken.size() == 1);
    CHECK(taken[0] == Busy::Numbered(5, 70));
  }
}

TEST_CASE("Net, send combining: acknowledgements of what comes do not wait") {
  Busy r;
  TestQueue receive = r.rig.AddQueue(Net::kReceive);
  for (u64 i = 0; i < 4; ++i) receive.Add(0x70000 + 0x800 * i, 1526, true);
  r.wire->Put(Busy::Numbered(0, 1514));
  r.mailbox.Drain();
  REQUIRE(receive.UsedIndex() == 1);
  r.Send(Busy::Numbered(0, 60));
  CHECK(r.waiting() == 0);
}

TEST_CASE("Net, send combining: it ends with the stream") {
  Busy r;
  r.Send(Busy::Numbered(0, 61));
  r.RunFor(net::kCombiningTickNs);
  CHECK(r.timers.NextDeadlineNs() != TimerQueue::kNever);
  r.RunFor(net::kCombiningTickNs);
  CHECK(r.timers.NextDeadlineNs() == TimerQueue::kNever);
  r.Send(Busy::Numbered(1, 61));
  CHECK(r.waiting() == 0);
}

// Pauses, crossings and drivers loaded anew at random: each frame arrives once, whole, in order,
// and no later than a tick.
TEST_CASE("Net, send combining: many frames") {
  constexpr u32 kFrames = 20'000;
  Busy r;
  std::mt19937_64 random(1);
  std::size_t waited = 0;
  for (u32 sent = 0; sent < kFrames; ++sent) {
    r.Send(Busy::Numbered(sent, 60 + random() % 100));
    waited += r.waiting() != 0;
    REQUIRE(r.waiting() < net::kMostCombined);
    switch (random() % 64) {
      case 0:
        r.clock.Advance(random() % 3'000'000);
        r.timers.RunExpired(r.clock.NowNs());
        break;
      case 1:
        r.RunFor(net::kCombiningTickNs);
        REQUIRE(r.waiting() == 0);
        break;
      case 2:
        r.RunFor(net::kCombiningTickNs);
        r.Load();
        break;
      case 3:
        r.net.Crossed();
        REQUIRE(r.waiting() == 0);
        REQUIRE(r.net.tallies().virtio_net_transmitted == sent + 2);
        break;
      default:
        r.RunFor(random() % 20'000);
    }
  }
  r.RunFor(net::kCombiningTickNs);
  CHECK(waited > kFrames / 10);
  const auto taken = r.Taken(kFrames);
  REQUIRE(taken.size() == kFrames);
  for (u32 i = 0; i < kFrames; ++i) {
    if (taken[i] != Busy::Numbered(i, taken[i].size())) FAIL("frame " << i);
  }
}

}  // namespace
}  // namespace alibi::devices::virtio
