// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib/descriptors.h"

#include "frobos/lib/cpu.h"

namespace alibi::frobos {
namespace {

constexpr unsigned kIstStackSize = 4096;
constexpr unsigned kTrapStackSize = 16384;
alignas(16) u8 ist_stacks[7][kIstStackSize];
alignas(16) u8 trap_stack[kTrapStackSize];

}  // namespace

extern "C" {
alignas(16) u64 gdt[kTssSelector / 8 + 2];
}
alignas(16) Gate idt[256];
alignas(16) Tss tss;

void SetGdtEntry(u16 selector, u64 descriptor) {
  WriteGdtDescriptor(gdt, selector / 8u, descriptor);
}

u64 IstTop(unsigned ist) { return reinterpret_cast<u64>(ist_stacks[ist - 1] + kIstStackSize); }
u64 TrapStackTop() { return reinterpret_cast<u64>(trap_stack + kTrapStackSize); }

void SetGate(u8 vector, const void* entry, unsigned dpl, unsigned ist, GateType type,
             u16 selector) {
  const u64 address = reinterpret_cast<u64>(entry);
  WriteIdtDescriptor(idt, vector,
                     (address & 0xffff) | u64{selector} << 16 | u64{ist} << 32 | u64{type} << 40 |
                         u64{dpl} << 45 | 1ull << 47 | (address >> 16 & 0xffff) << 48,
                     address >> 32);
}

const Gate& GetGate(u8 vector) { return idt[vector]; }
void RestoreGate(u8 vector, const Gate& gate) {
  WriteIdtDescriptor(idt, vector, gate.low, gate.high);
}
void SetIst(u8 vector, unsigned ist) {
  WriteIdtDescriptor(idt, vector, (idt[vector].low & ~(7ull << 32)) | u64{ist} << 32,
                     idt[vector].high);
}

void InitDescriptors() {
  SetGdtEntry(kKernelCode, SegmentDescriptor(0xb, 0, true));
  SetGdtEntry(kKernelData, SegmentDescriptor(0x3, 0));
  SetGdtEntry(kUserCode32, SegmentDescriptor(0xb, 3));
  SetGdtEntry(kUserData, SegmentDescriptor(0x3, 3));
  SetGdtEntry(kUserCode, SegmentDescriptor(0xb, 3, true));
  SetGdtEntry(kCpuNumber, 0x0040'f500'0000'0000);  // the limit is the number

  const u64 base = reinterpret_cast<u64>(&tss);
  SetGdtEntry(kTssSelector, kTssLimitNoIoMap | (base & 0xffffff) << 16 | 0x89ull << 40 |
                                (base >> 24 & 0xff) << 56);
  SetGdtEntry(kTssSelector + 8, base >> 32);
  tss.rsp[0] = TrapStackTop();
  for (unsigned i = 1; i <= 7; i++) tss.ist[i - 1] = IstTop(i);
  tss.io_map_base = sizeof(Tss);

  const TablePointer gdt_pointer = {sizeof(gdt) - 1, reinterpret_cast<u64>(gdt)};
  const TablePointer idt_pointer = {sizeof(idt) - 1, reinterpret_cast<u64>(idt)};
  LoadGdtr(reinterpret_cast<u64>(&gdt_pointer));
  LoadIdtr(reinterpret_cast<u64>(&idt_pointer));
  asm volatile(
      "pushq %0\n"
      "lea 1f(%%rip), %%rax\n"
      "push %%rax\n"
      "lretq\n"
      "1: mov %1, %%ss\n"
      "mov %1, %%ds\n"
      "mov %1, %%es\n"
      :
      : "i"(kKernelCode), "r"(u32{kKernelData})
      : "rax", "memory");
  WriteTr(kTssSelector);
}

}  // namespace alibi::frobos
