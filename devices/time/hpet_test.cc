// SPDX-License-Identifier: Apache-2.0
#include "devices/time/hpet.h"

#include <catch2/catch.hpp>
#include <map>

#include "devices/test_util.h"

namespace alibi::devices {
namespace {

constexpr u64 kConfig = 0x10, kStatus = 0x20, kCounter = 0xf0;
constexpr u64 kMs = 1'000'000, kTicksPerMs = 100'000;

struct Board {
  u64 In(u64 offset, unsigned size = 8) {
    const u64 value = hpet.Read(offset, size);
    return size == 8 ? value : value & ((u64{1} << (8 * size)) - 1);
  }
  void Out(u64 offset, u64 value, unsigned size = 8) { hpet.Write(offset, size, value); }
  static u64 Timer(unsigned number, u64 offset = 0) { return 0x100 + number * 0x20 + offset; }
  void Run(u64 ns) { RunFor(clock, timers, ns); }

  ManualClock clock;
  TimerQueue timers;
  RecordingLine irq0, irq8;
  SwitchedLine switched0{irq0}, switched8{irq8};
  std::map<unsigned, RecordingLine> routed;
  Hpet hpet{clock, timers, switched0, switched8,
            [this](unsigned input) -> IrqLine& { return routed[input]; }};
};

TEST_CASE("HPET: capabilities and what can be written") {
  Board board;
  CHECK(board.In(0) == 0x009896808086a201);
  CHECK(board.In(4, 4) == 0x00989680);
  board.Out(0, ~u64{0});
  CHECK(board.In(0) == 0x009896808086a201);
  CHECK(board.In(kConfig) == 0);
  for (unsigned timer = 0; timer < 3; ++timer) {
    CHECK(board.In(Board::Timer(timer)) == 0x00f0000000000030);
    CHECK(board.In(Board::Timer(timer, 8)) == ~u64{0});
    board.Out(Board::Timer(timer), ~u64{0});
    // Route 31 does not exist; there are no messages.
    CHECK(board.In(Board::Timer(timer)) == 0x00f000000000017e);
    board.Out(Board::Timer(timer), 21 << 9);
    CHECK(board.In(Board::Timer(timer)) == (0x00f0000000000030 | 21 << 9));
  }
  CHECK(board.In(0x3f8) == 0);
  CHECK(board.In(0x160) == 0);
  board.Out(kConfig, ~u64{0});
  CHECK(board.In(kConfig) == 3);
  board.hpet.Reset();
  CHECK(board.In(kConfig) == 0);
  CHECK(board.In(Board::Timer(0)) == 0x00f0000000000030);
}

TEST_CASE("HPET: the counter runs while it is enabled, and can be set") {
  Board board;
  board.clock.Advance(kMs);
  CHECK(board.In(kCounter) == 0);
  board.Out(kConfig, 1, 4);
  board.clock.Advance(kMs);
  CHECK(board.In(kCounter) == kTicksPerMs);
  board.Out(kConfig, 0, 4);
  board.clock.Advance(kMs);
  CHECK(board.In(kCounter) == kTicksPerMs);
  board.Out(kCounter, 0xfffffff0, 4);
  board.Out(kCounter + 4, 7, 4);
  CHECK(board.In(kCounter) == 0x7fffffff0);
  board.Out(kConfig, 1);
  board.clock.Advance(320);
  CHECK(board.In(kCounter) == 0x800000010);
  CHECK(board.In(kCounter, 4) == 0x10);
  CHECK(board.In(kCounter + 4, 4) == 8);
}

TEST_CASE("HPET: a timer fires once, at its time, where it is routed") {
  Board board;
  board.Out(kConfig, 1);
  const u64 config = 22 << 9 | 4;
  SECTION("64 bits") { board.Out(Board::Timer(2), config); }
  SECTION("32 bits") { board.Out(Board::Timer(2), config | 0x100); }
  board.Out(Board::Timer(2, 8), 3 * kTicksPerMs);
  board.Run(3 * kMs - 10);
  CHECK(board.routed[22].rises() == 0);
  board.Run(10);
  CHECK(board.routed[22].rises() == 1);
  CHECK_FALSE(board.routed[22].level());
  CHECK(board.In(kStatus) == 0);  // of level-triggered ones only
  board.Run(1000 * kMs);
  CHECK(board.routed[22].rises() == 1);
  board.Out(Board::Timer(2, 8), board.In(kCounter) + 5);
  board.Out(Board::Timer(2), 22 << 9);
  board.Run(kMs);
  CHECK(board.routed[22].rises() == 1);
}

TEST_CASE("HPET: a timer of 32 bits comes round again") {
  Board board;
  board.Out(kConfig, 1);
  board.Out(Board::Timer(0), 20 << 9 | 0x104);
  board.Out(Board::Timer(0, 8), kTicksPerMs);
  board.Run(42'000 * kMs);
  CHECK(board.routed[20].rises() == 1);
  board.Run(1'000 * kMs);
  CHECK(board.routed[20].rises() == 2);
}

TEST_CASE("HPET: periods, as Linux sets them") {
  Board board;
  board.Out(kConfig, 3);
  board.Out(Board::Timer(0), 0x14c, 4);  // 32 bits, VAL_SET, periodic, enabled
  board.Out(Board::Timer(0, 8), 4 * kTicksPerMs, 4);
  board.Out(Board::Timer(0, 8), kTicksPerMs, 4);
  board.Run(4 * kMs - 10);
  CHECK(board.irq0.rises() == 0);
  board.Run(10);
  CHECK(board.irq0.rises() == 1);
  CHECK(board.In(Board::Timer(0, 8)) == 5 * kTicksPerMs);
  board.Run(10 * kMs);
  CHECK(board.irq0.rises() == 11);
  // Nobody came for a while.
  board.clock.Advance(5 * kMs + 10);
  board.timers.RunExpired(board.clock.NowNs());
  CHECK(board.irq0.rises() == 12);
  board.Run(kMs);
  CHECK(board.irq0.rises() == 13);
  CHECK(board.In(Board::Timer(0, 8)) == 21 * kTicksPerMs);
  // Shut down: nothing is left to wake for.
  board.Out(Board::Timer(0), 0x100, 4);
  CHECK(board.timers.NextDeadlineNs() == TimerQueue::kNever);
}

TEST_CASE("HPET: a period of next to nothing does not take all the time") {
  Board board;
  board.Out(kConfig, 3);
  board.Out(Board::Timer(0), 0x4c);
  board.Out(Board::Timer(0, 8), 1);
  board.Out(Board::Timer(0, 8), 1);
  board.Run(10 * kMs);
  CHECK(board.irq0.rises() > 100);
  CHECK(board.irq0.rises() <= 501);
}

TEST_CASE("HPET: level-triggered until the status is cleared") {
  Board board;
  board.Out(kConfig, 1);
  board.Out(Board::Timer(1), 23 << 9 | 6);
  board.Out(Board::Timer(1, 8), kTicksPerMs);
  board.Run(2 * kMs);
  CHECK(board.In(kStatus) == 2);
  CHECK(board.routed[23].level());
  board.Out(kStatus, 5);
  CHECK(board.routed[23].level());
  board.Out(kStatus, 2);
  CHECK_FALSE(board.routed[23].level());
  CHECK(board.In(kStatus) == 0);
}

TEST_CASE("HPET: legacy replacement takes the lines of 8254 and RTC") {
  Board board;
  board.switched0.first().Set(true);
  CHECK(board.irq0.level());
  board.Out(kConfig, 3);
  CHECK_FALSE(board.irq0.level());
  board.switched8.first().Set(true);
  CHECK_FALSE(board.irq8.level());
  board.Out(Board::Timer(1), 21 << 9 | 4);
  board.Out(Board::Timer(1, 8), kTicksPerMs);
  board.Run(2 * kMs);
  CHECK(board.irq8.rises() == 1);
  CHECK(board.routed[21].rises() == 0);
  board.Out(kConfig, 1);
  CHECK(board.irq0.level());
  CHECK(board.irq8.level());
}

TEST_CASE("HPET: random register traffic never breaks it") {
  for (u64 seed = 0; seed < 20; ++seed) {
    Board board;
    Hammer(board.hpet, Hpet::kSize, seed, 5000, [&](std::mt19937_64& random) {
      const u64 what = random();
      if (what & 1) board.Out(Board::Timer(what >> 8 & 3, what >> 10 & 8), what >> 16);
      if (what & 2) board.clock.Advance(what >> 16 & ((what & 4) ? 0xfffff : 0xffffffffff));
      if (what & 8) board.timers.RunExpired(board.clock.NowNs());
      if ((what & 0x70) == 0) board.Out(kConfig, what >> 4 & 3);
    });
    CHECK(board.In(0) == 0x009896808086a201);
  }
}

}  // namespace
}  // namespace alibi::devices
