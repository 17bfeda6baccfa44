// SPDX-License-Identifier: Apache-2.0
// A periodic interrupt for 32-bit kernels: IRQ 0, by the VMI ROM's timer where the kernel is on one
// that has it, and else by the 8254.
#ifndef ALIBI_FROBOS_LIB32_TICKS_H_
#define ALIBI_FROBOS_LIB32_TICKS_H_

#include "frobos/lib32/types.h"

namespace alibi::frobos {

// The vector of IRQ 0; the interrupt controllers let nothing else through.
inline constexpr u8 kTickVector = 0x30;

// Some 1,000 a second. The kernel has its handler by then, which calls EndTick().
void StartTicks();
void StopTicks();
void EndTick();
// Whether one waits for the interrupt flag.
bool TickWaits();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB32_TICKS_H_
