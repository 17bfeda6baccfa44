// SPDX-License-Identifier: Apache-2.0
#include "devices/time/cmos.h"

#include <catch2/catch.hpp>

#include "devices/test_util.h"

namespace alibi::devices {
namespace {

constexpr i64 kLeapDay = 1709251199;  // Thursday 2024-02-29 23:59:59 UTC
constexpr u64 kMiB = 1 << 20;

struct Board {
  explicit Board(i64 now = kLeapDay, u64 low = 64 * kMiB, u64 high = 0)
      : cmos(clock, timers, irq8, now, low, high) {}
  u8 In(u8 index) {
    cmos.Write(0, 1, index);
    return static_cast<u8>(cmos.Read(1, 1));
  }
  void Out(u8 index, u8 value) {
    cmos.Write(0, 1, index);
    cmos.Write(1, 1, value);
  }

  ManualClock clock;
  TimerQueue timers;
  RecordingLine irq8;
  Cmos cmos;
};

TEST_CASE("RTC: shows the host's time in BCD and 24 hours") {
  Board board;
  CHECK(board.In(0x00) == 0x59);
  CHECK(board.In(0x02) == 0x59);
  CHECK(board.In(0x04) == 0x23);
  CHECK(board.In(0x06) == 0x05);
  CHECK(board.In(0x07) == 0x29);
  CHECK(board.In(0x08) == 0x02);
  CHECK(board.In(0x09) == 0x24);
  CHECK(board.In(0x32) == 0x20);
  CHECK(board.In(0x0a) == 0x26);
  CHECK(board.In(0x0b) == 0x02);
  CHECK(board.In(0x0d) == 0x80);
  board.clock.Advance(1'000'000'000);
  CHECK(board.In(0x00) == 0x00);
  CHECK(board.In(0x07) == 0x01);
  CHECK(board.In(0x08) == 0x03);
  CHECK(board.In(0x06) == 0x06);
}

TEST_CASE("RTC: binary and 12-hour formats") {
  Board board;
  board.Out(0x0b, 0x06);
  CHECK(board.In(0x00) == 59);
  CHECK(board.In(0x04) == 23);
  CHECK(board.In(0x32) == 20);
  board.Out(0x0b, 0x04);
  CHECK(board.In(0x04) == (0x80 | 11));
  board.Out(0x0b, 0x00);
  CHECK(board.In(0x04) == (0x80 | 0x11));
  Board midnight(1709251200);
  midnight.Out(0x0b, 0x00);
  CHECK(midnight.In(0x04) == 0x12);
  Board noon(1709251200 + 12 * 3600);
  noon.Out(0x0b, 0x00);
  CHECK(noon.In(0x04) == 0x92);
}

TEST_CASE("RTC: the guest sets its own time, and it goes on from there") {
  Board board;
  board.Out(0x0b, 0x82);
  board.Out(0x00, 0x10);
  board.Out(0x02, 0x20);
  board.Out(0x04, 0x07);
  board.Out(0x07, 0x15);
  board.Out(0x08, 0x06);
  board.Out(0x09, 0x99);
  board.Out(0x32, 0x19);
  board.clock.Advance(5'000'000'000);
  CHECK(board.In(0x00) == 0x10);  // SET stops it
  board.Out(0x0b, 0x02);
  CHECK(board.cmos.UnixSeconds() == 929431210);
  board.clock.Advance(50'000'000'000);
  CHECK(board.In(0x00) == 0x00);
  CHECK(board.In(0x02) == 0x21);
  CHECK(board.In(0x04) == 0x07);
  CHECK(board.In(0x09) == 0x99);
}

// MC146818 data sheet, figure "update-ended and periodic interrupt relationships".
TEST_CASE("RTC: update in progress shows 244 us before an update of 1,984 us") {
  Board board;
  const auto updating = [&] { return (board.In(0x0a) & 0x80) != 0; };
  for (int second = 0; second < 3; ++second) {
    static_cast<void>(board.In(0x0c));
    const u8 shown = board.In(0x00);
    CHECK_FALSE(updating());
    board.clock.Advance(1'000'000'000 - 2'228'000 - 1);
    CHECK_FALSE(updating());
    board.clock.Advance(1);
    CHECK(updating());
    CHECK(board.In(0x0a) == 0xa6);
    board.clock.Advance(2'228'000 - 1);
    CHECK(updating());
    CHECK(board.In(0x00) == shown);
    CHECK((board.In(0x0c) & 0x10) == 0);
    board.clock.Advance(1);
    CHECK_FALSE(updating());
    CHECK(board.In(0x00) != shown);
    CHECK((board.In(0x0c) & 0x10) == 0x10);
  }
}

TEST_CASE("RTC: nothing is updated while the clock is set or its divider stands") {
  Board board;
  board.clock.Advance(999'000'000);
  CHECK(board.In(0x0a) == 0xa6);
  board.Out(0x0b, 0x82);
  CHECK(board.In(0x0a) == 0x26);
  board.Out(0x0b, 0x02);
  CHECK(board.In(0x0a) == 0xa6);
  board.Out(0x0a, 0x76);
  CHECK(board.In(0x0a) == 0x76);
}

TEST_CASE("RTC: setting SET for a moment moves no second") {
  Board board;
  board.clock.Advance(700'000'000);
  const i64 before = board.cmos.UnixSeconds();
  board.Out(0x0b, 0x82);
  board.clock.Advance(100'000);
  board.Out(0x0b, 0x02);
  CHECK(board.cmos.UnixSeconds() == before);
  board.clock.Advance(299'000'000);
  CHECK(board.cmos.UnixSeconds() == before);
  board.clock.Advance(1'000'000);
  CHECK(board.cmos.UnixSeconds() == before + 1);
}

TEST_CASE("RTC: the first update comes half a second after the divider is released") {
  Board board;
  board.clock.Advance(300'000'000);
  board.Out(0x0a, 0x76);
  board.clock.Advance(5'000'000'000);
  board.Out(0x0a, 0x26);
  const i64 before = board.cmos.UnixSeconds();
  CHECK(before == kLeapDay);
  board.clock.Advance(499'000'000);
  CHECK(board.In(0x0a) == 0xa6);
  CHECK(board.cmos.UnixSeconds() == before);
  board.clock.Advance(1'000'000);
  CHECK(board.cmos.UnixSeconds() == before + 1);
}

TEST_CASE("RTC: it starts in the middle of a second, as the host does") {
  ManualClock clock;
  TimerQueue timers;
  RecordingLine irq8;
  Cmos cmos(clock, timers, irq8, kLeapDay, 64 * kMiB, 0, 999'000'000);
  CHECK(cmos.UnixSeconds() == kLeapDay);
  cmos.Write(0, 1, 0x0a);
  CHECK(cmos.Read(1, 1) == 0xa6);
  clock.Advance(1'000'000);
  CHECK(cmos.UnixSeconds() == kLeapDay + 1);
  CHECK(cmos.Read(1, 1) == 0x26);
}

// As Linux does it: at the start it takes the time from the edge of an update; at the end, half a
// second past its second T, it holds the divider, writes T and lets go.
TEST_CASE("RTC: a system that keeps its time there loses nothing over 60 reboots") {
  Board board;
  std::mt19937_64 random(3);
  for (int boot = 0; boot < 60; ++boot) {
    while ((board.In(0x0a) & 0x80) == 0) board.clock.Advance(100'000);
    while ((board.In(0x0a) & 0x80) != 0) board.clock.Advance(10'000);
    const i64 system_at_start = board.cmos.UnixSeconds();
    const u64 started = board.clock.NowNs();
    const u64 seconds = random() % 100 + 1;
    board.clock.Advance(seconds * 1'000'000'000 + 500'000'000);
    CHECK(board.clock.NowNs() - started == seconds * 1'000'000'000 + 500'000'000);
    const unsigned second =
        static_cast<unsigned>((system_at_start + static_cast<i64>(seconds)) % 60);
    board.Out(0x0b, 0x82);
    board.Out(0x0a, 0x76);
    board.Out(0x00, static_cast<u8>(second / 10 << 4 | second % 10));
    board.Out(0x0b, 0x02);
    board.Out(0x0a, 0x26);
    board.clock.Advance(random() % 1'000'000'000);
    board.cmos.Reset();
  }
  const i64 passed = static_cast<i64>(board.clock.NowNs() / 1'000'000);
  const i64 shown = (board.cmos.UnixSeconds() - kLeapDay) * 1000;
  CHECK(shown <= passed + 10);
  CHECK(shown > passed - 1010);
}

TEST_CASE("RTC: C clears on read") {
  Board board;
  board.clock.Advance(2'000'000'000);
  CHECK((board.In(0x0c) & 0x10) == 0x10);
  CHECK((board.In(0x0c) & 0x10) == 0);
  CHECK(board.irq8.rises() == 0);
}

TEST_CASE("RTC: update-ended interrupt, once per second, until C is read") {
  Board board;
  board.Out(0x0b, 0x12);
  RunFor(board.clock, board.timers, 1'500'000'000);
  CHECK(board.irq8.level());
  CHECK(board.irq8.rises() == 1);
  RunFor(board.clock, board.timers, 2'000'000'000);
  CHECK(board.irq8.rises() == 1);
  CHECK((board.In(0x0c) & 0x90) == 0x90);
  CHECK_FALSE(board.irq8.level());
  RunFor(board.clock, board.timers, 1'000'000'000);
  CHECK(board.irq8.rises() == 2);
}

TEST_CASE("RTC: periodic interrupt at 1024 Hz and at 2 Hz") {
  Board board;
  int interrupts = 0;
  const auto run = [&](u64 ns) {
    interrupts = 0;
    const u64 end = board.clock.NowNs() + ns;
    while (board.clock.NowNs() < end) {
      RunFor(board.clock, board.timers, 100'000);
      if (board.irq8.level()) {
        CHECK((board.In(0x0c) & 0xc0) == 0xc0);
        ++interrupts;
      }
    }
  };
  board.Out(0x0b, 0x42);
  run(1'000'000'000);
  CHECK(interrupts >= 1023);
  CHECK(interrupts <= 1025);
  board.Out(0x0a, 0x2f);
  run(4'000'000'000);
  CHECK(interrupts >= 7);
  CHECK(interrupts <= 9);
  board.Out(0x0a, 0x20);
  CHECK_FALSE(board.timers.NextDeadlineNs() < TimerQueue::kNever);
}

TEST_CASE("RTC: alarm at a time, and with don't-care fields") {
  Board board;
  board.Out(0x01, 0x05);
  board.Out(0x03, 0x00);
  board.Out(0x05, 0x00);
  board.Out(0x0b, 0x22);
  RunFor(board.clock, board.timers, 5'500'000'000);
  CHECK_FALSE(board.irq8.level());
  RunFor(board.clock, board.timers, 1'000'000'000);
  CHECK(board.irq8.level());
  CHECK((board.In(0x0c) & 0xa0) == 0xa0);
  board.Out(0x03, 0xff);
  board.Out(0x05, 0xc0);
  RunFor(board.clock, board.timers, 60'000'000'000);
  CHECK(board.irq8.level());
}

TEST_CASE("RTC: an alarm that passed unobserved is flagged, days later too") {
  Board board;
  board.Out(0x01, 0x05);
  board.Out(0x03, 0x00);
  board.Out(0x05, 0x00);
  static_cast<void>(board.In(0x0c));
  board.clock.Advance(86400ull * 3 * 1'000'000'000);
  CHECK((board.In(0x0c) & 0x30) == 0x30);
}

TEST_CASE("CMOS: memory sizes as a BIOS reports them") {
  SECTION("64 MB") {
    Board board;
    CHECK(board.In(0x15) == (640 & 0xff));
    CHECK(board.In(0x16) == 640 >> 8);
    CHECK((board.In(0x17) | board.In(0x18) << 8) == 63 * 1024);
    CHECK((board.In(0x30) | board.In(0x31) << 8) == 63 * 1024);
    CHECK((board.In(0x34) | board.In(0x35) << 8) == 48 * 16);
  }
  SECTION("3 GB and 5 GB above 4 GB") {
    Board board(kLeapDay, 3072 * kMiB, 5120 * kMiB);
    CHECK((board.In(0x30) | board.In(0x31) << 8) == 0xffff);
    CHECK((board.In(0x34) | board.In(0x35) << 8) == (3072 - 16) * 16);
    CHECK((board.In(0x5b) | board.In(0x5c) << 8 | board.In(0x5d) << 16) == 5120 * 16);
  }
  SECTION("hardly any") {
    Board board(kLeapDay, 4096);
    CHECK((board.In(0x15) | board.In(0x16) << 8) == 4);
    CHECK((board.In(0x17) | board.In(0x18) << 8) == 0);
  }
}

TEST_CASE("CMOS: plain bytes keep, NMI bit is not part of the index, checksum is right") {
  Board board;
  board.Out(0x40, 0x77);
  CHECK(board.In(0x40 | 0x80) == 0x77);
  unsigned sum = 0;
  for (u8 i = 0x10; i < 0x2e; ++i) sum += board.In(i);
  CHECK(sum == static_cast<unsigned>(board.In(0x2e) << 8 | board.In(0x2f)));
  board.Out(0x0d, 0);
  CHECK(board.In(0x0d) == 0x80);
  CHECK(board.cmos.Read(0, 1) == 0xff);
}

TEST_CASE("RTC: random register traffic never breaks it") {
  for (u64 seed = 0; seed < 10; ++seed) {
    Board board(static_cast<i64>(seed) * 1'000'000'007);
    Hammer(board.cmos, 2, seed, 5000, [&](std::mt19937_64& random) {
      const u64 what = random();
      if (what & 2) board.cmos.Write(0, 1, what >> 8 & 15);
      if (what & 1) board.clock.Advance(what >> 16 & ((what & 4) ? 0xfffff : 0xffffffffff));
      if (what & 8) board.timers.RunExpired(board.clock.NowNs());
    });
    CHECK(board.cmos.UnixSeconds() >= 0);
  }
}

TEST_CASE("RTC: absurd host times are clamped") {
  Board early(-5);
  CHECK(early.cmos.UnixSeconds() == 0);
  Board late(INT64_MAX);
  CHECK(late.In(0x32) == 0x99);
}

}  // namespace
}  // namespace alibi::devices
