// SPDX-License-Identifier: Apache-2.0
#include "devices/time/pit8254.h"

#include <catch2/catch.hpp>
#include <vector>

#include "devices/test_util.h"

namespace alibi::devices {
namespace {

struct Board {
  void AtTick(i64 tick) { clock.Set(Pit8254::NsOfTick(tick)); }
  void Control(u8 value) { pit.Write(3, 1, value); }
  void WriteCount(unsigned channel, u16 count) {
    pit.Write(channel, 1, count & 0xff);
    pit.Write(channel, 1, count >> 8);
  }
  u16 ReadCount(unsigned channel) {
    const u64 low = pit.Read(channel, 1);
    return static_cast<u16>(low | pit.Read(channel, 1) << 8);
  }
  u8 Status(unsigned channel) {
    Control(static_cast<u8>(0xe0 | 2u << channel));
    return static_cast<u8>(pit.Read(channel, 1));
  }
  bool Out(unsigned channel) { return Status(channel) & 0x80; }

  ManualClock clock;
  TimerQueue timers;
  RecordingLine irq0;
  Pit8254 pit{clock, timers, irq0};
  SystemControlPort port61{clock, pit};
};

TEST_CASE("8254: ticks and nanoseconds agree") {
  for (i64 tick : {0, 1, 2, 1000, 1193181, 1193182, 123456789}) {
    CHECK(Pit8254::TicksAt(Pit8254::NsOfTick(tick)) == tick);
  }
  CHECK(Pit8254::TicksAt(1'000'000'000) == 1193182);
}

TEST_CASE("8254 mode 0: OUT rises N+1 clocks after the write and stays; the count wraps") {
  Board board;
  board.AtTick(100);
  board.Control(0x30);
  CHECK_FALSE(board.Out(0));
  board.WriteCount(0, 10);
  CHECK((board.Status(0) & 0x40) != 0);  // null count until the next clock
  board.AtTick(101);
  CHECK((board.Status(0) & 0x40) == 0);
  CHECK(board.ReadCount(0) == 10);
  board.AtTick(110);
  CHECK_FALSE(board.Out(0));
  CHECK(board.ReadCount(0) == 1);
  board.AtTick(111);
  CHECK(board.Out(0));
  CHECK(board.ReadCount(0) == 0);
  board.AtTick(112);
  CHECK(board.ReadCount(0) == 0xffff);
  CHECK(board.Out(0));
}

TEST_CASE("8254 mode 0: the first byte of a new count stops the old one, interrupts once") {
  Board board;
  board.Control(0x30);
  board.WriteCount(0, 1000);
  CHECK(board.irq0.rises() == 0);
  RunFor(board.clock, board.timers, 500'000);
  board.pit.Write(0, 1, 0xe8);
  RunFor(board.clock, board.timers, 5'000'000);
  CHECK(board.irq0.rises() == 0);
  board.pit.Write(0, 1, 0x03);
  RunFor(board.clock, board.timers, 837'000);
  CHECK(board.irq0.rises() == 0);
  RunFor(board.clock, board.timers, 5'000'000);
  CHECK(board.irq0.rises() == 1);
  CHECK(board.irq0.level());
}

TEST_CASE("8254 mode 1: one-shot on the gate, retriggerable, ignores writes until then") {
  Board board;
  board.Control(0xb2);
  board.WriteCount(2, 5);
  board.AtTick(50);
  CHECK(board.Out(2));
  board.port61.Write(0, 1, 1);
  board.AtTick(51);
  CHECK_FALSE(board.Out(2));
  CHECK((board.Status(2) & 0x40) == 0);
  board.AtTick(55);
  CHECK_FALSE(board.Out(2));
  board.port61.Write(0, 1, 0);
  board.port61.Write(0, 1, 1);  // retrigger at 55
  board.AtTick(60);
  CHECK_FALSE(board.Out(2));
  board.AtTick(61);
  CHECK(board.Out(2));
  CHECK((board.port61.Read(0, 1) & 0x20) != 0);
}

TEST_CASE("8254 mode 2: period N, one low clock, new count at the period's end") {
  Board board;
  board.Control(0x34);
  CHECK(board.Out(0));
  board.WriteCount(0, 4);
  board.AtTick(1);
  CHECK(board.ReadCount(0) == 4);
  board.AtTick(3);
  CHECK(board.ReadCount(0) == 2);
  CHECK(board.Out(0));
  board.AtTick(4);
  CHECK(board.ReadCount(0) == 1);
  CHECK_FALSE(board.Out(0));
  board.AtTick(5);
  CHECK(board.ReadCount(0) == 4);
  CHECK(board.Out(0));
  board.AtTick(6);
  board.WriteCount(0, 10);
  CHECK((board.Status(0) & 0x40) != 0);
  board.AtTick(8);
  CHECK(board.ReadCount(0) == 1);
  board.AtTick(9);
  CHECK(board.ReadCount(0) == 10);
  CHECK((board.Status(0) & 0x40) == 0);
}

TEST_CASE("8254 mode 2: the gate stops and restarts the period") {
  Board board;
  board.port61.Write(0, 1, 1);
  board.Control(0xb4);
  board.WriteCount(2, 100);
  board.AtTick(31);
  CHECK(board.ReadCount(2) == 70);
  board.port61.Write(0, 1, 0);
  board.AtTick(60);
  CHECK(board.ReadCount(2) == 70);
  CHECK(board.Out(2));
  board.port61.Write(0, 1, 1);
  board.AtTick(61);
  CHECK(board.ReadCount(2) == 100);
}

TEST_CASE("8254 mode 3: square wave by twos, even and odd") {
  Board board;
  SECTION("even") {
    board.Control(0x36);
    board.WriteCount(0, 6);
    const u16 counts[] = {6, 4, 2, 6, 4, 2, 6};
    for (i64 i = 0; i < 7; ++i) {
      board.AtTick(1 + i);
      CHECK(board.ReadCount(0) == counts[i]);
      CHECK(board.Out(0) == (i % 6 < 3));
    }
  }
  SECTION("odd: the high half is a clock longer") {
    board.Control(0x36);
    board.WriteCount(0, 5);
    const u16 counts[] = {4, 2, 0, 4, 2, 4};
    for (i64 i = 0; i < 6; ++i) {
      board.AtTick(1 + i);
      CHECK(board.ReadCount(0) == counts[i]);
      CHECK(board.Out(0) == (i % 5 < 3));
    }
  }
  SECTION("a new count is loaded at the end of the half") {
    board.Control(0x36);
    board.WriteCount(0, 8);
    board.AtTick(2);
    board.WriteCount(0, 4);
    board.AtTick(4);
    CHECK(board.Out(0));
    CHECK(board.ReadCount(0) == 2);
    board.AtTick(5);  // high half of 4 over: low half with the new count, 2 clocks
    CHECK_FALSE(board.Out(0));
    CHECK(board.ReadCount(0) == 4);
    board.AtTick(6);
    CHECK_FALSE(board.Out(0));
    board.AtTick(7);
    CHECK(board.Out(0));
    board.AtTick(9);
    CHECK_FALSE(board.Out(0));
  }
}

TEST_CASE("8254 mode 4: a strobe of one low clock after the count") {
  Board board;
  board.Control(0x38);
  board.WriteCount(0, 3);
  for (i64 tick : {1, 2, 3}) {
    board.AtTick(tick);
    CHECK(board.Out(0));
  }
  board.AtTick(4);
  CHECK_FALSE(board.Out(0));
  board.AtTick(5);
  CHECK(board.Out(0));
}

TEST_CASE("8254 mode 4: one interrupt for each count written, as Linux's one-shot clock wants") {
  Board board;
  board.Control(0x38);
  const int before = board.irq0.rises();
  for (int i = 1; i <= 3; ++i) {
    board.WriteCount(0, 1000);
    RunFor(board.clock, board.timers, 10'000'000);
    CHECK(board.irq0.rises() == before + i);
  }
}

TEST_CASE("8254 mode 5: the strobe starts at the gate") {
  Board board;
  board.Control(0xba);
  board.WriteCount(2, 3);
  board.AtTick(20);
  CHECK(board.Out(2));
  board.port61.Write(0, 1, 1);
  board.AtTick(23);
  CHECK(board.Out(2));
  board.AtTick(24);
  CHECK_FALSE(board.Out(2));
  board.AtTick(25);
  CHECK(board.Out(2));
}

TEST_CASE("8254: the gate of channel 2 freezes modes 0 and 4") {
  Board board;
  board.Control(0xb0);
  board.WriteCount(2, 100);
  board.AtTick(50);
  CHECK(board.ReadCount(2) == 100);
  board.port61.Write(0, 1, 1);
  board.AtTick(80);
  CHECK(board.ReadCount(2) == 70);
  board.port61.Write(0, 1, 0);
  board.AtTick(200);
  CHECK(board.ReadCount(2) == 70);
  board.port61.Write(0, 1, 1);
  board.AtTick(270);
  CHECK((board.port61.Read(0, 1) & 0x20) != 0);
}

TEST_CASE("8254: BCD counts in decimal, and 0 is 10000") {
  Board board;
  board.Control(0x31);
  board.WriteCount(0, 0x1000);
  board.AtTick(2);
  CHECK(board.ReadCount(0) == 0x0999);
  board.AtTick(1002);
  CHECK(board.ReadCount(0) == 0x9999);
  board.Control(0x35);
  board.WriteCount(0, 0);
  board.AtTick(1004);
  CHECK(board.ReadCount(0) == 0x9999);
}

TEST_CASE("8254: a binary count of 0 is 65536") {
  Board board;
  board.Control(0x34);
  board.WriteCount(0, 0);
  board.AtTick(1);
  CHECK(board.ReadCount(0) == 0);
  board.AtTick(2);
  CHECK(board.ReadCount(0) == 0xffff);
  CHECK(board.timers.NextDeadlineNs() != TimerQueue::kNever);
}

TEST_CASE("8254: LSB-only and MSB-only formats") {
  Board board;
  board.Control(0x10);
  board.pit.Write(0, 1, 200);
  board.AtTick(11);
  CHECK(board.pit.Read(0, 1) == 190);
  CHECK(board.pit.Read(0, 1) == 190);
  board.Control(0x20);
  board.pit.Write(0, 1, 3);
  board.AtTick(12);
  CHECK(board.pit.Read(0, 1) == 3);
}

TEST_CASE("8254: a latched count stands until it is read, further latches are ignored") {
  Board board;
  board.Control(0x34);
  board.WriteCount(0, 0x1234);
  board.AtTick(1 + 0x34);
  board.Control(0x00);
  board.AtTick(1 + 0x134);
  board.Control(0x00);
  CHECK(board.ReadCount(0) == 0x1200);
  CHECK(board.ReadCount(0) == 0x1100);
}

TEST_CASE("8254: read-back latches several counters, status first") {
  Board board;
  board.port61.Write(0, 1, 1);
  board.Control(0x34);
  board.WriteCount(0, 100);
  board.Control(0xb6);
  board.WriteCount(2, 1000);
  board.AtTick(11);
  board.Control(0xc0 | 0x0a);
  board.AtTick(50);
  CHECK(board.pit.Read(0, 1) == (0x80 | 0x34));
  CHECK(board.ReadCount(0) == 90);
  CHECK(board.pit.Read(2, 1) == (0x80 | 0x36));
  CHECK(board.ReadCount(2) == 980);
}

TEST_CASE("8254: the control port cannot be read") {
  Board board;
  CHECK(board.pit.Read(3, 1) == 0xff);
}

TEST_CASE("8254: channel 0 in modes 2 and 3 interrupts at its rate") {
  for (u8 control : {u8{0x34}, u8{0x36}}) {
    Board board;
    board.Control(control);
    const int before = board.irq0.rises();
    board.WriteCount(0, 11932);  // 100 Hz
    RunFor(board.clock, board.timers, 1'000'000'000);
    CHECK(board.irq0.rises() - before >= 99);
    CHECK(board.irq0.rises() - before <= 100);
  }
}

TEST_CASE("8254: missed periods are coalesced") {
  Board board;
  board.Control(0x34);
  board.WriteCount(0, 1193);
  const int before = board.irq0.rises();
  board.clock.Advance(1'000'000'000);
  board.timers.RunExpired(board.clock.NowNs());
  CHECK(board.irq0.rises() == before + 1);
  CHECK(board.timers.NextDeadlineNs() > board.clock.NowNs());
}

TEST_CASE("8254: reading the count does not swallow the interrupt of a reload") {
  Board board;
  board.Control(0x34);
  board.WriteCount(0, 1000);
  board.AtTick(10);
  board.WriteCount(0, 50000);
  const int before = board.irq0.rises();
  board.AtTick(1005);
  CHECK(board.ReadCount(0) == 50000 - 4);
  board.timers.RunExpired(board.clock.NowNs());
  CHECK(board.irq0.rises() == before + 1);
}

TEST_CASE("8254: an absurd rate is limited, and the machine still gets somewhere") {
  Board board;
  board.Control(0x34);
  board.WriteCount(0, 1);
  const int before = board.irq0.rises();
  RunFor(board.clock, board.timers, 10'000'000);
  CHECK(board.irq0.rises() - before > 100);
  CHECK(board.irq0.rises() - before <= 501);
}

TEST_CASE("port 0x61: gate, refresh toggle, unwritable status bits") {
  Board board;
  board.port61.Write(0, 1, 0xff);
  CHECK((board.port61.Read(0, 1) & 0xcf) == 0x0f);
  CHECK(board.pit.gate2());
  int toggles = 0;
  u64 last = board.port61.Read(0, 1) & 0x10;
  for (int i = 0; i < 1000; ++i) {
    board.clock.Advance(1000);
    const u64 now = board.port61.Read(0, 1) & 0x10;
    toggles += now != last;
    last = now;
  }
  CHECK(toggles == 66);
  board.port61.Write(0, 1, 0);
  CHECK_FALSE(board.pit.gate2());
}

TEST_CASE("8254: random register traffic never breaks it") {
  for (u64 seed = 0; seed < 20; ++seed) {
    Board board;
    Hammer(board.pit, 4, seed, 5000, [&](std::mt19937_64& random) {
      const u64 what = random();
      if (what & 1) board.port61.Write(0, 1, what >> 1 & 3);
      if (what & 4) board.clock.Advance(what >> 8 & ((what & 8) ? 0xfff : 0xffffff));
      if (what & 16) board.timers.RunExpired(board.clock.NowNs());
      static_cast<void>(board.port61.Read(0, 1));
    });
  }
}

TEST_CASE("8254: a countdown of channel 2 is announced, once it runs") {
  Board board;
  std::vector<u64> ends;
  board.pit.OnCountdown([&](u64 end_ns) { ends.push_back(end_ns); });
  board.AtTick(1000);
  board.port61.Write(0, 1, 1);  // the gate
  CHECK(ends.empty());
  board.Control(0xb0);
  board.WriteCount(2, 5000);
  REQUIRE(ends.size() == 1);
  CHECK(ends[0] == Pit8254::NsOfTick(6001));
  // The gate stops it, and lets it go on.
  board.AtTick(2001);
  board.port61.Write(0, 1, 0);
  CHECK(ends.size() == 1);
  board.AtTick(3001);
  board.port61.Write(0, 1, 1);
  REQUIRE(ends.size() == 2);
  CHECK(ends[1] == Pit8254::NsOfTick(7001));
  // Neither sound nor another channel is one, nor is one that is over.
  board.Control(0xb6);
  board.WriteCount(2, 5000);
  board.Control(0x30);
  board.WriteCount(0, 5000);
  CHECK(ends.size() == 2);
  board.Control(0xb0);
  board.WriteCount(2, 10);
  CHECK(ends.size() == 3);
  board.AtTick(4000);
  board.port61.Write(0, 1, 0);
  board.port61.Write(0, 1, 1);
  CHECK(ends.size() == 3);
}

}  // namespace
}  // namespace alibi::devices
