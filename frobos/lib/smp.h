// SPDX-License-Identifier: Apache-2.0
// Other processors: started by INIT and startup IPIs (Intel SDM vol. 3A, 9.4), and given work.
//
// A processor's number is its APIC ID; the one that runs Main() is number 0. The others wait with
// interrupts on, halted, and do what they are told on stacks of their own. They share the IDT and
// the page tables, and each has a GDT and a TSS.
#ifndef ALIBI_FROBOS_LIB_SMP_H_
#define ALIBI_FROBOS_LIB_SMP_H_

#include "frobos/lib/types.h"

namespace alibi::frobos {

inline constexpr unsigned kMaxCpus = 16;
inline constexpr u8 kWakeVector = 0xf0;
inline constexpr u8 kUserDoneVector = 0xef;  // by which user code returns

// Interrupt command register: bits of its lower half, and sending. Under x2APIC the MSR is used.
inline constexpr u32 kIpiLowest = 1u << 8, kIpiNmi = 4u << 8, kIpiInit = 5u << 8,
                     kIpiStartup = 6u << 8, kIpiLogical = 1u << 11, kIpiAssert = 1u << 14,
                     kIpiSelf = 1u << 18, kIpiAll = 2u << 18, kIpiOthers = 3u << 18;
void SendIpi(u32 destination, u32 command);
bool InX2apic();
void EndOfIpi();  // of the local APIC, in either mode

// How many processors there are: the command line's cpus=N, or 4.
unsigned CpusWanted();
// This processor's.
unsigned CpuNumber();

// Where started processors begin: a page of this number holds the code.
inline constexpr u8 kStartPage = 8;
// Puts the code there. Before any startup IPI.
void PrepareStart();
// INIT, startup IPI; true if the processor has come up.
bool StartCpu(unsigned cpu);
// Has it come up (again) since PrepareStart() or ForgetCpu()?
bool IsUp(unsigned cpu);
void ForgetCpu(unsigned cpu);
// As it began: CS, and CR0 before it was changed.
struct StartState {
  u64 cs, cr0, edx;
};
StartState StartStateOf(unsigned cpu);
// PrepareStart() and all of them: how many run now, this one included.
unsigned StartAllCpus();

// Lets another processor call the function; returns at once.
void Begin(unsigned cpu, void (*function)(u64), u64 argument = 0);
// Waits until it has returned; false: not within ten times WaitFor()'s patience.
bool Finish(unsigned cpu);
// Both.
bool RunOn(unsigned cpu, void (*function)(u64), u64 argument = 0);

// On all processors at once, this one included. False: one does not come back.
bool Everywhere(void (*function)(u64), u64 argument = 0);

// Calls it in CPL 3 on this processor, with interrupts on; what it returns. Others may do the same
// meanwhile, which they must not with probes (frobos/lib/trap.h). The function, all that it touches
// and the stack must be user pages.
u64 CallUserHere(u64 (*function)(u64), u64 argument, u64 stack_top);

// A spin lock, 0 when it is free.
void TakeLock(volatile u32* lock);
inline void LeaveLock(volatile u32* lock) {
  asm volatile("" : : : "memory");
  *lock = 0;
}

inline void Relax() { asm volatile("pause" : : : "memory"); }

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_SMP_H_
