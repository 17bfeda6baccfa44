// SPDX-License-Identifier: Apache-2.0
// The 8254 timer: its modes as far as a PC's wiring shows them, latches, read-back, BCD, the gate
// and output of channel 2 at port 0x61, and the rate of IRQ 0 (Intel 8254 data sheet, 231164).

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u16 kChannel0 = 0x40, kChannel2 = 0x42, kControl = 0x43, kSystem = 0x61;
constexpr u8 kGate2 = 1, kSpeaker = 2, kRefresh = 0x10, kOut2 = 0x20;

volatile u64 ticks;

void Program(unsigned channel, unsigned mode, u16 count, bool bcd = false) {
  Outb(kControl, static_cast<u8>(channel << 6 | 0x30 | mode << 1 | bcd));
  Outb(kChannel0 + channel, static_cast<u8>(count));
  Outb(kChannel0 + channel, static_cast<u8>(count >> 8));
}
u16 ReadCount(unsigned channel) {
  Outb(kControl, static_cast<u8>(channel << 6));
  const u8 low = Inb(kChannel0 + channel);
  return static_cast<u16>(low | Inb(kChannel0 + channel) << 8);
}
u8 ReadStatus(unsigned channel) {
  Outb(kControl, static_cast<u8>(0xe0 | 2u << channel));
  return Inb(kChannel0 + channel);
}
void SetGate2(bool on) {
  Outb(kSystem, static_cast<u8>((Inb(kSystem) & ~(kGate2 | kSpeaker)) | (on ? kGate2 : 0)));
}
bool Out2() { return (Inb(kSystem) & kOut2) != 0; }

void TestStatus() {
  // QEMU has no null-count bit, and a counter's output does not follow its control word.
  if (SkipOnQemu("the status tells mode and access")) return;
  Group group("the status tells mode and access");
  for (const unsigned channel : {0u, 2u}) {
    for (const unsigned mode : {0u, 2u, 3u, 4u}) {
      for (const unsigned access : {1u, 2u, 3u}) {
        for (const unsigned bcd : {0u, 1u}) {
          const u8 control = static_cast<u8>(access << 4 | mode << 1 | bcd);
          Outb(kControl, static_cast<u8>(channel << 6 | control));
          const u8 status = ReadStatus(channel);
          // Bit 6: no count has been loaded. The output is high but for mode 0.
          const u8 want = static_cast<u8>(control | 0x40 | (mode != 0 ? 0x80 : 0));
          if (!group.Case(status == want)) {
            Print("  channel %u control %x: %x, expected %x\n", channel, control, status, want);
          }
        }
      }
    }
  }
  Program(0, 2, 1000);
  Check(WaitFor([] { return (ReadStatus(0) & 0x40) == 0; }), "... null count ends");
}

void TestLatch() {
  Program(0, 2, 0);
  WaitFor([] { return ReadCount(0) != 0; });
  Outb(kControl, 0x00);
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 1'000'000; });
  Outb(kControl, 0x00);  // the first latch holds
  const u8 low = Inb(kChannel0);
  const u16 held = static_cast<u16>(low | Inb(kChannel0) << 8);
  const u16 now = ReadCount(0);
  Check(static_cast<u16>(held - now) > 100, "a latched count stays until it is read");

  // Low and high byte alone.
  Outb(kControl, 0x14);
  Outb(kChannel0, 200);
  Check(WaitFor([] { return (ReadStatus(0) & 0x40) == 0; }), "a count by its low byte");
  bool good = true;
  for (int i = 0; i < 100; i++) good &= Inb(kChannel0) <= 200;
  Check(good, "... is read by its low byte");
  Outb(kControl, 0x24);
  Outb(kChannel0, 0x80);
  WaitFor([] { return (ReadStatus(0) & 0x40) == 0; });
  good = true;
  for (int i = 0; i < 100; i++) good &= Inb(kChannel0) <= 0x80;
  Check(good, "a count by its high byte");

  // Read-back of status and count together: the status comes first.
  Program(0, 2, 0x1000);
  WaitFor([] { return (ReadStatus(0) & 0x40) == 0; });
  Outb(kControl, 0xc2);
  const u8 status = Inb(kChannel0);
  const u8 first = Inb(kChannel0);
  const u16 count = static_cast<u16>(first | Inb(kChannel0) << 8);
  CheckEq("read-back: status first", status & 0x3f, 0x34);
  Check(count <= 0x1000 && count != 0, "... then the count");
  // Both channels by one command.
  Program(2, 0, 0x2000);
  Outb(kControl, 0xd0 | 0x0a);
  const u8 low0 = Inb(kChannel0);
  const u16 count0 = static_cast<u16>(low0 | Inb(kChannel0) << 8);
  const u8 low2 = Inb(kChannel2);
  const u16 count2 = static_cast<u16>(low2 | Inb(kChannel2) << 8);
  Check(count0 <= 0x1000 && count2 <= 0x2000, "read-back of two channels");
}

void TestCounting() {
  // BCD: no digit above 9. QEMU counts binary.
  bool good = true;
  if (!SkipOnQemu("BCD counts have decimal digits")) {
    Program(0, 2, 0x9999, true);
    WaitFor([] { return (ReadStatus(0) & 0x40) == 0; });
    for (int i = 0; i < 200; i++) {
      const u16 count = ReadCount(0);
      for (int shift = 0; shift < 16; shift += 4) good &= (count >> shift & 15) <= 9;
    }
    Check(good, "BCD counts have decimal digits");
  }
  // Mode 2 never shows 0; mode 3 counts by two, so it is even.
  Program(0, 2, 50);
  WaitFor([] { return (ReadStatus(0) & 0x40) == 0; });
  good = true;
  for (int i = 0; i < 500; i++) {
    const u16 count = ReadCount(0);
    good &= count >= 1 && count <= 50;
  }
  Check(good, "mode 2 counts from N to 1");
  Program(0, 3, 50);
  WaitFor([] { return (ReadStatus(0) & 0x40) == 0; });
  good = true;
  for (int i = 0; i < 500; i++) {
    const u16 count = ReadCount(0);
    good &= count <= 50 && count % 2 == 0;
  }
  Check(good, "mode 3 counts by two");
}

void TestChannel2() {
  SetGate2(false);
  Program(2, 0, 2000);
  CheckEq("mode 0: the output is low", Out2(), 0);
  // QEMU does not look at the gate in modes 0 and 1.
  if (!SkipOnQemu("mode 0: the gate")) {
    WaitFor([start = Rdtsc()] { return Rdtsc() - start > 10'000'000; });
    CheckEq("... and stays so while the gate is low", Out2(), 0);
    const u16 held = ReadCount(2);
    WaitFor([start = Rdtsc()] { return Rdtsc() - start > 1'000'000; });
    CheckEq("... because nothing is counted", ReadCount(2), held);
  }
  SetGate2(true);
  Check(WaitFor([] { return Out2(); }), "mode 0: high at the end of the count");
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 10'000'000; });
  CheckEq("... for good", Out2(), 1);
  Check(WaitFor([] { return ReadCount(2) > 2000; }), "... while the count goes on from 0xffff");
  CheckEq("status: output high", ReadStatus(2) & 0x80, 0x80);
  Program(2, 0, 0xffff);
  CheckEq("a new count: low again", Out2(), 0);

  Program(2, 3, 2000);
  static u64 changes;
  changes = 0;
  static bool last;
  last = Out2();
  Check(WaitFor([] {
          const bool now = Out2();
          changes += now != last;
          last = now;
          return changes >= 8;
        }),
        "mode 3: the output changes");
  // By edges, not by samples: how many reads a half of the period takes is the machine's affair.
  // Some try is not disturbed by what else a busy host does.
  bool half = false;
  for (int attempt = 0; attempt < 40 && !half; attempt++) {
    u64 edges[3];  // a rise, the fall behind it, the next rise
    WaitFor([] { return !Out2(); });
    for (const int edge : {0, 1, 2}) {
      WaitFor([high = edge != 1] { return Out2() == high; });
      edges[edge] = Rdtsc();
    }
    const u64 high = edges[1] - edges[0], period = edges[2] - edges[0];
    half = high > period * 2 / 5 && high < period * 3 / 5;
  }
  Check(half, "... and is high about half the time");
  SetGate2(false);
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 10'000'000; });
  if (!SkipOnQemu("mode 3: high while the gate is low")) {
    CheckEq("mode 3: high while the gate is low", Out2(), 1);
  }

  // Mode 1: the gate's edge starts the pulse.
  Program(2, 1, 20000);
  CheckEq("mode 1: high before the gate's edge", Out2(), 1);
  SetGate2(true);
  if (!SkipOnQemu("mode 1: the pulse")) {
    Check(WaitFor([] { return !Out2(); }), "mode 1: low behind it");
    Check(WaitFor([] { return Out2(); }), "... until the count has run down");
  }

  CheckEq("port 0x61: gate reads back", Inb(kSystem) & (kGate2 | kSpeaker), kGate2);
  SetGate2(false);
  CheckEq("... and off", Inb(kSystem) & (kGate2 | kSpeaker), 0);
  const u8 refresh = Inb(kSystem) & kRefresh;
  Check(WaitFor([=] { return (Inb(kSystem) & kRefresh) != refresh; }), "the refresh bit toggles");
}

// TSC cycles for n interrupts of channel 0.
u64 CyclesOfTicks(unsigned mode, u16 divisor, u64 n) {
  Program(0, mode, divisor);
  EnableInterrupts();
  ticks = 0;
  WaitFor([] { return ticks >= 1; });
  const u64 start = Rdtsc(), first = ticks;
  WaitFor([=] { return ticks >= first + n; });
  const u64 cycles = Rdtsc() - start;
  DisableInterrupts();
  return cycles;
}

void TestRate() {
  InitPic();
  SetHandler(kIrqBase, [](TrapFrame*) {
    ticks = ticks + 1;
    EndOfIrq(0);
  });
  UnmaskIrq(0);
  // Against channel 2, which counts the same clock.
  for (const unsigned mode : {2u, 3u}) {
    bool good = false;
    u64 slow = 0, fast = 0;
    // Ticks are lost while a busy host does something else: some try is undisturbed.
    for (int attempt = 0; attempt < 40 && !good; attempt++) {
      fast = CyclesOfTicks(mode, 2000, 8);
      slow = CyclesOfTicks(mode, 8000, 2);
      good = fast > slow * 3 / 4 && slow > fast * 3 / 4;
    }
    if (!good) Print("  8 ticks of 2000: %lu cycles, 2 of 8000: %lu\n", fast, slow);
    Check(good, mode == 2 ? "mode 2: IRQ 0 at the divisor's rate" : "mode 3: the same rate");
  }
  // A busy host makes ticks late or loses them: some pair of neighbours is undisturbed.
  bool good = false;
  u64 counted = 0;
  for (int attempt = 0; attempt < 400 && !good; attempt++) {
    SetGate2(true);
    Program(0, 2, 2000);
    ticks = 0;
    EnableInterrupts();
    WaitFor([] { return ticks >= 1; });
    Program(2, 0, 0xffff);
    const u64 first = ticks;
    WaitFor([=] { return ticks >= first + 1; });
    counted = 0xffff - ReadCount(2);
    DisableInterrupts();
    good = counted > 1700 && counted < 2300;
  }
  if (!good) Print("  a tick of 2000 is %lu counts of channel 2\n", counted);
  Check(good, "a tick against channel 2");
  // No interrupt in mode 0 but the one at the end of the count.
  StopPit();
  InitPic();  // forgets older requests
  UnmaskIrq(0);
  ticks = 0;
  EnableInterrupts();
  Program(0, 0, 3000);
  Check(WaitFor([] { return ticks == 1; }), "mode 0: an interrupt at the end of the count");
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 60'000'000; });
  CheckEq("... only one", ticks, 1);
  DisableInterrupts();
  SetGate2(false);
  MaskAllInterrupts();
  SetHandler(kIrqBase, nullptr);
}

constexpr Section kSections[] = {{"status", TestStatus},
                                 {"latch", TestLatch},
                                 {"counting", TestCounting},
                                 {"channel2", TestChannel2},
                                 {"rate", TestRate}};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
