// SPDX-License-Identifier: Apache-2.0
// The chip set's small parts: keyboard controller and gates, ACPI, PCI, fw_cfg, the test device.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "pc/board.h"

namespace alibi::devices {
namespace {

struct Machine {
  explicit Machine(bool set_up = true) {
    PcConfig config;
    config.low_ram_bytes = u64{64} << 20;
    config.high_ram_bytes = u64{1} << 30;
    config.set_up = set_up;
    PcHooks hooks;
    hooks.debug_output = [this](u8 byte) { text.push_back(static_cast<char>(byte)); };
    hooks.reset = [this] { ++resets; };
    hooks.power_off = [this] { ++power_offs; };
    hooks.pam = [this](const PciHost::Pam& pam) { pams.push_back(pam); };
    auto made = Pc::Create(config, std::move(hooks), clock, tsc);
    REQUIRE(made.ok());
    pc = std::move(made.value());
  }
  void Out(u16 port, u32 value, unsigned size = 1) { pc->ports().Write(port, size, value); }
  u32 In(u16 port, unsigned size = 1) { return pc->ports().Read(port, size); }
  void SetConfig(u32 address, u32 value, unsigned size = 4) {
    Out(0xcf8, 0x80000000 | (address & ~3u), 4);
    Out(static_cast<u16>(0xcfc + (address & 3)), value, size);
  }
  u32 Config(u32 address, unsigned size = 4) {
    Out(0xcf8, 0x80000000 | (address & ~3u), 4);
    return In(static_cast<u16>(0xcfc + (address & 3)), size);
  }
  bool IoApicPending() { return pc->interrupts().InterruptPending(0); }
  void Advance(u64 ns) {
    clock.Advance(ns);
    pc->timers().RunExpired(clock.NowNs());
  }

  ManualClock clock;
  FixedTsc tsc{clock, 2'000'000'000};
  std::string text;
  int resets = 0, power_offs = 0;
  std::vector<PciHost::Pam> pams;
  std::unique_ptr<Pc> pc;
};

TEST_CASE("8042: self tests, command byte, a keyboard that answers") {
  Machine m;
  m.Out(0x64, 0xaa);
  CHECK(m.In(0x64) == 0x1d);  // output full, system flag, last was a command
  CHECK(m.In(0x60) == 0x55);
  CHECK((m.In(0x64) & 1) == 0);
  m.Out(0x64, 0x60);
  m.Out(0x60, 0x61);
  m.Out(0x64, 0x20);
  CHECK(m.In(0x60) == 0x61);
  m.Out(0x60, 0xff);
  CHECK(m.In(0x60) == 0xfa);
  CHECK(m.In(0x60) == 0xaa);
  m.Out(0x60, 0xed);
  CHECK(m.In(0x60) == 0xfa);
  m.Out(0x60, 7);
  CHECK(m.In(0x60) == 0xfa);
  CHECK((m.In(0x64) & 1) == 0);
}

TEST_CASE("8042: every byte raises IRQ 1 while it is enabled") {
  Machine m(false);
  m.Out(0x20, 0x11);
  m.Out(0x21, 0x30);
  m.Out(0x21, 4);
  m.Out(0x21, 1);
  m.Out(0x21, 0xfd);
  m.Out(0x64, 0x60);
  m.Out(0x60, 0x45);
  m.Out(0x60, 0xff);
  for (u32 byte : {0xfau, 0xaau}) {
    REQUIRE(m.pc->pics().InterruptPending(0));
    CHECK(m.pc->pics().Acknowledge() == 0x31);
    m.Out(0x20, 0x20);
    CHECK(m.In(0x60) == byte);
  }
  CHECK_FALSE(m.pc->pics().InterruptPending(0));
}

TEST_CASE("A20 is one bit that three ports show") {
  Machine m;
  CHECK((m.In(0x92) & 2) != 0);
  m.Out(0x92, 0);
  m.Out(0x64, 0xd0);
  CHECK((m.In(0x60) & 2) == 0);
  m.Out(0x64, 0xd1);
  m.Out(0x60, 0xdf);
  CHECK(m.In(0x92) == 2);
  m.Out(0x64, 0xdd);
  CHECK(m.In(0x92) == 0);
  CHECK(m.resets == 0);
}

TEST_CASE("Every reset line ends in the same place") {
  Machine m;
  m.Out(0x64, 0xfe);
  CHECK(m.resets == 1);
  m.Out(0x92, 3);
  CHECK(m.resets == 2);
  m.Out(0xcf9, 0x02);
  CHECK(m.resets == 2);
  CHECK(m.In(0xcf9) == 2);
  m.Out(0xcf9, 0x06);
  CHECK(m.resets == 3);
  m.Out(0x64, 0xd1);
  m.Out(0x60, 0x02);
  CHECK(m.resets == 4);
}

TEST_CASE("ACPI: the timer counts at 3.579545 MHz in 24 bits and interrupts when it turns over") {
  Machine m;
  m.Advance(1'000'000'000);
  CHECK(m.In(0x608, 4) == 3'579'545);
  CHECK((m.In(0x600, 2) & 1) == 0);
  m.Out(0x602, 1, 2);
  m.Out(0xb2, 0xf1);
  CHECK(m.In(0x604, 2) == 1);  // SCI_EN
  m.Advance(1'400'000'000);
  CHECK((m.In(0x600, 2) & 1) == 1);
  m.Out(0x21, 0xfb);
  m.Out(0xa1, 0xfd);
  CHECK(m.IoApicPending());  // through the 8259s and LINT0
  CHECK(m.pc->interrupts().Acknowledge() == 0x71);
  m.Out(0x600, 1, 2);
  CHECK((m.In(0x600, 2) & 1) == 0);
  m.Advance(2'300'000'000);
  CHECK((m.In(0x600, 2) & 1) == 1);
  m.Out(0xb2, 0xf0);
  CHECK(m.In(0x604, 2) == 0);
}

TEST_CASE("ACPI: soft off") {
  Machine m;
  m.Out(0x604, 0x1c01, 2);
  m.Out(0x604, 0x3c01, 2);  // S7 does not exist
  CHECK(m.power_offs == 0);
  m.Out(0x604, 0x2001, 2);
  CHECK(m.power_offs == 1);
  m.Out(0x605, 0x20);  // by bytes as well
  CHECK(m.power_offs == 2);
}

TEST_CASE("PCI: three functions, and nothing else") {
  Machine m;
  CHECK(m.Config(0x0000) == 0x12378086);
  CHECK(m.Config(0x002c) == 0x11001af4);
  CHECK(m.Config(0x0800) == 0x70008086);
  CHECK(m.Config(0x080e, 1) == 0x80);
  CHECK(m.Config(0x0b00) == 0x71138086);
  CHECK(m.Config(0x0900) == 0xffffffff);
  CHECK(m.Config(0x10000) == 0xffffffff);
  m.SetConfig(0x0000, 0);
  CHECK(m.Config(0x0000) == 0x12378086);
  m.SetConfig(0x0860, 0x0b0a0b0a);
  CHECK(m.Config(0x0860) == 0x0b0a0b0a);
  m.Out(0xcf8, 0, 4);
  CHECK(m.In(0xcfc, 4) == 0xffffffff);
  CHECK(m.In(0xcf8, 4) == 0);
}

TEST_CASE("PCI: PAM registers tell of changes, the power management moves") {
  Machine m;
  m.SetConfig(0x59, 0x30, 1);
  m.SetConfig(0x59, 0x30, 1);
  m.SetConfig(0x5a, 0xff, 1);
  REQUIRE(m.pams.size() == 2);
  CHECK(m.pams[1][0] == 0x30);
  CHECK(m.pams[1][1] == 0x33);
  m.Advance(1'000'000'000);
  CHECK(m.In(0x608, 4) == 3'579'545);
  m.SetConfig(0xb40, 0xb001);
  CHECK(m.In(0xb008, 4) == 3'579'545);
  CHECK(m.In(0x608, 4) == 0xffffffff);
  m.SetConfig(0xb40, 0x2001);  // the test device is there
  CHECK(m.In(0xb008, 4) == 3'579'545);
}

TEST_CASE("PCI: the SMBus moves, is switched off, and comes back by reset") {
  Machine m;
  constexpr u32 kCommand = 3, kMark = 0x5a;  // a register that keeps what it is given
  const auto mark = [&](u16 base) { m.Out(static_cast<u16>(base + kCommand), kMark); };
  const auto found = [&](u16 base) { return m.In(static_cast<u16>(base + kCommand)); };
  CHECK(m.Config(0xb90) == 0x701);  // what Linux reads: a base, not 0
  CHECK((m.Config(0xbd0) >> 16 & 0x0f) == 0x09);
  mark(0x700);
  CHECK(found(0x700) == kMark);
  m.SetConfig(0xb90, 0xb101);
  CHECK(found(0xb100) == kMark);
  CHECK(found(0x700) == 0xff);
  m.SetConfig(0xb90, 0x2001);  // the test device is there
  CHECK(found(0xb100) == 0xff);
  m.SetConfig(0xb90, 0xb101);
  m.SetConfig(0xbd2, 0x08, 1);
  CHECK(found(0xb100) == 0xff);
  m.SetConfig(0xbd2, 0x09, 1);
  m.SetConfig(0xb04, 0, 2);  // no I/O at all
  CHECK(found(0xb100) == 0xff);
  m.SetConfig(0xb04, 1, 2);
  CHECK(found(0xb100) == kMark);
  m.pc->Reset();
  CHECK(m.Config(0xb90) == 0x701);
  CHECK(found(0x700) == 0);
}

TEST_CASE("fw_cfg: items byte by byte, files by name") {
  Machine m;
  m.pc->fw_cfg().AddFile("etc/two", {0xaa, 0xbb});
  const auto read = [&m](u16 item, unsigned size) {
    m.Out(0x510, item, 2);
    u64 value = 0;
    for (unsigned i = 0; i < size; ++i) value |= u64{m.In(0x511)} << (8 * i);
    return value;
  };
  CHECK(read(0, 4) == 0x554d4551);  // "QEMU"
  CHECK(read(1, 4) == 1);
  CHECK(read(5, 2) == 1);
  CHECK(read(3, 8) == (u64{64} << 20) + (u64{1} << 30));
  CHECK(read(0x1234, 4) == 0);
  CHECK(read(0x20, 5) == 0);  // "etc/boot-fail-wait", the board's own
  CHECK(read(0x21, 3) == 0xbbaa);
  CHECK(read(0x19, 4) == 0x02000000);
  std::string name;
  m.Out(0x510, 0x19, 2);
  for (unsigned i = 0; i < 4 + 64 + 8; ++i) m.In(0x511);
  for (u32 c = m.In(0x511); c != 0; c = m.In(0x511)) name.push_back(static_cast<char>(c));
  CHECK(name == "etc/two");
}

TEST_CASE("pvpanic understands a panic, and nothing else") {
  int panics = 0;
  Pvpanic device([&panics] { ++panics; });
  CHECK(device.Read(0, 1) == 1);
  device.Write(0, 1, 2);
  device.Write(0, 1, 0);
  CHECK(panics == 0);
  device.Write(0, 1, 1);
  CHECK(panics == 1);
  Machine m;
  CHECK(m.In(0x505) == 1);
}

// 1 MB from 1 MB.
class SomeRam final : public Dma {
 public:
  static constexpr u64 kBase = 1 << 20, kBytes = 1 << 20;
  bool Read(PhysAddr address, void* out, u64 size) override {
    if (!Has(address, size)) return false;
    std::memcpy(out, &bytes[address.value - kBase], size);
    return true;
  }
  bool Write(PhysAddr address, const void* data, u64 size) override {
    if (!Has(address, size)) return false;
    std::memcpy(&bytes[address.value - kBase], data, size);
    return true;
  }
  std::vector<u8> bytes = std::vector<u8>(kBytes, 0xcc);

 private:
  static bool Has(PhysAddr address, u64 size) {
    return address.value >= kBase && size <= kBytes && address.value - kBase <= kBytes - size;
  }
};

TEST_CASE("fw_cfg: DMA reads items to memory, and only there") {
  Machine m;
  SomeRam ram;
  CHECK(m.In(0x514, 4) == 0);  // there is none yet
  m.pc->fw_cfg().ConnectDma(ram);
  m.pc->fw_cfg().Add(0x1234, {1, 2, 3, 4, 5});
  CHECK(m.In(0x514, 4) == 0x554d4551);  // "QEMU"
  CHECK(m.In(0x518, 4) == 0x47464320);  // " CFG"
  constexpr u64 kDescriptor = SomeRam::kBase + 0x100, kTarget = SomeRam::kBase + 0x1000;
  // Returns the control word that the device leaves.
  const auto transfer = [&](u32 control, u32 length, u64 address) {
    const u32 words[] = {__builtin_bswap32(control), __builtin_bswap32(length),
                         __builtin_bswap32(static_cast<u32>(address >> 32)),
                         __builtin_bswap32(static_cast<u32>(address))};
    ram.Write(PhysAddr(kDescriptor), words, sizeof(words));
    m.Out(0x514, 0, 4);
    m.Out(0x518, __builtin_bswap32(static_cast<u32>(kDescriptor)), 4);
    u32 left = 0;
    ram.Read(PhysAddr(kDescriptor), &left, sizeof(left));
    return __builtin_bswap32(left);
  };
  const auto at = [&](u64 offset) { return ram.bytes[kTarget - SomeRam::kBase + offset]; };
  constexpr u32 kSelect = 0x12340008;
  CHECK(transfer(kSelect | 2, 3, kTarget) == 0);
  CHECK(at(0) == 1);
  CHECK(at(2) == 3);
  CHECK(at(3) == 0xcc);
  CHECK(transfer(2, 4, kTarget) == 0);  // the rest, and zeros behind it
  CHECK(at(0) == 4);
  CHECK(at(1) == 5);
  CHECK(at(2) == 0);
  CHECK(at(3) == 0);
  CHECK(at(4) == 0xcc);
  CHECK(transfer(kSelect | 4, 2, 0) == 0);  // skip
  CHECK(transfer(2, 1, kTarget) == 0);
  CHECK(at(0) == 3);
  CHECK(transfer(kSelect | 16, 1, kTarget) == 1);  // items are read-only
  CHECK(transfer(kSelect | 2, 5, 0) == 1);
  CHECK(transfer(kSelect | 2, ~u32{0}, kTarget) == 1);
  CHECK(transfer(kSelect | 2, 5, ~u64{0} - 2) == 1);
  CHECK(transfer(kSelect | 2, 0, ~u64{0}) == 0);
  CHECK(transfer(kSelect | 4, ~u32{0}, 0) == 0);
  CHECK(transfer(2, 2, kTarget) == 0);  // far behind its end
  CHECK(at(0) == 0);
  // A descriptor that is nowhere, and half a one.
  m.Out(0x514, 0xffffffff, 4);
  m.Out(0x518, 0xffffffff, 4);
  m.Out(0x518, __builtin_bswap32(SomeRam::kBase + SomeRam::kBytes - 8), 4);
}

TEST_CASE("The test device drives lines and holds bytes") {
  Machine m;
  // I/O APIC input 14 to vector 0x55, edge.
  m.pc->mmio().Write(PhysAddr(0xfec00000), 4, 0x10 + 28);
  m.pc->mmio().Write(PhysAddr(0xfec00010), 4, 0x55);
  m.Out(0x200e, 1);
  m.Out(0x200e, 0);
  CHECK(m.IoApicPending());
  CHECK(m.pc->interrupts().Acknowledge() == 0x55);
  m.Out(0xe0, 0x12345678, 4);
  CHECK(m.In(0xe0, 4) == 0x12345678);
  CHECK(m.In(0xe1) == 0x56);
  m.pc->mmio().Write(PhysAddr(0xff000100), 8, 0x1122334455667788);
  CHECK(m.pc->mmio().Read(PhysAddr(0xff000104), 4) == 0x11223344);
}

TEST_CASE("Printer and debug ports print") {
  Machine m;
  m.Out(0x378, 'x');
  m.Out(0x37a, 0x0d);
  m.Out(0x37a, 0x0c);
  m.Out(0xe9, 'y');
  m.Out(0x402, 'z');
  CHECK(m.text == "xyz");
  CHECK((m.In(0x379) & 0x80) != 0);
  CHECK(m.In(0x402) == 0xe9);
}

TEST_CASE("Reset: as after power-up, but for memory, time and what waits") {
  Machine m(false);
  // Something is changed everywhere.
  m.SetConfig(0x59, 0x30, 1);       // PAM: RAM in the ROM's place
  m.SetConfig(0x860, 0x0b0b0a0a);   // PIRQ routes
  m.SetConfig(0xb40, 0x0000b001);   // power management elsewhere
  m.SetConfig(0x1010, 0xe0000000);  // the VGA's memory
  m.SetConfig(0x1004, 2, 2);
  CHECK(m.pc->mmio().Claims(PhysAddr(0xe0000000), 4));
  m.Out(0x20, 0x11);
  m.Out(0x21, 0x30);
  m.Out(0x21, 4);
  m.Out(0x21, 1);
  m.Out(0x21, 0x54);
  m.Out(0x43, 0x36);
  m.Out(0x40, 0x10);
  m.Out(0x40, 0x00);
  m.Out(0x3f9, 0x0f);
  m.Out(0x70, 0x0b);
  m.Out(0x71, 0x42);
  m.Out(0x70, 0x40);
  m.Out(0x71, 0x99);
  m.Out(0x3c2, 0x67);
  m.Out(0x92, 0);
  m.pc->mmio().Write(PhysAddr(0xfee00080), 4, 0x50);
  m.pc->mmio().Write(PhysAddr(0xfec00000), 4, 0x10);
  m.pc->mmio().Write(PhysAddr(0xfec00010), 4, 0x33);
  m.pc->SetApicBase(0xfed00000 | 1u << 11 | 1u << 8);
  m.pc->SerialInput("typed");
  m.Advance(2'000'000);
  REQUIRE(m.pc->pics().InterruptPending(0));

  for (int again = 0; again < 2; ++again) {
    m.pc->Reset();
    CHECK_FALSE(m.pc->pics().InterruptPending(0));
    CHECK(m.pams.back() == PciHost::Pam{});
    CHECK(m.Config(0x860) == 0x80808080);
    CHECK_FALSE(m.pc->mmio().Claims(PhysAddr(0xe0000000), 4));
    CHECK(m.Config(0x1010) == 0);
    CHECK(m.In(0x608, 4) != 0xffffffff);
    CHECK(m.In(0xb008, 4) == 0xffffffff);
    CHECK(m.In(0x21) == 0);
    CHECK(m.In(0x3f9) == 0);
    CHECK((m.In(0x92) & 2) != 0);
    m.Out(0x70, 0x0b);
    CHECK(m.In(0x71) == 0x02);
    m.Out(0x70, 0x40);
    CHECK(m.In(0x71) == 0x99);
    CHECK(m.pc->mmio().Read(PhysAddr(0xfee00080), 4) == 0);
    m.pc->mmio().Write(PhysAddr(0xfec00000), 4, 0x10);
    CHECK(m.pc->mmio().Read(PhysAddr(0xfec00010), 4) == 0x10000);
    CHECK(m.pc->vga().Capture().columns == 0);
    // No timer of the former life fires.
    m.Advance(1'000'000'000);
    CHECK_FALSE(m.pc->pics().InterruptPending(0));
  }
  CHECK(m.pc->serial().backlog() + 1 >= 4);

  // Without firmware the board is as firmware leaves it.
  Machine set_up;
  set_up.Out(0x21, 0xff);
  set_up.pc->Reset();
  CHECK(set_up.In(0x21) == 0xb8);
  CHECK(set_up.pc->vga().Capture().columns == 80);
}

}  // namespace
}  // namespace alibi::devices
