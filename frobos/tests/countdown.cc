// SPDX-License-Identifier: Apache-2.0
// What a system sees that measures the TSC by a countdown of the 8254, as Linux does: no two
// readings of the TSC are far apart, even if the host's CPU is often somebody else's. Not run on
// QEMU, which hides nothing; //testsuite/program:busy_host_test takes the CPU away.
#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/kernel.h"

namespace alibi::frobos {
namespace {

constexpr u16 kChannel2 = 0x42, kControl = 0x43, kSystem = 0x61;
constexpr u8 kGate2 = 1, kSpeaker = 2, kOut2 = 0x20;
constexpr u16 kCount = 29830;  // 25 ms
constexpr unsigned kCountdowns = 4;

struct Countdown {
  u64 ticks;        // of the TSC
  u64 longest_gap;  // between two readings
};

Countdown Measure() {
  Outb(kSystem, static_cast<u8>((Inb(kSystem) & ~kSpeaker) | kGate2));
  Outb(kControl, 0xb0);  // mode 0
  Outb(kChannel2, static_cast<u8>(kCount));
  Outb(kChannel2, kCount >> 8);
  const u64 begin = Rdtsc();
  u64 last = begin, longest = 0;
  bool backwards = false;
  while (!(Inb(kSystem) & kOut2)) {
    const u64 now = Rdtsc();
    backwards |= now < last;
    if (now - last > longest) longest = now - last;
    last = now;
  }
  return {last - begin, backwards ? ~u64{0} : longest};
}

}  // namespace

int Main() {
  Measure();  // once for the translations
  Countdown all[kCountdowns];
  for (Countdown& countdown : all) countdown = Measure();
  u64 shortest = ~u64{0};
  for (const Countdown& countdown : all) {
    if (countdown.ticks < shortest) shortest = countdown.ticks;
  }
  unsigned calm = 0, alike = 0;
  for (const Countdown& countdown : all) {
    Print("ticks %lu longest gap %lu\n", countdown.ticks, countdown.longest_gap);
    calm += countdown.longest_gap < countdown.ticks / 10;
    alike += countdown.ticks - shortest < shortest / 50;
  }
  // The host's own host may take the CPU away unseen.
  Check(calm >= kCountdowns - 1, "the TSC is read without long gaps during a countdown");
  Check(alike >= kCountdowns - 1, "countdowns take the same time by the TSC");
  return Summary();
}

}  // namespace alibi::frobos
