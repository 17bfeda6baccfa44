// SPDX-License-Identifier: Apache-2.0
#include "devices/lance/lance.h"

#include <set>
#include <string>

#include "devices/lance/lance_function.h"
#include "devices/lance/test_util.h"
#include "devices/lance/wire.h"

namespace alibi::devices::lance {
namespace {

constexpr u32 kRx = Rig::kReceiveRing, kTx = Rig::kTransmitRing;

std::string Bytes(const net::Frame& frame) { return {frame.begin(), frame.end()}; }

TEST_CASE("Lance: the CRC of IEEE 802.3") {
  const std::string digits = "123456789";
  const std::span<const u8> bytes(reinterpret_cast<const u8*>(digits.data()), digits.size());
  CHECK(~Crc(bytes) == 0xcbf43926);
  CHECK(~Crc(bytes.first(8)) == 0x9ae0daaf);
  CHECK(~Crc({}) == 0);
}

TEST_CASE("Lance: the initialization block in each style") {
  for (const u8 style : {0, 1, 2, 3}) {
    INFO("style " << int{style});
    Rig rig;
    rig.Initialize(style, kProm, 0x8877665544332211);
    CHECK(rig.Csr(8) == 0x2211);
    CHECK(rig.Csr(11) == 0x8877);
    CHECK(rig.Csr(12) == 0x5452);
    CHECK(rig.Csr(14) == 0x5634);
    CHECK(rig.Csr(15) == kProm);
    CHECK(rig.Csr(24) == kRx);
    CHECK(rig.Csr(30) == kTx);
    CHECK(rig.Csr(76) == 0xfffc);
    CHECK(rig.Csr(78) == 0xfff8);
    CHECK(rig.Csr(6) == 0x3200);
    CHECK(rig.Csr(0) == (kIntr | kIdon | kInit));
  }
}

TEST_CASE("Lance: frames from the guest, in each style") {
  for (const u8 style : {0, 1, 2, 3}) {
    INFO("style " << int{style});
    Rig rig;
    rig.Begin(style);
    CHECK(rig.Csr(0) == (kIena | kRxon | kTxon | kStrt | kInit));
    for (u32 i = 0; i < 20; ++i) {
      const net::Frame frame = FrameTo(kStranger, 60 + i);
      rig.Transmission(i % 8, frame);
      rig.Demand();
      CHECK((rig.Flags(kTx, i % 8) & (kOwn | kDescriptorErr)) == 0);
      CHECK(rig.Status(kTx, i % 8) == 0);
      CHECK((rig.Csr(0) & (kTint | kIntr)) == (kTint | kIntr));
      CHECK(rig.line.level());
      rig.SetCsr(0, kTint | kIena);
      CHECK_FALSE(rig.line.level());
      const auto taken = rig.wire->Taken(i + 1);
      REQUIRE(taken.size() == i + 1);
      CHECK(taken[i] == frame);
    }
  }
}

TEST_CASE("Lance: frames to the guest, in each style") {
  for (const u8 style : {0, 1, 2, 3}) {
    INFO("style " << int{style});
    Rig rig;
    for (u32 i = 0; i < 4; ++i) rig.Receiver(i);
    rig.Begin(style);
    // Descriptors were laid out for style 2 before.
    for (u32 i = 0; i < 4; ++i) rig.Receiver(i);
    for (u32 i = 0; i < 9; ++i) {
      const net::Frame frame = FrameTo(kTestAddress, 70 + i);
      rig.Put(frame);
      const u32 flags = rig.Flags(kRx, i % 4);
      CHECK((flags & (kOwn | kDescriptorErr | kStp | kEnp)) == (kStp | kEnp));
      CHECK((flags & (kPam | kLafm | kBam)) == (style == 0 ? 0u : u32{kPam}));
      CHECK(rig.Status(kRx, i % 4) == frame.size() + kFcsBytes);
      const u64 buffer = Rig::kReceiveBuffers + i % 4 * Rig::kBufferBytes;
      CHECK(rig.memory.Text(buffer, frame.size()) == Bytes(frame));
      CHECK(rig.memory.Get<u32>(buffer + frame.size()) == ~Crc(frame));
      CHECK((rig.Csr(0) & kRint) != 0);
      CHECK(rig.line.level());
      rig.SetCsr(0, kRint | kIena);
      CHECK_FALSE(rig.line.level());
      rig.Receiver(i % 4);
    }
  }
}

TEST_CASE("Lance: short frames are padded") {
  Rig rig;
  rig.Begin(2);
  rig.Receiver(0);
  rig.Put(FrameTo(kTestAddress, 42));
  CHECK(rig.Status(kRx, 0) == 64);
  CHECK(rig.memory.Get<u8>(Rig::kReceiveBuffers + 42) == 0);
  // On the way out, if the driver wishes.
  rig.Transmission(0, FrameTo(kStranger, 20));
  rig.Demand();
  rig.SetCsr(4, 0x0115 | kApadXmt);
  rig.Transmission(1, FrameTo(kStranger, 20));
  rig.Demand();
  const auto taken = rig.wire->Taken(2);
  REQUIRE(taken.size() == 2);
  CHECK(taken[0].size() == 20);
  CHECK(taken[1].size() == 60);
  CHECK(taken[1][20] == 0);
}

TEST_CASE("Lance: padding is stripped of frames that tell their length") {
  Rig rig;
  rig.Begin(2);
  rig.SetCsr(4, 0x0115 | kAstrpRcv);
  rig.Receiver(0);
  net::Frame frame = FrameTo(kTestAddress, 60);
  frame[12] = 0;
  frame[13] = 10;
  rig.Put(frame);
  CHECK(rig.Status(kRx, 0) == 24);
  rig.Receiver(1);
  frame[13] = 46;
  rig.Put(frame);
  CHECK(rig.Status(kRx, 1) == 64);
}

TEST_CASE("Lance: a frame to the guest over several buffers") {
  Rig rig;
  rig.Begin(2);
  rig.Receiver(0, 64);
  rig.Receiver(1, 64);
  rig.Receiver(2, 64);
  const net::Frame frame = FrameTo(kTestAddress, 150);
  rig.Put(frame);
  CHECK((rig.Flags(kRx, 0) & (kOwn | kStp | kEnp)) == kStp);
  CHECK((rig.Flags(kRx, 1) & (kOwn | kStp | kEnp)) == 0);
  CHECK((rig.Flags(kRx, 2) & (kOwn | kStp | kEnp | kPam)) == (kEnp | kPam));
  CHECK(rig.Status(kRx, 2) == 154);
  CHECK(rig.memory.Text(Rig::kReceiveBuffers + Rig::kBufferBytes, 64) ==
        Bytes(frame).substr(64, 64));
  // The last part has no place.
  rig.Receiver(3, 64);
  rig.Put(frame);
  CHECK((rig.Flags(kRx, 3) & (kOwn | kDescriptorErr | kBuff | kOflo | kStp | kEnp)) ==
        (kDescriptorErr | kBuff | kOflo | kStp));
  CHECK((rig.Csr(0) & (kRint | kMiss | kRxon)) == (kRint | kRxon));
}

TEST_CASE("Lance: a frame from the guest over several buffers") {
  for (const u8 style : {0, 2, 3}) {
    Rig rig;
    rig.Begin(style);
    const net::Frame frame = FrameTo(kStranger, 300);
    rig.Transmission(0, {frame.begin(), frame.begin() + 14}, kOwn | kStp);
    rig.Transmission(1, {frame.begin() + 14, frame.begin() + 250}, kOwn);
    rig.Transmission(2, {frame.begin() + 250, frame.end()}, kOwn | kEnp);
    rig.Demand();
    const auto taken = rig.wire->Taken(1);
    REQUIRE(taken.size() == 1);
    CHECK(taken[0] == frame);
    for (u32 i = 0; i < 3; ++i) CHECK((rig.Flags(kTx, i) & kOwn) == 0);
    CHECK((rig.Csr(0) & kTint) != 0);
  }
}

TEST_CASE("Lance: a frame whose end is missing is an underflow") {
  for (const bool goes_on : {false, true}) {
    Rig rig;
    rig.Begin(2);
    if (goes_on) rig.SetCsr(3, kDxsuflo);
    rig.Transmission(0, FrameTo(kStranger), kOwn | kStp);
    rig.Demand();
    CHECK((rig.Flags(kTx, 0) & (kOwn | kDescriptorErr)) == kDescriptorErr);
    CHECK(rig.Status(kTx, 0) == (kTransmitBuff | kTransmitUflo) >> 16);
    CHECK((rig.Csr(0) & kTxon) == (goes_on ? kTxon : 0));
    rig.Transmission(1, FrameTo(kStranger, 77));
    rig.Demand();
    CHECK(((rig.Flags(kTx, 1) & kOwn) == 0) == goes_on);
  }
  // In a ring of one descriptor, the next one is the same.
  Rig rig;
  rig.Initialize(2);
  rig.SetCsr(0, kStop);
  rig.SetCsr(78, 0xffff);
  rig.SetCsr(0, kStrt);
  rig.Transmission(0, FrameTo(kStranger), kOwn | kStp);
  rig.Demand();
  CHECK((rig.Flags(kTx, 0) & (kOwn | kDescriptorErr)) == kDescriptorErr);
}

TEST_CASE("Lance: descriptors without a beginning are given back") {
  Rig rig;
  rig.Begin(2);
  rig.Transmission(0, FrameTo(kStranger), kOwn);
  rig.Transmission(1, FrameTo(kStranger), kOwn | kEnp);
  rig.Transmission(2, FrameTo(kStranger, 99));
  rig.Demand();
  const auto taken = rig.wire->Taken(1);
  REQUIRE(taken.size() == 1);
  CHECK(taken[0].size() == 99);
}

TEST_CASE("Lance: babble") {
  Rig rig;
  rig.Begin(2);
  rig.Transmission(0, net::Frame(1514));
  rig.Demand();
  CHECK((rig.Csr(0) & (kErr | kBabl)) == 0);
  rig.Transmission(1, net::Frame(1518));  // with a VLAN tag it still goes
  rig.Demand();
  CHECK((rig.Csr(0) & (kErr | kBabl)) == (kErr | kBabl));
  rig.SetCsr(0, kBabl);
  rig.Transmission(2, net::Frame(2000), kOwn | kStp);
  rig.Transmission(3, net::Frame(2000), kOwn);
  rig.Transmission(4, net::Frame(10), kOwn | kEnp);
  rig.Transmission(5, net::Frame(60));
  rig.Demand();
  CHECK((rig.Csr(0) & (kErr | kBabl)) == (kErr | kBabl));
  const auto taken = rig.wire->Taken(3);
  REQUIRE(taken.size() == 3);
  CHECK(taken[2].size() == 60);
}

TEST_CASE("Lance: whom frames are for") {
  // The driver's hash of the group's address.
  const u32 hash = Crc(kGroup) >> 26;
  struct Row {
    u16 mode;
    u64 filter;
    net::MacAddress address;
    bool received;
    u32 match;
  };
  for (const Row& row : {
           Row{0, 0, kTestAddress, true, kPam},
           Row{0, 0, kStranger, false, 0},
           Row{0, 0, kBroadcast, true, kBam},
           Row{0, 0, kGroup, false, 0},
           Row{0, u64{1} << hash, kGroup, true, kLafm},
           Row{0, ~(u64{1} << hash), kGroup, false, 0},
           Row{kProm, 0, kStranger, true, 0},
           Row{kProm, 0, kTestAddress, true, kPam},
           Row{kProm, 0, kGroup, true, 0},
           Row{kDrcvpa, 0, kTestAddress, false, 0},
           Row{kDrcvbc, 0, kBroadcast, false, 0},
           Row{kDrcvbc, ~u64{0}, kBroadcast, true, kLafm},
           Row{kDrx, 0, kTestAddress, false, 0},
       }) {
    INFO("mode " << row.mode << ", filter " << row.filter);
    Rig rig;
    rig.Begin(2, row.mode, row.filter);
    rig.Receiver(0);
    rig.Put(FrameTo(row.address));
    CHECK(((rig.Flags(kRx, 0) & kOwn) == 0) == row.received);
    CHECK((rig.Flags(kRx, 0) & (kPam | kLafm | kBam)) == row.match);
    CHECK((rig.Csr(0) & kMiss) == 0);
  }
}

TEST_CASE("Lance: frames that find no buffer wait, and are missed") {
  Rig rig;
  rig.Begin(2);
  rig.Put(FrameTo(kTestAddress));
  CHECK((rig.Csr(0) & (kMiss | kRint)) == 0);
  // The poll finds a buffer.
  rig.Receiver(0);
  RunFor(rig.clock, rig.timers, 2'000'000);
  CHECK((rig.Csr(0) & (kMiss | kRint)) == kRint);
  // So does the driver's next word.
  rig.Put(FrameTo(kTestAddress, 111));
  rig.Receiver(1);
  rig.SetCsr(0, kIena | kRint);
  CHECK(rig.Status(kRx, 1) == 115);
  // A host that does not run the guest costs no frame.
  rig.SetCsr(0, kIena | kRint);
  rig.Put(FrameTo(kTestAddress, 120));
  rig.clock.Advance(1'000'000'000);
  rig.timers.RunExpired(rig.clock.NowNs());
  rig.Receiver(2);
  rig.SetCsr(0, kIena | kRint);
  CHECK((rig.Csr(0) & kMiss) == 0);
  CHECK(rig.Status(kRx, 2) == 124);
  // Nobody comes.
  rig.SetCsr(0, kIena | kRint);
  for (int i = 0; i < 3; ++i) rig.Put(FrameTo(kTestAddress));
  RunFor(rig.clock, rig.timers, Lance::kPatience * Lance::kRetryNs);
  CHECK((rig.Csr(0) & (kErr | kMiss | kRint | kIntr)) == (kErr | kMiss | kIntr));
  CHECK(rig.Csr(112) == 3);
  CHECK_FALSE(rig.timers.NextDeadlineNs() < rig.clock.NowNs());
  rig.SetCsr(0, kMiss | kIena);
  rig.Receiver(3);
  rig.Put(FrameTo(kTestAddress, 88));
  CHECK(rig.Status(kRx, 3) == 92);
  rig.SetCsr(0, kStop);
  CHECK(rig.Csr(112) == 0);
}

TEST_CASE("Lance: polling") {
  Rig rig;
  rig.Begin(2);
  rig.Transmission(0, FrameTo(kStranger));
  RunFor(rig.clock, rig.timers, 0x10000 * Lance::kClockNs - 1);
  CHECK((rig.Flags(kTx, 0) & kOwn) != 0);
  RunFor(rig.clock, rig.timers, 1);
  CHECK((rig.Flags(kTx, 0) & kOwn) == 0);
  // A driver that demands is polled, but seldom.
  rig.Demand();
  rig.Transmission(1, FrameTo(kStranger));
  RunFor(rig.clock, rig.timers, Lance::kSeldom * 0x10000 * Lance::kClockNs);
  RunFor(rig.clock, rig.timers, Lance::kSeldom * 0x10000 * Lance::kClockNs);
  CHECK((rig.Flags(kTx, 1) & kOwn) == 0);
  // Not at all.
  rig.SetCsr(4, 0x0115 | kTxdpoll);
  rig.SetCsr(0, kStop);
  rig.SetCsr(0, kStrt);
  CHECK_FALSE(rig.timers.NextDeadlineNs() < ~u64{0});
  // Another interval.
  rig.SetCsr(0, kStop);
  rig.SetCsr(4, 0x0115);
  rig.SetCsr(47, 0xf000);
  rig.lance.Read(0x14, 2);
  rig.SetCsr(47, 0xf000);
  rig.SetCsr(0, kStrt);
  rig.Transmission(0, FrameTo(kStranger));
  RunFor(rig.clock, rig.timers, 0x1000 * Lance::kClockNs);
  CHECK((rig.Flags(kTx, 0) & kOwn) == 0);
}

TEST_CASE("Lance: STRT takes the rings from their beginning") {
  Rig rig;
  rig.Begin(2);
  rig.Transmission(0, FrameTo(kStranger));
  rig.Demand();
  rig.Receiver(0);
  rig.Put(FrameTo(kTestAddress));
  CHECK(rig.Csr(74) == 0xfff9);
  CHECK(rig.Csr(34) == kTx + 16);
  CHECK(rig.Csr(28) == kRx + 16);
  rig.SetCsr(0, kStop);
  rig.Transmission(0, FrameTo(kStranger, 123));
  rig.SetCsr(0, kStrt);
  const auto taken = rig.wire->Taken(2);
  REQUIRE(taken.size() == 2);
  CHECK(taken[1].size() == 123);
  CHECK(rig.Csr(28) == kRx);
}

TEST_CASE("Lance: interrupts for the last of several transmissions") {
  Rig rig;
  rig.Begin(2);
  rig.SetCsr(5, kLtinten);
  rig.Transmission(0, FrameTo(kStranger));
  rig.Demand();
  CHECK((rig.Flags(kTx, 0) & kOwn) == 0);
  CHECK((rig.Csr(0) & kTint) == 0);
  rig.Transmission(1, FrameTo(kStranger), kOwn | kStp | kEnp | kLtint);
  rig.Demand();
  CHECK((rig.Csr(0) & kTint) != 0);
  CHECK((rig.Csr(4) & kTxstrt) != 0);
  rig.SetCsr(4, 0x0115 | kTxstrt);
  CHECK((rig.Csr(4) & kTxstrt) == 0);
}

TEST_CASE("Lance: loops") {
  SECTION("inside") {
    Rig rig;
    rig.Begin(2, kLoop | kIntl);
    rig.Receiver(0);
    rig.Transmission(0, FrameTo(kTestAddress, 40));
    rig.Demand();
    CHECK((rig.Csr(0) & (kRint | kTint)) == (kRint | kTint));
    CHECK(rig.Status(kRx, 0) == 44);
    CHECK((rig.Flags(kRx, 0) & kDescriptorErr) == 0);
    rig.Receiver(1);
    rig.Put(FrameTo(kTestAddress));  // the wire is not heard
    CHECK((rig.Flags(kRx, 1) & kOwn) != 0);
    rig.Transmission(1, FrameTo(kTestAddress, 41));
    rig.Demand();
    CHECK(rig.Status(kRx, 1) == 45);
    // No buffer: there is nowhere to wait.
    rig.Transmission(2, FrameTo(kTestAddress, 41));
    rig.Demand();
    CHECK((rig.Csr(0) & kMiss) != 0);
  }
  SECTION("outside") {
    Rig rig;
    rig.Begin(2, kLoop);
    rig.Receiver(0);
    rig.Transmission(0, FrameTo(kTestAddress, 80));
    rig.Demand();
    CHECK(rig.Status(kRx, 0) == 84);
    CHECK(rig.wire->Taken(1).size() == 1);
  }
  SECTION("check sequences of the driver's") {
    Rig rig;
    rig.Begin(2, kLoop | kIntl | kDxmtfcs);
    net::Frame frame = FrameTo(kTestAddress, 64);
    rig.Receiver(0);
    rig.Transmission(0, frame);
    rig.Demand();
    CHECK((rig.Flags(kRx, 0) & (kDescriptorErr | kCrc | kEnp)) == (kDescriptorErr | kCrc | kEnp));
    const u32 fcs = ~Crc(std::span<const u8>(frame).first(60));
    for (unsigned i = 0; i < 4; ++i) frame[60 + i] = static_cast<u8>(fcs >> 8 * i);
    rig.Receiver(1);
    rig.Transmission(1, frame);
    rig.Demand();
    CHECK((rig.Flags(kRx, 1) & (kDescriptorErr | kCrc | kEnp)) == kEnp);
    CHECK(rig.Status(kRx, 1) == 64);
    rig.Receiver(2);
    rig.Transmission(2, frame, kOwn | kStp | kEnp | kAddFcs);
    rig.Demand();
    CHECK(rig.Status(kRx, 2) == 68);
  }
}

TEST_CASE("Lance: suspended") {
  Rig rig;
  rig.Begin(2);
  rig.SetCsr(5, kSpnd);
  rig.Transmission(0, FrameTo(kStranger));
  rig.Demand();
  RunFor(rig.clock, rig.timers, 100'000'000);
  CHECK((rig.Flags(kTx, 0) & kOwn) != 0);
  rig.SetCsr(5, 0);
  rig.Demand();
  CHECK((rig.Flags(kTx, 0) & kOwn) == 0);
}

TEST_CASE("Lance: a host that takes nothing stops the ring, and starts it again") {
  Rig rig(/*connect=*/false);
  rig.Begin(2);
  const net::Frame frame(1500);
  u32 sent = 0;
  for (;; ++sent) {
    rig.Transmission(sent % 8, frame);
    rig.Demand();
    if (rig.Flags(kTx, sent % 8) & kOwn) break;
  }
  CHECK(sent * frame.size() >= net::Backend::kMaxWaiting);
  RunFor(rig.clock, rig.timers, 100'000'000);
  CHECK((rig.Flags(kTx, sent % 8) & kOwn) != 0);
  REQUIRE(rig.lance.Connect(rig.mailbox).ok());
  for (int i = 0; i < 2000 && (rig.Flags(kTx, sent % 8) & kOwn); ++i) {
    rig.mailbox.Drain();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(rig.wire->Taken(sent + 1).size() == sent + 1);
}

TEST_CASE("Lance: rings and blocks that are not in memory") {
  constexpr u32 kNowhere = 0x80000000;
  SECTION("the block") {
    Rig rig;
    rig.SetCsr(2, kNowhere >> 16);
    rig.SetCsr(0, kInit | kIena);
    CHECK((rig.Csr(0) & (kMerr | kIdon)) == kMerr);
    CHECK((rig.Csr(5) & kSint) != 0);
    CHECK(rig.line.level());
  }
  SECTION("the transmit ring") {
    Rig rig;
    rig.Initialize(2);
    rig.SetCsr(0, kStop);
    rig.SetCsr(31, kNowhere >> 16);
    rig.SetCsr(0, kStrt);
    CHECK((rig.Csr(0) & (kMerr | kTxon | kRxon)) == (kMerr | kRxon));
  }
  SECTION("the receive ring") {
    Rig rig;
    rig.Initialize(2);
    rig.SetCsr(0, kStop);
    rig.SetCsr(25, kNowhere >> 16);
    rig.SetCsr(0, kStrt);
    rig.Put(FrameTo(kTestAddress));
    CHECK((rig.Csr(0) & (kMerr | kTxon | kRxon)) == (kMerr | kTxon));
  }
  SECTION("buffers") {
    Rig rig;
    rig.Begin(2);
    rig.Describe(kRx, 0, TestRam::kBytes - 10, 2000, kOwn);
    rig.Put(FrameTo(kTestAddress));
    CHECK((rig.Csr(0) & (kMerr | kTxon | kRxon)) == (kMerr | kTxon));
    rig.Describe(kTx, 0, TestRam::kBytes - 10, 1000, kOwn | kStp | kEnp);
    rig.Demand();
    CHECK((rig.Csr(0) & (kMerr | kTxon | kRxon)) == kMerr);
  }
}

TEST_CASE("Lance: one access does a bounded piece of an endless ring") {
  Rig rig;
  rig.Initialize(2);
  rig.SetCsr(0, kStop);
  rig.SetCsr(78, 0);  // 65,536 descriptors, of which the memory ends one day
  rig.SetCsr(30, 0);
  rig.SetCsr(31, 0);
  for (u32 i = 0; i < TestRam::kBytes / 16; ++i) {
    rig.Describe(0, i, 0, 0x1000, kOwn | kStp);
  }
  rig.SetCsr(0, kStrt);
  u32 given_back = 0;
  for (u32 i = 0; i < TestRam::kBytes / 16; ++i) given_back += (rig.Flags(0, i) & kOwn) == 0;
  CHECK(given_back == Lance::kMostAtOnce);
  RunFor(rig.clock, rig.timers, 2 * kShortestTimerPeriodNs);
  CHECK((rig.Flags(0, Lance::kMostAtOnce) & kOwn) == 0);
}

TEST_CASE("Lance: the PCI function") {
  TestRam memory;
  ManualClock clock;
  TimerQueue timers;
  LanceFunction function(kTestAddress, std::make_unique<net::TestWire>(), {}, memory, clock,
                         timers);
  CHECK(function.ConfigRead(0, 4) == 0x20001022);
  CHECK(function.ConfigRead(8, 4) == 0x02000010);
  CHECK(function.ConfigRead(0x3c, 4) == 0xff060100);
  function.ConfigWrite(0x10, 4, 0xffffffff);
  CHECK(function.ConfigRead(0x10, 4) == 0xffffffe1);
  function.ConfigWrite(0x14, 4, 0xffffffff);
  CHECK(function.ConfigRead(0x14, 4) == 0xffffffe0);
  // Without bus mastering there is no memory.
  function.lance().Write(0x10, 2, kInit);
  CHECK((function.lance().Read(0x10, 2) & (kMerr | kIdon)) == kMerr);
  function.ConfigWrite(4, 2, PciFunction::kBusMaster);
  function.lance().Write(0x10, 2, kStop);
  function.lance().Write(0x10, 2, kInit);
  CHECK((function.lance().Read(0x10, 2) & (kMerr | kIdon)) == kIdon);
}

// A driver whose structures rot: seeded, so that a failure comes again.
TEST_CASE("Lance: mutations of a working driver") {
  constexpr int kSeeds = 400, kSteps = 300;
  for (u64 seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    Rig rig(/*connect=*/seed % 4 == 0, {.ports = true, .combine = seed % 2 == 0, .notify = true});
    const auto rot = [&](u64 base, u64 bytes) {
      const u64 at = base + random() % bytes / 4 * 4;
      u32 value = static_cast<u32>(random());
      if (random() % 2) value = rig.memory.Get<u32>(at) ^ u32 { 1 } << random() % 32;
      rig.memory.Set(at, value);
    };
    rig.Begin(static_cast<u8>(seed % 4), static_cast<u16>(random() % 4 ? 0 : kLoop | kIntl));
    for (int step = 0; step < kSteps; ++step) {
      for (u32 i = 0; i < 4; ++i) rig.Receiver(i, 1 + static_cast<u32>(random() % 2000));
      for (u32 i = 0; i < 8; ++i) {
        const u32 ends = random() % 2 ? kStp | kEnp : static_cast<u32>(random() % 4) << 24;
        rig.Transmission(i, FrameTo(kTestAddress, 1 + random() % 1800), kOwn | ends);
      }
      switch (random() % 8) {
        case 0:
          rot(Rig::kBlock, 28);
          rig.SetCsr(0, kStop);
          rig.SetCsr(0, kInit | kStrt | kIena);
          break;
        case 1:
          rig.SetCsr(5, static_cast<u16>(random()));
          break;
        case 2:
          rig.SetCsr(static_cast<u16>(random() % 128), static_cast<u16>(random()));
          break;
        case 3:
          rig.SetBcr(20, static_cast<u16>(random() % 5));
          break;
        default:
          rot(kRx, 64);
          rot(kTx, 128);
      }
      rig.Demand();
      if (seed % 4 == 0) rig.Put(FrameTo(kTestAddress, 14 + random() % 1500));
      RunFor(rig.clock, rig.timers, random() % 3'000'000);
      // Whatever was said before, STOP is obeyed.
      if (random() % 8 == 0) {
        rig.SetCsr(0, kStop);
        REQUIRE(rig.Csr(0) == kStop);
        REQUIRE_FALSE(rig.line.level());
        rig.Begin(static_cast<u8>(random() % 4));
      }
    }
  }
}

}  // namespace
}  // namespace alibi::devices::lance
