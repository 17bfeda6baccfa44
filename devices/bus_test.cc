// SPDX-License-Identifier: Apache-2.0
#include "devices/bus.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "devices/test_util.h"

namespace alibi::devices {
namespace {

// Remembers what it was asked; a read yields the low byte of each offset read.
class Probe : public Device {
 public:
  explicit Probe(unsigned max_size = 1) : max_size_(max_size) {}
  u64 Read(u64 offset, unsigned size) override {
    log.push_back("r" + std::to_string(size) + "@" + std::to_string(offset));
    u64 value = 0;
    for (unsigned i = 0; i < size; ++i) value |= ((offset + i) & 0xff) << (i * 8);
    return value | (size < 8 ? ~u64{0} << (size * 8) : 0);  // rubbish above: the bus cuts it off
  }
  void Write(u64 offset, unsigned size, u64 value) override {
    log.push_back("w" + std::to_string(size) + "@" + std::to_string(offset) + "=" +
                  std::to_string(value));
  }
  unsigned MaxAccessSize() const override { return max_size_; }
  PortLatch Latch(u64 offset, unsigned size) override {
    return {.cell = offset == 1 && size <= 2 ? latch : nullptr, .kept = 0x1ff};
  }
  bool Peek(u64 offset, unsigned, u64* value) const override {
    *value = 0x8877665544332211;
    return offset == 2;
  }

  std::vector<std::string> log;
  u8 latch[2] = {0x5a, 1};

 private:
  unsigned max_size_;
};

using Log = std::vector<std::string>;

TEST_CASE("port bus: unassigned ports read as ones and swallow writes") {
  PortBus bus;
  CHECK(bus.Read(0x80, 1) == 0xff);
  CHECK(bus.Read(0x80, 2) == 0xffff);
  CHECK(bus.Read(0x80, 4) == 0xffffffff);
  bus.Write(0x80, 4, 1);
  CHECK(bus.NameOf(0x80) == nullptr);
  CHECK(bus.Latch(0x80, 1) == PortLatch{});
}

TEST_CASE("port bus: a device sees offsets only") {
  PortBus bus;
  Probe probe;
  REQUIRE(bus.Add(0x3f8, 8, probe, "probe").ok());
  CHECK(bus.Read(0x3fa, 1) == 2);
  bus.Write(0x3ff, 1, 0x1234);
  CHECK(probe.log == Log{"r1@2", "w1@7=52"});
  CHECK(std::string(bus.NameOf(0x3ff)) == "probe");
  CHECK(bus.NameOf(0x400) == nullptr);
}

TEST_CASE("port bus: wide accesses to a byte device are split, low port first") {
  PortBus bus;
  Probe probe;
  REQUIRE(bus.Add(0x10, 8, probe, "probe").ok());
  CHECK(bus.Read(0x11, 4) == 0x04030201);
  bus.Write(0x12, 2, 0xaabb);
  CHECK(probe.log == Log{"r1@1", "r1@2", "r1@3", "r1@4", "w1@2=187", "w1@3=170"});
}

TEST_CASE("port bus: a wide device gets whole accesses, and halves at its edges") {
  PortBus bus;
  Probe probe(4);
  Probe next;
  REQUIRE(bus.Add(0x10, 4, probe, "probe").ok());
  REQUIRE(bus.Add(0x14, 1, next, "next").ok());
  CHECK(bus.Read(0x10, 4) == 0x03020100);
  CHECK(probe.log == Log{"r4@0"});
  probe.log.clear();
  CHECK(bus.Read(0x12, 4) == 0xff000302);
  CHECK(probe.log == Log{"r2@2"});
  CHECK(next.log == Log{"r1@0"});
}

TEST_CASE("port bus: bytes beyond the last port do not wrap") {
  PortBus bus;
  Probe first;
  Probe last;
  REQUIRE(bus.Add(0, 1, first, "first").ok());
  REQUIRE(bus.Add(0xffff, 1, last, "last").ok());
  CHECK(bus.Read(0xffff, 4) == 0xffffff00);
  bus.Write(0xffff, 2, 0x1234);
  CHECK(first.log.empty());
  CHECK(last.log == Log{"r1@0", "w1@0=52"});
}

TEST_CASE("port bus: bad ranges are refused with a message that names both devices") {
  PortBus bus;
  Probe probe;
  REQUIRE(bus.Add(0x20, 2, probe, "pic").ok());
  const Status overlap = bus.Add(0x1f, 2, probe, "dma");
  REQUIRE_FALSE(overlap.ok());
  CHECK(overlap.error().message.find("'dma'") != std::string::npos);
  CHECK(overlap.error().message.find("'pic'") != std::string::npos);
  CHECK_FALSE(bus.Add(0x30, 0, probe, "empty").ok());
  CHECK_FALSE(bus.Add(0xffff, 2, probe, "long").ok());
  CHECK_FALSE(bus.Add(1, 0xffffffff, probe, "longest").ok());
  CHECK(bus.Add(0xffff, 1, probe, "last").ok());
}

TEST_CASE("port bus: the 256th range is refused") {
  PortBus bus;
  Probe probe;
  for (u16 i = 0; i < 255; ++i) REQUIRE(bus.Add(i, 1, probe, "probe").ok());
  CHECK_FALSE(bus.Add(300, 1, probe, "one too many").ok());
}

TEST_CASE("port bus: a latch is found by port, and a range may start inside a device") {
  PortBus bus;
  Probe probe;
  REQUIRE(bus.Add(0x80, 1, probe, "post", 1).ok());
  CHECK(bus.Latch(0x80, 1).cell == probe.latch);
  CHECK(bus.Latch(0x80, 1).kept == 0x1ff);
  bus.Write(0x80, 1, 3);
  CHECK(probe.log == Log{"w1@1=3"});
}

TEST_CASE("port bus: a latch is one for whole accesses of one device, where its range is now") {
  PortBus bus;
  Probe narrow(1), wide(4);
  REQUIRE(bus.Add(0x20, 4, narrow, "narrow").ok());
  CHECK(bus.Latch(0x21, 1).cell == narrow.latch);
  CHECK(bus.Latch(0x21, 2).cell == nullptr);  // it is given two accesses
  REQUIRE(bus.Add(0x30, 2, wide, "wide").ok());
  CHECK(bus.Latch(0x31, 1).cell == wide.latch);
  CHECK(bus.Latch(0x31, 2).cell == nullptr);  // half of it is nobody's
  REQUIRE(bus.Add(0x40, 4, wide, "wide").ok());
  CHECK(bus.Latch(0x41, 2).cell == wide.latch);
  CHECK(bus.Latch(0x41, 4).cell == nullptr);
  REQUIRE(bus.Move(0x40, 0x50));
  CHECK(bus.Latch(0x41, 2).cell == nullptr);
  CHECK(bus.Latch(0x51, 2).cell == wide.latch);
  bus.Remove(0x50);
  CHECK(bus.Latch(0x51, 2).cell == nullptr);
}

TEST_CASE("What has no effect is told without a read") {
  PortBus ports;
  MmioBus memory;
  Probe probe(4);
  REQUIRE(ports.Add(0x20, 4, probe, "probe").ok());
  REQUIRE(memory.Add(PhysAddr(0x1000), 4, probe, "probe").ok());
  u32 narrow = 0;
  u64 wide = 0;
  CHECK(ports.Peek(0x22, 1, &narrow));
  CHECK(narrow == 0x11);
  CHECK(ports.Peek(0x22, 2, &narrow));
  CHECK(narrow == 0x2211);
  CHECK(memory.Peek(PhysAddr(0x1002), 2, &wide));
  CHECK(wide == 0x2211);
  // Not the device's, not all of it, nobody's.
  CHECK_FALSE(ports.Peek(0x21, 1, &narrow));
  CHECK_FALSE(ports.Peek(0x22, 4, &narrow));
  CHECK_FALSE(ports.Peek(0x24, 1, &narrow));
  CHECK_FALSE(memory.Peek(PhysAddr(0x1001), 1, &wide));
  CHECK_FALSE(memory.Peek(PhysAddr(0x1002), 4, &wide));
  CHECK_FALSE(memory.Peek(PhysAddr(0xfff), 1, &wide));
  CHECK(probe.log.empty());
}

TEST_CASE("memory bus: look-up, edges, splitting") {
  MmioBus bus;
  Probe narrow(4);
  Probe wide(8);
  REQUIRE(bus.Add(PhysAddr(0xfee00000), 0x1000, narrow, "lapic").ok());
  REQUIRE(bus.Add(PhysAddr(0x1000), 0x10, wide, "wide").ok());
  CHECK(bus.Read(PhysAddr(0x1000), 8) == 0x0706050403020100);
  CHECK(wide.log == Log{"r8@0"});
  CHECK(bus.Read(PhysAddr(0xfee00010), 8) == 0x1716151413121110);
  CHECK(narrow.log == Log{"r4@16", "r4@20"});
  wide.log.clear();
  CHECK(bus.Read(PhysAddr(0x100c), 8) == 0xffffffff0f0e0d0c);
  bus.Write(PhysAddr(0xffc), 8, 0x1122334455667788);
  CHECK(wide.log == Log{"r4@12", "w4@0=287454020"});
  CHECK(bus.Read(PhysAddr(0x2000), 8) == ~u64{0});
  CHECK(std::string(bus.NameOf(PhysAddr(0xfee00fff))) == "lapic");
  CHECK(bus.NameOf(PhysAddr(0xfee01000)) == nullptr);
}

TEST_CASE("memory bus: Claims sees any overlap") {
  MmioBus bus;
  Probe probe;
  REQUIRE(bus.Add(PhysAddr(0x1000), 0x1000, probe, "probe").ok());
  CHECK(bus.Claims(PhysAddr(0x1fff), 1));
  CHECK(bus.Claims(PhysAddr(0), 0x1001));
  CHECK(bus.Claims(PhysAddr(0xfff), ~u64{0}));
  CHECK_FALSE(bus.Claims(PhysAddr(0), 0x1000));
  CHECK_FALSE(bus.Claims(PhysAddr(0x2000), 0x1000));
  CHECK_FALSE(bus.Claims(PhysAddr(0x1000), 0));
}

TEST_CASE("memory bus: bad ranges are refused") {
  MmioBus bus;
  Probe probe;
  REQUIRE(bus.Add(PhysAddr(0x1000), 0x1000, probe, "a").ok());
  CHECK_FALSE(bus.Add(PhysAddr(0x1fff), 1, probe, "b").ok());
  CHECK_FALSE(bus.Add(PhysAddr(0), 0x1001, probe, "b").ok());
  CHECK_FALSE(bus.Add(PhysAddr(0), 0x100000, probe, "b").ok());
  CHECK_FALSE(bus.Add(PhysAddr(5), 0, probe, "b").ok());
  CHECK_FALSE(bus.Add(PhysAddr(~u64{0}), 2, probe, "b").ok());
  CHECK(bus.Add(PhysAddr(~u64{0}), 1, probe, "b").ok());
  CHECK(bus.Add(PhysAddr(0x2000), 1, probe, "b").ok());
  CHECK(bus.Read(PhysAddr(~u64{0}), 1) == 0);
}

}  // namespace
}  // namespace alibi::devices
