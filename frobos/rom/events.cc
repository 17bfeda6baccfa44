// SPDX-License-Identifier: Apache-2.0
// Timer interrupts in real mode, x87 environments of 16-bit code, breakpoints by linear address.

#include "frobos/rom/realsystem.h"

namespace alibi::frobos {
namespace {

constexpr u32 kTicksOffset = 0x700;  // in segment 0: a dword that the handler counts

// push ax; push ds; xor ax, ax; mov ds, ax; inc dword [0x700]; mov al, 0x20; out 0x20, al; pop ds;
// pop ax; iret
constexpr u8 kHandler[] = {0x50, 0x1e, 0x31, 0xc0, 0x8e, 0xd8, 0x66, 0xff, 0x06,
                           0x00, 0x07, 0xb0, 0x20, 0xe6, 0x20, 0x1f, 0x58, 0xcf};
constexpr u32 kHandlerOffset = 0x400;

u32 Ticks() { return ReadDword(0, kTicksOffset); }

}  // namespace

void TestInterrupts() {
  // After a reset the local APIC keeps the PIC's interrupts away: LINT0 is masked (SDM vol. 3A
  // 10.4.7.1). Unreal mode reaches it.
  WriteFar(0xfee000f0, 0x1ff);
  WriteFar(0xfee00350, 0x700);
  // The usual vectors of a PC: IRQ 0 at 8.
  for (const u8 v : List{u8{0x11}, u8{8}, u8{4}, u8{1}}) Outb(v == 0x11 ? 0x20 : 0x21, v);
  for (const u8 v : List{u8{0x11}, u8{0x70}, u8{2}, u8{1}}) Outb(v == 0x11 ? 0xa0 : 0xa1, v);
  Outb(0x21, 0xfe);
  Outb(0xa1, 0xff);
  for (u32 i = 0; i < sizeof(kHandler); i++) {
    WriteByte(kCodeSegment, kHandlerOffset + i, kHandler[i]);
  }
  const u32 saved = ReadDword(0, 8 * 4);
  WriteDword(0, 8 * 4, u32{kCodeSegment} << 16 | kHandlerOffset);
  WriteDword(0, kTicksOffset, 0);
  Outb(0x43, 0x34);  // channel 0, mode 2
  Outb(0x40, 0xa9);  // 1193 ticks: 1 kHz
  Outb(0x40, 0x04);

  // A loop that never leaves by itself: only the handler's count ends it.
  Outcome o = Run(CODE16("sti; xor cx, cx; 2: inc ecx; cmp dword ptr [bx], 20; jb 2b; cli"),
                  {.ebx = kTicksOffset, .eflags = 2, .ds = 0});
  CheckDone("a loop that waits for the timer", o);
  Check(o.frame.ecx > 100, "... ran between the ticks");
  CheckEq("... with its stack", o.frame.esp, 0x1000);
  o = Run(CODE16("2: jmp 3f; 3: cmp dword ptr [bx], 40; jae 4f; jmp 2b; 4: cli"),
          {.ebx = kTicksOffset, .eflags = 2 | kFlagIf, .ds = 0});
  CheckDone("a chain of jumps", o);
  o = Run(CODE16("2: hlt; cmp dword ptr [bx], 60; jb 2b; cli"),
          {.ebx = kTicksOffset, .eflags = 2 | kFlagIf, .ds = 0});
  CheckDone("hlt wakes up", o);
  // Repetitions are interrupted and go on: many of them, and every byte is written once.
  const u32 before = Ticks();
  o = Run(CODE16("2: mov cx, 0xffff; xor di, di; inc ax; rep stosb; cmp dword ptr fs:[bx], edx; jb "
                 "2b; cli"),
          {.eax = 0, .ebx = kTicksOffset, .edx = before + 30, .eflags = 2 | kFlagIf, .fs = 0});
  CheckDone("repetitions under interrupts", o);
  CheckEq("... cx", o.frame.ecx & 0xffff, 0);
  CheckEq("... di", o.frame.edi & 0xffff, 0xffff);
  bool same = true;
  for (u32 i = 0; i < 0xffff; i += 1021) {
    same = same && ReadByte(kDataSegment, i) == (o.frame.eax & 0xff);
  }
  Check(same, "... every byte");
  // Flags and registers survive; the carry chain would show any that does not.
  o = Run(
      CODE16("xor ax, ax; mov di, 1; stc; 2: adc ax, 0; pushf; pop si; cmp dword ptr [bx], edx; "
             "jae 3f; push si; popf; sti; inc cx; jmp 2b; 3: cli"),
      {.ebx = kTicksOffset, .ecx = 0, .edx = Ticks() + 20, .eflags = 2 | kFlagIf, .ds = 0});
  Check(o.Done() && (o.frame.eax & 0xffff) == 1 && (o.frame.edi & 0xffff) == 1,
        "flags survive interrupts");
  // MOV SS and STI hold an interrupt off for one instruction, and the stack is never torn.
  o = Run(
      CODE16("mov ax, 0x2000; mov cx, 0x4000; mov bp, sp; 2: mov ss, cx; mov sp, si; push ax; "
             "pop ax; mov ss, ax; mov sp, bp; cmp dword ptr [bx], edx; jb 2b; cli"),
      {.ebx = kTicksOffset, .edx = Ticks() + 20, .esi = 0x2000, .eflags = 2 | kFlagIf, .ds = 0});
  Check(o.Done() && o.frame.esp == 0x1000 && o.frame.ss == kStackSegment,
        "stack switches under interrupts");
  const u32 quiet = Ticks();
  o = Run(CODE16("mov cx, 0x4000; 2: cli; nop; loop 2b"), {.ds = 0});
  CheckEq("cli keeps them away", Ticks(), quiet);
  Outb(0x43, 0x30);  // mode 0, no count: the end of the ticks
  Outb(0x21, 0xff);
  WriteDword(0, 8 * 4, saved);
}

// Real-address mode's environments have linear addresses, and the opcode (SDM vol. 1, figures 8-10
// and 8-12).
void TestX87Environments() {
  if (SkipOnQemu("x87 environments of real mode")) return;
  const auto word = [](u32 offset) -> u32 { return ReadWord(kDataSegment, offset); };
  const auto dword = [](u32 offset) { return ReadDword(kDataSegment, offset); };
  // Some CPUs have the pointers for pending exceptions only.
  constexpr u32 kImage = 0xa00, kPointer = 0x1234;
  Outcome o = Run(CODE16("fninit; fxsave [bx]"), {.ebx = kImage});
  WriteDword(kDataSegment, kImage + 8, kPointer);
  o = Run(CODE16("fxrstor [bx]; fxsave [bx]"), {.ebx = kImage});
  CheckDone("fxsave and fxrstor", o);
  const bool kept = dword(kImage + 8) == kPointer;

  const void* code =
      CODE16("fninit; fldpi; fnstenv [bx]; fldz; .byte 0x66; fnstenv [bx+0x20]; fninit");
  o = Run(code, {.ebx = 0x800});
  CheckDone("environments of two instructions", o);
  const u32 pi = kept ? kSegment * 16 + At(code, 2) : 0,
            zero = kept ? kSegment * 16 + At(code, 6) : 0;
  constexpr u32 kOpcode = 0x7ff;  // has none on CPUs that note it for unmasked exceptions only
  CheckEq("... of 16 bits: the lower half", word(0x806), pi & 0xffff);
  CheckEq("... the upper one", word(0x808) & ~kOpcode, pi >> 16 << 12);
  CheckEq("... of 32 bits: the lower half", dword(0x82c), 0xffff0000 | (zero & 0xffff));
  CheckEq("... the upper one", dword(0x830) & ~kOpcode, zero >> 16 << 12);

  // What is loaded comes back: an instruction with an opcode, an operand.
  constexpr u32 kSmall[] = {0x37f, 0, 0xffff, 0x1234, 0x95a5, 0x4321, 0xa000};
  constexpr u32 kLarge[] = {0xffff037f, 0xffff0000, 0xffffffff, 0xffff1234,
                            0x0bcd95a5, 0xffff4321, 0x0dcba000};
  for (u32 i = 0; i < 7; ++i) {
    WriteWord(kDataSegment, 0x800 + 2 * i, kSmall[i]);
    WriteDword(kDataSegment, 0x840 + 4 * i, kLarge[i]);
  }
  o = Run(
      CODE16("fninit; fldenv [bx]; fnstenv [bx+0x20]; .byte 0x66; fldenv [bx+0x40]; .byte 0x66; "
             "fnstenv [bx+0x60]; fninit"),
      {.ebx = 0x800});
  CheckDone("fldenv", o);
  bool small = true, large = true;
  for (u32 i = 0; i < (kept ? 7u : 3u); ++i) {
    small = small && word(0x820 + 2 * i) == kSmall[i];
    // The upper halves of the first three are reserved: CPUs store ones, emulators zeros.
    const u32 compared = i < 3 ? 0xffff : ~0u;
    large = large && ((dword(0x860 + 4 * i) ^ kLarge[i]) & compared) == 0;
  }
  Check(small, "... of 16 bits comes back");
  Check(large, "... of 32 bits comes back");

  // A pending exception comes before whatever it loads.
  WriteWord(kDataSegment, 0x8fe, 0x37b);
  const void* pending = CODE16(
      "mov eax, cr0; or al, 0x20; mov cr0, eax; fninit; fldcw [si]; fld1; fldz; fdivp st(1), st; "
      "fldenv [bx]");
  o = Run(pending, {.ebx = 0xfff8, .esi = 0x8fe});
  CheckEq("fldenv with an exception pending", o.vector, kX87Error);
  o = Run(CODE16("mov eax, cr0; and al, 0xdf; mov cr0, eax; fninit"));
  CheckDone("fninit", o);
}

void TestX87() {
  TestX87Environments();
  for (u32 i = 0; i < 64; i += 2) WriteWord(kDataSegment, 0x800 + i, 0xdead);
  Outcome o = Run(CODE16("fninit; fild word ptr [bx]; fldpi; fnstenv [bx+0x10]"), {.ebx = 0x800});
  CheckDone("fnstenv of 16 bits", o);
  CheckEq("... the control word (with the exceptions masked)", ReadWord(kDataSegment, 0x810),
          0x37f);
  CheckEq("... the status word: TOP is 6", ReadWord(kDataSegment, 0x812) & 0x3800, 6 << 11);
  CheckEq("... the tag word", ReadWord(kDataSegment, 0x814), 0x0fff);
  CheckEq("... 14 bytes and no more", ReadWord(kDataSegment, 0x81e), 0xdead);
  for (u32 i = 0; i < 64; i += 2) WriteWord(kDataSegment, 0x800 + i, 0xdead);
  o = Run(CODE16("fninit; fild word ptr [bx]; .byte 0x66; fnstenv [bx+0x10]"), {.ebx = 0x800});
  CheckDone("fnstenv of 32 bits", o);
  CheckEq("... the control word", ReadWord(kDataSegment, 0x810), 0x37f);
  CheckEq("... the tag word", ReadWord(kDataSegment, 0x818), 0x3fff);
  CheckEq("... 28 bytes and no more", ReadWord(kDataSegment, 0x82c), 0xdead);
  // Out and in again, with values.
  for (u32 i = 0; i < 0x100; i += 2) WriteWord(kDataSegment, 0x900 + i, 0xdead);
  WriteWord(kDataSegment, 0x800, 1234);
  o = Run(CODE16("fninit; fild word ptr [bx]; fldpi; fnsave [bx+0x100]; frstor [bx+0x100]; fistp "
                 "dword ptr [bx+4]; fistp dword ptr [bx+8]"),
          {.ebx = 0x800});
  CheckDone("fnsave and frstor of 16 bits", o);
  CheckEq("... the upper value", ReadDword(kDataSegment, 0x804), 3);
  CheckEq("... the lower one", ReadDword(kDataSegment, 0x808), 1234);
  CheckEq("... 94 bytes and no more", ReadWord(kDataSegment, 0x900 + 94), 0xdead);
  o = Run(CODE16("fninit; fild word ptr [bx]; .byte 0x66; fnsave [bx+0x100]; .byte 0x66; frstor "
                 "[bx+0x100]; fistp dword ptr [bx+4]"),
          {.ebx = 0x800});
  CheckDone("fnsave and frstor of 32 bits", o);
  CheckEq("... the value", ReadDword(kDataSegment, 0x804), 1234);
  CheckEq("... 108 bytes and no more", ReadWord(kDataSegment, 0x900 + 108), 0xdead);
  o = Run(CODE16("fninit; mov word ptr [bx], 0x27f; fldcw [bx]; fnstcw [bx+2]; fld1; fld1; faddp; "
                 "fistp word ptr [bx+4]; fnstsw ax"),
          {.ebx = 0x800});
  Check(o.Done() && ReadWord(kDataSegment, 0x802) == 0x27f && ReadWord(kDataSegment, 0x804) == 2 &&
            (o.frame.eax & 0x3800) == 0,
        "fldcw, faddp, fistp, fnstsw");
}

void TestBreakpoints() {
  // QEMU dies of the first one by a SIGSEGV of its own.
  if (SkipOnQemu("breakpoints in real mode")) return;
  const void* code = CODE16("nop; nop; mov ax, [bx]; nop");
  const u32 linear = u32{kSegment} * 16 + At(code) + 1;
  asm volatile("mov %0, %%dr0" : : "r"(linear));
  asm volatile("mov %0, %%dr1" : : "r"(u32{kDataSegment} * 16 + 0x321));
  asm volatile("mov %0, %%dr6" : : "r"(0));
  asm volatile("mov %0, %%dr7" : : "r"(0x402));
  Outcome o = Run(code, {.ebx = 0x320});
  CheckFault("an instruction breakpoint is linear", o, kDebug, At(code, 1));
  u32 dr6;
  asm volatile("mov %%dr6, %0" : "=r"(dr6));
  CheckEq("... DR6", dr6 & 0xe00f, 1);
  asm volatile("mov %0, %%dr6" : : "r"(0));
  // Reads and writes of one byte, by DR1.
  asm volatile("mov %0, %%dr7" : : "r"(0x300408));
  o = Run(code, {.ebx = 0x320});
  CheckFault("a data breakpoint within a word", o, kDebug, At(code, 4));
  asm volatile("mov %%dr6, %0" : "=r"(dr6));
  CheckEq("... DR6", dr6 & 0xe00f, 2);
  o = Run(code, {.ebx = 0x31f});
  CheckDone("... the word before does not touch it", o);
  asm volatile("mov %0, %%dr7" : : "r"(0x400));
}

}  // namespace alibi::frobos
