// SPDX-License-Identifier: Apache-2.0
// The real-time clock (Motorola MC146818 data sheet): time, formats, its three interrupts, memory;
// and whether the machine's clocks agree.

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cmos.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u8 kSeconds = 0, kMinutes = 2, kHours = 4, kDay = 7, kMonth = 8, kYear = 9,
             kCentury = 0x32, kA = 10, kB = 11, kC = 12, kD = 13;
constexpr u8 kSet = 0x80, kPeriodic = 0x40, kAlarm = 0x20, kUpdate = 0x10, kBinary = 0x04,
             k24Hours = 0x02;
constexpr u16 kPmTimer = 0x608;
constexpr u64 kPmHz = 3'579'545;

volatile u64 interrupts;
volatile u8 causes;

// At the beginning of a second.
void WaitForSecond() {
  const u8 second = ReadCmos(kSeconds);
  WaitFor([=] { return (ReadCmos(kA) & 0x80) == 0 && ReadCmos(kSeconds) != second; });
}

void TestTime() {
  CheckEq("the battery is good", ReadCmos(kD) & 0x80, 0x80);
  CheckEq("the divider runs at 32 kHz", ReadCmos(kA) & 0x70, 0x20);
  CheckEq("24 hours", ReadCmos(kB) & k24Hours, k24Hours);
  const u8 b = ReadCmos(kB);
  // Noon and a leap day, in binary.
  WriteCmos(kB, static_cast<u8>(kSet | kBinary | k24Hours));
  const u8 year = ReadCmos(kYear), month = ReadCmos(kMonth), day = ReadCmos(kDay);
  WriteCmos(kSeconds, 59);
  WriteCmos(kMinutes, 59);
  WriteCmos(kHours, 23);
  WriteCmos(kDay, 28);
  WriteCmos(kMonth, 2);
  WriteCmos(kYear, 24);
  WriteCmos(kCentury, 20);
  CheckEq("the clock stands while it is set", ReadCmos(kSeconds), 59);
  WriteCmos(kB, static_cast<u8>(kBinary | k24Hours));
  WaitFor([] { return (ReadCmos(kA) & 0x80) == 0 && ReadCmos(kDay) == 29; });
  CheckEq("midnight before a leap day", ReadCmos(kHours) << 8 | ReadCmos(kMonth), 0x0002);
  // The same registers, as the other formats show them.
  WriteCmos(kB, static_cast<u8>(kSet | k24Hours));
  WriteCmos(kHours, 0x13);
  WriteCmos(kMinutes, 0x45);
  WriteCmos(kSeconds, 0x30);
  WriteCmos(kYear, 0x26);
  WriteCmos(kCentury, 0x20);
  WriteCmos(kMonth, 0x11);
  WriteCmos(kDay, 0x20);
  WriteCmos(kB, k24Hours);
  CheckEq("BCD", ReadCmos(kHours) << 8 | ReadCmos(kMinutes), 0x1345);
  WriteCmos(kB, kSet | k24Hours | kBinary);
  WriteCmos(kYear, year);
  WriteCmos(kCentury, 20);
  WriteCmos(kMonth, month);
  WriteCmos(kDay, day);
  WriteCmos(kB, b);
}

// The data sheet: 2,228 us for an update and its announcement; QEMU shows the announcement alone. A
// busy host makes it longer and shorter.
void TestUpdate() {
  const auto updating = [] { return (ReadCmos(kA) & 0x80) != 0; };
  // A busy host lets us sleep over the updates of some seconds.
  const auto begins = [&] {
    for (int tries = 0; tries < 16; ++tries) {
      if (WaitFor(updating)) return true;
    }
    return false;
  };
  constexpr u64 kMin = 244 * kPmHz / 1'000'000 / 2, kMax = 2228 * kPmHz / 1'000'000 * 3 / 2;
  bool edges = true, good = false;
  u64 passed = 0;
  for (int attempt = 0; attempt < 8 && edges && !good; ++attempt) {
    edges = WaitFor([&] { return !updating(); }) && begins();
    const u32 start = Inl(kPmTimer);
    const u8 before = ReadCmos(kSeconds);
    edges = edges && WaitFor([&] { return !updating(); });
    passed = (Inl(kPmTimer) - start) & 0xffffff;
    good = passed > kMin && passed < kMax && ReadCmos(kSeconds) != before;
  }
  Check(edges, "update in progress rises and falls");
  if (!good) Print("  an update took %lu ticks of the PM timer\n", passed);
  Check(good, "... for as long as an update takes, and then shows the next second");
}

void TestMemory() {
  const u8 before = ReadCmos(0x60);
  WriteCmos(0x60, 0xa5);
  CheckEq("a byte of memory", ReadCmos(0x60), 0xa5);
  WriteCmos(0x60, before);
  Outb(0x70, 0x80 | kD);  // with the NMI masked
  CheckEq("the index without its NMI bit", Inb(0x71) & 0x80, 0x80);
  Outb(0x70, kD);
}

void CountInterrupts(u8 sources) {
  DisableInterrupts();
  interrupts = 0;
  causes = 0;
  const u8 b = static_cast<u8>(ReadCmos(kB) & ~(kPeriodic | kAlarm | kUpdate));
  WriteCmos(kB, b);
  ReadCmos(kC);
  WriteCmos(kB, b | sources);
  EnableInterrupts();
}

void TestInterrupts() {
  InitPic();
  SetHandler(kIrqBase + 8, [](TrapFrame*) {
    causes = static_cast<u8>(causes | ReadCmos(kC));
    interrupts = interrupts + 1;
    EndOfIrq(8);
  });
  UnmaskIrq(2);
  UnmaskIrq(8);
  const u8 a = ReadCmos(kA);
  WriteCmos(kA, static_cast<u8>((a & 0xf0) | 6));  // 1,024 Hz
  CountInterrupts(kPeriodic);
  Check(WaitFor([] { return interrupts >= 20; }), "periodic interrupts");
  CheckEq("... with their flag", causes & 0xc0, 0xc0);
  // 1,024 Hz against the PM timer; a busy host loses some.
  bool good = false;
  u64 passed = 0;
  constexpr u64 kPeriods = 4;
  for (int attempt = 0; attempt < 400 && !good; ++attempt) {
    const u64 first = interrupts;
    WaitFor([=] { return interrupts > first; });
    const u32 start = Inl(kPmTimer);
    const u64 from = interrupts;
    WaitFor([=] { return interrupts >= from + kPeriods; });
    passed = (Inl(kPmTimer) - start) & 0xffffff;
    good = passed > kPeriods * kPmHz / 1024 * 3 / 4 && passed < kPeriods * kPmHz / 1024 * 5 / 4;
  }
  if (!good) Print("  4 periods took %lu ticks of the PM timer\n", passed);
  Check(good, "... at the rate that register A selects");
  CountInterrupts(kUpdate);
  Check(WaitFor([] { return interrupts >= 1; }), "an interrupt when the time was updated");
  CheckEq("... with its flag", causes & 0x90, 0x90);
  for (const int index : {1, 3, 5}) WriteCmos(static_cast<u8>(index), 0xff);  // each second
  CountInterrupts(kAlarm);
  Check(WaitFor([] { return interrupts >= 1; }), "an alarm that matches always");
  CheckEq("... with its flag", causes & 0xa0, 0xa0);
  CountInterrupts(0);
  DisableInterrupts();
  WriteCmos(kA, a);
  MaskAllInterrupts();
  SetHandler(kIrqBase + 8, nullptr);
}

// One second of the RTC, by everything that counts.
void TestClocks() {
  bool good = false;
  u64 pm = 0, early = 0, late = 0;
  u64 tsc[2];
  for (int attempt = 0; attempt < 5 && !good; ++attempt) {
    WaitForSecond();
    const u32 start = Inl(kPmTimer);
    tsc[0] = Rdtsc();
    WaitForSecond();
    pm = (Inl(kPmTimer) - start) & 0xffffff;
    tsc[0] = Rdtsc() - tsc[0];
    good = pm > kPmHz * 99 / 100 && pm < kPmHz * 101 / 100;
  }
  if (!good) Print("  a second is %lu ticks of the PM timer\n", pm);
  Check(good, "a second by RTC and PM timer");
  // The TSC and the PM timer, for as long as the PM timer does not wrap (4.7 s), in two halves: the
  // same rate in both.
  good = false;
  for (int attempt = 0; attempt < 10 && !good; ++attempt) {
    for (u64& cycles : tsc) {
      const u32 start = Inl(kPmTimer);
      const u64 from = Rdtsc();
      WaitFor([=] { return ((Inl(kPmTimer) - start) & 0xffffff) >= kPmHz / 10; });
      const u64 ticks = (Inl(kPmTimer) - start) & 0xffffff;
      cycles = (Rdtsc() - from) * 1000 / ticks;
    }
    early = tsc[0];
    late = tsc[1];
    good = early > late - late / 200 && early < late + late / 200;
  }
  if (!good) Print("  %lu and %lu TSC cycles for 1000 ticks\n", early, late);
  Check(good, "the TSC's rate by the PM timer stays");
}

constexpr Section kSections[] = {{"time", TestTime},
                                 {"update", TestUpdate},
                                 {"memory", TestMemory},
                                 {"interrupts", TestInterrupts},
                                 {"clocks", TestClocks}};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
