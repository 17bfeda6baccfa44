// SPDX-License-Identifier: Apache-2.0
// Says what second it is, resets the machine, and so on, sixty times.
// //testsuite/program:reset_clock_long_test compares that with the host's clock. Each start
// measures the TSC by a countdown of the 8254, as systems do that boot: what is hidden from the
// clocks for that must be made up for.
#include "frobos/common/console.h"
#include "frobos/lib/cmos.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/kernel.h"

namespace alibi::frobos {
namespace {

constexpr u64 kResets = 60;
constexpr u8 kSeconds = 0, kMinutes = 2, kHours = 4, kA = 10;
constexpr u8 kUpdating = 0x80;

// In memory that no loader touches.
struct Memory {
  u64 magic, starts;
};
constexpr u64 kMagic = 0x6b636f6c6374736f;
volatile Memory& Kept() { return *reinterpret_cast<volatile Memory*>(0x3000000); }

void CountDown() {
  constexpr u16 kChannel2 = 0x42, kControl = 0x43, kSystem = 0x61;
  constexpr u8 kGate2 = 1, kSpeaker = 2, kOut2 = 0x20;
  constexpr u16 kCount = 59659;  // 50 ms
  Outb(kSystem, static_cast<u8>((Inb(kSystem) & ~kSpeaker) | kGate2));
  Outb(kControl, 0xb0);  // mode 0
  Outb(kChannel2, static_cast<u8>(kCount));
  Outb(kChannel2, kCount >> 8);
  while (!(Inb(kSystem) & kOut2)) Rdtsc();
}

// A guest that resets the machine again and again after very little work is taken for one that
// hangs.
void Work() {
  for (u64 left = 1'000'000'000; left != 0; --left) asm volatile("");
}

void WaitForSecond() {
  const u8 second = ReadCmos(kSeconds);
  while ((ReadCmos(kA) & kUpdating) != 0 || ReadCmos(kSeconds) == second) {
  }
}

}  // namespace

int Main() {
  if (Kept().magic != kMagic) {
    Kept().magic = kMagic;
    Kept().starts = 0;
  }
  CountDown();
  Work();
  WaitForSecond();
  Print("second %02x:%02x:%02x\n", ReadCmos(kHours), ReadCmos(kMinutes), ReadCmos(kSeconds));
  const u64 starts = Kept().starts;
  Kept().starts = starts + 1;
  if (starts == kResets) return 0;
  if (starts % 2 == 0) {
    Outb(0xcf9, 0x06);
  } else {
    Outb(0x64, 0xfe);  // the keyboard controller's reset line
  }
  for (;;) {
  }
}

}  // namespace alibi::frobos
