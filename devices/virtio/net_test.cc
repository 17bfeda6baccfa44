// SPDX-License-Identifier: Apache-2.0
#include "devices/virtio/net.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "devices/net/test_wire.h"
#include "devices/virtio/test_util.h"

namespace alibi::devices::virtio {
namespace {

constexpr u64 kRings = kVersion1 | kRingIndirect | kRingEventIndex;
constexpr u64 kChecksum = 1, kGuestChecksum = 2, kGuestTso4 = 1 << 7, kHostTso4 = 1 << 11,
              kMergeable = 1 << 15;

struct Rig {
  explicit Rig(u64 features, bool connect = true)
      : wire(new net::TestWire),
        net({0x52, 0x54, 0, 1, 2, 3}, std::unique_ptr<net::Backend>(wire),
            net::Optimize{.combine = false}, {.clock = clock, .timers = timers}),
        rig(net) {
    if (connect) REQUIRE(net.Connect(mailbox).ok());
    REQUIRE(rig.Negotiate(kRings | features));
    receive.emplace(rig.AddQueue(Net::kReceive));
    transmit.emplace(rig.AddQueue(Net::kTransmit));
    rig.Go();
  }
  // Posted frames reach the guest.
  void Put(const net::Frame& frame) {
    wire->Put(frame);
    mailbox.Drain();
  }
  Mailbox mailbox{[] {}};
  ManualClock clock;
  TimerQueue timers;
  net::TestWire* wire;
  Net net;
  TestRig rig;
  std::optional<TestQueue> receive, transmit;
};

net::Frame Numbered(std::size_t size) {
  net::Frame frame(size);
  for (std::size_t i = 0; i < size; ++i) frame[i] = static_cast<u8>(i + 1);
  return frame;
}

TEST_CASE("Net: configuration") {
  Rig r(0);
  CHECK(r.rig.GetConfig(0) == 0x10411af4);
  CHECK(r.rig.Read(0x2000, 4) == 0x01005452);
  CHECK(r.rig.Read(0x2004, 2) == 0x0302);
  CHECK(r.rig.Read(0x2006, 2) == 1);     // the link is up
  CHECK(r.rig.Read(0x200a, 2) == 1500);  // MTU
  CHECK_FALSE(r.wire->large_receive);
  Rig large(kGuestTso4 | kGuestChecksum);
  CHECK(large.wire->large_receive);
  large.rig.SetStatus(0);
  CHECK_FALSE(large.wire->large_receive);
}

TEST_CASE("Net: frames to the guest, one buffer each") {
  Rig r(0);
  r.receive->Add(0x1000, 1526, true);
  r.rig.Kick(Net::kReceive);
  r.Put(Numbered(60));
  CHECK(r.receive->UsedIndex() == 1);
  CHECK(r.receive->UsedLength(0) == 72);
  CHECK(r.rig.memory.Text(0x1000, 12) == std::string("\0\0\0\0\0\0\0\0\0\0\1\0", 12));
  CHECK(r.rig.memory.Get<u8>(0x100c) == 1);
  CHECK(r.rig.Isr() == 1);
  r.Put(Numbered(60));  // no buffer: it waits
  CHECK(r.receive->UsedIndex() == 1);
  r.receive->Add(0x2000, 1526, true);
  r.rig.Kick(Net::kReceive);
  CHECK(r.receive->UsedIndex() == 2);
  // One that does not fit is lost, the next one is not.
  r.receive->Add(0x3000, 64, true);
  r.Put(Numbered(60));
  CHECK(r.receive->UsedIndex() == 2);
  r.Put(Numbered(50));
  CHECK(r.receive->UsedIndex() == 3);
}

TEST_CASE("Net: a frame over several buffers") {
  Rig r(kMergeable | kGuestChecksum);
  r.receive->Add(0x1000, 8, true);  // smaller than the header
  r.receive->Add(0x2000, 100, true);
  r.Put(Numbered(200));
  CHECK(r.receive->UsedIndex() == 0);
  r.receive->Add(0x3000, 500, true);
  r.rig.Kick(Net::kReceive);
  REQUIRE(r.receive->UsedIndex() == 3);
  CHECK(r.receive->UsedLength(0) == 8);
  CHECK(r.receive->UsedLength(1) == 100);
  CHECK(r.receive->UsedLength(2) == 104);
  CHECK(r.rig.memory.Get<u8>(0x1000) == 2);   // the checksum holds
  CHECK(r.rig.memory.Get<u16>(0x2002) == 3);  // buffers
  CHECK(r.rig.memory.Get<u8>(0x2004) == 1);
  CHECK(r.rig.memory.Get<u8>(0x3000) == 97);
}

TEST_CASE("Net: frames from the guest, with checksums") {
  Rig r(kChecksum);
  const net::Frame frame = Numbered(100);
  for (u64 i = 0; i < 100; ++i) r.rig.memory.Set(0x100c + i, frame[i]);
  r.transmit->Add(0x1000, 112, false);
  r.rig.Kick(Net::kTransmit);
  CHECK(r.transmit->UsedIndex() == 1);
  std::vector<net::Frame> taken = r.wire->Taken(1);
  REQUIRE(taken.size() == 1);
  CHECK(taken[0] == frame);
  r.rig.memory.Set(0x1000, u8{1});    // needs a checksum
  r.rig.memory.Set(0x1006, u16{34});  // from
  r.rig.memory.Set(0x1008, u16{16});  // at
  r.transmit->Add(0x1000, 112, false);
  r.rig.Kick(Net::kTransmit);
  taken = r.wire->Taken(2);
  REQUIRE(taken.size() == 2);
  u32 sum = 0;
  for (std::size_t i = 34; i < 100; i += 2) {
    const bool field = i == 50;
    sum += field ? frame[i] << 8u | frame[i + 1] : taken[1][i] << 8u | taken[1][i + 1];
  }
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  CHECK((static_cast<u32>(taken[1][50]) << 8 | taken[1][51]) == (~sum & 0xffff));
}

TEST_CASE("Net: a frame whose checksums nobody knows is for the driver to check") {
  Rig r(kGuestChecksum);
  for (const u64 at : {0x1000, 0x2000}) r.receive->Add(at, 2000, true);
  r.Put(Numbered(100));
  r.wire->Put(Numbered(100), /*sums_hold=*/false);
  r.mailbox.Drain();
  CHECK(r.receive->UsedIndex() == 2);
  CHECK(r.rig.memory.Get<u8>(0x1000) == 2);
  CHECK(r.rig.memory.Get<u8>(0x2000) == 0);
}

TEST_CASE("Net: a large segment's checksum is not made if nobody reads it") {
  for (const bool large : {false, true}) {
    for (const bool made_later : {false, true}) {
      INFO(large << " " << made_later);
      Rig r(kChecksum | kHostTso4);
      r.wire->sums_large = made_later;
      const u32 bytes = large ? 3000 : 1000;
      r.rig.memory.Set(0x1000, u8{1});                  // needs a checksum
      r.rig.memory.Set(0x1001, u8{1});                  // TCP over IPv4
      r.rig.memory.Set(0x1006, u16{34});                // from
      r.rig.memory.Set(0x1008, u16{16});                // at
      r.rig.memory.Set(0x100c + 34 + 16, u16{0x3412});  // of the pseudo header
      r.transmit->Add(0x1000, 12 + bytes, false);
      r.rig.Kick(Net::kTransmit);
      const std::vector<net::Frame> taken = r.wire->Taken(1);
      REQUIRE(taken.size() == 1);
      const bool untouched = taken[0][50] == 0x12 && taken[0][51] == 0x34;
      CHECK(untouched == (large && made_later));
    }
  }
}

TEST_CASE("Net: what drivers should not send") {
  Rig r(kChecksum);
  r.transmit->Add(0x1000, 12, false);       // no frame
  r.transmit->Add(0x1000, 3, false);        // no header
  r.transmit->Add(0x1000, 0xffff0, false);  // too long
  r.transmit->Add(0x1000, 100, true);       // the wrong way
  r.rig.memory.Set(0x2000, u8{1});
  for (const u16 start : {0, 90, 99, 200, 0xffff}) {
    r.rig.memory.Set(0x2006, start);
    r.rig.memory.Set(0x2008, u16{0xfff0});
    r.transmit->Add(0x2000, 112, false);
    r.rig.Kick(Net::kTransmit);
  }
  CHECK(r.transmit->UsedIndex() == 9);
  CHECK((r.rig.Status() & kNeedsReset) == 0);
  r.transmit->Add(TestRam::kBytes - 50, 100, false);
  r.rig.Kick(Net::kTransmit);
  CHECK((r.rig.Status() & kNeedsReset) != 0);
  r.Put(Numbered(60));  // nobody takes it
}

TEST_CASE("Net: a host that takes nothing stops the ring, and starts it again") {
  Rig r(0, /*connect=*/false);
  constexpr u32 kFrame = 65000;
  constexpr u16 kFrames = 80;  // more than 4 MB
  u16 sent = 0;
  while (sent < kFrames && r.transmit->UsedIndex() == sent) {
    r.transmit->Add(0x80000, kFrame + 12, false);
    r.rig.Kick(Net::kTransmit);
    ++sent;
  }
  const u16 used = r.transmit->UsedIndex();
  CHECK(used == sent - 1);
  CHECK(used * kFrame >= net::Backend::kMaxWaiting);
  CHECK((used - 1) * kFrame < net::Backend::kMaxWaiting);
  REQUIRE(r.net.Connect(r.mailbox).ok());
  r.wire->Taken(used);
  for (int i = 0; i < 2000 && r.transmit->UsedIndex() != sent; ++i) {
    r.mailbox.Drain();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(r.transmit->UsedIndex() == sent);
  CHECK(r.wire->Taken(sent).size() == sent);
}

TEST_CASE("Net: nobody listens") {
  Rig r(0);
  r.rig.SetStatus(0);
  for (int i = 0; i < 100; ++i) r.Put(Numbered(1000));
  REQUIRE(r.rig.Negotiate(kRings));
  CHECK(r.receive->UsedIndex() == 0);
}

}  // namespace
}  // namespace alibi::devices::virtio
