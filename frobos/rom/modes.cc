// SPDX-License-Identifier: Apache-2.0
// Exceptions, limits, memory and the ways out of real mode.

#include "frobos/rom/realsystem.h"

namespace alibi::frobos {
namespace {

struct ModeResults {
  u16 cs_before, cs_protected;  // 0
  u32 far_word;                 // 4
  u8 carry, stack_same;         // 8
  u16 pad;
  u32 handler;              // 12
  u32 code32;               // 16
  u32 tiny_limit;           // 20
  u16 msw, cs_real;         // 24
  u32 before_jump, unreal;  // 28
};
struct LongResults {
  u32 efer, ones;     // 0
  u32 r8[2], rip[2];  // 8
  u32 r15[2];         // 24
  u32 compat;         // 32
  u32 efer_after;     // 36
};
extern "C" {
void RunProtected(ModeResults* results);
void LeaveUnreal();
void RunLong(LongResults* results);
}

u32 ReadCr0() {
  u32 v;
  asm volatile("mov %%cr0, %0" : "=r"(v));
  return v;
}
void WriteCr0(u32 v) { asm volatile("mov %0, %%cr0" : : "r"(v) : "memory"); }

struct [[gnu::packed]] TablePointer {
  u16 limit;
  u32 base;
};

}  // namespace

void WriteFar(u32 address, u32 value) {
  static ModeResults unused;
  RunProtected(&unused);
  asm volatile("pushw %%es\n xorw %%bx, %%bx\n movw %%bx, %%es\n movl %0, %%es:(%1)\n popw %%es"
               :
               : "r"(value), "r"(address)
               : "ebx", "memory");
  LeaveUnreal();
}

void TestExceptions() {
  const void* divide = CODE16("xor cx, cx; div cx");
  CheckFault("#DE", Run(divide), kDivideError, At(divide, 2));
  const void* int3 = CODE16("int3");
  CheckFault("#BP", Run(int3), kBreakpoint, At(int3, 1));
  const void* into = CODE16("into; nop");
  CheckFault("#OF", Run(into, {.eflags = 2 | kFlagOf}), kOverflow, At(into, 1));
  CheckDone("into without overflow", Run(into));
  WriteWord(kDataSegment, 0x100, 0xfff0), WriteWord(kDataSegment, 0x102, 5);
  const void* bound = CODE16("bound ax, [bx]; nop");
  CheckFault("#BR above", Run(bound, {.eax = 6, .ebx = 0x100}), kBoundRange, At(bound));
  CheckFault("#BR below", Run(bound, {.eax = 0xffef, .ebx = 0x100}), kBoundRange, At(bound));
  CheckDone("bound within", Run(bound, {.eax = 0xfff0, .ebx = 0x100}));
  struct Invalid {
    const char* name;
    const void* code;
  };
  const void* lock_mov = CODE16(".byte 0xf0, 0x89, 0x07");
  const Invalid invalid[] = {
      {"ud2", CODE16("ud2")},
      {"lock nop", CODE16(".byte 0xf0, 0x90")},
      {"lock mov", lock_mov},
      {"mov to cs", CODE16(".byte 0x8e, 0xc8")},
      {"mov from segment register 7", CODE16(".byte 0x8c, 0xf8")},
      {"lea of a register", CODE16(".byte 0x8d, 0xc0")},
      {"lds of a register", CODE16(".byte 0xc5, 0xc0")},
      {"les of a register", CODE16(".byte 0xc4, 0xe2, 0x79, 0x18, 0xc0")},
      {"far jump to a register", CODE16(".byte 0xff, 0xe8")},
      {"ff /7", CODE16(".byte 0xff, 0xf8")},
      {"fe /2", CODE16(".byte 0xfe, 0x10")},
      {"lldt", CODE16("lldt ax")},
      {"ltr", CODE16("ltr ax")},
      {"sldt", CODE16("sldt ax")},
      {"str", CODE16("str ax")},
      {"verr", CODE16("verr ax")},
      {"lar", CODE16("lar ax, bx")},
      {"lsl", CODE16("lsl ax, bx")},
      {"arpl", CODE16("arpl ax, bx")},
  };
  for (const Invalid& i : invalid) {
    // SDM vol. 2, LOCK; QEMU ignores the prefix there.
    if (i.code == lock_mov && SkipOnQemu(i.name)) continue;
    CheckFault(i.name, Run(i.code), kInvalidOpcode, At(i.code));
  }
  const void* longest = CODE16(".fill 14, 1, 0x2e; nop");
  CheckDone("15 bytes are an instruction", Run(longest));
  const void* too_long = CODE16(".fill 15, 1, 0x2e; nop");
  CheckFault("16 are not", Run(too_long), kGeneralProtection, At(too_long));

  // Single step.
  const void* steps = CODE16("mov ax, 1; mov bx, 2");
  Outcome o = Run(steps, {.eflags = 2 | kFlagTf});
  CheckFault("single step", o, kDebug, At(steps, 3));
  CheckEq("... TF in the frame", o.frame.eflags & kFlagTf, kFlagTf);
  const void* rep = CODE16("rep stosb; nop");
  o = Run(rep, {.ecx = 3, .edi = 0x300, .eflags = 2 | kFlagTf});
  CheckFault("single step of a repetition", o, kDebug, At(rep));
  CheckEq("... one of them", o.frame.ecx, 2);
  const void* last = CODE16("rep stosb; nop");
  CheckFault("... the last", Run(last, {.ecx = 1, .edi = 0x300, .eflags = 2 | kFlagTf}), kDebug,
             At(last, 2));
  const void* shadow = CODE16("mov ss, ax; nop; nop");
  CheckFault("mov ss holds it off", Run(shadow, {.eax = kStackSegment, .eflags = 2 | kFlagTf}),
             kDebug, At(shadow, 3));
  const void* popf = CODE16("push 0x0102; popf; nop; nop");
  CheckFault("TF by popf counts after the next instruction", Run(popf), kDebug, At(popf, 5));
  const void* set = CODE16("push 0x0102; push cs; push offset 2f; iret; 2: nop; nop");
  o = Run(set);
  CheckFault("TF by iret", o, kDebug);
  const void* interrupt = CODE16("int 0x7e");
  o = Run(interrupt, {.eflags = 2 | kFlagTf});
  CheckFault("int n clears TF", o, 0x7e, At(interrupt, 2));

  // #NM and the bits of CR0 that make it.
  const u32 cr0 = ReadCr0();
  const void* fpu = CODE16("fninit");
  const void* fwait = CODE16("fwait");
  WriteCr0(cr0 | 8);
  CheckFault("TS: an x87 instruction", Run(fpu), kDeviceNotAvailable, At(fpu));
  CheckDone("TS alone: fwait", Run(fwait));
  WriteCr0(cr0 | 10);
  CheckFault("TS and MP: fwait", Run(fwait), kDeviceNotAvailable, At(fwait));
  WriteCr0((cr0 | 4) & ~8u);
  CheckFault("EM: an x87 instruction", Run(fpu), kDeviceNotAvailable, At(fpu));
  WriteCr0(cr0 & ~0xcu);
  CheckDone("neither",
            Run(CODE16("fninit; fild word ptr [bx]; fistp dword ptr [bx+4]"), {.ebx = 0x100}));
  CheckEq("... and the x87 works", ReadDword(kDataSegment, 0x104), 0xfffffff0);
  WriteCr0(cr0);
}

void TestLimits() {
  if (SkipOnQemu("limits in real mode (SDM vol. 3A 20.1.1, 5.3)")) return;
  struct Case {
    const char* name;
    const void* code;
    Frame frame;
    u8 vector;
  };
  const Case cases[] = {
      {"a byte at 0xffff", CODE16("mov al, [bx]"), {.ebx = 0xffff}, kProbeExit},
      {"a word at 0xffff", CODE16("mov ax, [bx]"), {.ebx = 0xffff}, kGeneralProtection},
      {"a word at 0xfffe", CODE16("mov ax, [bx]"), {.ebx = 0xfffe}, kProbeExit},
      {"a dword at 0xfffd", CODE16("mov eax, [bx]"), {.ebx = 0xfffd}, kGeneralProtection},
      {"a dword at 0xfffc", CODE16("mov eax, [bx]"), {.ebx = 0xfffc}, kProbeExit},
      {"a write at 0xffff", CODE16("mov [bx], ax"), {.ebx = 0xffff}, kGeneralProtection},
      {"add at 0xffff", CODE16("add [bx], ax"), {.ebx = 0xffff}, kGeneralProtection},
      {"through ss", CODE16("mov ax, [bp]"), {.ebp = 0xffff}, kStackFault},
      {"through ss by override", CODE16("mov ax, ss:[bx]"), {.ebx = 0xffff}, kStackFault},
      {"through fs", CODE16("mov ax, fs:[bx]"), {.ebx = 0xffff}, kGeneralProtection},
      {"a 32-bit address above", CODE16("mov al, [ebx]"), {.ebx = 0x10000}, kGeneralProtection},
      {"a 32-bit address below", CODE16("mov al, [ebx]"), {.ebx = 0xff00}, kProbeExit},
      {"32-bit sums do not wrap at 64 KB",
       CODE16("mov al, [ebx+esi]"),
       {.ebx = 0x8000, .esi = 0x8000},
       kGeneralProtection},
      {"esp with 32-bit addresses", CODE16("mov al, [esp+ebx]"), {.ebx = 0xf000}, kStackFault},
      {"lodsw at 0xffff", CODE16("lodsw"), {.esi = 0xffff}, kGeneralProtection},
      {"stosw at 0xffff", CODE16("stosw"), {.edi = 0xffff}, kGeneralProtection},
      {"an x87 operand of 8 bytes",
       CODE16("fild qword ptr [bx]"),
       {.ebx = 0xfffa},
       kGeneralProtection},
      {"pop at 0xffff", CODE16("pop ax"), {.esp = 0xffff}, kStackFault},
      {"popa that runs beyond", CODE16("popa"), {.esp = 0xfff8}, kProbeExit},
      {"a 32-bit far jump beyond 64 KB",
       CODE16(".byte 0x66, 0xea, 0, 0, 1, 0, 0, 0x50"),
       {},
       kGeneralProtection},
      {"jmp eax beyond", CODE16(".byte 0x66; jmp ax"), {.eax = 0x10000}, kGeneralProtection},
  };
  for (const Case& c : cases) {
    const Outcome o = Run(c.code, c.frame);
    // POPA wraps SP between its words, each of which fits.
    CheckFault(c.name, o, c.vector, c.vector == kProbeExit ? ~0u : At(c.code));
  }
  const void* push = CODE16("mov sp, 2; push eax");
  CheckFault("a dword pushed at 2", Run(push), kStackFault, At(push, 3));
  const void* rep = CODE16("rep movsw");
  Outcome o = Run(rep, {.ecx = 4, .esi = 0xfffb, .edi = 0x100, .es = kOtherSegment});
  CheckFault("rep movsw to the edge", o, kGeneralProtection, At(rep));
  CheckEq("... cx", o.frame.ecx, 2);
  CheckEq("... si", o.frame.esi, 0xffff);
  // Code at the edge: a NOP at 0xffff is run, what follows is not.
  WriteByte(kCodeSegment, 0xffff, 0x90);
  CheckFault("code runs beyond 0xffff", RunFrame({.eip = 0xffff, .cs = kCodeSegment}),
             kGeneralProtection);
  WriteByte(kCodeSegment, 0xffff, 0xb8);
  CheckFault("an instruction across it", RunFrame({.eip = 0xffff, .cs = kCodeSegment}),
             kGeneralProtection, 0xffff);
}

void TestMemory() {
  // A20: with it on, FFFF:0010 is 1 MB and not 0.
  Outb(0x92, static_cast<u8>((Inb(0x92) | 2) & ~1));
  const u32 saved = ReadDword(0, 0x500);
  WriteDword(0, 0x500, 0x00c0ffee);
  WriteDword(0xffff, 0x510, 0x12348765);
  CheckEq("FFFF:0510 is above 1 MB", ReadDword(0xffff, 0x510), 0x12348765);
  CheckEq("... and not 0000:0500", ReadDword(0, 0x500), 0x00c0ffee);
  Outb(0x92, static_cast<u8>(Inb(0x92) & ~3));
  // The gate is the board's, and recent boards have none.
  if (ReadDword(0xffff, 0x510) == 0x12348765) {
    Skip("A20 off", "port 92h masks nothing");
  } else {
    CheckEq("A20 off: the same memory", ReadDword(0xffff, 0x510), 0x00c0ffee);
    WriteDword(0xffff, 0x510, 0x0badcafe);
    CheckEq("... for writes", ReadDword(0, 0x500), 0x0badcafe);
    Outb(0x92, static_cast<u8>(Inb(0x92) | 2));
    CheckEq("A20 on again", ReadDword(0xffff, 0x510), 0x12348765);
  }
  WriteDword(0, 0x500, saved);

  // Code that changes itself.
  Outcome o = RunAt(CODE16("mov byte ptr cs:[2f-1b+0x101], 0x42; 2: mov al, 0x11"), 0x100);
  CheckEq("the next instruction is changed", o.frame.eax & 0xff, 0x42);
  o = RunAt(CODE16("xor ax, ax; mov cx, 100; 2: add ax, 0; inc byte ptr cs:[2b-1b+0x102]; loop 2b"),
            0x100);
  // The immediate byte is sign-extended, and counts 0, 1, 2, ... 99.
  CheckEq("an immediate that counts", o.frame.eax & 0xffff, 99 * 100 / 2);
  const void* overwrite = CODE16(
      "mov si, offset 3f-1b+0x200; mov di, offset 2f-1b+0x200; mov cx, offset 4f-3f; push cs; pop "
      "ds; push cs; pop es; "
      "rep movsb; 2: mov ax, 0x1111; nop; nop; jmp 5f; 3: mov ax, 0x2222; nop; 4: nop; 5:");
  o = RunAt(overwrite, 0x200);
  CheckEq("code that a string instruction wrote", o.frame.eax & 0xffff, 0x2222);
  // The same code, changed from outside between two runs, by another segment's address.
  o = RunAt(CODE16("mov dx, 0x1234"), 0x300);
  WriteWord(kCodeSegment - 0x10, 0x401, 0x5678);
  o = RunFrame({.eip = 0x300, .cs = kCodeSegment});
  CheckEq("code changed through another segment", o.frame.edx & 0xffff, 0x5678);
}

void TestSystem() {
  Outcome o = Run(CODE16("smsw ax; mov ecx, cr0; lmsw ax; smsw dx; clts; mov ebx, cr0"));
  CheckEq("smsw", o.frame.eax & 0xffff, o.frame.ecx & 0xffff);
  // LGDT of 16 bits takes 24 bits of the base.
  static TablePointer p;
  p = {0x1234, 0xff345678};
  static TablePointer q;
  asm volatile("lgdtw %0\n sgdtl %1" : : "m"(p), "m"(q) : "memory");
  CheckEq("lgdt of 16 bits: the base", q.base, 0x00345678);
  CheckEq("... the limit", q.limit, 0x1234);
  asm volatile("lgdtl %0\n sgdtl %1" : : "m"(p), "m"(q) : "memory");
  CheckEq("lgdt of 32 bits: the base", q.base, 0xff345678);
  // The vectors may lie elsewhere, and end early.
  for (u32 i = 0; i < 256; i++) WriteDword(0x6000, i * 4, ReadDword(0, i * 4));
  WriteDword(0x6000, 0x40 * 4, ReadDword(0, kProbeExit * 4) & 0xffff0000);
  WriteDword(0x6000, 0x40 * 4, ReadDword(0, 0x41 * 4));
  p = {0x3ff, 0x60000};
  asm volatile("lidtl %0" : : "m"(p));
  o = Run(CODE16("int 0x40"));
  CheckEq("vectors at 6000:0000", o.vector, 0x41);
  p = {0x40 * 4 + 2, 0};
  asm volatile("lidtl %0" : : "m"(p));
  const void* beyond = CODE16("int 0x40");
  o = Run(beyond);
  p = {0x3ff, 0};
  asm volatile("lidtl %0" : : "m"(p));
  CheckFault("a vector beyond the limit", o, kGeneralProtection, At(beyond));
  const void* set = CODE16("mov cr0, eax");
  const u32 cr0 = ReadCr0();
  // SDM vol. 2, MOV to a control register; QEMU takes both.
  if (!SkipOnQemu("PG without PE, NW without CD")) {
    CheckFault("PG without PE", Run(set, {.eax = cr0 | 0x80000000}), kGeneralProtection, At(set));
    CheckFault("NW without CD", Run(set, {.eax = (cr0 & ~0x40000000u) | 0x20000000}),
               kGeneralProtection, At(set));
  }
  o = Run(CODE16("mov eax, 1; cpuid; rdtsc; mov ecx, 0xc0000080; rdmsr"));
  CheckEq("EFER is 0 in real mode", o.frame.eax & 0x500, 0);
  const void* msr = CODE16("rdmsr");
  if (!SkipOnQemu("an MSR that does not exist")) {
    CheckFault("an MSR that does not exist", Run(msr, {.ecx = 0x12345}), kGeneralProtection,
               At(msr));
  }
}

void TestModes() {
  for (u32 round = 0; round < 3; round++) {
    static ModeResults r;
    r = {};
    RunProtected(&r);
    Check(r.cs_before == kSegment && r.cs_protected == 8, "to 16-bit protected mode");
    CheckEq("... memory above 1 MB", r.far_word, 0x12233445 + 0x100 - 0x100);
    CheckEq("... an interrupt by a 16-bit gate", r.handler, 0xfeedbeef);
    Check(r.carry == 1 && r.stack_same == 1, "... which gives flags and stack back");
    CheckEq("32-bit code", r.code32, 0x12345679);
    CheckEq("... lsl", r.tiny_limit, 0xf);
    CheckEq("... CR0.PE", r.msw & 1u, 1);
    CheckEq("back in real mode, before a far jump", r.before_jump, r.far_word);
    CheckEq("... cs", r.cs_real, kSegment);
    CheckEq("unreal mode: a base of 0 and the large limit", r.unreal, r.far_word);
    // The library's own reads go through FS, which the run has left with a limit of 15.
    if (round == 0 && !SkipOnQemu("a tiny limit in real mode (SDM vol. 3A 5.3)")) {
      const void* read = CODE16("mov al, fs:[bx]");
      CheckDone("a tiny limit: within", Run(read, {.ebx = 0xf}));
      CheckFault("... beyond, whatever FS is loaded with", Run(read, {.ebx = 0x10}),
                 kGeneralProtection, At(read));
    }
    LeaveUnreal();
    CheckEq("and all is as before", ReadDword(0, kProbeExit * 4) >> 16, kSegment);
    if (!OnQemu()) {
      const void* far = CODE16("mov eax, es:[ebx]");
      CheckFault("es has its limit again", Run(far, {.ebx = 0x10000}), kGeneralProtection, At(far));
    }
  }

  u32 a = 0x80000001, b, c = 0, d;
  asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  if ((d >> 29 & 1) == 0) return Skip("long mode", "CPUID does not show it");
  for (u32 i = 0; i < 0x3000; i += 4) WriteDword(0x7000, i, 0);
  WriteDword(0x7000, 0, 0x71003);
  WriteDword(0x7000, 0x1000, 0x72003);
  WriteDword(0x7000, 0x2000, 0x83);
  for (u32 round = 0; round < 3; round++) {
    static LongResults r;
    r = {};
    RunLong(&r);
    CheckEq("real mode to long mode: EFER", r.efer & 0x500, 0x500);
    Check(r.r8[0] == 0x55667788 && r.r8[1] == 0x11223344, "64-bit registers");
    CheckEq("... rip", r.rip[0] >> 16 | r.rip[1], 1);
    CheckEq("... popcnt of 64 bits", r.ones, 64);
    Check(r.r15[0] == ~0u && r.r15[1] == ~0u, "... call and ret");
    CheckEq("16-bit compatibility mode", r.compat & 0xffff, 6);
    CheckEq("LMA goes with paging", r.efer_after & 0x500, 0x100);
    CheckDone("real mode again", Run(CODE16("mov ax, 1")));
  }
}

void RunTests() {
  TestExceptions();
  TestLimits();
  TestMemory();
  TestSystem();
  TestInterrupts();
  TestX87();
  TestBreakpoints();
  TestModes();
}

}  // namespace alibi::frobos
