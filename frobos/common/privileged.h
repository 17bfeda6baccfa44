// SPDX-License-Identifier: Apache-2.0
// Privileged instructions of 32-bit and of 64-bit kernels. Each stands at a site: the instructions
// themselves, with room for a call, and a note of the VMI call that is the same. A kernel that
// finds a VMI ROM has its sites become what the ROM answers (vmi_rom.h); on any other machine they
// stay what they are. Registers are those of the calls (docs/vmi.md), so that both forms fit:
// arguments in RAX, RDX, RCX and on the stack, and these three and the flags are lost.
#ifndef ALIBI_FROBOS_COMMON_PRIVILEGED_H_
#define ALIBI_FROBOS_COMMON_PRIVILEGED_H_

#include "frobos/common/types.h"
#include "frobos/common/vmi_calls.h"

namespace alibi::frobos {

#ifdef __x86_64__
using Register = u64;
#define FROBOS_SITE_ADDRESS ".quad"
#else
using Register = u32;
#define FROBOS_SITE_ADDRESS ".long"
#endif

// A site for inline assembly: instructions of a byte at least, and an operand [call]. It is a
// PrivilegedSite.
#define FROBOS_SITE(instructions)                              \
  "771: " instructions                                         \
  "\n"                                                         \
  ".fill 4, 1, 0x90\n"                                         \
  "772:\n"                                                     \
  ".pushsection privileged_sites, \"a\"\n" FROBOS_SITE_ADDRESS \
  " 771b\n.long %c[call], 772b - 771b\n"                       \
  ".popsection\n"

#define FROBOS_READ(name, number, instruction)                                                  \
  inline Register name() {                                                                      \
    Register v;                                                                                 \
    asm volatile(FROBOS_SITE(instruction) : "=a"(v) : [call] "i"(number) : "ecx", "edx", "cc"); \
    return v;                                                                                   \
  }
#define FROBOS_WRITE(name, number, instruction)   \
  inline void name(Register v) {                  \
    asm volatile(FROBOS_SITE(instruction)         \
                 : "+a"(v)                        \
                 : [call] "i"(number)             \
                 : "ecx", "edx", "cc", "memory"); \
  }

// --- Control and model-specific registers, CPUID ---

FROBOS_READ(ReadCr0, kVmiGetCr0, "mov %%cr0, %0")
FROBOS_READ(ReadCr2, kVmiGetCr2, "mov %%cr2, %0")
FROBOS_READ(ReadCr3, kVmiGetCr3, "mov %%cr3, %0")
FROBOS_READ(ReadCr4, kVmiGetCr4, "mov %%cr4, %0")
FROBOS_WRITE(WriteCr0, kVmiSetCr0, "mov %0, %%cr0")
FROBOS_WRITE(WriteCr3, kVmiSetCr3, "mov %0, %%cr3")
FROBOS_WRITE(WriteCr4, kVmiSetCr4, "mov %0, %%cr4")
// A selector.
FROBOS_WRITE(WriteTr, kVmiSetTr, "ltr %%ax")

inline u64 ReadMsr(u32 msr) {
  u32 low, high;
  asm volatile(FROBOS_SITE("rdmsr")
               : "=a"(low), "=d"(high), "+c"(msr)
               : [call] "i"(kVmiRdmsr)
               : "cc");
  return u64{high} << 32 | low;
}
inline void WriteMsr(u32 msr, u64 v) {
  u32 low = static_cast<u32>(v), high = static_cast<u32>(v >> 32);
  asm volatile(FROBOS_SITE("wrmsr")
               : "+c"(msr), "+a"(low), "+d"(high)
               : [call] "i"(kVmiWrmsr)
               : "cc", "memory");
}

struct CpuidResult {
  u32 eax, ebx, ecx, edx;
};
inline CpuidResult Cpuid(u32 leaf, u32 subleaf = 0) {
  CpuidResult r;
  asm volatile(FROBOS_SITE("cpuid")
               : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx)
               : [call] "i"(kVmiCpuid), "a"(leaf), "c"(subleaf)
               : "cc", "memory");
  return r;
}

// --- The interrupt flag ---

inline void EnableInterrupts() {
  asm volatile(FROBOS_SITE("sti") : : [call] "i"(kVmiEnableInterrupts) : "memory");
}
inline void DisableInterrupts() {
  asm volatile(FROBOS_SITE("cli") : : [call] "i"(kVmiDisableInterrupts) : "memory");
}
// With interrupts, until one has come.
inline void Halt() {
  asm volatile(FROBOS_SITE("sti\nhlt")
               :
               : [call] "i"(kVmiHalt)
               : "eax", "ecx", "edx", "cc", "memory");
}

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_COMMON_PRIVILEGED_H_
