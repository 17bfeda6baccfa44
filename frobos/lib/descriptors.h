// SPDX-License-Identifier: Apache-2.0
// GDT, TSS and IDT (Intel SDM vol. 3A ch. 3, 6, 7).
#ifndef ALIBI_FROBOS_LIB_DESCRIPTORS_H_
#define ALIBI_FROBOS_LIB_DESCRIPTORS_H_

#include "frobos/lib/types.h"

namespace alibi::frobos {

// The order SYSCALL/SYSRET want: STAR = kKernelCode << 32 | kUserCode32 << 48. What CPL 3 can use
// is as Linux has it, kCpuNumber included, so that a VMM may run user code with its host's
// descriptors.
inline constexpr u16 kKernelCode = 0x08, kKernelData = 0x10, kUserCode32 = 0x20 | 3,
                     kUserData = 0x28 | 3, kUserCode = 0x30 | 3, kCpuNumber = 0x78 | 3,
                     kTssSelector = 0x80;
// GDT slots free for tests: selectors kSpareSelector, + 8, ... (kSpareCount of them).
inline constexpr u16 kSpareSelector = 0x40;
inline constexpr unsigned kSpareCount = 7;

struct [[gnu::packed]] Tss {
  u32 reserved0;
  u64 rsp[3];
  u64 reserved1;
  u64 ist[7];
  u64 reserved2;
  u16 reserved3;
  u16 io_map_base;
  // All ports allowed up to here if io_map_base points at it; the last byte must be 0xff.
  u8 io_map[129];
};
inline constexpr u16 kTssLimitNoIoMap = 103;

struct [[gnu::packed]] TablePointer {
  u16 limit;
  u64 base;
};

enum GateType : u8 { kInterruptGate = 0xe, kTrapGate = 0xf };

struct Gate {
  u64 low, high;
};

void InitDescriptors();
extern "C" u64 gdt[];
extern Gate idt[256];
extern Tss tss;

// Entry i of the GDT (selector i * 8) as 8 raw bytes; code/data descriptors made by hand.
void SetGdtEntry(u16 selector, u64 descriptor);
// A present code or data descriptor with flat limits. type is the 4-bit type of SDM table 3-1.
constexpr u64 SegmentDescriptor(unsigned type, unsigned dpl, bool long_code = false) {
  u64 d = 0x00c0'9000'0000'ffffull | 0xfull << 48;
  if (long_code) d = (d & ~(1ull << 54)) | 1ull << 53;
  return d | u64{type} << 40 | u64{dpl} << 45;
}

void SetGate(u8 vector, const void* entry, unsigned dpl = 0, unsigned ist = 0,
             GateType type = kInterruptGate, u16 selector = kKernelCode);
const Gate& GetGate(u8 vector);
void RestoreGate(u8 vector, const Gate& gate);
void SetIst(u8 vector, unsigned ist);

// IST stacks 1..7 (4 KB each); the address is their top.
u64 IstTop(unsigned ist);
// The stack on which traps from CPL 3 arrive (TSS.RSP0).
u64 TrapStackTop();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_DESCRIPTORS_H_
