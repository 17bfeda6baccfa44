// SPDX-License-Identifier: Apache-2.0
// Virtual-8086 mode: what traps at which IOPL, interrupts with their nine-word frames, entries by
// IRET and by task switch, I/O map, paging, VME where CPUID shows it (SDM vol. 3A ch. 20; vol. 2).

#include "frobos/lib32/vmi.h"

namespace alibi::frobos {
namespace {

constexpr u16 kCodeSegment = 0x2000, kStackSegment = 0x3000, kDataSegment = 0x4000,
              kOtherSegment = 0x5000;
constexpr u32 kIp = 0x100, kSp = 0x1000;
constexpr u8 kVector = 0x40;
constexpr u16 kTarget = kSpare;

u8* Low(u32 segment, u32 offset) {
  u32 address = segment * 16 + offset;
  // The vectors at 0 are memory like any other, which the compiler would not believe.
  asm("" : "+r"(address));
  return reinterpret_cast<u8*>(address);
}
u16& LowWord(u32 segment, u32 offset) { return *reinterpret_cast<u16*>(Low(segment, offset)); }
u32& LowDword(u32 segment, u32 offset) { return *reinterpret_cast<u32*>(Low(segment, offset)); }

Frame V86Frame(const Frame& f, unsigned iopl) {
  Frame v = f;
  v.eflags |= kFlagVm | iopl << 12;
  if (v.cs == 0) v.cs = kCodeSegment;
  if (v.eip == 0) v.eip = kIp;
  if (v.ss == 0) v.ss = kStackSegment;
  if (v.esp == 0) v.esp = kSp;
  if (v.ds == 0) v.ds = kDataSegment;
  if (v.es == 0) v.es = kDataSegment;
  if (v.fs == 0) v.fs = kOtherSegment;
  if (v.gs == 0) v.gs = kOtherSegment;
  return v;
}

// Runs 16-bit code in a copy at cs:ip. With IOPL below 3 the INT that ends a probe is itself a #GP:
// that counts as its end.
Outcome RunV86(const void* code, const Frame& frame = {}, unsigned iopl = 3) {
  const Frame f = V86Frame(frame, iopl);
  memcpy(Low(f.cs, f.eip), code, 256);
  Outcome o = RunFrame(f);
  const u8* at = Low(o.frame.cs, o.frame.eip);
  if (o.Is(kGeneralProtection, 0) && at[0] == 0xcd && at[1] == kProbeExit &&
      (o.frame.eflags & kFlagVm) != 0) {
    o.vector = kProbeExit;
    o.frame.eip += 2;
  }
  return o;
}

void TestFrames() {
  const void* reader =
      CODE32("mov eax, ds; mov ecx, es; mov edx, fs; mov esi, gs; pushfd; pop edi");
  SetIdt(kVector, Gate(CodeSelector(0), At(reader), kTrapGate32 | kDpl3));
  Outcome o = RunV86(CODE16("int 0x40"), {.esp = 0xabcd1000, .eflags = 2 | kFlagIf});
  CheckDone("INT n from v86", o);
  Check(o.frame.eax == 0 && o.frame.ecx == 0 && o.frame.edx == 0 && o.frame.esi == 0,
        "... the data segments are null in the handler");
  CheckEq("... flags in the handler", o.frame.edi, 2 | kFlagIf | kFlagIopl);
  CheckEq("... nine dwords on the ring 0 stack", o.frame.esp, RingStackTop(0) - 36);
  CheckEq("... ip", StackDword(o, 0), kIp + 2);
  CheckEq("... cs", StackWord(o, 2), kCodeSegment);
  CheckEq("... flags", StackDword(o, 2), 2 | kFlagIf | kFlagVm | kFlagIopl);
  CheckEq("... esp, all of it", StackDword(o, 3), 0xabcd1000);
  CheckEq("... ss", StackWord(o, 8), kStackSegment);
  CheckEq("... es", StackWord(o, 10), kDataSegment);
  CheckEq("... ds", StackWord(o, 12), kDataSegment);
  CheckEq("... fs", StackWord(o, 14), kOtherSegment);
  CheckEq("... gs", StackWord(o, 16), kOtherSegment);
  SetIdt(kVector, Gate(CodeSelector(0), At(reader), kInterruptGate32 | kDpl3));
  o = RunV86(CODE16("int 0x40"), {.eflags = 2 | kFlagIf | kFlagNt});
  CheckEq("an interrupt gate clears IF; NT and VM are clear", o.frame.edi, 2 | kFlagIopl);

  // Gates of 16 bits push words, and cannot be returned from to v86.
  SetGdt(kTarget, Descriptor(At(reader) - 0x40, 0xffff, kCode, k32Bit));
  SetIdt(kVector, Gate(kTarget, 0x40, kTrapGate16 | kDpl3));
  o = RunV86(CODE16("int 0x40"));
  Check(o.Done() && o.frame.esp == RingStackTop(0) - 18 && StackWord(o, 0) == kIp + 2 &&
            StackWord(o, 8) == kOtherSegment,
        "a 16-bit gate pushes nine words");

  // The handler must be nonconforming code of ring 0.
  struct Case {
    const char* name;
    u8 access;
  };
  for (const Case& c : List{Case{"DPL 1", kCode | kDpl1}, Case{"DPL 3", kCode | kDpl3},
                            Case{"conforming, DPL 0", kConforming}}) {
    SetGdt(kTarget, Flat(c.access));
    SetIdt(kVector, Gate(kTarget, At(reader), kTrapGate32 | kDpl3));
    // SDM vol. 2, INT: #GP(selector) unless the handler's CPL becomes 0.
    if (c.access != (kCode | kDpl3) && SkipOnQemu(c.name)) continue;
    CheckFault(c.name, RunV86(CODE16("int 0x40")), kGeneralProtection, kTarget, kIp);
  }
  SetIdt(kVector, Gate(CodeSelector(0), At(reader), kTrapGate32));
  CheckFault("a gate of DPL 0", RunV86(CODE16("int 0x40")), kGeneralProtection, kVector * 8 + 2,
             kIp);
  RestoreIdt(kVector);
  o = RunV86(CODE16("ud2"));
  CheckFault("a fault", o, kInvalidOpcode, 0, kIp);
  CheckEq("... its frame lies at", o.entry_esp, RingStackTop(0) - 36);
  o = RunV86(CODE16("hlt"));
  CheckFault("a fault with an error code", o, kGeneralProtection, 0, kIp);
  CheckEq("... its frame lies at", o.entry_esp, RingStackTop(0) - 40);
}

void TestIopl() {
  struct Case {
    const char* name;
    const void* code;
  };
  const Case sensitive[] = {
      {"cli", CODE16("cli")},        {"sti", CODE16("sti")},   {"pushf", CODE16("pushf")},
      {"pushfd", CODE16("pushfd")},  {"popf", CODE16("popf")}, {"popfd", CODE16("popfd")},
      {"int n", CODE16("int 0x7e")}, {"iret", CODE16("iret")}, {"iretd", CODE16("iretd")},
  };
  LowDword(kStackSegment, kSp) = kIp + 0x80;
  LowDword(kStackSegment, kSp + 4) = kCodeSegment;
  for (const Case& c : sensitive) {
    for (unsigned iopl = 0; iopl < 3; iopl++) {
      const Outcome o = RunV86(c.code, {}, iopl);
      const bool ok = o.Is(kGeneralProtection, 0) && o.frame.eip == kIp;
      Check(ok, c.name);
    }
  }
  const void* insensitive = CODE16(
      "nop; push ds; pop es; mov ax, cs; lahf; sahf; cld; lss sp, [bx]; xor ax, ax; smsw dx");
  LowWord(kDataSegment, 0) = kSp;
  LowWord(kDataSegment, 2) = kStackSegment;
  for (unsigned iopl = 0; iopl < 4; iopl++) {
    CheckDone("the rest does not care", RunV86(insensitive, {}, iopl));
  }
  for (unsigned iopl = 0; iopl < 4; iopl++) {
    CheckFault("int3 at any IOPL", RunV86(CODE16("int3"), {}, iopl), kBreakpoint, 0, kIp + 1);
    CheckFault("into at any IOPL", RunV86(CODE16("into"), {.eflags = 2 | kFlagOf}, iopl), kOverflow,
               0, kIp + 1);
    CheckFault("hlt at any IOPL", RunV86(CODE16("hlt"), {}, iopl), kGeneralProtection, 0, kIp);
  }
  // IOPL 3: the flags are the real ones; IOPL and VM stay whatever POPF and IRET want.
  Outcome o = RunV86(CODE16("sti; pushf; pop ax; cli; pushf; pop bx; pushfd; pop ecx"));
  CheckEq("sti with IOPL 3", o.frame.eax & 0xffff, 0x3202);
  CheckEq("cli", o.frame.ebx & 0xffff, 0x3002);
  CheckEq("pushfd shows no VM and no RF", o.frame.ecx, 0x3002);
  o = RunV86(CODE16("push 0x0ed7; popf; pushf; pop ax"));
  CheckEq("popf with IOPL 3", o.frame.eax & 0xffff, 0x3ed7);
  CheckEq("... stays in v86", o.frame.eflags & (kFlagVm | kFlagIopl), kFlagVm | kFlagIopl);
  o = RunV86(CODE16("mov eax, 0x00240001; push eax; popfd; pushfd; pop ecx"));
  CheckEq("popfd changes ID and AC, not IOPL", o.frame.ecx, 0x00243003);
  LowWord(kStackSegment, kSp) = kIp + 3;
  LowWord(kStackSegment, kSp + 2) = kCodeSegment + 0x10;
  LowWord(kStackSegment, kSp + 4) = 0x0881;
  memcpy(Low(kCodeSegment + 0x10, kIp + 3), CODE16("mov dx, cs"), 16);
  o = RunV86(CODE16("iret"));
  CheckDone("iret with IOPL 3", o);
  CheckEq("... cs", o.frame.edx & 0xffff, kCodeSegment + 0x10);
  CheckEq("... sp", o.frame.esp, kSp + 6);
  CheckEq("... flags", o.frame.eflags & 0xffff, 0x3883);
}

void TestPrivileged() {
  struct Case {
    const char* name;
    const void* code;
    u8 vector;
  };
  const Case cases[] = {
      {"lgdt", CODE16("lgdt [bx]"), kGeneralProtection},
      {"lidt", CODE16("lidt [bx]"), kGeneralProtection},
      {"lmsw", CODE16("lmsw ax"), kGeneralProtection},
      {"clts", CODE16("clts"), kGeneralProtection},
      {"mov from cr0", CODE16("mov eax, cr0"), kGeneralProtection},
      {"mov to cr3", CODE16("mov cr3, eax"), kGeneralProtection},
      {"mov from dr7", CODE16("mov eax, dr7"), kGeneralProtection},
      {"wbinvd", CODE16("wbinvd"), kGeneralProtection},
      {"invlpg", CODE16("invlpg [bx]"), kGeneralProtection},
      {"rdmsr", CODE16("rdmsr"), kGeneralProtection},
      {"wrmsr", CODE16("wrmsr"), kGeneralProtection},
      {"lldt", CODE16("lldt ax"), kInvalidOpcode},
      {"ltr", CODE16("ltr ax"), kInvalidOpcode},
      {"sldt", CODE16("sldt ax"), kInvalidOpcode},
      {"str", CODE16("str ax"), kInvalidOpcode},
      {"lar", CODE16("lar ax, bx"), kInvalidOpcode},
      {"lsl", CODE16("lsl ax, bx"), kInvalidOpcode},
      {"verr", CODE16("verr ax"), kInvalidOpcode},
      {"verw", CODE16("verw ax"), kInvalidOpcode},
      {"arpl", CODE16("arpl ax, bx"), kInvalidOpcode},
      {"lock nop", CODE16(".byte 0xf0, 0x90"), kInvalidOpcode},
      {"lds of a register", CODE16(".byte 0xc5, 0xc0"), kInvalidOpcode},
      {"les of a register (VEX elsewhere)", CODE16(".byte 0xc4, 0xe2, 0x79, 0x18, 0xc0"),
       kInvalidOpcode},
      {"bound of a register (EVEX elsewhere)", CODE16(".byte 0x62, 0xf1, 0x7c, 0x48, 0x10, 0xc0"),
       kInvalidOpcode},
      {"mov to cs", CODE16(".byte 0x8e, 0xc8"), kInvalidOpcode},
  };
  for (const Case& c : cases) CheckFault(c.name, RunV86(c.code), c.vector, 0, kIp);
  const Outcome o = RunV86(CODE16("sgdt [bx]; sidt [bx+8]; smsw ax"), {.ebx = 0x20});
  CheckDone("sgdt, sidt and smsw are open", o);
  CheckEq("... smsw", o.frame.eax & 0xffff, ReadCr0() & 0xffff);
  CheckEq("... sgdt: limit", LowWord(kDataSegment, 0x20), sizeof(gdt) - 1);
  CheckEq("... sidt: limit", LowWord(kDataSegment, 0x28), sizeof(idt) - 1);
}

void TestSegments() {
  LowDword(kDataSegment, 0x10) = 0x11112222;
  LowDword(kOtherSegment, 0x10) = 0x33334444;
  Outcome o = RunV86(CODE16("mov ax, [bx]; mov cx, fs:[bx]; mov dx, 0x4001; mov ds, dx; mov si, "
                            "[bx-0x10]; mov di, ds"),
                     {.ebx = 0x10});
  CheckEq("ds", o.frame.eax & 0xffff, 0x2222);
  CheckEq("fs", o.frame.ecx & 0xffff, 0x4444);
  CheckEq("a segment is 16 bytes", o.frame.esi & 0xffff, 0x2222);
  CheckEq("any value loads", o.frame.ds, 0x4001);
  o = RunV86(CODE16("push 0xfff8; pop es; mov eax, es:[bx]; mov ecx, es:[bx+0x10]"),
             {.ebx = 0x00ff});
  CheckDone("memory above 1 MB through a high segment", o);
  CheckEq("... FFF8:00FF is 0x10007f", o.frame.eax, *reinterpret_cast<u32*>(0x10007f));
  CheckEq("... and the next", o.frame.ecx, *reinterpret_cast<u32*>(0x10008f));

  memcpy(Low(0x2100, 0x40), CODE16("mov si, cs; mov bp, sp; mov di, [bp+2]; retf"), 64);
  o = RunV86(CODE16("call 0x2100:0x40; mov cx, cs; mov dx, sp"));
  CheckDone("a far call", o);
  CheckEq("... cs there", o.frame.esi & 0xffff, 0x2100);
  CheckEq("... cs on the stack", o.frame.edi & 0xffff, kCodeSegment);
  CheckEq("... cs back", o.frame.ecx & 0xffff, kCodeSegment);
  CheckEq("... sp", o.frame.edx & 0xffff, kSp);
  memcpy(Low(0x2100, 0x40), CODE16("mov si, cs"), 16);
  o = RunV86(CODE16("jmp 0x2100:0x40"));
  CheckEq("a far jump", o.frame.esi & 0xffff, 0x2100);
  CheckEq("... eip", o.frame.eip, 0x40 + 4);
  LowDword(kDataSegment, 0x30) = 0x2100'0040;
  o = RunV86(CODE16("jmp dword ptr [bx]"), {.ebx = 0x30});
  CheckEq("an indirect far jump", o.frame.cs, 0x2100);
  LowWord(kDataSegment, 0x30) = 0x1234;
  LowWord(kDataSegment, 0x32) = 0x4567;
  o = RunV86(CODE16("lds si, [bx]; mov ax, ds; push es; pop ds; lgs di, [bx]"), {.ebx = 0x30});
  Check(o.Done() && (o.frame.esi & 0xffff) == 0x1234 && (o.frame.eax & 0xffff) == 0x4567 &&
            o.frame.gs == 0x4567 && (o.frame.edi & 0xffff) == 0x1234,
        "lds and lgs");
  // 16-bit addresses wrap, and operand-size prefixes work.
  LowWord(kDataSegment, 0x0004) = 0x5a5a;
  o = RunV86(CODE16("mov ax, [bx+si]; mov ecx, 0x12345678; push ecx; pop dx; pop di; lea bp, "
                    "[bx+si+0x7fff]"),
             {.ebx = 0x8002, .esi = 0x8002});
  CheckEq("bx + si wraps", o.frame.eax & 0xffff, 0x5a5a);
  Check((o.frame.edx & 0xffff) == 0x5678 && (o.frame.edi & 0xffff) == 0x1234,
        "a 32-bit push in v86");
  CheckEq("lea wraps", o.frame.ebp & 0xffff, 0x8003);
  o = RunV86(CODE16(".byte 0x67; mov ax, [esi]"), {.esi = 4});
  CheckEq("a 32-bit address below 64 KB", o.frame.eax & 0xffff, 0x5a5a);

  if (!SkipOnQemu("limits in v86 (SDM vol. 3A 20.1.1, 5.3)")) {
    const void* word = CODE16("mov ax, [bx]");
    const void* dword = CODE16("mov eax, [bx]");
    const void* far = CODE16("mov ax, [esi]");
    CheckDone("a byte at 0xffff", RunV86(CODE16("mov al, [bx]"), {.ebx = 0xffff}));
    CheckFault("a word at 0xffff", RunV86(word, {.ebx = 0xffff}), kGeneralProtection, 0, kIp);
    CheckFault("a dword at 0xfffd", RunV86(dword, {.ebx = 0xfffd}), kGeneralProtection, 0, kIp);
    CheckDone("a dword at 0xfffc", RunV86(dword, {.ebx = 0xfffc}));
    CheckFault("an address above 0xffff", RunV86(far, {.esi = 0x10000}), kGeneralProtection, 0,
               kIp);
    CheckFault("a stack word at 0xffff", RunV86(CODE16("mov ax, [bp]"), {.ebp = 0xffff}),
               kStackFault, 0, kIp);
    CheckFault("push with sp = 1", RunV86(CODE16("push ax"), {.esp = 1}), kStackFault, 0, kIp);
    CheckDone("push with sp = 0 wraps", RunV86(CODE16("push ax; pop ax"), {.esp = 0x10000}));
    Low(0x2100, 0xffff)[0] = 0x90;
    Frame f = V86Frame({.eip = 0xffff, .cs = 0x2100}, 3);
    CheckFault("code that runs beyond 0xffff", RunFrame(f), kGeneralProtection, 0, 0x10000);
    f.eip = 0x10000;
    const Outcome entry = RunFrame(f);
    CheckFault("IRET to an eip above 0xffff", entry, kGeneralProtection, 0);
    CheckEq("... is a fault of the IRET", entry.frame.eflags & kFlagVm, 0);
  }
}

void TestFaults() {
  const void* divide = CODE16("xor cx, cx; div cx");
  CheckFault("#DE", RunV86(divide), kDivideError, 0, kIp + 2);
  LowWord(kDataSegment, 0) = 1, LowWord(kDataSegment, 2) = 3;
  CheckFault("#BR", RunV86(CODE16("bound ax, [bx]"), {.eax = 4}), kBoundRange, 0, kIp);
  CheckDone("bound within", RunV86(CODE16("bound ax, [bx]"), {.eax = 2}));
  const Outcome o = RunV86(CODE16("mov ax, 1; mov bx, 2"), {.eflags = 2 | kFlagTf});
  CheckFault("single step", o, kDebug, 0, kIp + 3);
  CheckEq("... TF is in the frame", o.frame.eflags & kFlagTf, kFlagTf);
  const Outcome ss =
      RunV86(CODE16("mov ss, ax; nop; nop"), {.eax = kStackSegment, .eflags = 2 | kFlagTf});
  CheckFault("mov ss holds it off", ss, kDebug, 0, kIp + 3);
}

// A monitor as small as can be: it reflects INT n to the real-mode vectors and emulates the rest.
u32 reflected;
void Monitor(Outcome* at) {
  Frame& f = at->frame;
  const u8* code = Low(f.cs, f.eip);
  const auto push = [&f](u16 value) {
    f.esp = (f.esp & ~0xffffu) | ((f.esp - 2) & 0xffff);
    LowWord(f.ss, f.esp & 0xffff) = value;
  };
  const auto pop = [&f]() {
    const u16 value = LowWord(f.ss, f.esp & 0xffff);
    f.esp = (f.esp & ~0xffffu) | ((f.esp + 2) & 0xffff);
    return value;
  };
  switch (code[0]) {
    case 0xcd:
      if (code[1] == kProbeExit) break;
      reflected++;
      push(static_cast<u16>(f.eflags & ~kFlagIopl));
      push(static_cast<u16>(f.cs));
      push(static_cast<u16>(f.eip + 2));
      f.eip = LowWord(0, code[1] * 4u);
      f.cs = LowWord(0, code[1] * 4u + 2);
      return;
    case 0xcf:
      f.eip = pop();
      f.cs = pop();
      f.eflags = (f.eflags & 0xffff0000) | (pop() & ~kFlagIopl);
      return;
    case 0x9c:
      push(static_cast<u16>(f.eflags & ~kFlagIopl));
      f.eip++;
      return;
    case 0xfa:
      f.eflags &= ~kFlagIf;
      f.eip++;
      return;
  }
  // The end of the probe, which a handler cannot report: continue at an INT3.
  Low(f.cs, f.eip)[0] = 0xcc;
}

void TestMonitor() {
  const u32 vector = LowDword(0, 0x21 * 4);
  LowDword(0, 0x21 * 4) = 0x2100'0040;
  memcpy(Low(0x2100, 0x40), CODE16("add ax, bx; cli; pushf; pop dx; iret"), 64);
  SetHandler(kGeneralProtection, Monitor);
  reflected = 0;
  const Outcome o = RunV86(CODE16("mov cx, 100; xor ax, ax; mov bx, 3; 2: int 0x21; loop 2b"),
                           {.eflags = 2 | kFlagIf}, 0);
  SetHandler(kGeneralProtection, nullptr);
  LowDword(0, 0x21 * 4) = vector;
  CheckFault("a program under a monitor", o, kBreakpoint);
  CheckEq("... 100 reflected interrupts", reflected, 100);
  CheckEq("... did their work", o.frame.eax & 0xffff, 300);
  CheckEq("... saw IF clear", o.frame.edx & 0xffff, 0x0002);
  CheckEq("... and gave it back", o.frame.eflags & kFlagIf, kFlagIf);
}

void TestEntry() {
  // VM in an image that CPL 3 returns to does not count.
  const void* iret3 = CODE32("push 0x20002; push cs; push ecx; iretd");
  Outcome o;
  // SDM vol. 2, IRET; QEMU enters v86.
  if (!SkipOnQemu("IRET in CPL 3 ignores VM")) {
    o = Run(iret3, {.ecx = At(CODE32("mov eax, 0x33"))}, 3);
    Check(o.Done() && o.frame.eax == 0x33 && (o.frame.eflags & kFlagVm) == 0,
          "IRET in CPL 3 ignores VM");
  }
  o = Run(CODE32("push 0x20002; popfd; pushfd; pop eax"));
  CheckEq("POPF cannot set VM", o.frame.eax, 2);
  // Entry by a task switch: TSS.EFLAGS.VM.
  alignas(128) static u8 memory[128];
  Tss32& t = *reinterpret_cast<Tss32*>(memory);
  memset(memory, 0, sizeof(memory));
  t.eflags = 2 | kFlagVm | kFlagIopl;
  t.cs = kCodeSegment, t.eip = kIp, t.ss = kStackSegment, t.esp = kSp;
  t.ds = 0x1234, t.es = 0x2345, t.fs = 0x3456, t.gs = 0xffff;
  t.ss0 = DataSelector(0), t.esp0 = RingStackTop(0);
  t.io_map_base = 0xffff;
  SetGdt(kTarget, Descriptor(At(memory), kTss32Limit, kTss32, 0));
  memcpy(Low(kCodeSegment, kIp), CODE16("mov ax, cs; mov bx, ds"), 16);
  struct [[gnu::packed]] FarPointer {
    u32 offset;
    u16 selector;
  };
  static FarPointer pointer;
  pointer = {0, kTarget};
  o = Run(CODE32("jmp fword ptr [ebx]"), {.ebx = At(&pointer)});
  Clts();
  LoadMainTss();
  CheckDone("a task in v86", o);
  CheckEq("... VM", o.frame.eflags & kFlagVm, kFlagVm);
  Check(o.frame.cs == kCodeSegment && o.frame.ds == 0x1234 && o.frame.es == 0x2345 &&
            o.frame.fs == 0x3456 && o.frame.gs == 0xffff,
        "... segments need no descriptors");
  CheckEq("... cs", o.frame.eax & 0xffff, kCodeSegment);
}

void TestIoMap() {
  constexpr u16 kBase = 0x68;
  main_tss.io_map_base = kBase;
  memset(main_tss.io_map, 0, sizeof(main_tss.io_map));
  main_tss.io_map[0x204 / 8] = 1 << (0x204 % 8);
  LoadMainTss(kBase + 0x400);
  const void* in = CODE16("in al, dx");
  const void* in16 = CODE16("in ax, dx");
  for (unsigned iopl : List{0u, 3u}) {
    CheckDone("an allowed port", RunV86(in, {.edx = 0x203}, iopl));
    CheckFault("a denied port, whatever IOPL", RunV86(in, {.edx = 0x204}, iopl), kGeneralProtection,
               0, kIp);
    CheckFault("a word of an allowed and a denied port", RunV86(in16, {.edx = 0x203}, iopl),
               kGeneralProtection, 0, kIp);
  }
  main_tss.io_map_base = 0xffff;
  LoadMainTss();
  CheckFault("no map: no ports, even with IOPL 3", RunV86(in, {.edx = 0x80}), kGeneralProtection, 0,
             kIp);
}

alignas(4096) DirectoryEntry directory[1024];
alignas(4096) PageEntry table[1024];

void TestPaging() {
  if ((Cpuid(1).edx >> 3 & 1) == 0) return Skip("paging", "no PSE");
  for (u32 i = 0; i < 1024; i++) {
    directory[i] = i << 22 | 0x83;
    table[i] = i << 12 | 7;
  }
  directory[0] = At(table) | 7;
  WriteCr4(ReadCr4() | kCr4Pse);
  WriteCr3(At(directory));
  WriteCr0(ReadCr0() | kCr0Pg);
  const auto set = [](u32 linear, u32 entry) {
    table[linear >> 12] = entry;
    InvalidatePage(linear);
  };
  const void* read = CODE16("mov ax, [bx]");
  const void* write = CODE16("mov [bx], ax");
  constexpr u32 kPage = kDataSegment * 16 + 0x3000;
  const Frame f = {.ebx = 0x3010};
  CheckDone("a user page", RunV86(read, f));
  set(kPage, 0);
  Outcome o = RunV86(read, f);
  CheckFault("an absent page", o, kPageFault, 4, kIp);
  CheckEq("... cr2 is linear", o.cr2, kPage + 0x10);
  CheckFault("... a write", RunV86(write, f), kPageFault, 6, kIp);
  set(kPage, kPage | 3);
  CheckFault("a supervisor page", RunV86(read, f), kPageFault, 5, kIp);
  set(kPage, kPage | 5);
  CheckFault("a write to a read-only page", RunV86(write, f), kPageFault, 7, kIp);
  CheckDone("... a read of it", RunV86(read, f));
  set(kPage, kPage + 0x8000 + 7);
  LowWord(kDataSegment, 0xb010) = 0x7a7a;
  CheckEq("a page elsewhere", RunV86(read, f).frame.eax & 0xffff, 0x7a7a);
  CheckEq("... its accessed bit", table[kPage >> 12] & 0x60, 0x20);
  (void)RunV86(write, f);
  CheckEq("... its dirty bit", table[kPage >> 12] & 0x60, 0x60);
  // Across a page, the second of which is absent.
  set(kPage, kPage | 7);
  set(kPage + 0x1000, 0);
  o = RunV86(write, {.ebx = 0x3fff});
  CheckFault("a word across two pages", o, kPageFault, 6, kIp);
  CheckEq("... cr2", o.cr2, kPage + 0x1000);
  LowDword(kDataSegment, 0x3ffc) = 0;
  o = RunV86(CODE16("cld; rep stosb"), {.eax = 0x55, .ecx = 8, .edi = 0x3ffc});
  CheckFault("rep stosb into it", o, kPageFault, 6, kIp + 1);
  CheckEq("... cx", o.frame.ecx, 4);
  CheckEq("... di", o.frame.edi, 0x4000);
  CheckEq("... what was written", LowDword(kDataSegment, 0x3ffc), 0x55555555);
  set(kPage + 0x1000, (kPage + 0x1000) | 7);
  // Code: an instruction whose second page is absent.
  const u32 code_page = kCodeSegment * 16 + 0x1000;
  Low(kCodeSegment, 0x0ffe)[0] = 0xb8;
  Low(kCodeSegment, 0x0ffe)[1] = 0x34;
  set(code_page, 0);
  o = RunFrame(V86Frame({.eip = 0x0ffe}, 3));
  CheckFault("a fetch from an absent page", o, kPageFault, 4, 0x0ffe);
  CheckEq("... cr2", o.cr2, code_page);
  set(code_page, code_page | 7);
  // The stack page absent: PUSH faults and SP stays.
  set(kStackSegment * 16, 0);
  o = RunV86(CODE16("push ax"));
  CheckFault("push to an absent page", o, kPageFault, 6, kIp);
  CheckEq("... sp", o.frame.esp, kSp);
  set(kStackSegment * 16, kStackSegment * 16 | 7);
  WriteCr0(ReadCr0() & ~kCr0Pg);
}

void TestVme() {
  const bool has_vme = (Cpuid(1).edx >> 1 & 1) != 0;
  const void* set_vme = CODE32("mov eax, cr4; or eax, ebx; mov cr4, eax");
  if (!has_vme) {
    // SDM vol. 2, MOV to a control register; QEMU takes the bits.
    if (SkipOnQemu("VME and its CR4 bits")) return;
    const u32 cr4 = ReadCr4();
    CheckFault("CR4.VME without the feature", Run(set_vme, {.ebx = kCr4Vme}), kGeneralProtection);
    CheckFault("CR4.PVI without the feature", Run(set_vme, {.ebx = kCr4Pvi}), kGeneralProtection);
    CheckEq("... CR4 is as it was", ReadCr4(), cr4);
    return Skip("VME", "CPUID does not show it");
  }
  CheckDone("CR4.VME", Run(set_vme, {.ebx = kCr4Vme}));
  // The redirection bitmap: 32 bytes in front of the I/O map.
  main_tss.io_map_base = 0x88;
  memset(main_tss.io_map, 0, sizeof(main_tss.io_map));
  // The INT that ends a probe is not redirected.
  main_tss.io_map[kProbeExit / 8] = 1 << (kProbeExit % 8);
  LoadMainTss(0x88 + 0x400);
  const u32 vector = LowDword(0, kVector * 4);
  LowDword(0, kVector * 4) = 0x2100'0040;
  memcpy(Low(0x2100, 0x40),
         CODE16("mov bp, sp; mov ax, [bp]; mov cx, [bp+2]; mov dx, [bp+4]; "
                "iret"),
         64);
  for (const unsigned iopl : List{0u, 3u}) {
    const Outcome o = RunV86(CODE16("int 0x40; mov si, 0x77"),
                             {.eflags = 2 | kFlagCf | (iopl == 3 ? kFlagIf : kFlagVif)}, iopl);
    CheckDone("a redirected INT n and its IRET", o);
    CheckEq("... ip on the stack", o.frame.eax & 0xffff, kIp + 2);
    CheckEq("... cs", o.frame.ecx & 0xffff, kCodeSegment);
    // With IOPL < 3 the image has VIF for IF and IOPL 3.
    CheckEq("... flags", o.frame.edx & 0xffff, 0x3203);
    CheckEq("... back", o.frame.esi, 0x77);
    CheckEq("... with the flag for interrupts on",
            o.frame.eflags & (iopl == 3 ? kFlagIf : kFlagVif), iopl == 3 ? kFlagIf : kFlagVif);
  }
  main_tss.io_map[kVector / 8] |= 1 << (kVector % 8);
  CheckFault("a vector that is not redirected, IOPL 0", RunV86(CODE16("int 0x40"), {}, 0),
             kGeneralProtection, 0, kIp);
  Outcome o = RunV86(CODE16("sti; pushf; pop ax; cli; pushf; pop bx"), {}, 0);
  CheckEq("sti sets VIF, which pushf shows as IF", o.frame.eax & 0xffff, 0x3202);
  CheckEq("cli clears it", o.frame.ebx & 0xffff, 0x3002);
  CheckEq("... IF stays", o.frame.eflags & (kFlagIf | kFlagVif), 0);
  CheckFault("sti with VIP", RunV86(CODE16("sti"), {.eflags = 2 | kFlagVip}, 0), kGeneralProtection,
             0, kIp);
  o = RunV86(CODE16("push 0x0202; popf; nop"), {}, 0);
  CheckEq("popf of IF sets VIF", o.frame.eflags & (kFlagVif | kFlagIf), kFlagVif);
  CheckFault("... with VIP it is #GP",
             RunV86(CODE16("push 0x0202; popf"), {.eflags = 2 | kFlagVip}, 0), kGeneralProtection,
             0);
  CheckFault("popf of TF is #GP", RunV86(CODE16("push 0x0102; popf"), {}, 0), kGeneralProtection, 0,
             kIp + 3);
  CheckFault("popfd with IOPL 0 is #GP still", RunV86(CODE16("popfd"), {}, 0), kGeneralProtection,
             0, kIp);
  CheckFault("iretd with IOPL 0 is #GP still", RunV86(CODE16("iretd"), {}, 0), kGeneralProtection,
             0, kIp);
  // IRET of 16 bits: IF of the image goes to VIF, unless VIP or TF says #GP.
  const void* iret = CODE16("push dx; push cs; push cx; iret; nop; nop");
  memcpy(Low(kCodeSegment, 0x300), CODE16("mov si, 0x55"), 8);
  o = RunV86(iret, {.ecx = 0x300, .edx = 0x0202}, 0);
  Check(o.Done() && o.frame.esi == 0x55 && (o.frame.eflags & (kFlagVif | kFlagIf)) == kFlagVif,
        "iret sets VIF");
  o = RunV86(iret, {.ecx = 0x300, .edx = 0x0002, .eflags = 2 | kFlagVif | kFlagVip}, 0);
  Check(o.Done() && (o.frame.eflags & (kFlagVif | kFlagVip)) == kFlagVip, "iret clears VIF");
  o = RunV86(iret, {.ecx = 0x300, .edx = 0x0202, .eflags = 2 | kFlagVip}, 0);
  CheckFault("iret of IF with VIP is #GP", o, kGeneralProtection, 0, kIp + 3);
  CheckEq("... and leaves sp", o.frame.esp, kSp - 6);
  CheckFault("iret of TF is #GP", RunV86(iret, {.ecx = 0x300, .edx = 0x0102}, 0),
             kGeneralProtection, 0, kIp + 3);
  // INT3 and INTO are never redirected.
  main_tss.io_map[0] = 0;
  CheckFault("int3 is not redirected", RunV86(CODE16("int3"), {}, 0), kBreakpoint, 0, kIp + 1);
  CheckFault("into is not redirected", RunV86(CODE16("into"), {.eflags = 2 | kFlagOf}, 0),
             kOverflow, 0, kIp + 1);
  // Redirection clears TF and IF (IOPL 3) or VIF for the handler.
  main_tss.io_map[kVector / 8] = 0;
  memcpy(Low(0x2100, 0x40), CODE16("pushf; pop bx; mov bp, sp; mov dx, [bp+4]; iret"), 64);
  o = RunV86(CODE16("int 0x40"), {.eflags = 2 | kFlagIf});
  CheckEq("the handler has IF clear, IOPL 3", o.frame.ebx & 0xffff, 0x3002);
  CheckEq("... and gives it back", o.frame.eflags & kFlagIf, kFlagIf);
  o = RunV86(CODE16("int 0x40"), {.eflags = 2 | kFlagVif}, 0);
  CheckEq("the handler has VIF clear, IOPL 0", o.frame.ebx & 0xffff, 0x3002);
  CheckEq("... its image had it as IF", o.frame.edx & 0xffff, 0x3202);
  CheckEq("... and gives it back", o.frame.eflags & (kFlagVif | kFlagIf), kFlagVif);
  CheckFault("pushfd with IOPL 0 is #GP still", RunV86(CODE16("pushfd"), {}, 0), kGeneralProtection,
             0, kIp);
  LowDword(0, kVector * 4) = vector;
  WriteCr4(ReadCr4() & ~kCr4Vme);
  // PVI: VIF in protected mode at CPL 3.
  CheckDone("CR4.PVI", Run(set_vme, {.ebx = kCr4Pvi}));
  const Outcome p = Run(CODE32("sti; pushfd; pop eax; cli; pushfd; pop ebx"), {}, 3);
  CheckEq("PVI: sti sets VIF", p.frame.eax & (kFlagIf | kFlagVif), kFlagVif);
  CheckEq("... cli clears it", p.frame.ebx & (kFlagIf | kFlagVif), 0);
  WriteCr4(ReadCr4() & ~kCr4Pvi);
  main_tss.io_map_base = 0xffff;
  LoadMainTss();
}

// Out of v86 through task gates, and back by the IRET of the other task.
void TestTasks() {
  alignas(128) static u8 memory[128];
  alignas(16) static u8 stack[512];
  Tss32& t = *reinterpret_cast<Tss32*>(memory);
  const auto make = [&](const void* code) {
    memset(memory, 0, sizeof(memory));
    t.eflags = kFlagsFixed;
    t.cs = CodeSelector(0), t.eip = At(code), t.ss = DataSelector(0), t.esp = At(stack + 512);
    t.ds = t.es = DataSelector(0);
    t.cr3 = ReadCr3();
    t.io_map_base = 0xffff;
    SetGdt(kTarget, Descriptor(At(memory), kTss32Limit, kTss32, 0));
  };
  const auto reset = [] {
    Clts();
    main_tss.cr3 = ReadCr3();
    LoadMainTss();
  };
  make(CODE32("mov eax, 0x1234; pushfd; pop ecx; iretd"));
  SetIdt(kVector, Gate(kTarget, 0, kTaskGate | kDpl3));
  main_tss.cr3 = ReadCr3();
  Outcome o = RunV86(CODE16("mov si, 0x77; int 0x40; inc si"), {.eflags = 2 | kFlagCf});
  reset();
  CheckDone("INT n from v86 through a task gate, and back", o);
  CheckEq("... the other task ran", t.eax, 0x1234);
  CheckEq("... nested, and not in v86", t.ecx & (kFlagNt | kFlagVm), kFlagNt);
  CheckEq("... back in v86", o.frame.eflags & (kFlagVm | kFlagCf), kFlagVm | kFlagCf);
  Check(o.frame.esi == 0x78 && o.frame.cs == kCodeSegment && o.frame.ds == kDataSegment,
        "... with registers and segments");
  // #GP as a task: an error code on its stack; it skips the instruction in the TSS of v86.
  make(CODE32("pop eax; inc dword ptr [ebx]; iretd"));
  t.ebx = At(&main_tss.eip);
  SetIdt(kGeneralProtection, Gate(kTarget, 0, kTaskGate));
  o = RunV86(CODE16("mov si, 0x77; hlt; inc si"));
  RestoreIdt(kGeneralProtection);
  reset();
  Check(o.Done() && o.frame.esi == 0x78 && t.eax == 0, "#GP of v86 as a task");
  CheckEq("... the saved flags had VM", main_tss.eflags & kFlagVm, kFlagVm);
  RestoreIdt(kVector);
}

u32 ticks;
void OnTick(Outcome* at) {
  ticks++;
  Outb(0x20, 0x20);
  // Enough: interrupts off for good.
  if (ticks % 20 == 0) at->frame.eflags &= ~kFlagIf;
}

// Hardware interrupts of v86 code, and of 16- and 32-bit code in segments with bases.
void TestInterrupts() {
  for (const u8 v : List{u8{0x11}, u8{0x20}, u8{4}, u8{1}}) Outb(v == 0x11 ? 0x20 : 0x21, v);
  for (const u8 v : List{u8{0x11}, u8{0x28}, u8{2}, u8{1}}) Outb(v == 0x11 ? 0xa0 : 0xa1, v);
  Outb(0x21, 0xfe);
  Outb(0xa1, 0xff);
  SetHandler(0x20, OnTick);
  Outb(0x43, 0x34);
  Outb(0x40, 0xa9);
  Outb(0x40, 0x04);
  ticks = 0;
  // The loops end when the handler has cleared IF; PUSHF shows it with IOPL 3.
  const void* loop16 = CODE16("2: inc ecx; pushf; pop ax; test ah, 2; jnz 2b");
  Outcome o = RunV86(loop16, {.eflags = 2 | kFlagIf});
  CheckDone("interrupts of v86 code", o);
  CheckEq("... twenty", ticks, 20);
  Check(o.frame.ecx > 100, "... which ran between them");
  CheckEq("... with its stack", o.frame.esp, kSp);
  const void* rep = CODE16(
      "2: xor di, di; mov cx, 0x8000; rep stosw; pushf; pop dx; test dh, 2; jnz "
      "2b");
  o = RunV86(rep, {.eax = 0x5a5a, .eflags = 2 | kFlagIf, .es = kOtherSegment});
  Check(o.Done() && (o.frame.edi & 0xffff) == 0 && LowWord(kOtherSegment, 0xfffe) == 0x5a5a,
        "repetitions under interrupts");
  const void* loop32 = CODE32("2: inc ecx; pushfd; pop eax; test ah, 2; jnz 2b");
  SetGdt(kTarget, Descriptor(At(loop32) - 0x1230, 0xfffff, kCode | kDpl3, kGranular | k32Bit));
  o = RunFrame({.ecx = 0,
                .esp = ProbeStackTop(),
                .ss = DataSelector(3),
                .eip = 0x1230,
                .cs = kTarget | 3,
                .eflags = 2 | kFlagIf,
                .ds = DataSelector(3),
                .es = DataSelector(3)});
  Check(o.Done() && o.frame.ecx > 100, "interrupts of 32-bit code with a base");
  SetGdt(kTarget, Descriptor(At(loop16), 0xffff, kCode | kDpl3, k16Bit));
  o = RunFrame({.ecx = 0,
                .esp = ProbeStackTop(),
                .ss = DataSelector(3),
                .eip = 0,
                .cs = kTarget | 3,
                .eflags = 2 | kFlagIf,
                .ds = DataSelector(3),
                .es = DataSelector(3)});
  Check(o.Done() && o.frame.ecx > 100, "interrupts of 16-bit protected code");
  CheckEq("... eighty in all", ticks, 80);
  Outb(0x43, 0x30);
  Outb(0x21, 0xff);
  SetHandler(0x20, nullptr);
}

void TestUmip() {
  if (Cpuid(0).eax < 7 || (Cpuid(7).ecx >> 2 & 1) == 0)
    return Skip("UMIP", "CPUID does not show it");
  WriteCr4(ReadCr4() | 1u << 11);
  struct Case {
    const char* name;
    const void* code;
  };
  for (const Case& c : List{Case{"UMIP: sgdt in v86", CODE16("sgdt [bx]")},
                            Case{"UMIP: sidt in v86", CODE16("sidt [bx]")},
                            Case{"UMIP: smsw in v86", CODE16("smsw ax")}}) {
    CheckFault(c.name, RunV86(c.code), kGeneralProtection, 0, kIp);
  }
  CheckFault("UMIP: sldt in v86 does not exist all the same", RunV86(CODE16("sldt ax")),
             kInvalidOpcode, 0, kIp);
  for (const Case& c : List{Case{"UMIP: str in CPL 3", CODE32("str ax")},
                            Case{"UMIP: sldt in CPL 3", CODE32("sldt ax")},
                            Case{"UMIP: smsw in CPL 3", CODE32("smsw eax")}}) {
    CheckFault(c.name, Run(c.code, {}, 3), kGeneralProtection, 0, At(c.code));
  }
  CheckDone("... but not in CPL 0", Run(CODE32("str ax; sldt cx; smsw edx")));
  WriteCr4(ReadCr4() & ~(1u << 11));
}

// Breakpoints are linear: of code and data in segments with bases.
void TestBreakpoints() {
  // QEMU dies of the first one by a SIGSEGV of its own.
  if (SkipOnQemu("breakpoints in v86 and with bases")) return;
  const void* code = CODE16("nop; nop; mov ax, [bx]; nop");
  const u32 linear = kCodeSegment * 16 + kIp;
  WriteDr<0>(linear + 1);
  WriteDr<1>(kDataSegment * 16 + 0x321u);
  WriteDr<7>(0x402);
  Outcome o = RunV86(code, {.ebx = 0x320});
  CheckFault("an instruction breakpoint in v86", o, kDebug, 0, kIp + 1);
  WriteDr<7>(0x300408);
  o = RunV86(code, {.ebx = 0x320});
  CheckFault("a data breakpoint in v86", o, kDebug, 0, kIp + 4);
  const void* code32 = CODE32("nop; nop; mov al, fs:[ebx]; nop");
  SetGdt(kTarget, Descriptor(At(code32) - 0x100, 0xfff, kCode, k32Bit));
  SetGdt(kTarget + 8, Descriptor(kDataSegment * 16, 0xffff, kData, k32Bit));
  const Frame f = {.ebx = 0x321,
                   .esp = ProbeStackTop(),
                   .ss = DataSelector(0),
                   .eip = 0x100,
                   .cs = kTarget,
                   .ds = DataSelector(0),
                   .es = DataSelector(0),
                   .fs = kTarget + 8};
  o = RunFrame(f);
  CheckFault("a data breakpoint through a segment with a base", o, kDebug, 0, 0x105);
  WriteDr<0>(At(code32) + 1);
  WriteDr<7>(0x402);
  o = RunFrame(f);
  CheckFault("an instruction breakpoint in code with a base", o, kDebug, 0, 0x101);
  WriteDr<7>(0x400);
}

constexpr Section kSections[] = {
    {"frames", TestFrames},
    {"iopl", TestIopl},
    {"privileged", TestPrivileged},
    {"segments", TestSegments},
    {"faults", TestFaults},
    {"monitor", TestMonitor},
    {"entry", TestEntry},
    {"io", TestIoMap},
    {"paging", TestPaging},
    {"vme", TestVme},
    {"tasks", TestTasks},
    {"interrupts", TestInterrupts},
    {"umip", TestUmip},
    {"breakpoints", TestBreakpoints},
};

}  // namespace

int Main() {
  RunOnVmi();
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
