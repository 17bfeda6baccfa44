// SPDX-License-Identifier: Apache-2.0
// What 64-bit kernels have for themselves of privileged instructions, and their accesses to page
// and descriptor tables, at sites (frobos/common/privileged.h).
//
// What a test executes by itself, in probes and in assembly, stays bare: it is what the test is
// about. So do IRETQ, SYSRET and SWAPGS, which no ROM of ours asks for.
#ifndef ALIBI_FROBOS_LIB_PRIVILEGED_H_
#define ALIBI_FROBOS_LIB_PRIVILEGED_H_

#include "frobos/common/privileged.h"
#include "frobos/lib/types.h"

namespace alibi::frobos {

FROBOS_READ(ReadCr8, kVmiGetCr8, "mov %%cr8, %0")
FROBOS_WRITE(WriteCr2, kVmiSetCr2, "mov %0, %%cr2")
FROBOS_WRITE(WriteCr8, kVmiSetCr8, "mov %0, %%cr8")

// --- Descriptors ---

// From where 10 bytes are.
FROBOS_WRITE(LoadGdtr, kVmiSetGdt, "lgdt (%0)")
FROBOS_WRITE(LoadIdtr, kVmiSetIdt, "lidt (%0)")

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
FROBOS_WRITE(Invlpg, kVmiInvalPage, "invlpg (%0)")
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
