// SPDX-License-Identifier: Apache-2.0
#include "frobos/rom/real.h"

namespace alibi::frobos {

extern "C" {
extern u8 interrupt_stubs[];
void EnterProbe(const Frame* frame);
extern Frame trap_frame;
extern u16 trap_vector;
}

namespace {
constexpr u32 kStubSize = 8;
constexpr const char* kNames[] = {"#DE", "#DB", "NMI", "#BP", "#OF", "#BR", "#UD",
                                  "#NM", "#DF", "9",   "#TS", "#NP", "#SS", "#GP"};
const char* VectorName(u32 vector) {
  if (vector == kProbeExit) return "no fault";
  return vector < sizeof(kNames) / sizeof(kNames[0]) ? kNames[vector] : "interrupt";
}
}  // namespace

void InitReal() {
  for (u32 v = 0; v < 256; v++) {
    WriteDword(0, v * 4, u32{kSegment} << 16 | (At(interrupt_stubs) + kStubSize * v));
  }
}

Outcome RunFrame(const Frame& frame) {
  EnterProbe(&frame);
  asm volatile("" : : : "memory");
  Outcome o = {trap_frame, trap_vector};
  Frame& f = o.frame;
  f.eip &= 0xffff, f.cs &= 0xffff, f.eflags &= 0xffff, f.ss &= 0xffff;
  f.ds &= 0xffff, f.es &= 0xffff, f.fs &= 0xffff, f.gs &= 0xffff;
  return o;
}

Outcome Run(const void* code, Frame frame) {
  frame.eip = At(code);
  return RunFrame(frame);
}

Outcome RunAt(const void* code, u32 offset, Frame frame) {
  for (u32 i = 0; i < 128; i++) {
    WriteByte(kCodeSegment, (offset + i) & 0xffff, static_cast<const u8*>(code)[i]);
  }
  frame.cs = kCodeSegment;
  frame.eip = offset;
  return RunFrame(frame);
}

void CheckFault(const char* name, const Outcome& o, u8 vector, u32 eip) {
  const bool ok = o.vector == vector && (eip == ~0u || eip == o.frame.eip);
  CountCheck(ok);
  if (ok) {
    Print("PASS %s\n", name);
    return;
  }
  Print("FAIL %s: expected %s", name, VectorName(vector));
  if (eip != ~0u) Print(" at 0x%x", eip);
  Print(" got %s at 0x%x:0x%x\n", VectorName(o.vector), o.frame.cs, o.frame.eip);
}

void CheckDone(const char* name, const Outcome& o) { CheckFault(name, o, kProbeExit); }

u8 ReadByte(u32 segment, u32 offset) {
  u8 v;
  asm volatile("movw %w1, %%fs\n movb %%fs:(%2), %0" : "=q"(v) : "r"(segment), "r"(offset));
  return v;
}
u16 ReadWord(u32 segment, u32 offset) {
  u16 v;
  asm volatile("movw %w1, %%fs\n movw %%fs:(%2), %0" : "=r"(v) : "r"(segment), "r"(offset));
  return v;
}
u32 ReadDword(u32 segment, u32 offset) {
  u32 v;
  asm volatile("movw %w1, %%fs\n movl %%fs:(%2), %0" : "=r"(v) : "r"(segment), "r"(offset));
  return v;
}
void WriteByte(u32 segment, u32 offset, u8 value) {
  asm volatile("movw %w1, %%fs\n movb %0, %%fs:(%2)"
               :
               : "q"(value), "r"(segment), "r"(offset)
               : "memory");
}
void WriteWord(u32 segment, u32 offset, u16 value) {
  asm volatile("movw %w1, %%fs\n movw %0, %%fs:(%2)"
               :
               : "r"(value), "r"(segment), "r"(offset)
               : "memory");
}
void WriteDword(u32 segment, u32 offset, u32 value) {
  asm volatile("movw %w1, %%fs\n movl %0, %%fs:(%2)"
               :
               : "r"(value), "r"(segment), "r"(offset)
               : "memory");
}

namespace {

void TestBoot() {
  const BootState& b = boot_state;
  if (b.is_rom == 0) return Skip("the state of a reset", "this is not a ROM");
  // SDM vol. 3A table 9-1.
  CheckEq("reset: cr0", b.cr0, 0x60000010);
  Check(b.edx != 0, "reset: edx is the processor's signature");
  CheckEq("reset: eflags", b.eflags & ~kFlagsArithmetic, 2);
  CheckEq("reset: dr6", b.dr6, 0xffff0ff0);
  CheckEq("reset: dr7", b.dr7, 0x400);
  CheckEq("reset: esp", b.esp, 0);
  CheckEq("reset: cs", b.cs, 0xf000);
  CheckEq("reset: ss", b.ss, 0);
  CheckEq("reset: ds", b.ds, 0);
  CheckEq("reset: the IDT's base", b.idt_base, 0);
  CheckEq("reset: the IDT's limit", b.idt_limit, 0xffff);
  CheckEq("reset: the GDT's limit", b.gdt_limit, 0xffff);
  CheckEq("the reset vector, read through CS", b.ip_bytes, ReadDword(0xf000, 0xfff0));
  // The ROM is not written to.
  const u8 before = ReadByte(0xf000, 0x10);
  WriteByte(0xf000, 0x10, static_cast<u8>(~before));
  CheckEq("the ROM is read-only", ReadByte(0xf000, 0x10), before);
}

bool RunsOnQemu() {
  u32 a = 0x40000000, b, c, d;
  asm volatile("cpuid" : "+a"(a), "=b"(b), "=c"(c), "=d"(d));
  return b == 0x54474354 && c == 0x43544743;  // "TCGTCGTCGTCG"
}

}  // namespace

extern "C" [[gnu::used, noreturn]] void RomMain() {
  InitConsole();
  Print("\n");
  SetOnQemu(RunsOnQemu());
  InitReal();
  TestBoot();
  RunTests();
  Exit(static_cast<u8>(Summary()));
}

}  // namespace alibi::frobos
