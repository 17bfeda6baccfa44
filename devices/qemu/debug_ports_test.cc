// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "devices/bus.h"
#include "devices/qemu/debug_exit.h"
#include "devices/qemu/debug_port.h"
#include "devices/test_util.h"

namespace alibi::devices {
namespace {

TEST_CASE("debug exit: v ends the machine with (v << 1) | 1, in any width, once per access") {
  std::vector<u32> statuses;
  DebugExit device([&](u32 status) { statuses.push_back(status); });
  PortBus bus;
  REQUIRE(bus.Add(0xf4, 4, device, "debug-exit").ok());
  bus.Write(0xf4, 1, 0);
  bus.Write(0xf4, 2, 0x1234);
  bus.Write(0xf4, 4, 0xffffffff);
  bus.Write(0xf6, 1, 3);
  CHECK(statuses == std::vector<u32>{1, 0x2469, 0xffffffff, 7});
  CHECK(bus.Read(0xf4, 4) == 0);
}

TEST_CASE("port 0x80 is a latch that translated code may access as memory") {
  PostPort device;
  PortBus bus;
  REQUIRE(bus.Add(0x80, 1, device, "post").ok());
  const PortLatch latch = bus.Latch(0x80, 1);
  REQUIRE(latch.cell != nullptr);
  CHECK(latch.fixed);
  bus.Write(0x80, 1, 0xaa);
  CHECK(*latch.cell == 0xaa);
  CHECK(bus.Latch(0x80, 2).cell == nullptr);
  CHECK(bus.Read(0x80, 1) == 0xaa);
}

TEST_CASE("debug console: collects bytes and identifies itself") {
  std::string text;
  DebugConsole device([&](u8 byte) { text.push_back(static_cast<char>(byte)); });
  for (char c : std::string("hi")) device.Write(0, 1, static_cast<u8>(c));
  CHECK(text == "hi");
  CHECK(device.Read(0, 1) == 0xe9);
}

TEST_CASE("debug devices: random traffic, with and without a sink") {
  DebugExit quiet_exit(nullptr);
  DebugConsole quiet_console(nullptr);
  PostPort post;
  for (Device* device : {static_cast<Device*>(&quiet_exit), static_cast<Device*>(&quiet_console),
                         static_cast<Device*>(&post)}) {
    Hammer(*device, device->MaxAccessSize(), 1, 1000, [](std::mt19937_64&) {});
  }
}

}  // namespace
}  // namespace alibi::devices
