// SPDX-License-Identifier: Apache-2.0
#include "devices/console/uart16550.h"

#include <catch2/catch.hpp>
#include <string>

#include "devices/test_util.h"

namespace alibi::devices {
namespace {

struct Board {
  u8 In(u64 offset) { return static_cast<u8>(uart.Read(offset, 1)); }
  void Out(u64 offset, u8 value) { uart.Write(offset, 1, value); }

  ManualClock clock;
  TimerQueue timers;
  RecordingLine irq;
  std::string output;
  Uart16550 uart{clock, timers, irq,
                 [this](u8 byte) { output.push_back(static_cast<char>(byte)); }};
};

constexpr u64 kRbr = 0, kThr = 0, kIer = 1, kIir = 2, kFcr = 2, kLcr = 3, kMcr = 4, kLsr = 5,
              kMsr = 6, kScr = 7;

TEST_CASE("16550: a byte written goes out, and the transmitter is always empty") {
  Board board;
  for (char c : std::string("Alibi")) board.Out(kThr, static_cast<u8>(c));
  CHECK(board.output == "Alibi");
  CHECK(board.In(kLsr) == 0x60);
}

TEST_CASE("16550: scratch, line control and divisor are plain registers") {
  Board board;
  board.Out(kScr, 0xa5);
  CHECK(board.In(kScr) == 0xa5);
  board.Out(kLcr, 0x83);
  board.Out(0, 0x34);
  board.Out(1, 0x12);
  CHECK(board.In(0) == 0x34);
  CHECK(board.In(1) == 0x12);
  CHECK(board.output.empty());
  board.Out(kLcr, 0x03);
  CHECK(board.In(kLcr) == 0x03);
  CHECK(board.In(kIer) == 0);
  board.Out(kIer, 0xff);
  CHECK(board.In(kIer) == 0x0f);
  board.Out(kMcr, 0xff);
  CHECK(board.In(kMcr) == 0x1f);
}

TEST_CASE("16550: FIFO detection as drivers do it") {
  Board board;
  CHECK((board.In(kIir) & 0xc0) == 0);
  board.Out(kFcr, 0x01);
  CHECK((board.In(kIir) & 0xc0) == 0xc0);
  board.Out(kFcr, 0xc0);  // without bit 0: FIFOs off
  CHECK((board.In(kIir) & 0xc0) == 0);
}

TEST_CASE("16550: received data interrupts, reading takes the request back") {
  Board board;
  board.Out(kMcr, 0x08);
  board.Out(kIer, 0x01);
  CHECK(board.In(kIir) == 0x01);
  board.uart.Receive('x');
  CHECK(board.irq.level());
  CHECK(board.In(kIir) == 0x04);
  CHECK((board.In(kLsr) & 1) == 1);
  CHECK(board.In(kRbr) == 'x');
  CHECK_FALSE(board.irq.level());
  CHECK(board.In(kIir) == 0x01);
}

TEST_CASE("16550: OUT2 gates the interrupt") {
  Board board;
  board.Out(kIer, 0x01);
  board.uart.Receive('x');
  CHECK_FALSE(board.irq.level());
  board.Out(kMcr, 0x08);
  CHECK(board.irq.level());
}

TEST_CASE("16550: trigger levels 1, 4, 8, 14") {
  const unsigned levels[] = {1, 4, 8, 14};
  for (unsigned i = 0; i < 4; ++i) {
    Board board;
    board.Out(kMcr, 0x08);
    board.Out(kFcr, static_cast<u8>(0x01 | i << 6));
    board.Out(kIer, 0x01);
    for (unsigned n = 1; n <= 16; ++n) {
      board.uart.Receive('a');
      CHECK(board.irq.level() == (n >= levels[i]));
    }
    while (board.In(kLsr) & 1) static_cast<void>(board.In(kRbr));
    CHECK_FALSE(board.irq.level());
  }
}

TEST_CASE("16550: the timeout comes after four character times and goes with the next read") {
  Board board;
  board.Out(kLcr, 0x83);
  board.Out(0, 1);  // 115200 8N1: 86.8 us per character
  board.Out(kLcr, 0x03);
  board.Out(kMcr, 0x08);
  board.Out(kFcr, 0xc1);
  board.Out(kIer, 0x01);
  board.uart.Receive('a');
  board.uart.Receive('b');
  RunFor(board.clock, board.timers, 340'000);
  CHECK_FALSE(board.irq.level());
  RunFor(board.clock, board.timers, 10'000);
  CHECK(board.irq.level());
  CHECK((board.In(kIir) & 0x0f) == 0x0c);
  CHECK(board.In(kRbr) == 'a');
  CHECK_FALSE(board.irq.level());
  RunFor(board.clock, board.timers, 350'000);
  CHECK(board.irq.level());
  CHECK(board.In(kRbr) == 'b');
  RunFor(board.clock, board.timers, 1'000'000);
  CHECK_FALSE(board.irq.level());
}

TEST_CASE("16550: overrun with and without FIFOs, line status interrupt has priority") {
  Board board;
  board.Out(kMcr, 0x08);
  board.Out(kIer, 0x05);
  SECTION("without FIFOs the newer byte wins") {
    board.uart.Receive('a');
    board.uart.Receive('b');
    CHECK(board.In(kIir) == 0x06);
    CHECK((board.In(kLsr) & 0x03) == 0x03);
    CHECK(board.In(kIir) == 0x04);
    CHECK(board.In(kRbr) == 'b');
  }
  SECTION("with FIFOs the older bytes win") {
    board.Out(kFcr, 0x01);
    for (int i = 0; i < 17; ++i) board.uart.Receive(static_cast<u8>('a' + i));
    CHECK((board.In(kLsr) & 0x02) == 0x02);
    CHECK((board.In(kLsr) & 0x02) == 0);
    for (int i = 0; i < 16; ++i) CHECK(board.In(kRbr) == 'a' + i);
    CHECK((board.In(kLsr) & 0x01) == 0);
  }
}

TEST_CASE("16550: a patient sender loses nothing") {
  Board board;
  std::string text;
  for (int i = 0; i < 1000; ++i) text.push_back(static_cast<char>(i));
  board.Out(kFcr, 0x01);
  board.uart.Receive(std::string_view(text));
  CHECK(board.uart.backlog() == 1000 - 16);
  std::string got;
  while (board.In(kLsr) & 1) got.push_back(static_cast<char>(board.In(kRbr)));
  CHECK(got == text);
  CHECK((board.In(kLsr) & 0x02) == 0);
}

TEST_CASE("16550: THRE interrupts on enable and after each byte, IIR read clears it") {
  Board board;
  board.Out(kMcr, 0x08);
  board.Out(kIer, 0x02);
  CHECK(board.irq.level());
  CHECK(board.In(kIir) == 0x02);
  CHECK_FALSE(board.irq.level());
  CHECK(board.In(kIir) == 0x01);
  board.Out(kThr, 'x');
  CHECK(board.irq.level());
  const int rises = board.irq.rises();
  board.Out(kThr, 'y');  // without reading IIR: a new edge all the same
  CHECK(board.irq.rises() == rises + 1);
  board.Out(kIer, 0x00);
  CHECK_FALSE(board.irq.level());
  board.Out(kIer, 0x02);
  CHECK(board.irq.level());
}

TEST_CASE("16550: received data outranks THRE, which is then not cleared by reading IIR") {
  Board board;
  board.Out(kMcr, 0x08);
  board.Out(kIer, 0x03);
  board.uart.Receive('x');
  CHECK(board.In(kIir) == 0x04);
  static_cast<void>(board.In(kRbr));
  CHECK(board.In(kIir) == 0x02);
  CHECK(board.In(kIir) == 0x01);
}

TEST_CASE("16550: modem status: a terminal is there; loopback reflects the outputs") {
  Board board;
  CHECK(board.In(kMsr) == 0xb0);
  board.Out(kMcr, 0x1a);  // loopback, RTS, OUT2: the classic presence test
  CHECK((board.In(kMsr) & 0xf0) == 0x90);
  board.Out(kMcr, 0x10);
  CHECK((board.In(kMsr) & 0xf0) == 0);
  CHECK((board.In(kMsr) & 0x0f) == 0);
  board.Out(kMcr, 0x14);
  CHECK(board.In(kMsr) == 0x40);
  board.Out(kMcr, 0x10);
  CHECK(board.In(kMsr) == 0x04);  // the ring's trailing edge
  board.Out(kIer, 0x08);
  board.Out(kMcr, 0x1f);
  CHECK(board.irq.level());
  CHECK(board.In(kIir) == 0x00);
  CHECK(board.In(kMsr) == 0xfb);
  CHECK_FALSE(board.irq.level());
}

TEST_CASE("16550: loopback returns what is sent and disconnects the wire") {
  Board board;
  board.Out(kMcr, 0x1e);
  board.Out(kThr, 0xae);
  CHECK(board.output.empty());
  CHECK(board.In(kRbr) == 0xae);
  board.uart.Receive('x');
  CHECK((board.In(kLsr) & 1) == 0);
  board.uart.Receive(std::string_view("waiting"));
  CHECK((board.In(kLsr) & 1) == 0);
  board.Out(kMcr, 0x0b);
  CHECK(board.In(kRbr) == 'w');
}

TEST_CASE("16550: FCR clears the receive FIFO, also when FIFOs are switched") {
  Board board;
  board.Out(kFcr, 0x01);
  board.uart.Receive('a');
  board.Out(kFcr, 0x03);
  CHECK((board.In(kLsr) & 1) == 0);
  board.uart.Receive('a');
  board.Out(kFcr, 0x00);
  CHECK((board.In(kLsr) & 1) == 0);
}

TEST_CASE("16550: a break shows with its character") {
  Board board;
  board.Out(kFcr, 0x01);
  board.uart.Receive('a');
  board.uart.ReceiveBreak();
  CHECK((board.In(kLsr) & 0x90) == 0x80);
  CHECK(board.In(kRbr) == 'a');
  CHECK((board.In(kLsr) & 0x90) == 0x90);
  CHECK((board.In(kLsr) & 0x90) == 0);
  CHECK(board.In(kRbr) == 0);
}

TEST_CASE("16550: random register traffic never breaks it") {
  for (u64 seed = 0; seed < 20; ++seed) {
    Board board;
    Hammer(board.uart, 8, seed, 5000, [&](std::mt19937_64& random) {
      const u64 what = random();
      if (what & 1) board.uart.Receive(static_cast<u8>(what >> 8));
      if ((what & 0x1e) == 0) board.uart.Receive(std::string_view("some text that is longer"));
      if ((what & 0xe0) == 0) board.uart.ReceiveBreak();
      board.clock.Advance(what >> 40 & 0xffff);
      board.timers.RunExpired(board.clock.NowNs());
    });
  }
}

TEST_CASE("16550: whoever sends patiently is told when nothing waits any more") {
  Board board;
  int drained = 0;
  board.uart.OnDrained([&] {
    // What is sent from here goes behind.
    if (++drained == 1) board.uart.Receive(std::string(20, 'b'));
  });
  board.Out(kFcr, 0x01);
  board.uart.Receive(std::string(20, 'a'));
  CHECK(drained == 0);
  std::string read;
  while (board.In(kLsr) & 1) read.push_back(static_cast<char>(board.In(kRbr)));
  CHECK(read == std::string(20, 'a') + std::string(20, 'b'));
  CHECK(drained == 2);
}

}  // namespace
}  // namespace alibi::devices
