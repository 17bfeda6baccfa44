// SPDX-License-Identifier: Apache-2.0
// Conditions, addressing, the stack, strings and transfers of control in real mode.

#include "frobos/rom/realmode.h"

namespace alibi::frobos {

// Every condition with every combination of the flags it can see: as a short jump, a near jump,
// SETcc.
void TestConditions() {
#define CONDITION(cc)                                                       \
  CODE16("set" cc " dl; mov cx, 1; j" cc " 2f; dec cx; 2: .byte 0x90; j" cc \
         " 3f; .skip 0x90, 0x90; mov ch, 1; 3: mov esi, 7; cmov" cc " si, bx")
  const void* code[] = {CONDITION("o"), CONDITION("no"), CONDITION("b"),  CONDITION("nb"),
                        CONDITION("z"), CONDITION("nz"), CONDITION("be"), CONDITION("nbe"),
                        CONDITION("s"), CONDITION("ns"), CONDITION("p"),  CONDITION("np"),
                        CONDITION("l"), CONDITION("nl"), CONDITION("le"), CONDITION("nle")};
  Group cases("conditions");
  for (u32 k = 0; k < 16; k++) {
    for (u32 i = 0; i < 32; i++) {
      const u32 flags = ((i & 1) != 0 ? kFlagCf : 0) | ((i & 2) != 0 ? kFlagPf : 0) |
                        ((i & 4) != 0 ? kFlagZf : 0) | ((i & 8) != 0 ? kFlagSf : 0) |
                        ((i & 16) != 0 ? kFlagOf : 0);
      const bool cf = (flags & kFlagCf) != 0, zf = (flags & kFlagZf) != 0,
                 sf = (flags & kFlagSf) != 0, of = (flags & kFlagOf) != 0,
                 pf = (flags & kFlagPf) != 0;
      const bool base[] = {of, cf, zf, cf || zf, sf, pf, sf != of, zf || sf != of};
      const bool taken = base[k / 2] != ((k & 1) != 0);
      const Outcome o = Run(code[k], {.ebx = 9, .ecx = 0, .edx = 0x55, .eflags = 2 | flags});
      // MOV and .byte change no flags; DEC in the first path does, so the second jump is judged by
      // the flags it then finds only where DEC did not run.
      bool ok = o.Done() && (o.frame.edx & 0xff) == (taken ? 1u : 0);
      ok = ok && (o.frame.ecx & 0xff) == (taken ? 1u : 0);
      if (taken) ok = ok && (o.frame.ecx >> 8 & 0xff) == 0 && o.frame.esi == 9;
      if (!cases.Case(ok)) {
        Print("FAIL condition %x flags %x: got dl %x cx %x si %x\n", k, flags, o.frame.edx & 0xff,
              o.frame.ecx & 0xffff, o.frame.esi);
      }
    }
  }

  struct Loop {
    const char* name;
    const void* code;
    u32 ecx, flags;
    u32 want_ecx, want_eax;
  };
  const Loop loops[] = {
      {"loop", CODE16("2: inc ax; loop 2b"), 0xabcd0003, 0, 0xabcd0000, 3},
      {"loop with cx 0 runs 65536 times", CODE16("2: inc eax; loop 2b"), 0x10000, 0, 0x10000,
       0x10000},
      {"loop with ecx", CODE16("2: inc eax; addr32 loop 2b"), 0x10002, 0, 0, 0x10002},
      {"loope ends by ZF", CODE16("2: inc ax; cmp ax, 0; loope 2b"), 9, 0, 8, 1},
      {"loope ends by cx", CODE16("2: cmp ax, ax; inc bx; cmp ax, ax; loope 2b; mov ax, bx"), 4, 0,
       0, 4},
      {"loopne ends by ZF", CODE16("2: inc ax; cmp ax, 3; loopne 2b"), 9, 0, 6, 3},
      {"jcxz", CODE16("jcxz 2f; mov ax, 1; 2:"), 0xffff0000, 0, 0xffff0000, 0},
      {"jcxz not taken", CODE16("jcxz 2f; mov ax, 1; 2:"), 1, 0, 1, 1},
      {"jecxz", CODE16("jecxz 2f; mov ax, 1; 2:"), 0x10000, 0, 0x10000, 1},
      {"jecxz taken", CODE16("jecxz 2f; mov ax, 1; 2:"), 0, 0, 0, 0},
  };
  for (const Loop& l : loops) {
    const Outcome o = Run(l.code, {.ecx = l.ecx});
    Check(o.Done() && o.frame.ecx == l.want_ecx && o.frame.eax == l.want_eax, l.name);
  }
  // LOOP changes no flags.
  const Outcome o = Run(CODE16("2: loop 2b"), {.ecx = 2, .eflags = 2 | kFlagsArithmetic});
  CheckEq("loop leaves the flags", o.frame.eflags, 2 | kFlagsArithmetic);
}

void TestAddressing() {
  const Frame f = {.ebx = 0x1234f001,
                   .ecx = 0x20,
                   .edx = 0x40,
                   .esi = 0x12340102,
                   .edi = 0x43210204,
                   .ebp = 0x7777e008};
  struct Form {
    const char* name;
    const void* code;
    u32 want;
    bool stack;
  };
#define FORM(segment, text, want, stack) \
  { segment text, CODE16("mov ax, " segment text "; lea dx, " text), want, stack }
  const u32 bx = 0xf001, si = 0x0102, di = 0x0204, bp = 0xe008;
  const Form forms[] = {
      FORM("", "[bx+si]", bx + si, false),
      FORM("", "[bx+di]", bx + di, false),
      FORM("", "[bp+si]", bp + si, true),
      FORM("", "[bp+di]", bp + di, true),
      FORM("", "[si]", si, false),
      FORM("", "[di]", di, false),
      FORM("ds:", "[0x8642]", 0x8642, false),
      FORM("", "[bx]", bx, false),
      FORM("", "[bp]", bp, true),
      FORM("", "[bx+si+0x7f]", bx + si + 0x7f, false),
      FORM("", "[bx+di-0x80]", bx + di - 0x80, false),
      FORM("", "[bp+si+0x10]", bp + si + 0x10, true),
      FORM("", "[bp+di+0x10]", bp + di + 0x10, true),
      FORM("", "[si-1]", si - 1, false),
      FORM("", "[di+2]", di + 2, false),
      FORM("", "[bp-8]", bp - 8, true),
      FORM("", "[bx+2]", bx + 2, false),
      FORM("", "[bx+si+0x7ffe]", bx + si + 0x7ffe, false),
      FORM("", "[bx+di+0x1234]", bx + di + 0x1234, false),
      FORM("", "[bp+si+0x3000]", bp + si + 0x3000, true),
      FORM("", "[bp+di+0x2ffe]", bp + di + 0x2ffe, true),
      FORM("", "[si-0x1000]", si - 0x1000, false),
      FORM("", "[di-0x300]", di - 0x300, false),
      FORM("", "[bp+0x2000]", bp + 0x2000, true),
      FORM("", "[bx+0x0fff]", bx + 0xfff, false),
      FORM("ds:", "[bp]", bp, false),
      FORM("ss:", "[bx]", bx, true),
      FORM("", "[ecx*4+0x100]", 0x180, false),
      FORM("", "[edx+ecx*8+5]", 0x145, false),
      FORM("", "[edx]", 0x40, false),
      FORM("", "[esp-0x100]", 0x1000 - 0x100, true),
      FORM("", "[esp+ecx*2+8]", 0x1048, true),
  };
  for (const Form& form : forms) {
    const u32 offset = form.want & 0xffff;
    if (offset == 0xffff) continue;
    const u16 segment = form.stack ? kStackSegment : kDataSegment;
    const u16 other = form.stack ? kDataSegment : kStackSegment;
    const u16 saved = ReadWord(segment, offset);
    WriteWord(other, offset, 0xdead);
    WriteWord(segment, offset, static_cast<u16>(0x5a00 ^ offset));
    const Outcome o = Run(form.code, f);
    const bool ok = o.Done() && (o.frame.eax & 0xffff) == ((0x5a00 ^ offset) & 0xffff) &&
                    (o.frame.edx & 0xffff) == offset;
    Check(ok, form.name);
    if (!ok)
      Print("     got %s %x lea %x\n", o.Done() ? "value" : "a fault", o.frame.eax, o.frame.edx);
    WriteWord(segment, offset, saved);
  }
  // Overrides, and the same memory by other segments.
  WriteDword(kDataSegment, 0x120, 0xcafef00d);
  WriteDword(kOtherSegment, 0x120, 0x0ddba11);
  Outcome o = Run(CODE16("mov eax, fs:[bx]; mov ecx, es:[bx]; mov ax, 0x3010; mov gs, ax; mov edx, "
                         "gs:[bx-0x100]; mov si, cs; mov di, ss"),
                  {.ebx = 0x120});
  CheckEq("fs", o.frame.eax & 0xffff0000, 0x0ddba11 & 0xffff0000);
  CheckEq("es", o.frame.ecx, 0xcafef00d);
  CheckEq("3010:0020 is 3000:0120", o.frame.edx, 0xcafef00d);
  Check((o.frame.esi & 0xffff) == kSegment && (o.frame.edi & 0xffff) == kStackSegment,
        "cs and ss read");
  o = Run(CODE16("lds si, [bx]; les di, ds:[bx]; lss sp, cs:[2f]; jmp 3f; 2: .word 0x0800, 0x2001; "
                 "3: mov ax, ss"),
          {.ebx = 0x120});
  CheckEq("lds: the offset", o.frame.esi & 0xffff, 0xf00d);
  CheckEq("... ds", o.frame.ds, 0xcafe);
  CheckEq("lss", o.frame.ss << 16 | (o.frame.esp & 0xffff), 0x20010800);
}

void TestStack() {
  Outcome o = Run(CODE16("push 0x1234; push ax; push eax; push 0x7f; pop cx; pop edx; pop bx; pop "
                         "si"),
                  {.eax = 0xa1b2c3d4});
  Check(o.Done() && (o.frame.ecx & 0xffff) == 0x7f && o.frame.edx == 0xa1b2c3d4 &&
            (o.frame.ebx & 0xffff) == 0xc3d4 && (o.frame.esi & 0xffff) == 0x1234 &&
            o.frame.esp == 0x1000,
        "push and pop of both sizes");
  o = Run(CODE16("push sp; pop ax; mov bx, sp; push esp; pop ecx"), {.esp = 0x12341000});
  CheckEq("push sp pushes the old value", o.frame.eax & 0xffff, 0x1000);
  CheckEq("push esp: all of it", o.frame.ecx, 0x12341000);
  o = Run(
      CODE16("push ax; mov bp, sp; mov dx, [bp]; push word ptr [bp]; pop word ptr [bp]; pop cx"),
      {.eax = 0x4242});
  Check(o.Done() && (o.frame.edx & 0xffff) == 0x4242 && (o.frame.ecx & 0xffff) == 0x4242,
        "push and pop of memory");
  o = Run(CODE16("push ax; mov bx, sp; pop cx; mov dx, ss:[0xfffe]"), {.eax = 0x1357, .esp = 0});
  CheckEq("push with sp 0 goes to 0xfffe", o.frame.ebx & 0xffff, 0xfffe);
  CheckEq("... and pop back to 0", o.frame.esp & 0xffff, 0);
  CheckEq("... the word", o.frame.edx & 0xffff, 0x1357);
  o = Run(CODE16("pusha; mov bp, sp; mov ax, [bp+6]; mov cx, [bp+14]; mov dx, [bp]; popa; push ax"),
          {.eax = 1, .ebx = 2, .ecx = 3, .edx = 4, .esi = 5, .edi = 6, .ebp = 7});
  Check(o.Done() && o.frame.eax == 1 && o.frame.ebx == 2 && o.frame.ecx == 3 && o.frame.edx == 4 &&
            o.frame.esi == 5 && o.frame.edi == 6 && o.frame.ebp == 7 && o.frame.esp == 0xffe,
        "pusha and popa");
  o = Run(CODE16("pusha; mov bp, sp; mov ax, [bp+6]; mov bx, [bp+14]"), {.eax = 0x1111});
  Check((o.frame.eax & 0xffff) == 0x1000 && (o.frame.ebx & 0xffff) == 0x1111,
        "pusha: where sp and ax lie");
  o = Run(CODE16("pushad; popad; pushfd; pop eax"), {.ecx = 0x12345678, .eflags = 2 | kFlagCf});
  Check(o.Done() && o.frame.ecx == 0x12345678 && o.frame.esp == 0x1000, "pushad and popad");
  o = Run(CODE16("enter 8, 0; mov ax, bp; mov bx, sp; leave; mov cx, bp; mov dx, sp"),
          {.ebp = 0x55552222});
  Check((o.frame.eax & 0xffff) == 0xffe && (o.frame.ebx & 0xffff) == 0xff6 &&
            (o.frame.ecx & 0xffff) == 0x2222 && (o.frame.edx & 0xffff) == 0x1000,
        "enter and leave");
  // ENTER with level 3 copies two outer frame pointers and its own.
  WriteWord(kStackSegment, 0x21fe, 0xaaaa);
  WriteWord(kStackSegment, 0x21fc, 0xbbbb);
  o = Run(CODE16("enter 4, 3; mov ax, [bp-2]; mov bx, [bp-4]; mov cx, [bp-6]; mov dx, sp; mov si, "
                 "[bp]"),
          {.ebp = 0x2200});
  Check((o.frame.eax & 0xffff) == 0xaaaa && (o.frame.ebx & 0xffff) == 0xbbbb &&
            (o.frame.ecx & 0xffff) == 0xffe && (o.frame.edx & 0xffff) == 0xff4 &&
            (o.frame.esi & 0xffff) == 0x2200,
        "enter with 3 levels");
  o = Run(CODE16("push 0x0ad5; popf; pushf; pop ax; sti; pushf; pop bx; cli; pushf; pop cx"));
  CheckEq("popf and pushf", o.frame.eax & 0xffff, 0x0ad7);
  CheckEq("sti", o.frame.ebx & kFlagIf, kFlagIf);
  CheckEq("cli", o.frame.ecx & kFlagIf, 0);
  o = Run(CODE16("push 0x7000; popf; pushf; pop ax; push 2; popf"));
  CheckEq("NT and IOPL can be set in real mode", o.frame.eax & 0xf000, 0x7000);
  o = Run(CODE16("pop es; push ds; push fs; pop gs; pop fs"), {.esp = 0x21fc});
  Check(
      o.Done() && o.frame.es == 0xbbbb && o.frame.gs == kOtherSegment && o.frame.fs == kDataSegment,
      "segments by push and pop");
}

void TestStrings() {
  for (u32 i = 0; i < 64; i++) WriteByte(kDataSegment, 0x100 + i, static_cast<u8>(i + 1));
  Outcome o = Run(CODE16("cld; rep movsb"),
                  {.ecx = 0xabcd0010, .esi = 0x12340100, .edi = 0x56780200, .es = kOtherSegment});
  CheckEq("rep movsb: cx", o.frame.ecx, 0xabcd0000);
  CheckEq("... si, without the upper half", o.frame.esi, 0x12340110);
  CheckEq("... di", o.frame.edi, 0x56780210);
  CheckEq("... the bytes", ReadDword(kOtherSegment, 0x20c), 0x100f0e0d);
  o = Run(CODE16("std; rep movsw; cld"),
          {.ecx = 4, .esi = 0x106, .edi = 0x306, .es = kOtherSegment});
  Check((o.frame.esi & 0xffff) == 0xfe && (o.frame.edi & 0xffff) == 0x2fe, "rep movsw downwards");
  CheckEq("... the words", ReadDword(kOtherSegment, 0x300), 0x04030201);
  o = Run(CODE16("rep movs dword ptr es:[di], cs:[si]"),
          {.ecx = 1, .esi = 0, .edi = 0x400, .es = kOtherSegment});
  CheckEq("movsd from cs", ReadDword(kOtherSegment, 0x400), ReadDword(kSegment, 0));
  // The index registers wrap at 64 KB.
  WriteByte(kDataSegment, 0xfffe, 0x11), WriteByte(kDataSegment, 0xffff, 0x22);
  WriteByte(kDataSegment, 0, 0x33), WriteByte(kDataSegment, 1, 0x44);
  o = Run(CODE16("rep movsb"), {.ecx = 4, .esi = 0xfffe, .edi = 0x500, .es = kOtherSegment});
  CheckEq("si wraps", ReadDword(kOtherSegment, 0x500), 0x44332211);
  CheckEq("... to", o.frame.esi & 0xffff, 2);
  o = Run(CODE16("rep stosw; mov dx, di"), {.eax = 0xbeef, .ecx = 2, .edi = 0xfffe});
  CheckEq("di wraps", ReadWord(kDataSegment, 0) << 16 | ReadWord(kDataSegment, 0xfffe), 0xbeefbeef);
  CheckEq("... to", o.frame.edx & 0xffff, 2);
  o = Run(CODE16("rep stosb"), {.ecx = 0x10000, .edi = 0x600});
  Check(o.Done() && o.frame.edi == 0x600 && o.frame.ecx == 0x10000, "rep with cx 0 does nothing");
  o = Run(CODE16("addr32 rep stosb"), {.eax = 0x77, .ecx = 3, .edi = 0x600});
  Check(o.frame.ecx == 0 && o.frame.edi == 0x603 && ReadWord(kDataSegment, 0x601) == 0x7777,
        "rep stosb with 32-bit addresses");
  o = Run(CODE16("lodsb; mov bl, al; lodsw; mov cx, ax; lodsd"), {.esi = 0x110});
  Check(o.Done() && (o.frame.ebx & 0xff) == 0x11 && (o.frame.ecx & 0xffff) == 0x1312 &&
            o.frame.eax == 0x17161514 && o.frame.esi == 0x117,
        "lodsb, lodsw, lodsd");
  // SCAS and CMPS: where they stop, and the flags of the last comparison.
  o = Run(CODE16("repne scasb"), {.eax = 0x20, .ecx = 0x40, .edi = 0x100});
  Check((o.frame.edi & 0xffff) == 0x120 && (o.frame.ecx & 0xffff) == 0x20 &&
            (o.frame.eflags & kFlagZf) != 0,
        "repne scasb finds");
  o = Run(CODE16("repne scasb"), {.eax = 0x99, .ecx = 0x10, .edi = 0x100});
  Check((o.frame.ecx & 0xffff) == 0 && (o.frame.eflags & kFlagZf) == 0,
        "repne scasb does not find");
  for (u32 i = 0; i < 64; i++) WriteByte(kOtherSegment, 0x100 + i, static_cast<u8>(i + 1));
  WriteByte(kOtherSegment, 0x120, 0xff);
  o = Run(CODE16("repe cmpsb"), {.ecx = 0x40, .esi = 0x100, .edi = 0x100, .es = kOtherSegment});
  Check((o.frame.esi & 0xffff) == 0x121 && (o.frame.ecx & 0xffff) == 0x1f &&
            (o.frame.eflags & (kFlagZf | kFlagCf)) == kFlagCf,
        "repe cmpsb stops at the difference");
  o = Run(CODE16("repe cmpsw"), {.ecx = 0x10, .esi = 0x100, .edi = 0x100, .es = kOtherSegment});
  Check((o.frame.ecx & 0xffff) == 0 && (o.frame.eflags & kFlagZf) != 0,
        "repe cmpsw of equal words");
  o = Run(CODE16("repe cmpsb"), {.ecx = 0, .eflags = 2 | kFlagCf | kFlagSf});
  CheckEq("repe with cx 0 leaves the flags", o.frame.eflags, 2 | kFlagCf | kFlagSf);
}

void TestTransfers() {
  // Near.
  Outcome o = Run(CODE16("call 2f; jmp 3f; 2: mov bp, sp; mov ax, [bp]; ret; 3: mov bx, sp"));
  CheckDone("call and ret", o);
  CheckEq("... sp", o.frame.ebx & 0xffff, 0x1000);
  o = Run(CODE16("push 1; push 2; call 2f; jmp 3f; 2: ret 4; 3: mov bx, sp"));
  CheckEq("ret with an immediate", o.frame.ebx & 0xffff, 0x1000);
  o = Run(CODE16("mov ax, offset 2f; call ax; jmp 3f; 2: mov cx, 7; ret; 3:"));
  CheckEq("call through a register", o.frame.ecx, 7);
  o = Run(CODE16("push offset 2f; pop [bx]; jmp [bx]; int3; 2: mov cx, 8"), {.ebx = 0x700});
  CheckEq("jmp through memory", o.frame.ecx, 8);
  o =
      Run(CODE16("call dword ptr cs:[2f]; mov dx, sp; jmp 4f; 2: .word 3f, 0x1000; 3: mov si, cs; "
                 "mov cx, 9; retf; 4:"));
  Check(o.Done() && o.frame.ecx == 9 && (o.frame.edx & 0xffff) == 0x1000 &&
            (o.frame.esi & 0xffff) == kSegment,
        "far call through memory, and retf");
  // 32-bit near transfers.
  o =
      Run(CODE16(".byte 0x66, 0xe8; .long 2f - 3f; 3: jmp 4f; 2: mov bp, sp; mov eax, [bp]; .byte "
                 "0x66; ret; 4: mov bx, sp"));
  Check(o.Done() && (o.frame.eax >> 16) == 0 && (o.frame.ebx & 0xffff) == 0x1000,
        "call and ret of 32 bits");
  // Far, to another segment.
  for (u32 i = 0; i < 64; i++) WriteByte(kCodeSegment, 0x40 + i, 0x90);
  const u8 callee[] = {0x8c, 0xce, 0x89, 0xe5, 0x8b, 0x46, 0x00,
                       0x8b, 0x5e, 0x02, 0xca, 0x02, 0x00};
  for (u32 i = 0; i < sizeof(callee); i++) WriteByte(kCodeSegment, 0x40 + i, callee[i]);
  const void* far_call = CODE16("push ax; call 0x5000:0x40; mov cx, cs; mov dx, sp");
  o = Run(far_call);
  CheckDone("far call and retf 2", o);
  CheckEq("... cs there", o.frame.esi & 0xffff, kCodeSegment);
  CheckEq("... ip on the stack", o.frame.eax & 0xffff, At(far_call, 6));
  CheckEq("... cs on the stack", o.frame.ebx & 0xffff, kSegment);
  CheckEq("... cs back", o.frame.ecx & 0xffff, kSegment);
  CheckEq("... sp", o.frame.edx & 0xffff, 0x1000);
  o = Run(CODE16("jmp 0x1001:(2f-0x10); int3; 2: mov ax, cs; jmp 0x1000:3f; 3: mov bx, cs"));
  Check(o.Done() && (o.frame.eax & 0xffff) == 0x1001 && (o.frame.ebx & 0xffff) == 0x1000,
        "far jumps to the same bytes by another segment");
  o =
      Run(CODE16("push cs; push offset 2f; retf; int3; 2: pushf; push cs; push offset 3f; iret; "
                 "int3; 3: mov ax, "
                 "sp"));
  CheckEq("retf and iret", o.frame.eax & 0xffff, 0x1000);
  o = Run(CODE16(
      "mov eax, 0x00200cd7; push eax; mov eax, 0x1000; push eax; mov eax, offset 2f; push eax; "
      "iretd; int3; 2: pushfd; pop ebx; cld"));
  CheckEq("iretd takes 32 bits of flags", o.frame.ebx & 0x00200fff, 0x00200cd7);

  // NT means nothing in real mode, and reserved bits of an image are dropped.
  o = Run(
      CODE16("push 0x4002; push cs; push offset 2f; push 0x4002; popf; iret; 2: pushf; pop ax"));
  CheckEq("iret with NT", o.frame.eax & 0x4fff, 0x4002);
  o = Run(
      CODE16("pushfd; pop eax; and eax, 0xfffffffd; or eax, 0xffc18028; push eax; mov eax, 0x1000; "
             "push eax; mov eax, offset 2f; push eax; iretd; 2: pushfd; pop eax"));
  CheckDone("iretd with every reserved bit", o);
  CheckEq("... of which none stays", o.frame.eax, 2);
  o = Run(CODE16(
      "mov eax, 0xfffc0000; push eax; popfd; pushfd; pop eax; xor ebx, ebx; push ebx; popfd"));
  // AC and ID can be changed; VM, VIF, VIP and the rest cannot.
  CheckEq("popfd of the upper half", o.frame.eax, 0x00240002);

  // INT through the vector table.
  const u32 saved = ReadDword(0, 0x40 * 4);
  WriteDword(0, 0x40 * 4, u32{kCodeSegment} << 16 | 0x80);
  // pop ax; pop bx; pop cx; push cx; push bx; push ax; pushf; pop dx; iret
  const u8 handler[] = {0x58, 0x5b, 0x59, 0x51, 0x53, 0x50, 0x9c, 0x5a, 0xcf};
  for (u32 i = 0; i < sizeof(handler); i++) WriteByte(kCodeSegment, 0x80 + i, handler[i]);
  const void* interrupt = CODE16("int 0x40; nop");
  o = Run(interrupt, {.eflags = 2 | kFlagIf | kFlagCf | kFlagDf});
  CheckDone("int n and iret", o);
  CheckEq("... ip", o.frame.eax & 0xffff, At(interrupt, 2));
  CheckEq("... cs", o.frame.ebx & 0xffff, kSegment);
  CheckEq("... flags", o.frame.ecx & 0xffff, 2 | kFlagIf | kFlagCf | kFlagDf);
  CheckEq("... IF is clear in the handler", o.frame.edx & 0xffff, 2 | kFlagCf | kFlagDf);
  CheckEq("... and back", o.frame.eflags & 0xffff, 2 | kFlagIf | kFlagCf | kFlagDf);
  WriteDword(0, 0x40 * 4, saved);

  // Jumps around the segment: IP wraps at 16 bits.
  const u8 forward[] = {0xeb, 0x10};  // at 0xfff4: to 0x0006
  WriteByte(kCodeSegment, 0xfff4, forward[0]), WriteByte(kCodeSegment, 0xfff5, forward[1]);
  WriteByte(kCodeSegment, 6, 0xcd), WriteByte(kCodeSegment, 7, kProbeExit);
  o = RunFrame({.eip = 0xfff4, .cs = kCodeSegment});
  CheckDone("a short jump wraps over the top", o);
  CheckEq("... ip", o.frame.eip, 8);
  WriteByte(kCodeSegment, 0x10, 0xe9), WriteWord(kCodeSegment, 0x11, 0xffd0 - 0x13);
  WriteByte(kCodeSegment, 0xffd0, 0xcd), WriteByte(kCodeSegment, 0xffd1, kProbeExit);
  o = RunFrame({.eip = 0x10, .cs = kCodeSegment});
  CheckEq("a near jump wraps below 0", o.frame.eip, 0xffd2);
}

void RunTests() {
  TestArithmetic();
  TestDecimal();
  TestShifts();
  TestBits();
  TestConditions();
  TestAddressing();
  TestStack();
  TestStrings();
  TestTransfers();
}

}  // namespace alibi::frobos
