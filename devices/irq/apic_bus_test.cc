// SPDX-License-Identifier: Apache-2.0
// Several local APICs: who gets a message.
#include "devices/irq/apic_bus.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "devices/test_util.h"

namespace alibi::devices {
namespace {

constexpr u64 kTpr = 0x80, kLdr = 0xd0, kDfr = 0xe0, kSvr = 0xf0, kIcr = 0x300, kIcr2 = 0x310;
constexpr u32 kLogical = 1u << 11, kSelf = 1u << 18, kAll = 2u << 18, kOthers = 3u << 18;

class Cpu final : public LapicHost {
 public:
  Cpu(u32 id, ApicBus& bus, Clock& clock, TscSource& tsc, TimerQueue& timers)
      : lapic(id, clock, tsc, timers, *this), bus_(bus) {
    lapic.Reset(/*keep_mode=*/false);
    lapic.Write(kSvr, 4, 0x1ff);
    bus.Add(lapic);
  }
  void InterruptRaised() override {}
  void Nmi() override { ++nmis; }
  void Init() override { ++inits; }
  void Startup(u8 vector) override { startups.push_back(vector); }
  void Send(const ApicMessage& message, bool self_too) override {
    bus_.Send(message, self_too ? nullptr : &lapic);
  }
  // The vector that waits, which is taken and ended; 0: none.
  unsigned Take() {
    if (!lapic.InterruptPending(lapic.tpr())) return 0;
    const unsigned vector = lapic.Acknowledge();
    lapic.Write(0xb0, 4, 0);
    return vector;
  }

  int nmis = 0, inits = 0;
  std::vector<u8> startups;
  Lapic lapic;

 private:
  ApicBus& bus_;
};

struct Machine {
  explicit Machine(unsigned count) {
    for (unsigned id = 0; id < count; ++id) {
      cpus.push_back(std::make_unique<Cpu>(id, bus, clock, tsc, timers));
    }
  }
  void Send(unsigned from, u32 destination, u32 command) {
    cpus[from]->lapic.Write(kIcr2, 4, destination << 24);
    cpus[from]->lapic.Write(kIcr, 4, command);
  }
  // Who got `vector`, a bit each.
  unsigned Receivers(unsigned vector) {
    unsigned got = 0;
    for (unsigned id = 0; id < cpus.size(); ++id) got |= (cpus[id]->Take() == vector) << id;
    return got;
  }

  ManualClock clock;
  FixedTsc tsc{clock, 2'000'000'000};
  TimerQueue timers;
  ApicBus bus;
  std::vector<std::unique_ptr<Cpu>> cpus;
};

TEST_CASE("APIC bus: physical destinations and shorthands") {
  Machine m(4);
  m.Send(0, 2, 0x41);
  CHECK(m.Receivers(0x41) == 0x4);
  m.Send(2, 2, 0x42);
  CHECK(m.Receivers(0x42) == 0x4);
  m.Send(1, 0xff, 0x43);
  CHECK(m.Receivers(0x43) == 0xf);
  m.Send(1, 7, 0x44);
  CHECK(m.Receivers(0x44) == 0);
  m.Send(1, 0, 0x45 | kSelf);
  CHECK(m.Receivers(0x45) == 0x2);
  m.Send(1, 0, 0x46 | kAll);
  CHECK(m.Receivers(0x46) == 0xf);
  m.Send(1, 0, 0x47 | kOthers);
  CHECK(m.Receivers(0x47) == 0xd);
}

TEST_CASE("APIC bus: logical destinations") {
  Machine m(4);
  for (unsigned id = 0; id < 4; ++id) m.cpus[id]->lapic.Write(kLdr, 4, 1u << id << 24);
  m.Send(0, 0x6, 0x41 | kLogical);
  CHECK(m.Receivers(0x41) == 0x6);
  for (unsigned id = 0; id < 4; ++id) {
    m.cpus[id]->lapic.Write(kDfr, 4, 0x0fffffff);
    m.cpus[id]->lapic.Write(kLdr, 4, (id / 2 << 4 | 1u << id % 2) << 24);
  }
  m.Send(0, 0x12, 0x42 | kLogical);
  CHECK(m.Receivers(0x42) == 0x8);
}

TEST_CASE("APIC bus: lowest priority goes to one, whose priority is least") {
  Machine m(3);
  constexpr u32 kLowest = 1u << 8;
  m.Send(0, 0xff, 0x81 | kLowest);
  CHECK(m.Receivers(0x81) == 0x1);
  m.cpus[0]->lapic.Write(kTpr, 4, 0x30);
  m.cpus[1]->lapic.Write(kTpr, 4, 0x20);
  m.cpus[2]->lapic.Write(kTpr, 4, 0x30);
  m.Send(0, 0xff, 0x82 | kLowest);
  CHECK(m.Receivers(0x82) == 0x2);
  // One that is switched off cannot accept it.
  m.cpus[1]->lapic.Write(kSvr, 4, 0xff);
  m.Send(2, 0xff, 0x83 | kLowest);
  CHECK(m.Receivers(0x83) == 0x1);
  // The sender is not among the others, however low its priority.
  m.cpus[0]->lapic.Write(kTpr, 4, 0);
  m.Send(0, 0, 0x84 | kLowest | kOthers);
  CHECK(m.Receivers(0x84) == 0x4);
}

TEST_CASE("APIC bus: NMI, INIT and startup need no APIC that accepts interrupts") {
  Machine m(3);
  for (const auto& cpu : m.cpus) cpu->lapic.Write(kSvr, 4, 0xff);
  m.Send(0, 1, 0x400);
  m.Send(0, 0, 0x4500 | kOthers);
  m.Send(0, 2, 0x609);
  CHECK(m.cpus[0]->nmis + m.cpus[2]->nmis == 0);
  CHECK(m.cpus[1]->nmis == 1);
  CHECK(m.cpus[0]->inits == 0);
  CHECK(m.cpus[1]->inits == 1);
  CHECK(m.cpus[2]->inits == 1);
  CHECK(m.cpus[2]->startups == std::vector<u8>{9});
  CHECK(m.cpus[1]->startups.empty());
  // One that is off altogether is not on the bus.
  REQUIRE(m.cpus[1]->lapic.WriteMsr(0x1b, 0xfee00000));
  m.Send(0, 1, 0x400);
  CHECK(m.cpus[1]->nmis == 1);
}

TEST_CASE("APIC bus: x2APIC names") {
  Machine m(3);
  for (const auto& cpu : m.cpus) REQUIRE(cpu->lapic.WriteMsr(0x1b, 0xfee00c00));
  REQUIRE(m.cpus[0]->lapic.WriteMsr(0x830, u64{2} << 32 | 0x41));
  CHECK(m.cpus[2]->lapic.Acknowledge() == 0x41);
  REQUIRE(m.cpus[0]->lapic.WriteMsr(0x830, u64{0x6} << 32 | kLogical | 0x51));
  CHECK_FALSE(m.cpus[0]->lapic.InterruptPending(0));
  CHECK(m.cpus[1]->lapic.Acknowledge() == 0x51);
  CHECK(m.cpus[2]->lapic.Acknowledge() == 0x51);
  REQUIRE(m.cpus[0]->lapic.WriteMsr(0x830, u64{0xffffffff} << 32 | 0x61));
  for (const auto& cpu : m.cpus) CHECK(cpu->lapic.Acknowledge() == 0x61);
}

}  // namespace
}  // namespace alibi::devices
