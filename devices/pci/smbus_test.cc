// SPDX-License-Identifier: Apache-2.0
#include "devices/pci/smbus.h"

#include <catch2/catch.hpp>

#include "devices/test_util.h"

namespace alibi::devices {
namespace {

struct Rig {
  RecordingLine irq;
  SmBus bus{irq};

  Rig() { bus.Configure(/*enabled=*/true, /*interrupts=*/true); }
  u8 Get(u64 offset) { return static_cast<u8>(bus.Read(offset, 1)); }
  void Set(u64 offset, u8 value) { bus.Write(offset, 1, value); }
};

// As Linux's i2c_piix4 reads a byte of a memory module's SPD.
TEST_CASE("SMBus: no slave answers") {
  Rig r;
  REQUIRE(r.Get(SmBus::kHostStatus) == 0);
  r.Set(SmBus::kHostAddress, 0x50 << 1 | 1);
  r.Set(SmBus::kHostCommand, 2);
  r.Set(SmBus::kHostControl, 2 << 2);
  CHECK(r.Get(SmBus::kHostStatus) == 0);
  r.Set(SmBus::kHostControl, 2 << 2 | SmBus::kStart);
  CHECK(r.Get(SmBus::kHostStatus) == SmBus::kDeviceError);
  CHECK(r.Get(SmBus::kHostControl) == 2 << 2);  // START reads as 0
  CHECK(r.Get(SmBus::kHostAddress) == (0x50 << 1 | 1));
  r.Set(SmBus::kHostStatus, 0xff);
  CHECK(r.Get(SmBus::kHostStatus) == 0);
  CHECK(r.irq.rises() == 0);
}

TEST_CASE("SMBus: a transaction that is killed has failed") {
  Rig r;
  r.Set(SmBus::kHostControl, SmBus::kKill | SmBus::kStart);
  CHECK(r.Get(SmBus::kHostStatus) == SmBus::kFailed);
  r.Set(SmBus::kHostControl, 0);
  r.Set(SmBus::kHostStatus, SmBus::kFailed);
  CHECK(r.Get(SmBus::kHostStatus) == 0);
}

TEST_CASE("SMBus: the end of a transaction interrupts until its status is cleared") {
  Rig r;
  r.Set(SmBus::kHostControl, SmBus::kStart | SmBus::kInterruptEnable);
  CHECK(r.irq.level());
  r.bus.Configure(/*enabled=*/true, /*interrupts=*/false);  // an SMI then
  CHECK(!r.irq.level());
  r.bus.Configure(/*enabled=*/true, /*interrupts=*/true);
  CHECK(r.irq.level());
  r.Set(SmBus::kHostStatus, SmBus::kDeviceError);
  CHECK(!r.irq.level());
  CHECK(r.irq.rises() == 2);
}

TEST_CASE("SMBus: the block buffer is a window that moves by itself") {
  Rig r;
  static_cast<void>(r.Get(SmBus::kHostControl));
  for (unsigned i = 0; i < SmBus::kBlockBytes; ++i) r.Set(SmBus::kBlockData, static_cast<u8>(i));
  static_cast<void>(r.Get(SmBus::kHostControl));
  for (unsigned i = 0; i < SmBus::kBlockBytes; ++i) CHECK(r.Get(SmBus::kBlockData) == i);
  CHECK(r.Get(SmBus::kBlockData) == 0);  // round again
}

TEST_CASE("SMBus: ports that are not enabled are nobody's") {
  Rig r;
  r.Set(SmBus::kHostCommand, 0x12);
  r.bus.Configure(/*enabled=*/false, /*interrupts=*/true);
  CHECK(r.Get(SmBus::kHostCommand) == 0xff);
  r.Set(SmBus::kHostCommand, 0x34);
  r.Set(SmBus::kHostControl, SmBus::kStart | SmBus::kInterruptEnable);
  CHECK(!r.irq.level());
  r.bus.Configure(/*enabled=*/true, /*interrupts=*/true);
  CHECK(r.Get(SmBus::kHostCommand) == 0x12);
  CHECK(r.Get(SmBus::kHostStatus) == 0);
}

TEST_CASE("SMBus: any accesses, then reset") {
  Rig r;
  Hammer(r.bus, SmBus::kPortCount, /*seed=*/1, 20'000, [](std::mt19937_64&) {});
  r.bus.Reset();
  for (u64 offset = 0; offset < SmBus::kPortCount; ++offset) CHECK(r.Get(offset) == 0);
  CHECK(!r.irq.level());
}

}  // namespace
}  // namespace alibi::devices
