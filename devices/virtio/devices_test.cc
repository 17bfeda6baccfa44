// SPDX-License-Identifier: Apache-2.0
// The entropy device and the console, by a driver's steps.
#include <catch2/catch.hpp>
#include <optional>
#include <set>
#include <string>

#include "devices/virtio/console.h"
#include "devices/virtio/rng.h"
#include "devices/virtio/test_util.h"

namespace alibi::devices::virtio {
namespace {

constexpr u64 kRings = kVersion1 | kRingIndirect | kRingEventIndex;

TEST_CASE("Entropy: buffers are filled, with bytes that differ") {
  Rng rng;
  TestRig rig(rng);
  CHECK(rig.GetConfig(0) == 0x10441af4);
  REQUIRE(rig.Negotiate(kRings));
  TestQueue queue = rig.AddQueue(0);
  rig.Go();
  queue.Add(0x1000, 64, true);
  queue.Add(0x2000, 1000, true);
  queue.Describe(2, 0x3000, 16, 0);  // nothing to fill
  queue.Offer(2);
  rig.Kick(0);
  CHECK(queue.UsedIndex() == 3);
  CHECK(queue.UsedLength(0) == 64);
  CHECK(queue.UsedLength(1) == 1000);
  CHECK(queue.UsedLength(2) == 0);
  CHECK(rig.Isr() == 1);
  const std::string bytes = rig.memory.Text(0x2000, 1000);
  CHECK(std::set<char>(bytes.begin(), bytes.end()).size() > 200);
  CHECK(rig.memory.Text(0x2000 + 1000, 8) == std::string(8, '\0'));
}

TEST_CASE("Entropy: a buffer of gigabytes gets 64 KB, one that is not RAM breaks the queue") {
  Rng rng;
  TestRig rig(rng);
  REQUIRE(rig.Negotiate(kRings));
  TestQueue queue = rig.AddQueue(0);
  rig.Go();
  queue.Add(TestRam::kBytes - 100, 0x10000, true);
  rig.Kick(0);
  CHECK((rig.Status() & kNeedsReset) != 0);
  Rng other;
  TestRig second(other);
  REQUIRE(second.Negotiate(kRings));
  TestQueue again = second.AddQueue(0);
  second.Go();
  again.Add(0x40000, 0x80000, true);
  second.Kick(0);
  CHECK(again.UsedLength(0) == Rng::kMaxBytes);
}

struct ConsoleRig {
  ConsoleRig() : console([this](std::string_view s) { text += s; }, 80, 25), rig(console) {
    REQUIRE(rig.Negotiate(kRings | 1));
    receive.emplace(rig.AddQueue(Console::kReceive));
    transmit.emplace(rig.AddQueue(Console::kTransmit));
  }
  std::string text;
  Console console;
  TestRig rig;
  std::optional<TestQueue> receive, transmit;
};

TEST_CASE("Console: prints, and says how large it is") {
  ConsoleRig c;
  CHECK(c.rig.Read(0x2000, 4) == (25u << 16 | 80));
  c.rig.Write(0x2008, 4, 'e');  // before anything is set up
  CHECK(c.text == "e");
  c.rig.Go();
  c.rig.memory.Set(0x100, u64{0x0a6f6c6c6568});
  c.transmit->Add(0x100, 6, false);
  c.rig.Kick(Console::kTransmit);
  CHECK(c.text == "ehello\n");
  c.transmit->Add(0x100, 0, false);
  c.transmit->Add(0x200, 16, true);
  c.rig.Kick(Console::kTransmit);
  CHECK(c.transmit->UsedIndex() == 3);
  c.transmit->Add(TestRam::kBytes, 16, false);
  c.rig.Kick(Console::kTransmit);
  CHECK((c.rig.Status() & kNeedsReset) != 0);
  CHECK(c.text == "ehello\n");
}

TEST_CASE("Console: in use once the guest has printed, until it resets the device") {
  ConsoleRig c;
  c.rig.Write(0x2008, 4, 'e');
  c.rig.Go();
  CHECK_FALSE(c.console.in_use());  // a driver, and maybe nobody behind it
  c.transmit->Add(0x100, 6, false);
  c.rig.Kick(Console::kTransmit);
  CHECK(c.console.in_use());
  c.rig.SetStatus(0);
  CHECK_FALSE(c.console.in_use());
  REQUIRE(c.rig.Negotiate(kRings | 1));
  c.rig.Go();
  CHECK_FALSE(c.console.in_use());
}

TEST_CASE("Console: input waits for the driver and its buffers") {
  ConsoleRig c;
  c.console.Receive("early ");
  c.rig.Go();
  c.receive->Add(0x1000, 4, true);
  c.rig.Kick(Console::kReceive);
  CHECK(c.rig.memory.Text(0x1000, 4) == "earl");
  c.console.Receive("bird");
  CHECK(c.receive->UsedIndex() == 1);
  c.receive->Add(0x2000, 100, true);
  c.rig.Kick(Console::kReceive);
  CHECK(c.receive->UsedLength(1) == 6);
  CHECK(c.rig.memory.Text(0x2000, 6) == "y bird");
  CHECK(c.rig.Isr() == 1);
  c.receive->Add(0x3000, 100, true);
  c.console.Receive("now");
  CHECK(c.rig.memory.Text(0x3000, 3) == "now");
  c.console.Receive(std::string(100'000, 'x'));  // more than it keeps
  c.receive->Add(0x10000 * 8, 0x40000, true);
  c.rig.Kick(Console::kReceive);
  CHECK(c.receive->UsedLength(3) == Console::kMaxInput);
}

}  // namespace
}  // namespace alibi::devices::virtio
