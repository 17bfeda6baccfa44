// SPDX-License-Identifier: Apache-2.0
// The privileged instructions of a 64-bit kernel's, and its accesses to page and descriptor tables.
// Each stands at a site: the instructions themselves, with room for a call, and a note of the VMI
// call that is the same. A kernel that finds a VMI ROM has its sites become what the ROM answers
// (vmi.h); on any other machine they stay what they are. Registers are those of the calls
// (docs/vmi.md), so that both forms fit.
//
// What a test executes by itself, in probes and in assembly, stays bare: it is what the test is
// about. So do IRETQ, SYSRET and SWAPGS, which no ROM of ours asks for.
#ifndef ALIBI_FROBOS_LIB_PRIVILEGED_H_
#define ALIBI_FROBOS_LIB_PRIVILEGED_H_

#include "frobos/common/vmi_calls.h"
#include "frobos/lib/types.h"

namespace alibi::frobos {

// A site for inline assembly: instructions of a byte at least, and an operand [call].
#define FROBOS_SITE(instructions)             \
  "771: " instructions                        \
  "\n"                                        \
  ".fill 4, 1, 0x90\n"                        \
  "772:\n"                                    \
  ".pushsection privileged_sites, \"a\"\n"    \
  ".quad 771b\n.long %c[call], 772b - 771b\n" \
  ".popsection\n"

// --- Control and model-specific registers, CPUID ---

#define FROBOS_READ(name, number, instruction)                                                  \
  inline u64 name() {                                                                           \
    u64 v;                                                                                      \
    asm volatile(FROBOS_SITE(instruction) : "=a"(v) : [call] "i"(number) : "rcx", "rdx", "cc"); \
    return v;                                                                                   \
  }
#define FROBOS_WRITE(name, number, instruction)   \
  inline void name(u64 v) {                       \
    asm volatile(FROBOS_SITE(instruction)         \
                 : "+a"(v)                        \
                 : [call] "i"(number)             \
                 : "rcx", "rdx", "cc", "memory"); \
  }
FROBOS_READ(ReadCr0, kVmiGetCr0, "mov %%cr0, %%rax")
FROBOS_READ(ReadCr2, kVmiGetCr2, "mov %%cr2, %%rax")
FROBOS_READ(ReadCr3, kVmiGetCr3, "mov %%cr3, %%rax")
FROBOS_READ(ReadCr4, kVmiGetCr4, "mov %%cr4, %%rax")
FROBOS_READ(ReadCr8, kVmiGetCr8, "mov %%cr8, %%rax")
FROBOS_WRITE(WriteCr0, kVmiSetCr0, "mov %%rax, %%cr0")
FROBOS_WRITE(WriteCr2, kVmiSetCr2, "mov %%rax, %%cr2")
FROBOS_WRITE(WriteCr3, kVmiSetCr3, "mov %%rax, %%cr3")
FROBOS_WRITE(WriteCr4, kVmiSetCr4, "mov %%rax, %%cr4")
FROBOS_WRITE(WriteCr8, kVmiSetCr8, "mov %%rax, %%cr8")
// A selector.
FROBOS_WRITE(WriteTr, kVmiSetTr, "ltr %%ax")
// The addresses of what is loaded.
FROBOS_WRITE(LoadGdtr, kVmiSetGdt, "lgdt (%%rax)")
FROBOS_WRITE(LoadIdtr, kVmiSetIdt, "lidt (%%rax)")
#undef FROBOS_READ

inline u64 ReadMsr(u32 msr) {
  u32 lo, hi;
  asm volatile(FROBOS_SITE("rdmsr") : "=a"(lo), "=d"(hi), "+c"(msr) : [call] "i"(kVmiRdmsr) : "cc");
  return (u64{hi} << 32) | lo;
}
inline void WriteMsr(u32 msr, u64 v) {
  u32 lo = static_cast<u32>(v), hi = static_cast<u32>(v >> 32);
  asm volatile(FROBOS_SITE("wrmsr")
               : "+c"(msr), "+a"(lo), "+d"(hi)
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
               : "cc");
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
               : "rax", "rcx", "rdx", "cc", "memory");
}

// --- Descriptors ---

inline void WriteGdtDescriptor(u64* table, u64 index, u64 descriptor) {
  asm volatile(FROBOS_SITE("mov %%rcx, (%%rax,%%rdx,8)")
               : "+a"(table), "+d"(index), "+c"(descriptor)
               : [call] "i"(kVmiWriteGdtEntry)
               : "cc", "memory");
}
// `table` has entries of 16 bytes.
inline void WriteIdtDescriptor(void* table, u64 index, u64 low, u64 high) {
  asm volatile(
      "pushq %[high]\n" FROBOS_SITE("shl $4, %%rdx\nadd %%rdx, %%rax\nmov (%%rsp), %%rdx\n"
                                    "mov %%rdx, 8(%%rax)\nmov %%rcx, (%%rax)") "addq $8, %%rsp"
      : "+a"(table), "+d"(index), "+c"(low)
      : [call] "i"(kVmiWriteIdtEntry), [high] "r"(high)
      : "cc", "memory");
}

// --- Page tables ---

// `level`: 1 is a page table, 4 the root. What was present counts from Invlpg() or FlushTlb() on.
inline void SetTableEntry(u64* at, u64 entry, int level) {
  u64 kind = u64{1} << (level - 1);
  asm volatile(FROBOS_SITE("mov %%rax, (%%rdx)")
               : "+a"(entry), "+d"(at), "+c"(kind)
               : [call] "i"(kVmiSetPxe)
               : "cc", "memory");
}
FROBOS_WRITE(Invlpg, kVmiInvalPage, "invlpg (%%rax)")
#undef FROBOS_WRITE
// All but global pages.
inline void FlushTlb() {
  u64 which = 1;
  asm volatile(FROBOS_SITE("mov %%cr3, %%rax\nmov %%rax, %%cr3")
               : "+a"(which)
               : [call] "i"(kVmiFlushTlb)
               : "rcx", "rdx", "cc", "memory");
}
// The page is no page table any more, and nothing leads to it.
inline void ReleaseTable(u64 address, int level) {
  u64 frame = address >> 12, kind = u64{1} << (level - 1);
  asm volatile(FROBOS_SITE("nop")
               : "+a"(frame), "+d"(kind)
               : [call] "i"(kVmiReleasePage)
               : "rcx", "cc", "memory");
}

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_PRIVILEGED_H_
