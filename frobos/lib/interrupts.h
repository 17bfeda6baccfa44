// SPDX-License-Identifier: Apache-2.0
// Interrupt controllers and timers: 8259 PIC, 8254 PIT, local APIC.
#ifndef ALIBI_FROBOS_LIB_INTERRUPTS_H_
#define ALIBI_FROBOS_LIB_INTERRUPTS_H_

#include "frobos/lib/cpu.h"
#include "frobos/lib/types.h"

namespace alibi::frobos {

// The PICs deliver IRQ n as vector kIrqBase + n once InitPic ran.
inline constexpr u8 kIrqBase = 0x20;
inline constexpr u32 kPitHz = 1193182;

// Remaps both PICs to kIrqBase and masks every line.
void InitPic();
void MaskAllInterrupts();
void UnmaskIrq(unsigned irq);
void MaskIrq(unsigned irq);
void EndOfIrq(unsigned irq);
// In-service (isr true) or request register of the master.
u8 ReadPicRegister(bool isr);

enum class PitMode : u8 { kOneShot = 0, kPeriodic = 2 };
// Channel 0 (IRQ 0) with this divisor of kPitHz; 0 means 65536.
void StartPit(PitMode mode, u16 divisor);
// Channel 0 in mode 0 without a count: no tick until it is started again.
void StopPit();

// Local APIC registers, by offset (SDM vol. 3A table 11-1).
enum LapicRegister : u32 {
  kLapicId = 0x20,
  kLapicVersion = 0x30,
  kLapicTpr = 0x80,
  kLapicPpr = 0xa0,
  kLapicEoi = 0xb0,
  kLapicSpurious = 0xf0,
  kLapicIsr = 0x100,
  kLapicIrr = 0x200,
  kLapicError = 0x280,
  kLapicIcrLow = 0x300,
  kLapicIcrHigh = 0x310,
  kLapicTimer = 0x320,
  kLapicLint0 = 0x350,
  kLapicLint1 = 0x360,
  kLapicInitialCount = 0x380,
  kLapicCurrentCount = 0x390,
  kLapicDivide = 0x3e0,
};
inline constexpr u32 kLapicMasked = 1u << 16, kLapicPeriodic = 1u << 17,
                     kLapicSoftwareEnable = 1u << 8, kLapicExtInt = 7u << 8;
inline constexpr u8 kSpuriousVector = 0xff;

u32 ReadLapic(LapicRegister r);
void WriteLapic(LapicRegister r, u32 value);
// Enables it, masks its timer, and lets the PIC through LINT0 as ExtINT.
void InitLapic();
// Bit for a vector in the ISR or IRR array.
bool LapicBit(LapicRegister array, u8 vector);
// A fixed interrupt to ourselves.
void SendSelfIpi(u8 vector);

// Waits until the condition holds. False: not within what any machine takes that works at all (TSC
// cycles).
inline constexpr u64 kPatience = 4'000'000'000;
template <class Condition>
bool WaitFor(Condition condition, u64 patience = kPatience) {
  const u64 start = Rdtsc();
  while (!condition()) {
    if (Rdtsc() - start > patience) return false;
  }
  return true;
}

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_INTERRUPTS_H_
