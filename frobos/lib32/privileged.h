// SPDX-License-Identifier: Apache-2.0
// What 32-bit kernels have for themselves of privileged instructions, and their accesses to page
// and descriptor tables, at sites (frobos/common/privileged.h, which RunOnVmi() in vmi.h is about).
#ifndef ALIBI_FROBOS_LIB32_PRIVILEGED_H_
#define ALIBI_FROBOS_LIB32_PRIVILEGED_H_

#include "frobos/common/privileged.h"
#include "frobos/lib32/types.h"

namespace alibi::frobos {

inline u32 At(const void* p, u32 offset = 0) { return reinterpret_cast<u32>(p) + offset; }

struct [[gnu::packed]] TablePointer {
  u16 limit;
  u32 base;
};

// --- Control and debug registers ---

// A selector.
FROBOS_WRITE(WriteLdtr, kVmiSetLdt, "lldt %%ax")

inline void Clts() {
  asm volatile(FROBOS_SITE("clts") : : [call] "i"(kVmiClts) : "eax", "ecx", "edx", "cc", "memory");
}

inline constexpr u32 kCr0Pe = 1, kCr0Ts = 8, kCr0Wp = 1u << 16, kCr0Am = 1u << 18,
                     kCr0Pg = 1u << 31;
inline constexpr u32 kCr4Vme = 1, kCr4Pvi = 2, kCr4Pse = 0x10, kCr4Pae = 0x20;

// Debug registers: 0 to 3, 6, 7.
template <u32 kNumber>
void WriteDr(u32 v) {
  u32 number = kNumber;
  asm volatile(FROBOS_SITE("movl %%edx, %%dr%c[number]")
               : "+a"(number), "+d"(v)
               : [call] "i"(kVmiSetDr), [number] "i"(kNumber)
               : "ecx", "cc", "memory");
}
template <u32 kNumber>
u32 ReadDr() {
  u32 v = kNumber;
  asm volatile(FROBOS_SITE("movl %%dr%c[number], %%eax")
               : "+a"(v)
               : [call] "i"(kVmiGetDr), [number] "i"(kNumber)
               : "ecx", "edx", "cc", "memory");
  return v;
}

// --- Descriptors ---

inline void WriteGdtr(const TablePointer& p) {
  const TablePointer* at = &p;
  asm volatile(FROBOS_SITE("lgdt (%%eax)")
               : "+a"(at)
               : [call] "i"(kVmiSetGdt)
               : "ecx", "edx", "cc", "memory");
}
inline void WriteIdtr(const TablePointer& p) {
  const TablePointer* at = &p;
  asm volatile(FROBOS_SITE("lidt (%%eax)")
               : "+a"(at)
               : [call] "i"(kVmiSetIdt)
               : "ecx", "edx", "cc", "memory");
}
inline TablePointer ReadGdtr() {
  TablePointer p;
  TablePointer* at = &p;
  asm volatile(FROBOS_SITE("sgdt (%%eax)")
               : "+a"(at)
               : [call] "i"(kVmiGetGdt)
               : "ecx", "edx", "cc", "memory");
  return p;
}
inline TablePointer ReadIdtr() {
  TablePointer p;
  TablePointer* at = &p;
  asm volatile(FROBOS_SITE("sidt (%%eax)")
               : "+a"(at)
               : [call] "i"(kVmiGetIdt)
               : "ecx", "edx", "cc", "memory");
  return p;
}

// kCall: the table's kind (WriteGDTEntry, WriteLDTEntry or WriteIDTEntry).
template <VmiCall kCall>
void WriteDescriptor(u64* table, u32 index, u64 descriptor) {
  u32 low = static_cast<u32>(descriptor);
  asm volatile("pushl %[high]\n" FROBOS_SITE("movl %%ecx, (%%eax,%%edx,8)\nmovl (%%esp), %%ecx\n"
                                             "movl %%ecx, 4(%%eax,%%edx,8)") "addl $4, %%esp"
               : "+a"(table), "+d"(index), "+c"(low)
               : [call] "i"(kCall), [high] "r"(static_cast<u32>(descriptor >> 32))
               : "cc", "memory");
}
// The TSS's SS0 and ESP0 have changed.
inline void UpdateKernelStack(u32 ss0, u32 esp0) {
  asm volatile(FROBOS_SITE("nop")
               : "+a"(ss0), "+d"(esp0)
               : [call] "i"(kVmiUpdateKernelStack)
               : "ecx", "cc", "memory");
}

// --- The interrupt flag ---

// EFLAGS, of which IF counts.
inline u32 InterruptMask() {
  u32 v;
  asm volatile(FROBOS_SITE("pushfl\npopl %%eax")
               : "=a"(v)
               : [call] "i"(kVmiGetInterruptMask)
               : "memory");
  return v;
}
inline void SetInterruptMask(u32 v) {
  asm volatile(FROBOS_SITE("pushl %%eax\npopfl")
               : "+a"(v)
               : [call] "i"(kVmiSetInterruptMask)
               : "cc", "memory");
}
// Between two accesses to a slow device.
inline void IoDelay() {
  asm volatile(FROBOS_SITE("outb %%al, $0x80")
               :
               : [call] "i"(kVmiIoDelay)
               : "eax", "ecx", "edx", "cc", "memory");
}

// --- Page tables ---

// A table's level, as calls name it.
enum Level : u32 { kPageTable = 1, kPageDirectory = 2, kPointerTable = 4 };
// Besides the level, of a table that comes or goes.
inline constexpr u32 kPaePages = 0x10;

// What was present counts from InvalidatePage() or FlushTlb() on.
inline void SetEntry(volatile u32* at, u32 entry, u32 level) {
  asm volatile(FROBOS_SITE("movl %%eax, (%%edx)")
               : "+a"(entry), "+d"(at), "+c"(level)
               : [call] "i"(kVmiSetPxe)
               : "cc", "memory");
}
// Absent while it is half written.
inline void SetEntry(volatile u64* at, u64 entry, u32 level) {
  u32 low = static_cast<u32>(entry), high = static_cast<u32>(entry >> 32);
  asm volatile("pushl %[level]\n" FROBOS_SITE("movl $0, (%%ecx)\nmovl %%edx, 4(%%ecx)\n"
                                              "movl %%eax, (%%ecx)") "addl $4, %%esp"
               : "+a"(low), "+d"(high), "+c"(at)
               : [call] "i"(kVmiSetPxeLong), [level] "r"(level)
               : "cc", "memory");
}

// A page table's entry of four or eight bytes, for tables that are written as arrays. It is read as
// it is in memory, where the processor sets its bits.
template <class Word, u32 kLevel>
class Entry {
 public:
  Entry& operator=(Word entry) {
    SetEntry(&word_, entry, kLevel);
    return *this;
  }
  Entry& operator=(const Entry& other) { return *this = Word{other}; }
  operator Word() const { return word_; }

 private:
  volatile Word word_;
};
using PageEntry = Entry<u32, kPageTable>;
using DirectoryEntry = Entry<u32, kPageDirectory>;
using LongPageEntry = Entry<u64, kPageTable>;
using LongDirectoryEntry = Entry<u64, kPageDirectory>;
using LongPointerEntry = Entry<u64, kPointerTable>;

inline void InvalidatePage(u32 linear) {
  asm volatile(FROBOS_SITE("invlpg (%%eax)")
               : "+a"(linear)
               : [call] "i"(kVmiInvalPage)
               : "ecx", "edx", "cc", "memory");
}
// All but global pages; and the pointers of PAE paging are loaded again.
inline void FlushTlb() {
  u32 which = 1;
  asm volatile(FROBOS_SITE("movl %%cr3, %%eax\nmovl %%eax, %%cr3")
               : "+a"(which)
               : [call] "i"(kVmiFlushTlb)
               : "ecx", "edx", "cc", "memory");
}
// A page begins to be a page table, before anything leads to it; and is one no more.
inline void AllocatePageTable(u32 address, u32 kind) {
  u32 frame = address >> 12, none = 0;
  asm volatile("pushl $0\npushl $0\n" FROBOS_SITE("nop") "addl $8, %%esp"
               : "+a"(frame), "+d"(kind), "+c"(none)
               : [call] "i"(kVmiAllocatePage)
               : "cc", "memory");
}
inline void ReleasePageTable(u32 address, u32 kind) {
  u32 frame = address >> 12;
  asm volatile(FROBOS_SITE("nop")
               : "+a"(frame), "+d"(kind)
               : [call] "i"(kVmiReleasePage)
               : "ecx", "cc", "memory");
}
// Around changes of many entries, and around a switch to another process: what changes between has
// to be in force when the mode is kImmediate again.
enum LazyMode : u32 { kImmediate = 0, kManyEntries = 1, kTaskSwitch = 2 };
inline void SetLazyMode(LazyMode mode) {
  u32 value = mode;
  asm volatile(FROBOS_SITE("nop")
               : "+a"(value)
               : [call] "i"(kVmiSetLazyMode)
               : "ecx", "edx", "cc", "memory");
}

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB32_PRIVILEGED_H_
