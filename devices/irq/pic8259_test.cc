// SPDX-License-Identifier: Apache-2.0
#include "devices/irq/pic8259.h"

#include <catch2/catch.hpp>
#include <random>

#include "devices/test_util.h"

namespace alibi::devices {
namespace {

// A pair initialized as operating systems do: vectors 0x20 and 0x28, normal EOI, all unmasked.
struct Board {
  explicit Board(u8 icw4 = 0x01) {
    for (Device* chip : {&pic.master(), &pic.slave()}) {
      const bool master = chip == &pic.master();
      chip->Write(0, 1, 0x11);
      chip->Write(1, 1, master ? 0x20 : 0x28);
      chip->Write(1, 1, master ? 0x04 : 0x02);
      chip->Write(1, 1, icw4);
      chip->Write(1, 1, 0);
    }
  }
  void Raise(unsigned irq) { pic.Line(irq).Set(true); }
  void Lower(unsigned irq) { pic.Line(irq).Set(false); }
  void Pulse(unsigned irq) {
    Lower(irq);
    Raise(irq);
  }
  void MasterCommand(u8 ocw) { pic.master().Write(0, 1, ocw); }
  void SlaveCommand(u8 ocw) { pic.slave().Write(0, 1, ocw); }
  u8 MasterIsr() {
    MasterCommand(0x0b);
    return static_cast<u8>(pic.master().Read(0, 1));
  }
  u8 MasterIrr() {
    MasterCommand(0x0a);
    return static_cast<u8>(pic.master().Read(0, 1));
  }
  u8 SlaveIsr() {
    SlaveCommand(0x0b);
    return static_cast<u8>(pic.slave().Read(0, 1));
  }

  Pic8259Pair pic;
};

constexpr u8 kEoi = 0x20;

TEST_CASE("8259: an edge is taken once and gives base + line") {
  Board board;
  CHECK_FALSE(board.pic.InterruptPending(0));
  board.Raise(3);
  CHECK(board.pic.InterruptPending(0));
  CHECK(board.MasterIrr() == 0x08);
  CHECK(board.pic.Acknowledge() == 0x23);
  CHECK(board.MasterIsr() == 0x08);
  CHECK(board.MasterIrr() == 0);
  board.MasterCommand(kEoi);
  CHECK(board.MasterIsr() == 0);
  CHECK_FALSE(board.pic.InterruptPending(0));
  board.Pulse(3);
  CHECK(board.pic.InterruptPending(0));
}

TEST_CASE("8259: fixed priority, nesting, non-specific and specific EOI") {
  Board board;
  board.Raise(4);
  CHECK(board.pic.Acknowledge() == 0x24);
  board.Raise(6);
  CHECK_FALSE(board.pic.InterruptPending(0));
  board.Raise(1);
  CHECK(board.pic.Acknowledge() == 0x21);
  CHECK(board.MasterIsr() == 0x12);
  board.MasterCommand(kEoi);
  CHECK(board.MasterIsr() == 0x10);
  board.MasterCommand(0x60 | 4);
  CHECK(board.MasterIsr() == 0);
  CHECK(board.pic.Acknowledge() == 0x26);
}

TEST_CASE("8259: the mask register holds a request back and keeps it") {
  Board board;
  board.pic.master().Write(1, 1, 0x08);
  CHECK(board.pic.master().Read(1, 1) == 0x08);
  board.Raise(3);
  CHECK_FALSE(board.pic.InterruptPending(0));
  CHECK(board.MasterIrr() == 0x08);
  board.pic.master().Write(1, 1, 0);
  CHECK(board.pic.Acknowledge() == 0x23);
}

TEST_CASE("8259: the slave interrupts through the cascade and needs both EOIs") {
  Board board;
  board.Raise(12);
  CHECK(board.MasterIrr() == 0x04);
  CHECK(board.pic.Acknowledge() == 0x2c);
  CHECK(board.MasterIsr() == 0x04);
  CHECK(board.SlaveIsr() == 0x10);
  board.Raise(9);
  CHECK_FALSE(board.pic.InterruptPending(0));  // same level at the master
  board.SlaveCommand(kEoi);
  board.MasterCommand(kEoi);
  CHECK(board.pic.Acknowledge() == 0x29);
}

TEST_CASE("8259: special fully nested mode lets a higher slave level nest") {
  Board board(0x11);
  board.Raise(12);
  CHECK(board.pic.Acknowledge() == 0x2c);
  board.Raise(15);
  CHECK_FALSE(board.pic.InterruptPending(0));
  board.Raise(9);
  CHECK(board.pic.Acknowledge() == 0x29);
  CHECK(board.SlaveIsr() == 0x12);
}

TEST_CASE("8259: an edge withdrawn before the acknowledge is spurious IRQ 7 without ISR bit") {
  Board board;
  board.Raise(5);
  board.Lower(5);
  CHECK_FALSE(board.pic.InterruptPending(0));
  CHECK(board.pic.Acknowledge() == 0x27);
  CHECK(board.MasterIsr() == 0);
}

TEST_CASE("8259: spurious IRQ 15 leaves the cascade in service at the master") {
  // In one chip the withdrawal would travel to the master at once; the race is between the two INTA
  // pulses, so the slave's input is masked behind the master's back.
  Board board;
  board.Raise(10);
  // The master has seen the edge; a level-triggered cascade would forget it.
  board.pic.master_chip().SetLine(2, true);
  board.pic.slave_chip().SetLine(2, false);
  board.pic.master_chip().SetLine(2, true);
  CHECK(board.pic.Acknowledge() == 0x2f);
  CHECK(board.MasterIsr() == 0x04);
  CHECK(board.SlaveIsr() == 0);
}

TEST_CASE("8259: a line that stays high gives one interrupt in edge mode, many in level mode") {
  Board board;
  board.Raise(5);
  CHECK(board.pic.Acknowledge() == 0x25);
  board.MasterCommand(kEoi);
  CHECK_FALSE(board.pic.InterruptPending(0));

  board.pic.elcr_ports().Write(0, 1, 0x20);
  CHECK(board.pic.InterruptPending(0));
  CHECK(board.pic.Acknowledge() == 0x25);
  CHECK_FALSE(board.pic.InterruptPending(0));
  board.MasterCommand(kEoi);
  CHECK(board.pic.InterruptPending(0));
  board.Lower(5);
  CHECK_FALSE(board.pic.InterruptPending(0));
}

TEST_CASE("8259: ELCR cannot make the board's own lines level-triggered") {
  Board board;
  board.pic.elcr_ports().Write(0, 1, 0xff);
  board.pic.elcr_ports().Write(1, 1, 0xff);
  CHECK(board.pic.elcr_ports().Read(0, 1) == 0xf8);
  CHECK(board.pic.elcr_ports().Read(1, 1) == 0xde);
}

TEST_CASE("8259: automatic EOI leaves no ISR bit") {
  Board board(0x03);
  board.Raise(4);
  CHECK(board.pic.Acknowledge() == 0x24);
  CHECK(board.MasterIsr() == 0);
  board.Raise(6);
  CHECK(board.pic.Acknowledge() == 0x26);
}

TEST_CASE("8259: rotation on non-specific, specific and automatic EOI, and set priority") {
  Board board;
  SECTION("rotate on non-specific EOI") {
    board.Raise(3);
    CHECK(board.pic.Acknowledge() == 0x23);
    board.MasterCommand(0xa0);
    board.Pulse(3);
    board.Raise(6);
    CHECK(board.pic.Acknowledge() == 0x26);
  }
  SECTION("rotate on specific EOI") {
    board.Raise(3);
    CHECK(board.pic.Acknowledge() == 0x23);
    board.MasterCommand(0xe0 | 3);
    board.Raise(0);
    board.Raise(4);
    CHECK(board.pic.Acknowledge() == 0x24);
  }
  SECTION("set priority") {
    board.MasterCommand(0xc0 | 5);
    board.Raise(5);
    board.Raise(6);
    board.Raise(1);
    CHECK(board.pic.Acknowledge() == 0x26);
    board.MasterCommand(kEoi);
    CHECK(board.pic.Acknowledge() == 0x21);
    board.MasterCommand(kEoi);
    CHECK(board.pic.Acknowledge() == 0x25);
  }
  SECTION("no operation") {
    board.MasterCommand(0x40 | 5);
    board.Raise(5);
    board.Raise(6);
    CHECK(board.pic.Acknowledge() == 0x25);
  }
}

TEST_CASE("8259: rotate in automatic EOI mode") {
  Board board(0x03);
  board.MasterCommand(0x80);
  board.Raise(3);
  CHECK(board.pic.Acknowledge() == 0x23);
  board.Pulse(3);
  board.Raise(4);
  CHECK(board.pic.Acknowledge() == 0x24);
  board.MasterCommand(0x00);
  CHECK(board.pic.Acknowledge() == 0x23);
  board.Pulse(4);
  board.Pulse(3);
  CHECK(board.pic.Acknowledge() == 0x23);
}

TEST_CASE("8259: special mask mode lets lower levels through and protects the masked ISR bit") {
  Board board;
  board.Raise(3);
  CHECK(board.pic.Acknowledge() == 0x23);
  board.Raise(6);
  board.pic.master().Write(1, 1, 0x08);
  CHECK_FALSE(board.pic.InterruptPending(0));
  board.MasterCommand(0x68);
  CHECK(board.pic.Acknowledge() == 0x26);
  board.MasterCommand(kEoi);
  CHECK(board.MasterIsr() == 0x08);
  board.MasterCommand(kEoi);  // non-specific: must not touch the masked level
  CHECK(board.MasterIsr() == 0x08);
  board.MasterCommand(0x63);
  CHECK(board.MasterIsr() == 0);
  board.MasterCommand(0x48);
}

TEST_CASE("8259: a poll acknowledges, and only the next read is its answer") {
  Board board;
  board.MasterCommand(0x0c);
  CHECK(board.pic.master().Read(0, 1) == 0);
  board.Raise(5);
  board.MasterCommand(0x0c);
  CHECK(board.pic.master().Read(0, 1) == 0x85);
  CHECK(board.MasterIsr() == 0x20);
  CHECK(board.MasterIrr() == 0);
  CHECK_FALSE(board.pic.InterruptPending(0));
}

TEST_CASE("8259: ICW1 clears mask, service and edges; ICW2 drops the low bits") {
  Board board;
  board.pic.master().Write(1, 1, 0xff);
  board.Raise(4);
  board.pic.master().Write(0, 1, 0x11);
  board.pic.master().Write(1, 1, 0x47);
  board.pic.master().Write(1, 1, 0x04);
  board.pic.master().Write(1, 1, 0x01);
  CHECK(board.pic.master().Read(1, 1) == 0);
  CHECK_FALSE(board.pic.InterruptPending(0));
  board.Pulse(4);
  CHECK(board.pic.Acknowledge() == 0x44);
}

TEST_CASE("8259: a single chip skips ICW3, and without IC4 there is no ICW4") {
  Board board(0x03);
  board.pic.master().Write(0, 1, 0x12);
  board.pic.master().Write(1, 1, 0x60);
  board.pic.master().Write(1, 1, 0xfe);  // the mask already
  CHECK(board.pic.master().Read(1, 1) == 0xfe);
  board.Raise(0);
  CHECK(board.pic.Acknowledge() == 0x60);
  CHECK(board.MasterIsr() == 0x01);  // automatic EOI went off with ICW4
}

TEST_CASE("8259: ICW1 with LTIM makes every input level-triggered") {
  Board board;
  board.pic.master().Write(0, 1, 0x19);
  board.pic.master().Write(1, 1, 0x20);
  board.pic.master().Write(1, 1, 0x04);
  board.Raise(1);
  CHECK_FALSE(board.pic.InterruptPending(0));  // not initialized to the end
  board.pic.master().Write(1, 1, 0x01);
  CHECK(board.pic.Acknowledge() == 0x21);
  board.MasterCommand(kEoi);
  CHECK(board.pic.InterruptPending(0));
}

TEST_CASE("8259: output changes are reported, and INT drops for each acknowledge") {
  Board board;
  RecordingLine intr;
  board.pic.OnOutput([&](bool level) { intr.Set(level); });
  board.Raise(7);
  CHECK(intr.level());
  board.Raise(2 + 3);
  CHECK(intr.rises() == 1);
  CHECK(board.pic.Acknowledge() == 0x25);
  CHECK_FALSE(intr.level());
  board.Raise(0);
  CHECK(intr.rises() == 2);
}

TEST_CASE("8259: what is done beside translated code is what a write would do") {
  unsigned poked = 0;
  for (u64 seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    Board quick, slow;
    for (unsigned i = 0; i < 3000; ++i) {
      const u64 what = random();
      const unsigned irq = what >> 8 & 15;
      if (what % 3 == 0) {
        for (Board* board : {&quick, &slow}) board->pic.Line(irq).Set(what & 0x1000);
      } else if (what % 3 == 1) {
        if (quick.pic.InterruptPending(0)) {
          REQUIRE(quick.pic.Acknowledge() == slow.pic.Acknowledge());
        }
      } else {
        const u64 offset = what >> 4 & 1;
        // Initializing is rare: else a chip would do little more.
        u8 byte = static_cast<u8>(what >> 16);
        if (offset == 0 && (what & 0x3f00'0000) != 0) byte &= 0xef;
        const auto write = [&](Board& board, bool quietly) {
          Pic8259& chip = what >> 5 & 1 ? board.pic.master_chip() : board.pic.slave_chip();
          const bool before = chip.output();
          if (quietly && chip.Poke(offset, 1, byte)) {
            ++poked;
            REQUIRE(chip.output() == before);
          } else {
            chip.Write(offset, 1, byte);
          }
        };
        write(quick, true);
        write(slow, false);
      }
      for (auto chip : {&Pic8259Pair::master_chip, &Pic8259Pair::slave_chip}) {
        Pic8259 &a = (quick.pic.*chip)(), &b = (slow.pic.*chip)();
        REQUIRE(a.output() == b.output());
        REQUIRE(a.irr() == b.irr());
        REQUIRE(a.isr() == b.isr());
        REQUIRE(a.imr() == b.imr());
        u64 peeked = 0, other = 0;
        REQUIRE(a.Peek(0, 1, &peeked) == b.Peek(0, 1, &other));
        REQUIRE(peeked == other);
      }
    }
  }
  CHECK(poked > 1000);
}

TEST_CASE("8259: random register traffic keeps the invariants") {
  for (u64 seed = 0; seed < 20; ++seed) {
    Board board;
    for (Device* device : {&board.pic.master(), &board.pic.slave(), &board.pic.elcr_ports()}) {
      Hammer(*device, 2, seed, 3000, [&](std::mt19937_64& random) {
        const u64 what = random();
        board.pic.Line(what >> 8 & 15).Set(what & 1);
        if (board.pic.InterruptPending(0) && (what & 2)) {
          const Pic8259& chip = board.pic.master_chip();
          REQUIRE((chip.irr() & ~chip.imr()) != 0);
          static_cast<void>(board.pic.Acknowledge());
        }
        if ((what & 0x7000) == 0) static_cast<void>(board.pic.Acknowledge());
      });
    }
  }
}

}  // namespace
}  // namespace alibi::devices
