// SPDX-License-Identifier: Apache-2.0
#include "pc/board.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "devices/test_util.h"

namespace alibi::devices {
namespace {

struct Machine {
  explicit Machine(unsigned cpus = 1) {
    PcConfig config;
    for (unsigned cpu = 1; cpu < cpus; ++cpu) config.more_cpus.push_back(&tsc);
    config.low_ram_bytes = 64 << 20;
    config.unix_seconds = 1'700'000'000;
    PcHooks hooks;
    hooks.serial_output = [this](u8 byte) { serial.push_back(static_cast<char>(byte)); };
    hooks.debug_output = [this](u8 byte) { debug.push_back(static_cast<char>(byte)); };
    hooks.exit_requested = [this](u32 status) { exits.push_back(status); };
    hooks.interrupt_raised = [this](unsigned) { ++raised; };
    hooks.nmi = [this](unsigned cpu) {
      ++nmis;
      events.push_back("nmi " + std::to_string(cpu));
    };
    hooks.init = [this](unsigned cpu) { events.push_back("init " + std::to_string(cpu)); };
    hooks.startup = [this](unsigned cpu, u8 vector) {
      events.push_back("startup " + std::to_string(cpu) + " " + std::to_string(vector));
    };
    hooks.ignore_numeric_error = [this] { ++ignored; };
    auto made = Pc::Create(config, std::move(hooks), clock, tsc);
    REQUIRE(made.ok());
    pc = std::move(made.value());
  }
  void Out(u16 port, u8 value) { pc->ports().Write(port, 1, value); }
  u8 In(u16 port) { return static_cast<u8>(pc->ports().Read(port, 1)); }
  bool Pending() { return pc->interrupts().InterruptPending(pc->lapic().tpr()); }
  void RemapPics() {
    for (const auto& [port, base] : {std::pair<u16, u8>{0x20, 0x20}, {0xa0, 0x28}}) {
      Out(port, 0x11);
      Out(static_cast<u16>(port + 1), base);
      Out(static_cast<u16>(port + 1), port == 0x20 ? 4 : 2);
      Out(static_cast<u16>(port + 1), 1);
      Out(static_cast<u16>(port + 1), 0);
    }
  }

  ManualClock clock;
  FixedTsc tsc{clock, 2'000'000'000};
  std::string serial;
  std::string debug;
  std::vector<u32> exits;
  int raised = 0;
  int nmis = 0;
  std::vector<std::string> events;
  int ignored = 0;
  std::unique_ptr<Pc> pc;
};

TEST_CASE("PC: x87 errors are interrupt 13 until port 0xf0 is written") {
  Machine machine;
  machine.RemapPics();
  machine.Out(0xf0, 0);  // nothing to ignore
  CHECK(machine.ignored == 0);
  for (int i = 1; i <= 2; ++i) {
    CHECK_FALSE(machine.Pending());
    machine.pc->NumericError();
    machine.pc->NumericError();  // the same error, met again
    REQUIRE(machine.Pending());
    CHECK(machine.pc->interrupts().Acknowledge() == 0x2d);
    CHECK_FALSE(machine.Pending());
    machine.Out(0xf0, 0);
    CHECK(machine.ignored == i);
    machine.Out(0xa0, 0x20);
    machine.Out(0x20, 0x20);
  }
}

TEST_CASE("PC: as the BIOS leaves it") {
  Machine machine;
  CHECK(machine.In(0x21) == 0xb8);
  CHECK(machine.In(0xa1) == 0x8e);
  CHECK(machine.In(0x3fd) == 0x60);
  CHECK(machine.In(0x64) == 0x14);
  CHECK(machine.pc->ports().Latch(0x80, 1).fixed);
  CHECK(machine.pc->ports().Latch(0x20, 1).cell == nullptr);
  CHECK(machine.pc->mmio().Claims(PhysAddr(0xfee00000), 0x1000));
  CHECK(machine.pc->mmio().Read(PhysAddr(0xfee00030), 4) == 0x00050015);
  CHECK(machine.pc->mmio().Read(PhysAddr(0xfec00000), 4) == 0);
}

TEST_CASE("PC: console, debug console, exit") {
  Machine machine;
  for (char c : std::string("boot\n")) machine.Out(0x3f8, static_cast<u8>(c));
  machine.Out(0xe9, '!');
  machine.pc->ports().Write(0xf4, 4, 0x10);
  CHECK(machine.serial == "boot\n");
  CHECK(machine.debug == "!");
  CHECK(machine.exits == std::vector<u32>{0x21});
}

TEST_CASE("PC: the 8254 interrupts through the 8259s and LINT0 at 100 Hz") {
  Machine machine;
  machine.RemapPics();
  machine.Out(0x43, 0x34);
  machine.Out(0x40, 11932 & 0xff);
  machine.Out(0x40, 11932 >> 8);
  int ticks = 0;
  for (int i = 0; i < 1000; ++i) {
    RunFor(machine.clock, machine.pc->timers(), 1'000'000);
    while (machine.Pending()) {
      CHECK(machine.pc->interrupts().Acknowledge() == 0x20);
      machine.Out(0x20, 0x20);
      ++ticks;
    }
  }
  CHECK(ticks >= 99);
  CHECK(ticks <= 101);
  CHECK(machine.raised >= ticks);
}

TEST_CASE("PC: the serial port interrupts on line 4, the RTC on line 8") {
  Machine machine;
  machine.RemapPics();
  machine.Out(0x21, 0xeb);  // cascade and COM1
  machine.Out(0x3fc, 0x0b);
  machine.Out(0x3f9, 0x01);
  machine.pc->SerialInput("k");
  REQUIRE(machine.Pending());
  CHECK(machine.pc->interrupts().Acknowledge() == 0x24);
  CHECK(machine.In(0x3f8) == 'k');
  machine.Out(0x20, 0x20);
  CHECK_FALSE(machine.Pending());
  machine.Out(0x70, 0x0b);
  machine.Out(0x71, 0x12);
  RunFor(machine.clock, machine.pc->timers(), 1'000'000'000);
  REQUIRE(machine.Pending());
  CHECK(machine.pc->interrupts().Acknowledge() == 0x28);
  machine.Out(0x70, 0x0c);
  CHECK((machine.In(0x71) & 0x90) == 0x90);
}

TEST_CASE("PC: the same through the I/O APIC, with the 8259s masked; the timer on input 2") {
  Machine machine;
  machine.Out(0x21, 0xff);
  machine.Out(0xa1, 0xff);
  const auto redirect = [&](u32 input, u32 low) {
    machine.pc->mmio().Write(PhysAddr(0xfec00000), 4, 0x10 + 2 * input);
    machine.pc->mmio().Write(PhysAddr(0xfec00010), 4, low);
  };
  redirect(2, 0x30);
  redirect(4, 0x34);
  machine.Out(0x43, 0x34);
  machine.Out(0x40, 0);
  machine.Out(0x40, 0x10);
  RunFor(machine.clock, machine.pc->timers(), 10'000'000);
  REQUIRE(machine.Pending());
  CHECK(machine.pc->interrupts().Acknowledge() == 0x30);
  machine.pc->mmio().Write(PhysAddr(0xfee000b0), 4, 0);
  machine.Out(0x3fc, 0x0b);
  machine.Out(0x3f9, 0x01);
  machine.pc->SerialInput("k");
  REQUIRE(machine.Pending());
  CHECK(machine.pc->interrupts().Acknowledge() == 0x34);
}

TEST_CASE("PC: an embedder's device on a level-triggered line") {
  Machine machine;
  machine.RemapPics();
  machine.Out(0x4d1, 0x08);  // line 11
  machine.pc->Irq(11).Set(true);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(machine.Pending());
    CHECK(machine.pc->interrupts().Acknowledge() == 0x2b);
    machine.Out(0xa0, 0x20);
    machine.Out(0x20, 0x20);
  }
  machine.pc->Irq(11).Set(false);
  CHECK_FALSE(machine.Pending());
}

TEST_CASE("PC: calibration loop of a guest: channel 2 one-shot against OUT2 in port 0x61") {
  Machine machine;
  machine.Out(0x61, static_cast<u8>((machine.In(0x61) & 0xfd) | 1));
  machine.Out(0x43, 0xb0);
  machine.Out(0x42, 0xff);
  machine.Out(0x42, 0x2e);  // 12031 ticks: 10.08 ms
  u64 waited = 0;
  while (!(machine.In(0x61) & 0x20)) {
    machine.clock.Advance(10'000);
    waited += 10'000;
    REQUIRE(waited < 20'000'000);
  }
  CHECK(waited >= 10'080'000);
  CHECK(waited <= 10'110'000);
}

TEST_CASE("PC: each CPU finds its own local APIC in memory, where it has put it") {
  Machine machine(2);
  Pc& pc = *machine.pc;
  REQUIRE(pc.cpus() == 2);
  const auto id = [&](u64 base) {
    return static_cast<u32>(pc.mmio().Read(PhysAddr(base + 0x20), 4)) >> 24;
  };
  CHECK(id(0xfee00000) == 0);
  pc.RunCpu(1);
  CHECK(id(0xfee00000) == 1);
  CHECK((pc.mmio().Read(PhysAddr(0xfee000f0), 4) & 0x100) == 0);  // as after power-up
  pc.SetApicBase(0xfed10800);
  CHECK(id(0xfed10000) == 1);
  pc.RunCpu(0);
  CHECK(id(0xfee00000) == 0);
  pc.RunCpu(1);
  CHECK(id(0xfed10000) == 1);
  pc.Reset();
  CHECK(id(0xfee00000) == 0);
  pc.RunCpu(1);
  CHECK(id(0xfee00000) == 1);
}

TEST_CASE("PC: IPIs and what becomes of them") {
  Machine machine(2);
  machine.Out(0x21, 0xff);
  Pc& pc = *machine.pc;
  const auto send = [&](u32 destination, u32 command) {
    pc.mmio().Write(PhysAddr(0xfee00310), 4, destination << 24);
    pc.mmio().Write(PhysAddr(0xfee00300), 4, command);
  };
  send(1, 0x4500);
  send(1, 0x609);
  send(1, 0x400);
  CHECK(machine.events == std::vector<std::string>{"init 1", "startup 1 9", "nmi 1"});
  pc.lapic(1).Write(0xf0, 4, 0x1ff);
  send(1, 0x41);
  CHECK_FALSE(machine.Pending());
  pc.RunCpu(1);
  CHECK(machine.Pending());
  CHECK(pc.interrupts().Acknowledge() == 0x41);
}

TEST_CASE("PC: random port and memory traffic never breaks it") {
  static constexpr u16 kPorts[] = {0x20,  0x21,  0xa0,  0xa1,  0x40,  0x41,  0x42,  0x43,
                                   0x61,  0x70,  0x71,  0x3f8, 0x3f9, 0x3fa, 0x3fb, 0x3fc,
                                   0x3fd, 0x3fe, 0x3ff, 0x4d0, 0x4d1, 0x80,  0xe9,  0xf2};
  for (u64 seed = 0; seed < 10; ++seed) {
    Machine machine;
    std::mt19937_64 random(seed);
    for (int i = 0; i < 20'000; ++i) {
      const u64 what = random();
      const u16 port = kPorts[what % std::size(kPorts)];
      const unsigned size = 1u << (what >> 8 & 7) % 3;
      switch (what >> 16 & 7) {
        case 0:
          machine.pc->SerialInput("abc");
          break;
        case 1:
          static_cast<void>(machine.pc->ports().Read(port, size));
          break;
        case 2:
          machine.pc->mmio().Write(
              PhysAddr((what & 1 ? 0xfee00000 : 0xfec00000) + (what >> 32 & 0x3f0)), 4, random());
          break;
        default:
          machine.pc->ports().Write(port, size, static_cast<u32>(random()));
          break;
      }
      machine.clock.Advance(what >> 44 & 0x3ffff);
      machine.pc->timers().RunExpired(machine.clock.NowNs());
      if (machine.Pending()) static_cast<void>(machine.pc->interrupts().Acknowledge());
    }
  }
}

}  // namespace
}  // namespace alibi::devices
