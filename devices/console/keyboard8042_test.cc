// SPDX-License-Identifier: Apache-2.0
#include "devices/console/keyboard8042.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace alibi::devices {
namespace {

struct Controller {
  int irq1 = 0, irq12 = 0;  // rising edges
  bool level1 = false, level12 = false;
  int resets = 0;
  CallbackLine line1{[this](bool level) {
    irq1 += level && !level1;
    level1 = level;
  }};
  CallbackLine line12{[this](bool level) {
    irq12 += level && !level12;
    level12 = level;
  }};
  SystemGates gates;
  Keyboard8042 device{line1, line12, gates};

  Controller() {
    gates.reset = [this] { ++resets; };
  }
  void Command(u8 value) { device.Write(4, 1, value); }
  void Data(u8 value) { device.Write(0, 1, value); }
  u8 Status() { return static_cast<u8>(device.Read(4, 1)); }
  std::vector<u8> ReadAll() {
    std::vector<u8> bytes;
    while ((Status() & 1) && bytes.size() < 10'000) {
      bytes.push_back(static_cast<u8>(device.Read(0, 1)));
    }
    return bytes;
  }
};

using Bytes = std::vector<u8>;

TEST_CASE("8042: keys, translated and not") {
  Controller c;
  const u8 keys[] = {0x1c, 0xf0, 0x1c, 0xe0, 0x75, 0xe0, 0xf0, 0x75, 0x83, 0xf0, 0x83};
  c.device.Type(keys);
  CHECK(c.ReadAll() == Bytes{0x1e, 0x9e, 0xe0, 0x48, 0xe0, 0xc8, 0x41, 0xc1});
  CHECK(c.irq1 == 8);
  c.Command(0x60);
  c.Data(0x05);
  c.device.Type(keys);
  CHECK(c.ReadAll() == Bytes(std::begin(keys), std::end(keys)));
}

TEST_CASE("8042: keys wait while the keyboard is disabled, and are lost while it does not scan") {
  Controller c;
  const u8 key[] = {0x1c};
  c.Command(0xad);
  c.device.Type(key);
  CHECK(c.ReadAll().empty());
  c.Command(0xae);
  CHECK(c.ReadAll() == Bytes{0x1e});
  c.Data(0xf5);
  c.ReadAll();
  c.device.Type(key);
  CHECK(c.ReadAll().empty());
  c.Data(0xf4);
  CHECK(c.ReadAll() == Bytes{0xfa});
}

TEST_CASE("8042: what nobody reads is bounded") {
  Controller c;
  const std::vector<u8> keys(1000, 0x1c);
  for (int i = 0; i < 100; ++i) c.device.Type(keys);
  CHECK(c.ReadAll().size() <= Ps2Keyboard::kMaxTyped + 1);
  for (int i = 0; i < 100; ++i) c.Data(0xf2);
  CHECK(c.ReadAll().size() <= 18);
  for (int i = 0; i < 100; ++i) c.Command(0xaa);
  CHECK(c.ReadAll().size() <= 18);
}

TEST_CASE("8042: the mouse") {
  Controller c;
  const auto send = [&c](u8 value) {
    c.Command(0xd4);
    c.Data(value);
    return c.ReadAll();
  };
  CHECK(send(0xff) == Bytes{0xfa, 0xaa, 0x00});
  CHECK(send(0xf2) == Bytes{0xfa, 0x00});
  CHECK(send(0xf3) == Bytes{0xfa});
  CHECK(send(60) == Bytes{0xfa});
  CHECK(send(0xe7) == Bytes{0xfa});
  CHECK(send(0xf4) == Bytes{0xfa});
  CHECK(send(0xe9) == Bytes{0xfa, 0x30, 2, 60});
  CHECK(send(0xeb) == Bytes{0xfa, 0x08, 0, 0});
  CHECK(send(0x00) == Bytes{0xfe});
  CHECK(send(0xee) == Bytes{0xfa});
  CHECK(send(0x12) == Bytes{0x12});
  CHECK(send(0xec) == Bytes{0xfa});
  CHECK(c.irq12 == 0);
  c.Command(0x60);
  c.Data(0x47);
  CHECK(send(0xf2).size() == 2);
  CHECK(c.irq12 == 2);
  CHECK(c.irq1 == 0);
}

TEST_CASE("8042: lights, reset, and the reset line") {
  Controller c;
  c.Data(0xed);
  c.Data(0x05);
  CHECK(c.ReadAll() == Bytes{0xfa, 0xfa});
  CHECK(c.device.leds() == 5);
  c.Command(0x60);
  c.Data(0x00);
  c.device.Reset();
  c.Command(0x20);
  CHECK(c.ReadAll() == Bytes{0x65});
  CHECK(c.device.leds() == 0);
  c.Command(0xfe);
  CHECK(c.resets == 1);
  c.Command(0xff);
  CHECK(c.resets == 1);
}

TEST_CASE("8042: hostile commands") {
  std::mt19937 random(2);
  Controller c;
  for (unsigned i = 0; i < 300'000; ++i) {
    switch (random() % 4) {
      case 0:
        c.Command(static_cast<u8>(random()));
        break;
      case 1:
        c.Data(static_cast<u8>(random()));
        break;
      case 2:
        c.device.Read(0, 1);
        break;
      default: {
        const u8 code = static_cast<u8>(random());
        c.device.Type({&code, 1});
        break;
      }
    }
  }
  c.device.Reset();
  CHECK(c.ReadAll().empty());
}

}  // namespace
}  // namespace alibi::devices
