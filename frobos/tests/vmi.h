// SPDX-License-Identifier: Apache-2.0
// What the parts of the kernel `vmi` share.
#ifndef ALIBI_FROBOS_TESTS_VMI_H_
#define ALIBI_FROBOS_TESTS_VMI_H_

#include "frobos/lib32/vmi.h"

namespace alibi::frobos {

inline constexpr Frame kMarked = {.ebx = 0xb0b0b0b0,
                                  .ecx = 0xc0c0c0c0,
                                  .edx = 0xd0d0d0d0,
                                  .esi = 0x51515151,
                                  .edi = 0xd1d1d1d1,
                                  .ebp = 0xbebebebe};

// With kMarked's registers, and these in the three that carry arguments. The call must be one.
Outcome Vmi(VmiCall call, u32 eax = 0, u32 edx = 0, u32 ecx = 0, const u32* words = nullptr,
            u32 count = 0, u32 eflags = kFlagsFixed);
Relocation RelocationOf(VmiCall call);
// The same as a check: it returned, and kept what a C function keeps.
Outcome CheckVmi(const char* name, VmiCall call, u32 eax = 0, u32 edx = 0, u32 ecx = 0,
                 const u32* words = nullptr, u32 count = 0);

// The interrupt controllers' vectors of IRQ 0 and on; only IRQ 0 is let through.
inline constexpr u8 kIrqBase = 0x30;
extern volatile u32 vmi_ticks;
void CatchTicks();
void ForgetTicks();

void TestFlags();
void TestReturns();
void TestHalt();
void TestPages32();
void TestPagesPae();
void TestHostile();
void TestLocalApic();
void TestTimer();
void TestStolenTime();
void TestLinux();
void TestSmp();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_TESTS_VMI_H_
