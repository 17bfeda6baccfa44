// SPDX-License-Identifier: Apache-2.0
// Functions on the bus: BARs, interrupt pins, capabilities, MSI-X, and what firmware would do.
#include "devices/pci/pci.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "devices/mailbox.h"
#include "devices/test_util.h"
#include "pc/board.h"

namespace alibi::devices {
namespace {

struct Machine {
  Machine() {
    PcConfig config;
    config.low_ram_bytes = u64{64} << 20;
    config.set_up = false;
    auto made = Pc::Create(config, PcHooks{}, clock, tsc);
    REQUIRE(made.ok());
    pc = std::move(made.value());
    pc->lapic().SetUpAsBiosLeavesIt();
  }
  void Select(u32 address) { pc->ports().Write(0xcf8, 4, 0x80000000 | (address & ~3u)); }
  void Set(u32 address, u32 value, unsigned size = 4) {
    Select(address);
    pc->ports().Write(static_cast<u16>(0xcfc + (address & 3)), size, value);
  }
  u32 Get(u32 address, unsigned size = 4) {
    Select(address);
    return pc->ports().Read(static_cast<u16>(0xcfc + (address & 3)), size);
  }
  bool Pending() { return pc->interrupts().InterruptPending(0); }
  void Eoi() { pc->mmio().Write(PhysAddr(0xfee000b0), 4, 0); }
  // I/O APIC input to a vector, level-triggered.
  void Redirect(u32 input, u32 vector) {
    pc->mmio().Write(PhysAddr(0xfec00000), 4, 0x10 + 2 * input);
    pc->mmio().Write(PhysAddr(0xfec00010), 4, 0x8000 | vector);
  }

  ManualClock clock;
  FixedTsc tsc{clock, 2'000'000'000};
  std::unique_ptr<Pc> pc;
};

class Register : public Device {
 public:
  u64 Read(u64 offset, unsigned) override { return value + offset; }
  void Write(u64 offset, unsigned, u64 written) override {
    last_offset = offset;
    value = written;
  }
  unsigned MaxAccessSize() const override { return 4; }
  u64 value = 0, last_offset = 0;
};

class TestFunction : public PciFunction {
 public:
  explicit TestFunction(unsigned pin = 1)
      : PciFunction("test", {.vendor = 0x1234, .device = 0x5678, .class_code = 0xff0000}) {
    AddIoBar(0, 32, io);
    AddMemoryBar(1, 4096, memory);
    AddMemoryBar(2, 0x10000, wide, /*bits64=*/true);
    AddRom({0x55, 0xaa, 1});
    AddMsix(4, 3);
    SetInterruptPin(pin);
  }
  Register io, memory, wide;
};

constexpr u32 kSlot3 = 3 << 11;

TEST_CASE("PCI: BARs answer with their sizes and are mapped where they are put") {
  Machine m;
  TestFunction f;
  m.pc->pci().Add(3, 0, f);
  CHECK(m.Get(kSlot3) == 0x56781234);
  const struct {
    u32 offset, size_answer, after;
  } rows[] = {{0x10, 0xffffffe1, 1}, {0x14, 0xfffff000, 0}, {0x18, 0xffff0004, 4},
              {0x1c, 0xffffffff, 0}, {0x24, 0, 0},          {0x30, 0xfffff801, 0}};
  for (const auto& row : rows) {
    m.Set(kSlot3 + row.offset, 0xffffffff);
    CHECK(m.Get(kSlot3 + row.offset) == row.size_answer);
    m.Set(kSlot3 + row.offset, 0);
    CHECK(m.Get(kSlot3 + row.offset) == row.after);
  }
  m.Set(kSlot3 + 0x10, 0xc041);
  m.Set(kSlot3 + 0x14, 0xe0001000);
  m.Set(kSlot3 + 0x18, 0);
  m.Set(kSlot3 + 0x1c, 2);
  m.Set(kSlot3 + 0x30, 0xe0004001);
  f.io.value = 7;
  CHECK(m.pc->ports().Read(0xc040, 4) == 0xffffffff);  // not enabled
  m.Set(kSlot3 + 4, 1, 2);
  CHECK(m.pc->ports().Read(0xc044, 4) == 11);
  CHECK_FALSE(m.pc->mmio().Claims(PhysAddr(0xe0001000), 1));
  m.Set(kSlot3 + 4, 3, 2);
  m.pc->mmio().Write(PhysAddr(0xe0001010), 4, 5);
  CHECK(f.memory.last_offset == 0x10);
  m.pc->mmio().Write(PhysAddr(0x200000020), 4, 6);
  CHECK(f.wide.last_offset == 0x20);
  CHECK(m.pc->mmio().Read(PhysAddr(0xe0004000), 4) == 0x1aa55);
  m.pc->mmio().Write(PhysAddr(0xe0004000), 4, 0);
  CHECK(m.pc->mmio().Read(PhysAddr(0xe0004000), 2) == 0xaa55);
  m.Set(kSlot3 + 0x30, 0xe0004000);
  CHECK_FALSE(m.pc->mmio().Claims(PhysAddr(0xe0004000), 1));
  m.Set(kSlot3 + 0x10, 0xc081);
  CHECK(m.pc->ports().Read(0xc044, 4) == 0xffffffff);
  CHECK(m.pc->ports().Read(0xc080, 4) == 7);
  m.Set(kSlot3 + 4, 0, 2);
  CHECK(m.pc->ports().Read(0xc080, 4) == 0xffffffff);
  CHECK_FALSE(m.pc->mmio().Claims(PhysAddr(0xe0001000), 1));
}

TEST_CASE("PCI: a BAR on another device is not seen until there is room") {
  Machine m;
  TestFunction a, b;
  m.pc->pci().Add(3, 0, a);
  m.pc->pci().Add(4, 0, b);
  const u32 slot4 = 4 << 11;
  m.Set(kSlot3 + 0x14, 0xfec00000);  // the I/O APIC's place
  m.Set(kSlot3 + 0x10, 0x21);        // the 8259's
  m.Set(kSlot3 + 4, 3, 2);
  CHECK(m.pc->mmio().Read(PhysAddr(0xfec00000), 4) == 0);
  m.pc->ports().Write(0x21, 1, 0xfb);
  CHECK(m.pc->ports().Read(0x21, 1) == 0xfb);
  m.Set(kSlot3 + 0x14, 0xe0000000);
  m.Set(slot4 + 0x14, 0xe0000000);
  m.Set(slot4 + 4, 3, 2);
  a.memory.value = 1;
  b.memory.value = 2;
  CHECK(m.pc->mmio().Read(PhysAddr(0xe0000000), 4) == 1);
  m.Set(kSlot3 + 0x14, 0xe0001000);
  CHECK(m.pc->mmio().Read(PhysAddr(0xe0000000), 4) == 2);
  CHECK(m.pc->mmio().Read(PhysAddr(0xe0001000), 4) == 1);
}

TEST_CASE("PCI: ports of many functions come and go") {
  Machine m;
  TestFunction f;
  m.pc->pci().Add(3, 0, f);
  m.Set(kSlot3 + 4, 1, 2);
  for (u32 i = 1; i < 2000; ++i) m.Set(kSlot3 + 0x10, i << 5);
  m.Set(kSlot3 + 0x10, 0xd001);
  f.io.value = 3;
  CHECK(m.pc->ports().Read(0xd000, 4) == 3);
  m.pc->Reset();
  CHECK(m.pc->ports().Read(0xd000, 4) == 0xffffffff);
  m.pc->Reset();
}

TEST_CASE("PCI: pins reach ISA lines by the PIRQ routes, levels are shared") {
  Machine m;
  TestFunction a(1), b(4);
  m.pc->pci().Add(3, 0, a);  // INTA# of slot 3: PIRQC
  m.pc->pci().Add(4, 0, b);  // INTD# of slot 4: PIRQC
  m.Redirect(11, 0x51);
  m.Redirect(5, 0x52);
  a.intx().Set(true);
  CHECK_FALSE(m.Pending());  // not routed
  CHECK((m.Get(kSlot3 + 6, 2) & 8) == 8);
  m.Set(0x862, 11, 1);
  REQUIRE(m.Pending());
  CHECK(m.pc->interrupts().Acknowledge() == 0x51);
  b.intx().Set(true);
  a.intx().Set(false);
  CHECK((m.Get(kSlot3 + 6, 2) & 8) == 0);
  m.Eoi();
  REQUIRE(m.Pending());  // b's
  CHECK(m.pc->interrupts().Acknowledge() == 0x51);
  m.Set(0x862, 5, 1);
  m.Eoi();
  REQUIRE(m.Pending());
  CHECK(m.pc->interrupts().Acknowledge() == 0x52);
  m.Set((4 << 11) + 4, 0x400, 2);  // INTx disable
  m.Eoi();
  CHECK_FALSE(m.Pending());
  m.Set((4 << 11) + 4, 0, 2);
  CHECK(m.Pending());
  static_cast<void>(m.pc->interrupts().Acknowledge());
  m.Set(0x862, 0x80, 1);
  m.Eoi();
  CHECK_FALSE(m.Pending());
  m.Set(0x862, 2, 1);  // a line that cannot be
  CHECK_FALSE(m.Pending());
}

TEST_CASE("PCI: an ISA device and a pin on the same line") {
  Machine m;
  TestFunction f;
  m.pc->pci().Add(3, 0, f);
  m.Redirect(10, 0x53);
  m.Set(0x862, 10, 1);
  m.pc->Irq(10).Set(true);
  f.intx().Set(true);
  m.pc->Irq(10).Set(false);
  CHECK(m.pc->interrupts().Acknowledge() == 0x53);
  m.Eoi();
  CHECK(m.Pending());
  f.intx().Set(false);
  static_cast<void>(m.pc->interrupts().Acknowledge());
  m.Eoi();
  CHECK_FALSE(m.Pending());
}

TEST_CASE("PCI: capabilities are a list") {
  Machine m;
  TestFunction f;
  const u8 body[] = {5, 6, 7};
  const unsigned at = f.AddCapability(0x09, body);
  m.pc->pci().Add(3, 0, f);
  CHECK((m.Get(kSlot3 + 6, 2) & 0x10) != 0);
  const u32 first = m.Get(kSlot3 + 0x34, 1);
  CHECK(m.Get(kSlot3 + first, 1) == Msix::kCapability);
  const u32 second = m.Get(kSlot3 + first + 1, 1);
  CHECK(second == at);
  CHECK(m.Get(kSlot3 + second) == 0x06050009);
  CHECK(m.Get(kSlot3 + second + 4, 1) == 7);
}

TEST_CASE("MSI-X: messages, masks, pending bits") {
  Machine m;
  TestFunction f;
  m.pc->pci().Add(3, 0, f);
  const u32 capability = kSlot3 + m.Get(kSlot3 + 0x34, 1);
  CHECK(m.Get(capability + 2, 2) == 2);  // three vectors
  CHECK(m.Get(capability + 4) == 4);     // the table is in BAR 4
  const u32 pba = m.Get(capability + 8) & ~7u;
  m.Set(kSlot3 + 0x20, 0xe0000000);
  m.Set(kSlot3 + 4, 6, 2);
  const auto table = [&m](u32 offset) { return PhysAddr(0xe0000000 + offset); };
  CHECK(m.pc->mmio().Read(table(12), 4) == 1);  // masked at first
  const auto program = [&](u32 vector, u32 number) {
    m.pc->mmio().Write(table(16 * vector), 8, 0xfee00000);
    m.pc->mmio().Write(table(16 * vector + 8), 4, number);
    m.pc->mmio().Write(table(16 * vector + 12), 4, 0);
  };
  program(0, 0x60);
  program(1, 0x61);
  f.msix()->Notify(0);
  CHECK_FALSE(m.Pending());  // MSI-X is off: not even pending
  m.Set(capability + 2, 0x8000, 2);
  CHECK_FALSE(m.Pending());
  f.msix()->Notify(0);
  REQUIRE(m.Pending());
  CHECK(m.pc->interrupts().Acknowledge() == 0x60);
  m.Eoi();
  // By entry.
  m.pc->mmio().Write(table(28), 4, 1);
  f.msix()->Notify(1);
  CHECK_FALSE(m.Pending());
  CHECK(m.pc->mmio().Read(table(pba), 8) == 2);
  m.pc->mmio().Write(table(pba), 8, 0);  // read-only
  CHECK(m.pc->mmio().Read(table(pba), 4) == 2);
  m.pc->mmio().Write(table(28), 4, 0);
  REQUIRE(m.Pending());
  CHECK(m.pc->interrupts().Acknowledge() == 0x61);
  m.Eoi();
  CHECK(m.pc->mmio().Read(table(pba), 4) == 0);
  // All of them.
  m.Set(capability + 2, 0xc000, 2);
  f.msix()->Notify(0);
  f.msix()->Notify(0);
  CHECK_FALSE(m.Pending());
  m.Set(capability + 2, 0x8000, 2);
  REQUIRE(m.Pending());
  CHECK(m.pc->interrupts().Acknowledge() == 0x60);
  m.Eoi();
  CHECK_FALSE(m.Pending());
  // Nowhere: another address, no such vector, no bus mastering.
  m.pc->mmio().Write(table(0), 4, 0x1000);
  f.msix()->Notify(0);
  f.msix()->Notify(3);
  f.msix()->Notify(~0u);
  m.Set(kSlot3 + 4, 2, 2);
  f.msix()->Notify(1);
  CHECK_FALSE(m.Pending());
  // While it is on, the pin is silent.
  m.Redirect(11, 0x51);
  m.Set(0x862, 11, 1);
  f.intx().Set(true);
  CHECK_FALSE(m.Pending());
  m.Set(capability + 2, 0, 2);
  CHECK(m.Pending());
}

TEST_CASE("MSI-X: any traffic leaves it in order") {
  for (u64 seed = 0; seed < 5; ++seed) {
    Msix msix(40, [](const ApicMessage&) {});
    Hammer(msix, msix.BarSize(), seed, 5000, [&msix](std::mt19937_64& random) {
      msix.SetControl(static_cast<u16>(random()));
      msix.Notify(static_cast<unsigned>(random() % 64));
    });
  }
}

TEST_CASE("PCI: as firmware assigns") {
  Machine m;
  TestFunction a, b(2);
  m.pc->pci().Add(3, 0, a);
  m.pc->pci().Add(5, 0, b);
  m.pc->pci().AssignAsFirmware();
  for (const u32 slot : {3u, 5u}) {
    const u32 base = slot << 11;
    CHECK((m.Get(base + 4, 2) & 3) == 3);
    CHECK((m.Get(base + 0x10) & ~3u) >= 0xc000);
    for (const u32 bar : {0x14u, 0x18u, 0x20u}) {
      const u32 at = m.Get(base + bar) & ~0xfu;
      CHECK(at >= 0xe0000000);
      CHECK(at < 0xfec00000);
      CHECK(m.pc->mmio().Claims(PhysAddr(at), 1));
    }
    CHECK((m.Get(base + 0x18) & 0xffff) == 4);
  }
  CHECK(m.Get(0x860) == 0x0b0b0a0a);
  CHECK(m.Get(kSlot3 + 0x3c, 1) == 11);       // PIRQC
  CHECK(m.Get((5 << 11) + 0x3c, 1) == 10);    // PIRQB
  CHECK(m.Get(0xb3c, 1) == AcpiPm::kSciIrq);  // the power management's own
}

TEST_CASE("PCI: random configuration writes never break it") {
  for (u64 seed = 0; seed < 4; ++seed) {
    Machine m;
    TestFunction a, b(3);
    m.pc->pci().Add(3, 0, a);
    m.pc->pci().Add(3, 2, b);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 5000; ++i) {
      static constexpr u32 kFunctions[] = {0, 0x800, 0xb00, kSlot3, kSlot3 + 0x200};
      const unsigned size = 1u << random() % 3;
      u32 value = static_cast<u32>(random());
      if (value & 1) value &= 0xf000ffff;
      m.Set(kFunctions[random() % 5] + (static_cast<u32>(random()) & 0xff & ~(size - 1)), value,
            size);
      if (random() % 4 == 0) m.Set(kSlot3 + 4, 7, 2);
      a.intx().Set(random() & 1);
      b.intx().Set(random() & 1);
      a.msix()->Notify(static_cast<unsigned>(random() & 3));
      static_cast<void>(m.pc->mmio().Read(PhysAddr(0xe0000000 + (random() & 0xfffff)), 4));
    }
    m.pc->Reset();
  }
}

TEST_CASE("Mailbox: work of other threads runs on the owner's, in order") {
  std::atomic<int> pokes = 0;
  Mailbox mailbox([&pokes] { ++pokes; });
  std::vector<int> seen;
  std::thread worker([&] {
    for (int i = 0; i < 100; ++i) mailbox.Post([&seen, i] { seen.push_back(i); });
  });
  worker.join();
  CHECK(seen.empty());
  CHECK(pokes == 1);
  mailbox.Drain();
  REQUIRE(seen.size() == 100);
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  // What is posted by work runs at the next time.
  mailbox.Post([&] { mailbox.Post([&] { seen.clear(); }); });
  mailbox.Drain();
  CHECK(seen.size() == 100);
  CHECK(pokes == 3);
  mailbox.Drain();
  CHECK(seen.empty());
}

}  // namespace
}  // namespace alibi::devices
