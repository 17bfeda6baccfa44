// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "devices/irq/ioapic.h"
#include "devices/irq/lapic.h"
#include "devices/irq/pic8259.h"
#include "devices/test_util.h"

namespace alibi::devices {
namespace {

// Stands for the 8259s behind LINT0.
class FakePic : public InterruptController {
 public:
  bool InterruptPending(u8) override { return pending; }
  u8 Acknowledge() override {
    pending = false;
    return 0x08;
  }
  const u8* TprThreshold() const override { return &none; }
  bool pending = false;
  u8 none = 0;
};

struct Board : LapicHost {
  explicit Board(u32 id = 0) : lapic(id, clock, tsc, timers, *this) {
    lapic.ConnectExtInt(&pic);
    raised = 0;
  }

  void InterruptRaised() override { ++raised; }
  void Nmi() override { ++nmis; }
  void Init() override { ++inits; }
  void Startup(u8 vector) override { startups.push_back(vector); }
  void Send(const ApicMessage& message, bool self_too) override {
    sent.push_back(message);
    if (self_too && lapic.IsDestination(message)) lapic.Deliver(message);
  }
  void EndOfInterrupt(u8 vector) override { ended.push_back(vector); }

  u32 In(u64 offset) { return static_cast<u32>(lapic.Read(offset, 4)); }
  void Out(u64 offset, u32 value) { lapic.Write(offset, 4, value); }
  void Fixed(u8 vector, bool level = false) {
    ApicMessage message;
    message.vector = vector;
    message.level_triggered = level;
    lapic.Deliver(message);
  }
  bool Pending() { return lapic.InterruptPending(lapic.tpr()); }
  void EnterX2apic() { REQUIRE(lapic.WriteMsr(0x1b, 0xfee00d00)); }
  u64 Msr(u32 msr) {
    u64 value = 0;
    REQUIRE(lapic.ReadMsr(msr, &value));
    return value;
  }

  ManualClock clock;
  FixedTsc tsc{clock, 2'000'000'000};
  TimerQueue timers;
  FakePic pic;
  int raised = 0;
  int nmis = 0;
  int inits = 0;
  std::vector<u8> startups;
  std::vector<ApicMessage> sent;
  std::vector<u8> ended;
  Lapic lapic;
};

constexpr u64 kId = 0x20, kVersion = 0x30, kTpr = 0x80, kPpr = 0xa0, kEoi = 0xb0, kLdr = 0xd0,
              kDfr = 0xe0, kSvr = 0xf0, kIsr = 0x100, kTmr = 0x180, kIrr = 0x200, kEsr = 0x280,
              kIcr = 0x300, kIcr2 = 0x310, kTimer = 0x320, kLint0 = 0x350, kLint1 = 0x360,
              kError = 0x370, kInitial = 0x380, kCurrent = 0x390, kDivide = 0x3e0;

TEST_CASE("local APIC: the state a BIOS leaves") {
  Board board;
  CHECK(board.Msr(0x1b) == 0xfee00900);
  CHECK(board.In(kId) == 0);
  CHECK(board.In(kVersion) == 0x00050015);
  CHECK(board.In(kSvr) == 0x1ff);
  CHECK(board.In(kLint0) == 0x8700);
  CHECK(board.In(kLint1) == 0x8400);
  CHECK(board.In(kTimer) == 0x10000);
  CHECK(board.In(kDfr) == 0xffffffff);
  CHECK_FALSE(board.Pending());
}

TEST_CASE("local APIC: reset state after power-on, and INIT keeps the mode") {
  Board board;
  board.EnterX2apic();
  board.lapic.Reset(/*keep_mode=*/true);
  CHECK(board.lapic.x2apic());
  board.lapic.Reset(/*keep_mode=*/false);
  CHECK_FALSE(board.lapic.x2apic());
  CHECK(board.In(kSvr) == 0xff);
  CHECK(board.In(kLint0) == 0x10000);
}

TEST_CASE("local APIC: accept, acknowledge, end; priorities nest by class") {
  Board board;
  board.Fixed(0x41);
  CHECK(board.raised == 1);
  CHECK(board.In(kIrr + 0x20) == 0x2);
  REQUIRE(board.Pending());
  CHECK(board.lapic.Acknowledge() == 0x41);
  CHECK(board.In(kIsr + 0x20) == 0x2);
  CHECK(board.In(kPpr) == 0x40);
  board.Fixed(0x45);
  CHECK_FALSE(board.Pending());  // same class
  board.Fixed(0x50);
  REQUIRE(board.Pending());
  CHECK(board.lapic.Acknowledge() == 0x50);
  board.Out(kEoi, 0);
  CHECK(board.In(kPpr) == 0x40);
  board.Out(kEoi, 0);
  REQUIRE(board.Pending());
  CHECK(board.lapic.Acknowledge() == 0x45);
  CHECK(board.ended.empty());
}

TEST_CASE("local APIC: TPR holds back classes up to its own, and the threshold byte says which") {
  Board board;
  const u8* threshold = board.lapic.TprThreshold();
  CHECK(*threshold == 0);
  board.Out(kTpr, 0x50);
  board.Fixed(0x5f);
  CHECK(*threshold == 5);
  CHECK_FALSE(board.Pending());
  CHECK_FALSE(board.lapic.InterruptPending(0x50));
  CHECK(board.lapic.InterruptPending(0x4f));
  CHECK(board.In(kTpr) == 0x4f);
  CHECK(board.lapic.Acknowledge() == 0x5f);
  CHECK(*threshold == 0);
  board.Out(kEoi, 0);
  board.lapic.SetTpr(0xf0);
  board.Fixed(0xff);
  CHECK_FALSE(board.Pending());
  CHECK(board.In(kPpr) == 0xf0);
}

TEST_CASE("local APIC: the TPR byte can live in the VCPU block") {
  Board board;
  u8 shared = 0xaa;
  board.Out(kTpr, 0x30);
  board.lapic.BindTpr(&shared);
  CHECK(shared == 0x30);
  shared = 0x80;  // mov cr8
  CHECK(board.In(kTpr) == 0x80);
  board.Out(kTpr, 0x20);
  CHECK(shared == 0x20);
}

TEST_CASE("local APIC: acknowledging nothing gives the spurious vector") {
  Board board;
  board.Out(kSvr, 0x1ef);
  board.Out(kLint0, 0x10000);
  CHECK(board.lapic.Acknowledge() == 0xef);
  CHECK(board.In(kIsr + 0x70) == 0);
}

TEST_CASE("local APIC: virtual wire passes the 8259 through, regardless of TPR") {
  Board board;
  board.lapic.SetTpr(0xff);
  board.pic.pending = true;
  board.lapic.SetLint0(true);
  CHECK(board.raised == 1);
  REQUIRE(board.Pending());
  CHECK(board.lapic.Acknowledge() == 0x08);
  CHECK_FALSE(board.Pending());
  SECTION("a masked LINT0 cuts the wire, unmasking reconnects") {
    board.pic.pending = true;
    board.Out(kLint0, 0x18700);
    CHECK_FALSE(board.Pending());
    board.raised = 0;
    board.Out(kLint0, 0x8700);
    CHECK(board.raised == 1);
    CHECK(board.Pending());
  }
  SECTION("a disabled APIC is a plain wire") {
    board.Out(kLint0, 0x10000);
    board.pic.pending = true;
    CHECK_FALSE(board.Pending());
    REQUIRE(board.lapic.WriteMsr(0x1b, 0xfee00100));
    CHECK(board.Pending());
    CHECK(board.In(kId) == 0xffffffff);
  }
}

TEST_CASE("local APIC: own interrupts come before the 8259's") {
  Board board;
  board.pic.pending = true;
  board.lapic.SetLint0(true);
  board.Fixed(0x31);
  CHECK(board.lapic.Acknowledge() == 0x31);
  CHECK(board.lapic.Acknowledge() == 0x08);
}

TEST_CASE("local APIC: LINT0 in fixed and NMI mode, LINT1") {
  Board board;
  SECTION("edge") {
    board.Out(kLint0, 0x0055);
    board.lapic.SetLint0(true);
    CHECK(board.lapic.Acknowledge() == 0x55);
    board.Out(kEoi, 0);
    CHECK_FALSE(board.Pending());
  }
  SECTION("level asks again at EOI while high") {
    board.Out(kLint0, 0x8055);
    board.lapic.SetLint0(true);
    CHECK((board.In(kLint0) & 0x4000) != 0);
    CHECK(board.lapic.Acknowledge() == 0x55);
    board.Out(kEoi, 0);
    CHECK(board.lapic.Acknowledge() == 0x55);
    board.lapic.SetLint0(false);
    board.Out(kEoi, 0);
    CHECK_FALSE(board.Pending());
    CHECK((board.In(kLint0) & 0x4000) == 0);
  }
  SECTION("NMI") {
    board.Out(kLint0, 0x0400);
    board.lapic.SetLint0(true);
    board.lapic.SetLint0(true);
    CHECK(board.nmis == 1);
    board.lapic.SetLint1(true);
    CHECK(board.nmis == 2);
    CHECK(board.lapic.Lint0IsNmi());
    board.Out(kLint0, 0x10400);
    CHECK_FALSE(board.lapic.Lint0IsNmi());
    board.Out(kLint0, 0x0700);
    CHECK_FALSE(board.lapic.Lint0IsNmi());
  }
}

TEST_CASE("local APIC: software disable masks the LVT and accepts nothing new") {
  Board board;
  board.Fixed(0x40);
  board.Out(kSvr, 0xff);
  CHECK((board.In(kLint0) & 0x10000) != 0);
  board.Out(kLint0, 0x700);
  CHECK((board.In(kLint0) & 0x10000) != 0);
  board.Fixed(0x60);
  CHECK(board.lapic.Acknowledge() == 0x40);  // what was pending stays
  board.Out(kEoi, 0);
  CHECK_FALSE(board.Pending());
}

TEST_CASE("local APIC: level-triggered interrupts set TMR and their EOI is broadcast") {
  Board board;
  board.Fixed(0x61, true);
  CHECK(board.In(kTmr + 0x30) == 0x2);
  CHECK(board.lapic.Acknowledge() == 0x61);
  board.Out(kEoi, 0);
  CHECK(board.ended == std::vector<u8>{0x61});
}

TEST_CASE("local APIC timer: one-shot") {
  Board board;
  board.Out(kDivide, 0x3);  // 16
  board.Out(kTimer, 0x40);
  board.Out(kInitial, 1000);
  CHECK(board.In(kCurrent) == 1000);
  RunFor(board.clock, board.timers, 8000);
  CHECK(board.In(kCurrent) == 500);
  RunFor(board.clock, board.timers, 7999);
  CHECK_FALSE(board.Pending());
  RunFor(board.clock, board.timers, 1);
  CHECK(board.Pending());
  CHECK(board.In(kCurrent) == 0);
  CHECK(board.lapic.Acknowledge() == 0x40);
  board.Out(kEoi, 0);
  RunFor(board.clock, board.timers, 100'000);
  CHECK_FALSE(board.Pending());
}

TEST_CASE("local APIC timer: periodic, coalescing, stop by a count of 0") {
  Board board;
  board.Out(kDivide, 0xb);  // 1
  board.Out(kTimer, 0x20040);
  board.Out(kInitial, 1'000'000);
  int interrupts = 0;
  for (int i = 0; i < 100; ++i) {
    RunFor(board.clock, board.timers, 100'000);
    if (board.Pending()) {
      CHECK(board.lapic.Acknowledge() == 0x40);
      board.Out(kEoi, 0);
      ++interrupts;
    }
  }
  CHECK(interrupts == 10);
  board.clock.Advance(5'300'000);
  board.timers.RunExpired(board.clock.NowNs());
  CHECK(board.In(kCurrent) == 700'000);
  CHECK(board.timers.NextDeadlineNs() == 16'000'000);
  board.Out(kInitial, 0);
  CHECK(board.timers.NextDeadlineNs() == TimerQueue::kNever);
  CHECK(board.In(kCurrent) == 0);
}

TEST_CASE("local APIC timer: a masked timer counts silently, absurd periods are limited") {
  Board board;
  board.Out(kTimer, 0x30040);
  board.Out(kDivide, 0xb);
  board.Out(kInitial, 1);
  RunFor(board.clock, board.timers, 1'000'000);
  CHECK_FALSE(board.Pending());
  CHECK(board.timers.NextDeadlineNs() >= 1'000'000);
}

TEST_CASE("local APIC timer: divisors") {
  const u32 codes[] = {0, 1, 2, 3, 8, 9, 10, 11};
  const u32 divisors[] = {2, 4, 8, 16, 32, 64, 128, 1};
  for (int i = 0; i < 8; ++i) {
    Board board;
    board.Out(kDivide, codes[i]);
    CHECK(board.In(kDivide) == codes[i]);
    board.Out(kTimer, 0x40);
    board.Out(kInitial, 100);
    CHECK(board.timers.NextDeadlineNs() == 100 * divisors[i]);
  }
}

TEST_CASE("local APIC timer: changing the divisor keeps the count, even near time zero") {
  Board board;
  board.Out(kDivide, 0xb);
  board.Out(kTimer, 0x40);
  board.Out(kInitial, 1000);
  board.clock.Advance(400);
  board.Out(kDivide, 0xa);  // 128
  CHECK(board.In(kCurrent) == 600);
  board.clock.Advance(1280);
  CHECK(board.In(kCurrent) == 590);
  CHECK(board.timers.NextDeadlineNs() == 400 + 600 * 128);
}

TEST_CASE("local APIC timer: TSC deadline") {
  Board board;
  REQUIRE(board.lapic.WriteMsr(0x6e0, 1000));
  CHECK(board.Msr(0x6e0) == 0);  // not in that mode
  board.Out(kTimer, 0x40040);
  board.Out(kInitial, 5);
  CHECK(board.In(kInitial) == 0);
  REQUIRE(board.lapic.WriteMsr(0x6e0, 20'000));
  CHECK(board.Msr(0x6e0) == 20'000);
  CHECK(board.In(kCurrent) == 0);
  RunFor(board.clock, board.timers, 9'999);
  CHECK_FALSE(board.Pending());
  RunFor(board.clock, board.timers, 1);
  CHECK(board.Pending());
  CHECK(board.Msr(0x6e0) == 0);
  CHECK(board.lapic.Acknowledge() == 0x40);
  board.Out(kEoi, 0);
  SECTION("a deadline in the past fires at once") {
    REQUIRE(board.lapic.WriteMsr(0x6e0, 1));
    board.timers.RunExpired(board.clock.NowNs());
    CHECK(board.Pending());
  }
  SECTION("0 disarms") {
    REQUIRE(board.lapic.WriteMsr(0x6e0, 1'000'000));
    REQUIRE(board.lapic.WriteMsr(0x6e0, 0));
    CHECK(board.timers.NextDeadlineNs() == TimerQueue::kNever);
  }
  SECTION("leaving the mode disarms") {
    REQUIRE(board.lapic.WriteMsr(0x6e0, 1'000'000));
    board.Out(kTimer, 0x40);
    CHECK(board.timers.NextDeadlineNs() == TimerQueue::kNever);
    CHECK(board.Msr(0x6e0) == 0);
  }
  SECTION("the farthest deadline does not wrap") {
    REQUIRE(board.lapic.WriteMsr(0x6e0, ~u64{0}));
    CHECK(board.timers.NextDeadlineNs() > u64{1} << 60);
    RunFor(board.clock, board.timers, 1'000'000'000);
    CHECK_FALSE(board.Pending());
  }
}

TEST_CASE("local APIC: ICR to self by shorthand, physical, logical, broadcast") {
  Board board;
  board.Out(kIcr, 0x40000 | 0x41);
  CHECK(board.lapic.Acknowledge() == 0x41);
  board.Out(kEoi, 0);
  board.Out(kIcr2, 0);
  board.Out(kIcr, 0x42);
  CHECK(board.lapic.Acknowledge() == 0x42);
  board.Out(kEoi, 0);
  board.Out(kLdr, 0x02000000);
  board.Out(kIcr2, 0x03000000);
  board.Out(kIcr, 0x843);
  CHECK(board.lapic.Acknowledge() == 0x43);
  board.Out(kEoi, 0);
  board.Out(kIcr2, 0x04000000);
  board.Out(kIcr, 0x844);
  CHECK_FALSE(board.Pending());
  board.Out(kIcr2, 0xff000000);
  board.Out(kIcr, 0x45);
  CHECK(board.lapic.Acknowledge() == 0x45);
  board.Out(kEoi, 0);
  board.Out(kIcr, 0x80046);
  CHECK(board.lapic.Acknowledge() == 0x46);
  board.Out(kEoi, 0);
  const std::size_t sent = board.sent.size();
  board.Out(kIcr, 0xc0047);
  CHECK_FALSE(board.Pending());
  CHECK(board.sent.size() == sent + 1);
  CHECK((board.In(kIcr) & 0x1000) == 0);  // delivery status: idle
}

TEST_CASE("local APIC: flat and cluster logical destinations") {
  Board board;
  ApicMessage message;
  message.logical = true;
  board.Out(kLdr, 0x21000000);
  message.destination = 0x20;
  CHECK(board.lapic.IsDestination(message));
  message.destination = 0x0e;
  CHECK_FALSE(board.lapic.IsDestination(message));
  board.Out(kDfr, 0x0fffffff);
  message.destination = 0x21;
  CHECK(board.lapic.IsDestination(message));
  message.destination = 0x31;
  CHECK_FALSE(board.lapic.IsDestination(message));
  message.destination = 0x22;
  CHECK_FALSE(board.lapic.IsDestination(message));
}

TEST_CASE("local APIC: NMI, INIT and startup messages reach the host") {
  Board board;
  board.Out(kIcr2, 0);
  board.Out(kIcr, 0x400);
  CHECK(board.nmis == 1);
  board.Out(kIcr, 0x4500);
  CHECK(board.inits == 1);
  board.Out(kIcr, 0x8500);  // level de-assert: nothing
  CHECK(board.inits == 1);
  board.Out(kIcr, 0x69a);
  CHECK(board.startups == std::vector<u8>{0x9a});
}

TEST_CASE("local APIC: errors are latched by a write to ESR and interrupt once") {
  Board board;
  board.Out(kError, 0xfe);
  board.Out(kIcr, 0x40005);
  CHECK(board.In(kEsr) == 0);
  board.Out(kEsr, 0);
  CHECK(board.In(kEsr) == 0x20);
  CHECK(board.lapic.Acknowledge() == 0xfe);
  board.Out(kEoi, 0);
  board.Out(kEsr, 0);
  CHECK(board.In(kEsr) == 0);
  static_cast<void>(board.In(0x40));
  board.Out(kEsr, 0);
  CHECK(board.In(kEsr) == 0x80);
  board.Out(kError, 0x05);  // an illegal vector for the error interrupt itself
  static_cast<void>(board.In(0x40));
  board.Out(kEsr, 0);
  CHECK(board.In(kEsr) == 0xc0);
}

TEST_CASE("local APIC: odd accesses to the page") {
  Board board;
  CHECK((board.lapic.Read(0x31, 1) & 0xff) == 0);
  CHECK(board.lapic.Read(0x32, 1) == 0x05);
  CHECK(board.lapic.Read(0x34, 4) == 0);
  CHECK(board.lapic.Read(0x32, 4) == 0);
  board.lapic.Write(kTpr, 1, 0x70);
  CHECK(board.In(kTpr) == 0);
}

TEST_CASE("x2APIC: entering, leaving, and what the page shows meanwhile") {
  Board board(5);
  CHECK(board.In(kId) == 5u << 24);
  u64 value;
  CHECK_FALSE(board.lapic.ReadMsr(0x802, &value));
  CHECK_FALSE(board.lapic.WriteMsr(0x808, 0));
  CHECK_FALSE(board.lapic.WriteMsr(0x1b, 0xfee00400));
  CHECK_FALSE(board.lapic.WriteMsr(0x1b, 0xfee00801));
  REQUIRE(board.lapic.WriteMsr(0x1b, 0xfee00c00));
  CHECK(board.Msr(0x802) == 5);
  CHECK(board.Msr(0x80d) == 0x20);
  CHECK(board.In(kId) == 0xffffffff);
  board.Out(kTpr, 0x40);
  CHECK(board.Msr(0x808) == 0);
  CHECK_FALSE(board.lapic.WriteMsr(0x1b, 0xfee00800));
  REQUIRE(board.lapic.WriteMsr(0x1b, 0xfee00000));
  CHECK_FALSE(board.lapic.WriteMsr(0x1b, 0xfee00c00));
  REQUIRE(board.lapic.WriteMsr(0x1b, 0xfee00800));
  CHECK(board.In(kId) == 5u << 24);
}

TEST_CASE("x2APIC: registers, and #GP for what does not exist or is reserved") {
  Board board;
  board.EnterX2apic();
  CHECK(board.lapic.WriteMsr(0x808, 0x20));
  CHECK(board.lapic.tpr() == 0x20);
  CHECK_FALSE(board.lapic.WriteMsr(0x808, 0x100));
  CHECK_FALSE(board.lapic.WriteMsr(0x80b, 1));
  CHECK(board.lapic.WriteMsr(0x80b, 0));
  CHECK_FALSE(board.lapic.WriteMsr(0x828, 1));
  CHECK(board.lapic.WriteMsr(0x828, 0));
  CHECK_FALSE(board.lapic.WriteMsr(0x80a, 0));
  CHECK_FALSE(board.lapic.WriteMsr(0x802, 0));
  u64 value;
  for (u32 msr : {0x800u, 0x809u, 0x80bu, 0x80cu, 0x80eu, 0x82fu, 0x831u, 0x83fu, 0x840u, 0x8ffu}) {
    CHECK_FALSE(board.lapic.ReadMsr(msr, &value));
  }
  CHECK_FALSE(board.lapic.WriteMsr(0x832, 0x100000000));
  CHECK_FALSE(board.lapic.WriteMsr(0x830, 0x1041));
  CHECK(board.lapic.WriteMsr(0x83f, 0x61));
  CHECK(board.lapic.Acknowledge() == 0x61);
  CHECK(board.lapic.WriteMsr(0x80b, 0));
  CHECK(board.lapic.WriteMsr(0x830, u64{1} << 32 | 0x840 | 0x22));
  CHECK(board.lapic.Acknowledge() == 0x62);
  CHECK(board.Msr(0x830) == (u64{1} << 32 | 0x862));
}

TEST_CASE("local APIC: random register and MSR traffic never breaks it") {
  for (u64 seed = 0; seed < 20; ++seed) {
    Board board;
    int acknowledged = 0;
    Hammer(board.lapic, 0x1000, seed, 4000, [&](std::mt19937_64& random) {
      const u64 what = random();
      board.lapic.Write((random() & 0x3f) << 4, 4, random() & 0xffffffff);
      if ((what & 7) == 0) {
        board.lapic.WriteMsr(0x800 + (what >> 8 & 0xff), random() >> (what >> 16 & 63));
        board.lapic.WriteMsr(0x6e0, random() >> (what >> 24 & 63));
        u64 value;
        static_cast<void>(board.lapic.ReadMsr(0x800 + (what >> 32 & 0xff), &value));
      }
      if ((what & 0x3f8) == 0) board.lapic.WriteMsr(0x1b, 0xfee00000 | (what >> 20 & 0xd00));
      if (what & 0x400) board.Fixed(static_cast<u8>(what >> 48), what & 0x800);
      board.lapic.SetLint0(what & 0x1000);
      board.clock.Advance(what >> 40 & 0xfffff);
      board.timers.RunExpired(board.clock.NowNs());
      if (*board.lapic.TprThreshold() > board.lapic.tpr() >> 4) {
        REQUIRE(board.Pending());
        const u8 vector = board.lapic.Acknowledge();
        REQUIRE(vector >= 16);
        ++acknowledged;
      }
    });
    CHECK(acknowledged > 0);
  }
}

struct IoBoard {
  void Out(u8 index, u32 value) {
    ioapic.Write(0, 4, index);
    ioapic.Write(0x10, 4, value);
  }
  u32 In(u8 index) {
    ioapic.Write(0, 4, index);
    return static_cast<u32>(ioapic.Read(0x10, 4));
  }
  std::vector<ApicMessage> sent;
  IoApic ioapic{[this](const ApicMessage& message) { sent.push_back(message); }};
};

TEST_CASE("I/O APIC: identity and reset state") {
  IoBoard board;
  CHECK(board.In(1) == 0x00170020);
  board.Out(0, 0xffffffff);
  CHECK(board.In(0) == 0x0f000000);
  CHECK(board.In(2) == 0x0f000000);
  for (u8 i = 0; i < 24; ++i) CHECK(board.In(static_cast<u8>(0x10 + 2 * i)) == 0x10000);
  CHECK(board.In(0x40) == 0);
  CHECK(board.In(0xff) == 0);
}

TEST_CASE("I/O APIC: an edge is one message, masked edges are forgotten") {
  IoBoard board;
  board.ioapic.Line(4).Set(true);
  board.ioapic.Line(4).Set(false);
  board.Out(0x19, 0x03000000);
  board.Out(0x18, 0x00000931);
  CHECK(board.sent.empty());
  board.ioapic.Line(4).Set(true);
  board.ioapic.Line(4).Set(true);
  REQUIRE(board.sent.size() == 1);
  CHECK(board.sent[0].vector == 0x31);
  CHECK(board.sent[0].logical);
  CHECK(board.sent[0].destination == 3);
  CHECK(board.sent[0].mode == DeliveryMode::kLowestPriority);
  CHECK_FALSE(board.sent[0].level_triggered);
}

TEST_CASE("I/O APIC: a level waits for its EOI and asks again while asserted") {
  IoBoard board;
  board.ioapic.Line(10).Set(true);
  board.Out(0x24, 0x8052);
  REQUIRE(board.sent.size() == 1);
  CHECK(board.sent[0].level_triggered);
  CHECK(board.In(0x24) == 0xc052);
  board.ioapic.Line(10).Set(false);
  board.ioapic.Line(10).Set(true);
  CHECK(board.sent.size() == 1);
  board.ioapic.EndOfInterrupt(0x51);
  CHECK(board.sent.size() == 1);
  board.ioapic.EndOfInterrupt(0x52);
  CHECK(board.sent.size() == 2);
  board.ioapic.Line(10).Set(false);
  board.ioapic.Write(0x40, 4, 0x52);
  CHECK(board.sent.size() == 2);
  CHECK(board.In(0x24) == 0x8052);
}

TEST_CASE("I/O APIC and local APIC together: level interrupt and EOI broadcast") {
  struct Together : Board {
    void EndOfInterrupt(u8 vector) override { ioapic.EndOfInterrupt(vector); }
    IoApic ioapic{[this](const ApicMessage& message) {
      if (lapic.IsDestination(message)) lapic.Deliver(message);
    }};
  } board;
  board.ioapic.Write(0, 4, 0x10 + 2 * 9);
  board.ioapic.Write(0x10, 4, 0x8071);
  board.ioapic.Line(9).Set(true);
  CHECK(board.lapic.Acknowledge() == 0x71);
  board.Out(kEoi, 0);
  REQUIRE(board.Pending());
  CHECK(board.lapic.Acknowledge() == 0x71);
  board.ioapic.Line(9).Set(false);
  board.Out(kEoi, 0);
  CHECK_FALSE(board.Pending());
}

TEST_CASE("I/O APIC: random register traffic never breaks it") {
  for (u64 seed = 0; seed < 20; ++seed) {
    IoBoard board;
    Hammer(board.ioapic, 0x1000, seed, 3000, [&](std::mt19937_64& random) {
      const u64 what = random();
      board.Out(static_cast<u8>(what), static_cast<u32>(what >> 32));
      board.ioapic.Line(what >> 8 & 15).Set(what & 0x1000);
      board.ioapic.EndOfInterrupt(static_cast<u8>(what >> 20));
      static_cast<void>(board.In(static_cast<u8>(what >> 16)));
    });
  }
}

}  // namespace
}  // namespace alibi::devices
