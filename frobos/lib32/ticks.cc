// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib32/ticks.h"

#include "frobos/lib32/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u16 kPic = 0x20, kSecondPic = 0xa0, kPitChannel0 = 0x40, kPitControl = 0x43;
constexpr u16 kPitPeriod = 1193;
// SetAlarm's: against real time, by IRQ 0.
constexpr u32 kPeriodic = 0x100;

void Out(u16 port, u8 value) {
  Outb(port, value);
  IoDelay();
}

// `mask`: the lines of the first controller that are shut.
void InitPics(u8 mask) {
  Out(kPic, 0x11);
  Out(kSecondPic, 0x11);
  Out(kPic + 1, kTickVector);
  Out(kSecondPic + 1, kTickVector + 8);
  Out(kPic + 1, 4);
  Out(kSecondPic + 1, 2);
  Out(kPic + 1, 1);
  Out(kSecondPic + 1, 1);
  Out(kSecondPic + 1, 0xff);
  Out(kPic + 1, mask);
}

u64 Call(VmiCall call, u32 eax, u32 edx = 0, u32 ecx = 0, u64 words = 0) {
  const u32 function = KernelRelocation(call).address;
  asm volatile("pushl %[high]\npushl %[low]\ncall *%[function]\naddl $8, %%esp"
               : "+a"(eax), "+d"(edx), "+c"(ecx)
               : [function] "S"(function), [low] "D"(static_cast<u32>(words)),
                 [high] "b"(static_cast<u32>(words >> 32))
               : "cc", "memory");
  return u64{edx} << 32 | eax;
}

}  // namespace

void StartTicks() {
  InitPics(0xfe);
  if (HasVmiTimer()) {
    // The 8254 waits for an edge that never comes.
    Out(kPitControl, 0x3a);
    const u64 now = Call(kVmiGetCycleCounter, 0);
    Call(kVmiSetAlarm, kPeriodic, static_cast<u32>(now), static_cast<u32>(now >> 32),
         Call(kVmiGetCycleFrequency, 0) >> 10);
    return;
  }
  Out(kPitControl, 0x34);
  Out(kPitChannel0, kPitPeriod & 0xff);
  Out(kPitChannel0, kPitPeriod >> 8);
}

void StopTicks() {
  if (HasVmiTimer()) Call(kVmiCancelAlarm, kPeriodic);
  Out(kPitControl, 0x3a);
  InitPics(0xff);
}

void EndTick() { Outb(kPic, 0x20); }

bool TickWaits() {
  Outb(kPic, 0x0a);  // the request register is read next
  return (Inb(kPic) & 1) != 0;
}

}  // namespace alibi::frobos
