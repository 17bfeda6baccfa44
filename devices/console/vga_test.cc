// SPDX-License-Identifier: Apache-2.0
#include "devices/console/vga.h"

#include <catch2/catch.hpp>
#include <random>

#include "devices/console/vga_pci.h"

namespace alibi::devices {
namespace {

struct Machine {
  ManualClock clock;
  int changes = 0;
  Vga vga{clock, [this] { ++changes; }};

  void Out(u16 port, u8 value) { vga.ports().Write(port - Vga::kFirstPort, 1, value); }
  u8 In(u16 port) { return static_cast<u8>(vga.ports().Read(port - Vga::kFirstPort, 1)); }
  void Set(u16 port, u8 index, u8 value) {
    Out(port, index);
    Out(static_cast<u16>(port + 1), value);
  }
  void Poke(u32 address, u64 value, unsigned size) {
    vga.window().Write(address - 0xa0000, size, value);
  }
  u64 Peek(u32 address, unsigned size) { return vga.window().Read(address - 0xa0000, size); }
};

TEST_CASE("VGA: nothing shows before a mode is set") {
  Machine m;
  CHECK(m.vga.Capture().columns == 0);
  m.vga.SetTextMode();
  const TextScreen screen = m.vga.Capture();
  CHECK(screen.columns == 80);
  CHECK(screen.rows == 25);
  CHECK(screen.cells[0] == TextScreen::Cell{});
  CHECK(screen.cursor == 0);
  CHECK(screen.colours[7] == TextScreen::Rgb{0xaa, 0xaa, 0xaa});
  CHECK(screen.colours[6] == TextScreen::Rgb{0xaa, 0x55, 0x00});
  CHECK(screen.colours[15] == TextScreen::Rgb{0xff, 0xff, 0xff});
}

TEST_CASE("VGA: text, attributes, cursor, start address") {
  Machine m;
  m.vga.SetTextMode();
  m.Poke(0xb8000, 0x1f42'0741, 4);
  m.Poke(0xb8000 + 2 * 81, 0x8e, 1);
  m.Poke(0xb8000 + 2 * 81 + 1, 0xf4, 1);
  m.Set(0x3d4, 0x0f, 81);
  TextScreen screen = m.vga.Capture();
  CHECK(screen.cells[0].character == 'A');
  CHECK(screen.cells[1].character == 'B');
  CHECK(screen.cells[1].foreground == 15);
  CHECK(screen.cells[1].background == 1);
  CHECK(screen.cells[81].character == 0x8e);
  CHECK(screen.cells[81].blink);
  CHECK(screen.cells[81].background == 7);
  CHECK(screen.cursor == 81);
  // Without blinking there are 16 backgrounds.
  m.In(0x3da);
  m.Out(0x3c0, 0x30);
  m.Out(0x3c0, 0x04);
  CHECK(m.vga.Capture().cells[81].background == 15);
  // Scrolled by a row, the cursor off.
  m.Set(0x3d4, 0x0d, 80);
  m.Set(0x3d4, 0x0a, 0x20);
  screen = m.vga.Capture();
  CHECK(screen.cells[1].character == 0x8e);
  CHECK(screen.cursor == TextScreen::kNoCursor);
  // The screen is off; then it is in a graphics mode.
  m.Set(0x3c4, 1, 0x20);
  CHECK(m.vga.Capture().columns == 0);
  m.Set(0x3c4, 1, 0x00);
  m.Set(0x3ce, 6, 0x05);
  CHECK(m.vga.Capture().columns == 0);
}

TEST_CASE("VGA: changes are told once, and only those that show") {
  Machine m;
  m.vga.SetTextMode();
  m.vga.Capture();
  m.changes = 0;
  m.Poke(0xb8000, 0x41, 1);
  m.Poke(0xb8002, 0x42, 1);
  CHECK(m.changes == 1);
  m.vga.Capture();
  m.Poke(0xb8000, 0x41, 1);  // as it was
  m.In(0x3da);
  m.Out(0x3d4, 0x0e);
  CHECK(m.changes == 1);
  m.Set(0x3d4, 0x0f, 3);
  CHECK(m.changes == 2);
}

TEST_CASE("VGA: wide accesses are the bytes' sum; the window can be smaller") {
  Machine m;
  m.vga.SetTextMode();
  m.Poke(0xb8010, 0x0807060504030201, 8);
  CHECK(m.Peek(0xb8010, 8) == 0x0807060504030201);
  CHECK(m.Peek(0xb8012, 2) == 0x0403);
  CHECK(m.Peek(0xa0000, 1) == 0xff);
  m.Poke(0xa0000, 0x55, 1);
  m.Set(0x3ce, 6, 0x0a);  // mono text at 0xb0000
  CHECK(m.Peek(0xb8010, 1) == 0xff);
  CHECK(m.Peek(0xb0010, 8) == 0x0807060504030201);
}

TEST_CASE("VGA: monochrome and colour addresses") {
  Machine m;
  m.vga.SetTextMode();
  m.Out(0x3d4, 0x0e);
  CHECK(m.In(0x3d4) == 0x0e);
  CHECK(m.In(0x3b4) == 0xff);
  m.Out(0x3c2, 0x66);
  CHECK(m.In(0x3cc) == 0x66);
  CHECK(m.In(0x3d4) == 0xff);
  CHECK(m.In(0x3b4) == 0x0e);
}

TEST_CASE("VGA: the status follows the beam") {
  Machine m;
  m.vga.SetTextMode();
  unsigned retrace = 0, blank = 0;
  constexpr unsigned kSamples = 10'000;
  for (unsigned i = 0; i < kSamples; ++i) {
    m.clock.Advance(1'427);  // a frame is 14.27 ms
    const u8 status = m.In(0x3da);
    retrace += (status & 8) != 0;
    blank += status & 1;
  }
  CHECK(retrace > 30);
  CHECK(retrace < 60);
  CHECK(blank > kSamples / 5);
  CHECK(blank < kSamples / 2);
}

// Whatever a guest writes: no crash, and a screen whose size fits its cells.
TEST_CASE("VGA: hostile registers") {
  std::mt19937 random(1);
  Machine m;
  m.vga.SetTextMode();
  for (unsigned i = 0; i < 200'000; ++i) {
    const u16 port = static_cast<u16>(0x3b0 + random() % Vga::kPortCount);
    m.Out(port, static_cast<u8>(random()));
    m.In(static_cast<u16>(0x3b0 + random() % Vga::kPortCount));
    const unsigned size = 1u << random() % 4;
    const u32 at = 0xa0000 + random() % (Vga::kWindowBytes - size);
    m.Poke(at, random(), size);
    m.Peek(at, size);
    m.vga.linear().Write(random() % (Vga::kMemoryBytes - size), size, random());
    if (i % 64 == 0) {
      if (i % 256 == 0) m.vga.SetTextMode();
      const TextScreen screen = m.vga.Capture();
      REQUIRE(screen.cells.size() == u64{screen.columns} * screen.rows);
      REQUIRE(screen.columns <= 256);
      REQUIRE(screen.rows <= 1024);
      REQUIRE(screen.cursor < static_cast<int>(screen.cells.size()));
    }
  }
}

TEST_CASE("VGA on the PCI bus") {
  Machine m;
  VgaFunction with_rom(m.vga, std::vector<u8>(40'000, 0x55));
  CHECK(with_rom.ConfigRead(0, 4) == 0x11111234);
  CHECK(with_rom.ConfigRead(8, 4) >> 8 == 0x030000);
  with_rom.ConfigWrite(0x30, 4, 0xfffff800);
  CHECK(with_rom.ConfigRead(0x30, 4) == 0xffff0000);
  VgaFunction without(m.vga, {});
  without.ConfigWrite(0x30, 4, 0xfffff800);
  CHECK(without.ConfigRead(0x30, 4) == 0);
  RomImage rom({1, 2, 3});
  CHECK(rom.Read(1, 4) == 0x0302);
  CHECK(rom.Read(100, 8) == 0);

  BochsDisplay bochs;
  bochs.Write(0, 2, 0);
  CHECK(bochs.Read(1, 2) == 0xb0c5);
  bochs.Write(0, 2, 10);
  CHECK(bochs.Read(1, 2) == 4);
  bochs.Write(0, 2, 0xffff);
  bochs.Write(1, 2, 0xffff);
  CHECK(bochs.Read(1, 2) == 0);
}

}  // namespace
}  // namespace alibi::devices
