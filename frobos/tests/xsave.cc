// SPDX-License-Identifier: Apache-2.0
// Saving and restoring extended state, and what switches its instructions off: FXSAVE, the XSAVE
// family, XCR0, CR0.TS, EM, MP and NE, CR4.OSFXSR and OSXSAVE, MXCSR, and the exceptions of x87 and
// SSE (Intel SDM vol. 1 ch. 8, 11, 13; vol. 3A 2.5, 6.15).

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

alignas(64) u8 area[8192];
alignas(64) u8 other[8192];
u64 supported;  // XCR0's bits by CPUID

u64 At(const void* code, u64 offset = 0) { return reinterpret_cast<u64>(code) + offset; }
u64 Area() { return reinterpret_cast<u64>(area); }
u64 Word(const u8* where, u64 offset) {
  u64 v;
  memcpy(&v, where + offset, 8);
  return v;
}
void PutWord(u8* where, u64 offset, u64 value) { memcpy(where + offset, &value, 8); }

const void* xsetbv;
Outcome Xsetbv(u64 index, u64 value) {
  return RunKernel(xsetbv, {.rax = static_cast<u32>(value), .rcx = index, .rdx = value >> 32});
}
u64 Xgetbv(u64 index) {
  const Outcome o = RunKernel(KERNEL_CODE("xgetbv"), {.rcx = index});
  return o.frame.rdx << 32 | o.frame.rax;
}
bool HasXsaveopt() { return Cpuid(0xd, 1).eax & 1; }
bool HasXsavec() { return Cpuid(0xd, 1).eax >> 1 & 1; }
bool HasXgetbv1() { return Cpuid(0xd, 1).eax >> 2 & 1; }
bool HasXsaves() { return Cpuid(0xd, 1).eax >> 3 & 1; }

void CheckGp(const char* name, const Outcome& o, const void* code) {
  CheckFault(name, o, kGeneralProtection, 0, At(code));
}
void CheckUd(const char* name, const Outcome& o, const void* code) {
  CheckFault(name, o, kInvalidOpcode, 0, At(code));
}

void TestFxsave() {
  memset(area, 0xcc, sizeof(area));
  Outcome o = RunKernel(
      KERNEL_CODE("fninit; fldpi; fld1; movups xmm1, [rdi + 1024]; movups xmm15, [rdi + 1040]\n"
                  "mov dword ptr [rsp - 8], 0x1fa0; ldmxcsr [rsp - 8]; fxsave64 [rdi]\n"
                  "mov dword ptr [rsp - 8], 0x1f80; ldmxcsr [rsp - 8]; emms"),
      {.rdi = Area()});
  CheckDone("fxsave64", o);
  CheckEq("fxsave: control word", Word(area, 0) & 0xffff, 0x37f);
  CheckEq("fxsave: status word, top 6", Word(area, 2) & 0x3800, 0x3000);
  CheckEq("fxsave: abridged tags", area[4], 0xc0);
  CheckEq("fxsave: MXCSR", Word(area, 24) & 0xffffffff, 0x1fa0);
  const u32 mask = static_cast<u32>(Word(area, 28));
  Check(mask == 0xffbf || mask == 0xffff || mask == 0x2ffff, "fxsave: MXCSR_MASK");
  CheckEq("fxsave: st(0)", Word(area, 32), 0x8000000000000000);
  CheckEq("fxsave: st(1)", Word(area, 48), 0xc90fdaa22168c235);
  CheckEq("fxsave: xmm15", Word(area, 160 + 15 * 16), 0xcccccccccccccccc);
  CheckEq("fxsave: bytes 464 to 511 are software's", Word(area, 464), 0xcccccccccccccccc);
  const void* fxsave = KERNEL_CODE("fxsave [rdi]");
  const void* fxrstor = KERNEL_CODE("fxrstor [rdi]");
  for (const u64 by : {1u, 4u, 8u}) {
    CheckGp("#GP fxsave misaligned", RunKernel(fxsave, {.rdi = Area() + by}), fxsave);
    CheckGp("#GP fxrstor misaligned", RunKernel(fxrstor, {.rdi = Area() + by}), fxrstor);
  }
  CheckDone("fxsave at 16", RunKernel(fxsave, {.rdi = Area() + 16}));
  // MXCSR's reserved bits.
  RunKernel(fxsave, {.rdi = Area()});
  area[27] |= 0x80;
  if (!SkipOnQemu("#GP fxrstor reserved bit of MXCSR")) {
    CheckGp("#GP fxrstor reserved bit of MXCSR", RunKernel(fxrstor, {.rdi = Area()}), fxrstor);
  }
  const u64 absent = kHighBase + 0x700000;
  CheckFault("#PF fxsave", RunKernel(fxsave, {.rdi = absent}), kPageFault, kPfWrite, At(fxsave));
  CheckFault("#PF fxrstor", RunKernel(fxrstor, {.rdi = absent}), kPageFault, 0, At(fxrstor));
  // The last bytes on an absent page: nothing is loaded.
  const u64 va = kHighBase + 0xa00000;
  Map(va, AllocPage(), kPteW);
  memset(reinterpret_cast<void*>(va), 0, kPageSize);
  o = RunKernel(KERNEL_CODE("mov rax, 0x1234; movq xmm3, rax; fxrstor [rdi]"),
                {.rdi = va + kPageSize - 256});
  CheckFault("#PF fxrstor over two pages", o, kPageFault, 0);
  CheckEq("... cr2", o.cr2, va + kPageSize);
  o = RunKernel(KERNEL_CODE("fxsave [rdi]"), {.rdi = va + kPageSize - 256});
  CheckFault("#PF fxsave over two pages", o, kPageFault, kPfWrite);
  Unmap(va);

  const u64 cr0 = ReadCr0(), cr4 = ReadCr4();
  WriteCr0(cr0 | kCr0Ts);
  const Outcome ts_save = RunKernel(fxsave, {.rdi = Area()});
  const Outcome ts_misaligned = RunKernel(fxsave, {.rdi = Area() + 1});
  WriteCr0((cr0 & ~kCr0Ts) | kCr0Em);
  const Outcome em_save = RunKernel(fxsave, {.rdi = Area()});
  WriteCr0(cr0);
  CheckFault("#NM fxsave with CR0.TS", ts_save, kDeviceNotAvailable, 0, At(fxsave));
  CheckFault("... before its alignment", ts_misaligned, kDeviceNotAvailable);
  CheckFault("#NM fxsave with CR0.EM", em_save, kDeviceNotAvailable, 0, At(fxsave));
  (void)cr4;
}

void TestMxcsr() {
  const void* ldmxcsr = KERNEL_CODE("ldmxcsr [rdi]");
  RunKernel(KERNEL_CODE("fxsave [rdi]"), {.rdi = Area()});
  const u32 mask = static_cast<u32>(Word(area, 28));
  if (SkipOnQemu("#GP LDMXCSR of each reserved bit")) return;
  Group group("#GP LDMXCSR of each reserved bit");
  for (unsigned bit = 0; bit < 32; bit++) {
    const u64 value = 0x1f80 | 1ull << bit;
    PutWord(other, 0, value);
    const Outcome o = RunKernel(ldmxcsr, {.rdi = reinterpret_cast<u64>(other)});
    const bool good = (mask >> bit & 1) != 0 ? o.Done() : o.Is(kGeneralProtection, 0);
    if (!group.Case(good)) Print("  bit %u: %s\n", bit, VectorName(o.frame.vector));
  }
  PutWord(other, 0, 0x1f80);
  RunKernel(ldmxcsr, {.rdi = reinterpret_cast<u64>(other)});
  const Outcome o = RunKernel(KERNEL_CODE("stmxcsr [rdi]; mov eax, [rdi]"),
                              {.rdi = reinterpret_cast<u64>(other)});
  CheckEq("stmxcsr", o.frame.rax, 0x1f80);
}

// Unmasked SSE exceptions, one by one.
void TestSimdExceptions() {
  struct Case {
    const char* name;
    u64 mask;  // of MXCSR, at 7
    const void* code;
    u64 flag;
  };
  const Case cases[] = {
      {"#XM invalid", 1u << 7,
       KERNEL_CODE("ldmxcsr [rdi]; mov rax, 0x7ff4000000000000; movq xmm0, rax; addsd xmm0, xmm0"),
       1},
      {"#XM denormal", 1u << 8,
       KERNEL_CODE("ldmxcsr [rdi]; mov eax, 1; movq xmm0, rax; addsd xmm0, xmm0"), 2},
      {"#XM divide by zero", 1u << 9,
       KERNEL_CODE("ldmxcsr [rdi]; mov eax, 1; cvtsi2sd xmm0, eax; pxor xmm1, xmm1; divsd xmm0, "
                   "xmm1"),
       4},
      {"#XM overflow", 1u << 10,
       KERNEL_CODE("ldmxcsr [rdi]; mov rax, 0x7fefffffffffffff; movq xmm0, rax; addsd xmm0, xmm0"),
       8},
      {"#XM underflow", 1u << 11,
       KERNEL_CODE("ldmxcsr [rdi]; mov rax, 0x0010000000000001; movq xmm0, rax; mov rax, "
                   "0x3fe0000000000000; movq xmm1, rax; mulsd xmm0, xmm1"),
       16},
      {"#XM precision", 1u << 12,
       KERNEL_CODE("ldmxcsr [rdi]; mov eax, 1; cvtsi2sd xmm0, eax; mov eax, 3; cvtsi2sd xmm1, eax\n"
                   "divsd xmm0, xmm1"),
       32},
  };
  const u64 cr4 = ReadCr4();
  for (const Case& c : cases) {
    PutWord(other, 0, 0x1f80 & ~c.mask);
    const Regs regs = {.rdi = reinterpret_cast<u64>(other)};
    const Outcome o = RunKernel(c.code, regs);
    const Outcome after = RunKernel(
        KERNEL_CODE("stmxcsr [rdi]; mov eax, [rdi]; mov dword ptr [rdi], 0x1f80; ldmxcsr [rdi]"),
        regs);
    // QEMU raises no SSE exceptions.
    if (SkipOnQemu(c.name)) continue;
    CheckFault(c.name, o, kSimdFault, 0);
    CheckEq("... its flag", after.frame.rax & c.flag, c.flag);
  }
  if (SkipOnQemu("#UD unmasked without CR4.OSXMMEXCPT")) return;
  WriteCr4(cr4 & ~kCr4Osxmmexcpt);
  PutWord(other, 0, 0x1d80);
  const Outcome o = RunKernel(cases[2].code, {.rdi = reinterpret_cast<u64>(other)});
  WriteCr4(cr4);
  CheckFault("#UD unmasked without CR4.OSXMMEXCPT", o, kInvalidOpcode);
  PutWord(other, 0, 0x1f80);
  RunKernel(KERNEL_CODE("ldmxcsr [rdi]"), {.rdi = reinterpret_cast<u64>(other)});
}

// What CR0 and CR4 make of the instructions.
void TestControlBits() {
  struct Case {
    const char* name;
    const void* code;
    // The vector under CR0.TS, CR0.EM, CR4.OSFXSR clear; kProbeExit: runs.
    u8 ts, em, no_osfxsr;
  };
  const Case cases[] = {
      {"fld1", KERNEL_CODE("fld1; fstp st(0)"), kDeviceNotAvailable, kDeviceNotAvailable,
       kProbeExit},
      {"fninit", KERNEL_CODE("fninit"), kDeviceNotAvailable, kDeviceNotAvailable, kProbeExit},
      {"fnstsw ax", KERNEL_CODE("fnstsw ax"), kDeviceNotAvailable, kDeviceNotAvailable, kProbeExit},
      {"mmx", KERNEL_CODE("pxor mm0, mm0"), kDeviceNotAvailable, kInvalidOpcode, kProbeExit},
      {"emms", KERNEL_CODE("emms"), kDeviceNotAvailable, kInvalidOpcode, kProbeExit},
      {"sse", KERNEL_CODE("xorps xmm0, xmm0"), kDeviceNotAvailable, kInvalidOpcode, kInvalidOpcode},
      {"sse2", KERNEL_CODE("pxor xmm0, xmm0"), kDeviceNotAvailable, kInvalidOpcode, kInvalidOpcode},
      {"ldmxcsr", KERNEL_CODE("stmxcsr [rsp - 16]"), kDeviceNotAvailable, kInvalidOpcode,
       kInvalidOpcode},
      {"movnti", KERNEL_CODE("movnti [rsp - 16], eax"), kProbeExit, kProbeExit, kProbeExit},
      {"prefetch", KERNEL_CODE("prefetcht0 [rsp]"), kProbeExit, kProbeExit, kProbeExit},
      {"sfence", KERNEL_CODE("sfence; lfence; mfence"), kProbeExit, kProbeExit, kProbeExit},
      {"crc32", KERNEL_CODE("crc32 eax, ecx"), kProbeExit, kProbeExit, kProbeExit},
      {"popcnt", KERNEL_CODE("popcnt eax, ecx"), kProbeExit, kProbeExit, kProbeExit},
      {"maskmovq", KERNEL_CODE("mov rdi, rsp; sub rdi, 64; maskmovq mm0, mm1"), kDeviceNotAvailable,
       kInvalidOpcode, kProbeExit},
  };
  const u64 cr0 = ReadCr0(), cr4 = ReadCr4();
  for (const Case& c : cases) {
    RunKernel(KERNEL_CODE("fninit"));
    WriteCr0(cr0 | kCr0Ts);
    const Outcome ts = RunKernel(c.code);
    WriteCr0(cr0 | kCr0Em);
    const Outcome em = RunKernel(c.code);
    WriteCr0(cr0);
    WriteCr4(cr4 & ~kCr4Osfxsr);
    const Outcome no_osfxsr = RunKernel(c.code);
    WriteCr4(cr4);
    if (SkipOnQemu(c.name, strcmp(c.name, "emms") == 0)) continue;  // it never faults there
    Group group(c.name);
    if (!group.Case(ts.Is(c.ts))) Print("  CR0.TS: %s\n", VectorName(ts.frame.vector));
    if (!group.Case(em.Is(c.em))) Print("  CR0.EM: %s\n", VectorName(em.frame.vector));
    if (OptionIs("host", "qemu") && c.no_osfxsr != kProbeExit) continue;  // QEMU does not look
    if (!group.Case(no_osfxsr.Is(c.no_osfxsr))) {
      Print("  without CR4.OSFXSR: %s\n", VectorName(no_osfxsr.frame.vector));
    }
  }
  // WAIT: #NM only if MP and TS.
  Group group("wait under CR0.MP, EM and TS");
  const void* wait = KERNEL_CODE("fwait");
  for (unsigned bits = 0; bits < 8; bits++) {
    const bool mp = bits & 1, em = bits & 2, ts = bits & 4;
    WriteCr0((cr0 & ~(kCr0Mp | kCr0Em | kCr0Ts)) | (mp ? kCr0Mp : 0) | (em ? kCr0Em : 0) |
             (ts ? kCr0Ts : 0));
    const Outcome o = RunKernel(wait);
    WriteCr0(cr0);
    const bool good = mp && ts ? o.Is(kDeviceNotAvailable) : o.Done();
    if (!group.Case(good))
      Print("  MP %d EM %d TS %d: %s\n", mp, em, ts, VectorName(o.frame.vector));
  }
  WriteCr0(cr0 | kCr0Ts);
  const Outcome clts = RunKernel(KERNEL_CODE("clts; fld1; fstp st(0)"));
  const u64 after = ReadCr0();
  WriteCr0(cr0);
  CheckDone("clts", clts);
  CheckEq("... CR0", after, cr0 & ~kCr0Ts);
  CheckGp("#GP clts in CPL 3", RunUser(USER_CODE("clts")), nullptr);
}

void TestX87Exceptions() {
  // The exception waits for the next waiting instruction.
  const void* code = KERNEL_CODE(
      "fninit; mov word ptr [rsp - 8], 0x37b; fldcw [rsp - 8]; fld1; fldz; fdivp; nop; fnstsw ax\n"
      "fld1");
  Outcome o = RunKernel(code);
  // QEMU looks at FWAIT alone.
  if (!SkipOnQemu("#MF at the next waiting instruction")) {
    CheckFault("#MF at the next waiting instruction", o, kMathFault);
    CheckEq("... behind fnstsw", o.frame.rax & 0x84, 0x84);  // ES and ZE
  }
  RunKernel(KERNEL_CODE("fnclex; fninit"));
  const void* with_wait = KERNEL_CODE(
      "fninit; mov word ptr [rsp - 8], 0x37b; fldcw [rsp - 8]; fld1; fldz; fdivp; fwait; nop");
  o = RunKernel(with_wait);
  CheckFault("#MF at fwait", o, kMathFault);
  RunKernel(KERNEL_CODE("fnclex; fninit"));
  o = RunKernel(KERNEL_CODE(
      "fninit; mov word ptr [rsp - 8], 0x37b; fldcw [rsp - 8]; fld1; fldz; fdivp; fnclex; fld1"));
  CheckDone("fnclex forgets it", o);
  RunKernel(KERNEL_CODE("fninit"));
}

// Without CR0.NE an x87 exception is IRQ 13, by FERR#; a write to port 0xf0 takes the request back
// and asserts IGNNE# until the exception is cleared (SDM vol. 1, 8.7.2 and D.2).
void TestFerr() {
  if (SkipOnQemu("FERR# and IGNNE#")) return;
  static volatile u64 irq13;
  static volatile u64 returns_to;
  static volatile u64 status;
  static volatile bool clear_first;
  const u64 cr0 = ReadCr0();
  InitPic();
  SetHandler(kIrqBase + 13, [](TrapFrame* frame) {
    irq13 = irq13 + 1;
    returns_to = frame->rip;
    u16 word = 0;
    if (clear_first) asm volatile("fnclex");
    Outb(0xf0, 0);
    // Ignored: they wait for nothing, and change nothing but what they say.
    if (!clear_first) asm volatile("fwait; fld1; fstsw %0; fnclex" : "=m"(word));
    status = word;
    EndOfIrq(13);
  });
  UnmaskIrq(2);
  UnmaskIrq(13);
  struct Case {
    const char* name;
    const void* code;
  };
#define ZERO_DIVIDE "fninit; mov word ptr [rsp - 8], 0x37b; fldcw [rsp - 8]; fld1; fldz; fdivp;"
  const Case cases[] = {
      {"x87 without CR0.NE: fwait waits", KERNEL_CODE(ZERO_DIVIDE "sti; nop; lea rax, [rip]; fwait;"
                                                                  "cli")},
      {"... in the shadow of sti", KERNEL_CODE(ZERO_DIVIDE "lea rax, [rip + 1]; sti; fwait; cli")},
      {"... fld", KERNEL_CODE(ZERO_DIVIDE "sti; nop; lea rax, [rip]; fld1; fstp st(0); cli")},
      {"... an MMX instruction",
       KERNEL_CODE(ZERO_DIVIDE "sti; nop; lea rax, [rip]; pxor mm0, mm0; cli")},
  };
#undef ZERO_DIVIDE
  for (const Case& c : cases) {
    for (const bool clear : {false, true}) {
      clear_first = clear;
      irq13 = 0;
      status = 0;
      WriteCr0(cr0 & ~kCr0Ne);
      // Twice: each exception is one interrupt.
      Outcome o = RunKernel(c.code);
      if (o.Done()) o = RunKernel(c.code);
      WriteCr0(cr0);
      RunKernel(KERNEL_CODE("fnclex; fninit"));
      CheckDone(c.name, o);
      CheckEq("... is IRQ 13", irq13, 2);
      CheckEq("... in front of the instruction", returns_to, o.frame.rax);
      // ES and ZE stay, FDIVP has not popped, and FLD1 has been executed.
      if (!clear) CheckEq("... ignored behind port 0xf0", status & 0x38ff, 0x2884);
    }
  }
  // FERR# is the wire of a wait: what does not wait does not see it.
  irq13 = 0;
  WriteCr0(cr0 & ~kCr0Ne);
  const Outcome o = RunKernel(
      KERNEL_CODE("fninit; mov word ptr [rsp - 8], 0x37b; fldcw [rsp - 8]; fld1; fldz; fdivp\n"
                  "fnstsw ax; fnclex; sti; fwait; nop; cli"));
  WriteCr0(cr0);
  CheckDone("x87 without CR0.NE: fnstsw and fnclex do not wait", o);
  CheckEq("... no interrupt", irq13, 0);
  MaskAllInterrupts();
  SetHandler(kIrqBase + 13, nullptr);
  RunKernel(KERNEL_CODE("fninit"));
}

void TestXcr0() {
  if (!HasXsave()) return Skip("XSAVE", "CPUID has none");
  const u64 cr4 = ReadCr4();
  WriteCr4(cr4 & ~kCr4Osxsave);
  struct Off {
    const char* name;
    const void* code;
  };
  const Off off[] = {
      {"#UD xgetbv without CR4.OSXSAVE", KERNEL_CODE("xgetbv")},
      {"#UD xsetbv without CR4.OSXSAVE", KERNEL_CODE("xsetbv")},
      {"#UD xsave without CR4.OSXSAVE", KERNEL_CODE("xsave [rdi]")},
      {"#UD xrstor without CR4.OSXSAVE", KERNEL_CODE("xrstor [rdi]")},
      {"#UD xsaveopt without CR4.OSXSAVE", KERNEL_CODE("xsaveopt [rdi]")},
      {"#UD xsavec without CR4.OSXSAVE", KERNEL_CODE("xsavec [rdi]")},
  };
  Outcome outcomes[6];
  for (unsigned i = 0; i < 6; i++) outcomes[i] = RunKernel(off[i].code, {.rdi = Area()});
  const u32 shown = Features().ecx >> 27 & 1;
  WriteCr4(cr4 | kCr4Osxsave);
  for (unsigned i = 0; i < 6; i++) {
    if (SkipOnQemu(off[i].name, i == 5)) continue;  // QEMU has no XSAVEC
    CheckUd(off[i].name, outcomes[i], off[i].code);
  }
  CheckEq("CPUID.OSXSAVE follows CR4: clear", shown, 0);
  CheckEq("... set", Features().ecx >> 27 & 1, 1);

  const u64 before = Xgetbv(0);
  Check((before & 1) != 0, "XCR0 has x87");
  const auto refuses = [](const char* name, u64 index, u64 value) {
    CheckGp(name, Xsetbv(index, value), xsetbv);
  };
  refuses("#GP XCR0 = 0", 0, 0);
  refuses("#GP XCR0 without x87", 0, 2);
  refuses("#GP XCR0: AVX without SSE", 0, 5);
  refuses("#GP XCR0: a bit that does not exist", 0, 1 | 1ull << 62);
  refuses("#GP XCR0: bit 63", 0, 1 | 1ull << 63);
  refuses("#GP XCR0: half of AVX-512", 0, 7 | 1u << 5);
  refuses("#GP XCR0: AVX-512 without AVX", 0, 3 | 7u << 5);
  refuses("#GP XCR1", 1, 1);
  refuses("#GP XCR of another number", 0xffffffff, 7);
  for (unsigned bit = 8; bit < 20; bit++) {
    if ((supported >> bit & 1) != 0) continue;
    const Outcome o = Xsetbv(0, supported | 1u << bit);
    if (!o.Is(kGeneralProtection)) CheckGp("#GP XCR0 bit that CPUID does not show", o, xsetbv);
  }
  CheckDone("XCR0: x87 alone", Xsetbv(0, 1));
  CheckDone("XCR0: x87 and SSE", Xsetbv(0, 3));
  CheckDone("XCR0: all", Xsetbv(0, supported));
  CheckEq("... reads back", Xgetbv(0), supported);
  CheckEq("CPUID 0xd: size of all", Cpuid(0xd, 0).ebx, Cpuid(0xd, 0).ecx);
  const void* xgetbv = KERNEL_CODE("xgetbv");
  CheckGp("#GP xgetbv of 2", RunKernel(xgetbv, {.rcx = 2}), xgetbv);
  if (HasXgetbv1()) {
    CheckDone("xgetbv of 1", RunKernel(xgetbv, {.rcx = 1}));
    const Outcome o = RunKernel(KERNEL_CODE("fld1; movaps xmm0, xmm0; mov ecx, 1; xgetbv; fninit"));
    CheckEq("... x87 is in use", o.frame.rax & 1, 1);
  } else {
    CheckGp("#GP xgetbv of 1", RunKernel(xgetbv, {.rcx = 1}), xgetbv);
  }
  const void* user_xgetbv = USER_CODE("xor ecx, ecx; xgetbv");
  CheckDone("xgetbv in CPL 3", RunUser(user_xgetbv));
  const void* user = USER_CODE("xsetbv");
  CheckGp("#GP xsetbv in CPL 3", RunUser(user, {.rax = 7}), user);

  // AVX follows XCR0.
  if ((supported & 4) != 0) {
    const void* vex = KERNEL_CODE("vpxor xmm0, xmm0, xmm0");
    const void* vex_ymm = KERNEL_CODE("vxorps ymm0, ymm0, ymm0");
    const void* legacy = KERNEL_CODE("pxor xmm0, xmm0");
    const void* vex_gpr = KERNEL_CODE("andn eax, ecx, edx");
    CheckDone("AVX with XCR0.AVX", RunKernel(vex));
    Xsetbv(0, 3);
    CheckUd("#UD AVX without XCR0.AVX", RunKernel(vex), vex);
    CheckUd("#UD AVX without XCR0.AVX, 256 bits", RunKernel(vex_ymm), vex_ymm);
    CheckDone("SSE without XCR0.AVX", RunKernel(legacy));
    if (ExtendedFeatures().ebx >> 3 & 1) {
      CheckDone("VEX of general registers without XCR0.AVX", RunKernel(vex_gpr));
    }
    CheckEq("CPUID 0xd: size without AVX", Cpuid(0xd, 0).ebx, 576);
    Xsetbv(0, 1);
    CheckDone("SSE without XCR0.SSE", RunKernel(legacy));
    Xsetbv(0, supported);
    const u64 cr0 = ReadCr0();
    WriteCr0(cr0 | kCr0Ts);
    const Outcome ts = RunKernel(vex);
    WriteCr0(cr0 | kCr0Em);
    const Outcome em = RunKernel(vex);
    WriteCr0(cr0);
    CheckFault("#NM AVX with CR0.TS", ts, kDeviceNotAvailable, 0, At(vex));
    // CR0.EM does not concern AVX (SDM vol. 2, table 2-24 ff.); QEMU looks at it.
    if (!SkipOnQemu("AVX with CR0.EM")) CheckDone("AVX with CR0.EM", em);
  }
  if ((supported & 0xe0) == 0xe0) {
    const void* evex = KERNEL_CODE("vpxord zmm16, zmm16, zmm16");
    const void* mask = KERNEL_CODE("kxorw k1, k1, k1");
    CheckDone("AVX-512 with its XCR0 bits", RunKernel(evex));
    CheckDone("mask registers with their XCR0 bits", RunKernel(mask));
    Xsetbv(0, 7);
    CheckUd("#UD AVX-512 without its XCR0 bits", RunKernel(evex), evex);
    CheckUd("#UD mask registers without their XCR0 bits", RunKernel(mask), mask);
    CheckDone("AVX without AVX-512's XCR0 bits", RunKernel(KERNEL_CODE("vpxor xmm0, xmm0, xmm0")));
    Xsetbv(0, supported);
  } else {
    Skip("AVX-512", "CPUID has none");
  }
  Xsetbv(0, before);
}

void TestXsave() {
  if (!HasXsave()) return;
  WriteCr4(ReadCr4() | kCr4Osxsave);
  Xsetbv(0, supported);
  const void* xsave = KERNEL_CODE("xsave64 [rdi]");
  const void* xrstor = KERNEL_CODE("xrstor64 [rdi]");
  const Regs all = {.rax = 0xffffffff, .rdx = 0xffffffff, .rdi = Area()};
  const auto with = [&all](u64 rax, u64 rdi) {
    Regs r = all;
    r.rax = rax, r.rdi = rdi, r.rdx = 0;
    return r;
  };
  memset(area, 0, sizeof(area));
  RunKernel(
      KERNEL_CODE("fninit; fldpi; mov rcx, 0x1122334455667788; movq xmm5, rcx\n"
                  "punpcklqdq xmm5, xmm5"));
  CheckDone("xsave", RunKernel(xsave, all));
  CheckEq("xsave: x87 and SSE in XSTATE_BV", Word(area, 512) & 3, 3);
  CheckEq("xsave: xmm5", Word(area, 160 + 80), 0x1122334455667788);
  CheckEq("xsave: st(0)", Word(area, 32), 0xc90fdaa22168c235);
  // Only what is asked for.
  memset(area, 0, sizeof(area));
  RunKernel(xsave, with(1, Area()));
  CheckEq("xsave of x87 alone", Word(area, 512) & 7, 1);
  CheckEq("... leaves xmm5's place", Word(area, 160 + 80), 0);
  PutWord(area, 512, 0xf0);
  RunKernel(xsave, with(2, Area()));
  CheckEq("xsave keeps XSTATE_BV's other bits", Word(area, 512) & ~2ull, 0xf0);

  for (const u64 by : {1u, 8u, 16u, 32u}) {
    CheckGp("#GP xsave misaligned", RunKernel(xsave, with(7, Area() + by)), xsave);
    CheckGp("#GP xrstor misaligned", RunKernel(xrstor, with(7, Area() + by)), xrstor);
  }
  // The header of XRSTOR.
  memset(area, 0, sizeof(area));
  RunKernel(xsave, all);
  u8 good[64];
  memcpy(good, area + 512, 64);
  const auto refuses = [&](const char* name, u64 offset, u64 value) {
    memcpy(area + 512, good, 64);
    PutWord(area, 512 + offset, value);
    CheckGp(name, RunKernel(xrstor, all), xrstor);
    memcpy(area + 512, good, 64);
  };
  refuses("#GP xrstor: XSTATE_BV has a bit that XCR0 has not", 0, 1ull << 62);
  refuses("#GP xrstor: XCOMP_BV without its bit 63", 8, 1);
  refuses("#GP xrstor: reserved bytes of the header", 16, 1);
  memcpy(area + 512, good, 64);
  area[27] |= 0x80;
  if (!SkipOnQemu("#GP xrstor: reserved bit of MXCSR")) {
    CheckGp("#GP xrstor: reserved bit of MXCSR", RunKernel(xrstor, all), xrstor);
  }
  area[27] &= 0x7f;
  CheckDone("xrstor", RunKernel(xrstor, all));
  // What XSTATE_BV does not name is initialized.
  PutWord(area, 512, 1);
  Outcome o =
      RunKernel(KERNEL_CODE("mov rcx, -1; movq xmm5, rcx; xrstor64 [rdi]; movq rbx, xmm5"), all);
  CheckEq("xrstor initializes SSE if XSTATE_BV has it not", o.frame.rbx, 0);
  PutWord(area, 512, 3);
  o = RunKernel(
      KERNEL_CODE("mov rcx, -1; movq xmm5, rcx; mov eax, 1; xor edx, edx; xrstor64 [rdi]; "
                  "movq rbx, xmm5"),
      all);
  CheckEq("xrstor leaves alone what is not asked for", o.frame.rbx, ~0ull);
  const u64 absent = kHighBase + 0x700000;
  CheckFault("#PF xsave", RunKernel(xsave, with(7, absent)), kPageFault, kPfWrite, At(xsave));
  CheckFault("#PF xrstor", RunKernel(xrstor, with(7, absent)), kPageFault, 0, At(xrstor));
  const u64 cr0 = ReadCr0();
  WriteCr0(cr0 | kCr0Ts);
  const Outcome ts = RunKernel(xsave, all);
  WriteCr0(cr0);
  if (!SkipOnQemu("#NM xsave with CR0.TS")) {
    CheckFault("#NM xsave with CR0.TS", ts, kDeviceNotAvailable, 0, At(xsave));
  }
  const void* locked = KERNEL_CODE(".byte 0xf0; xsave [rdi]");
  if (!SkipOnQemu("#UD xsave locked")) CheckUd("#UD xsave locked", RunKernel(locked, all), locked);
  CheckDone("xsave in CPL 3", RunUser(USER_CODE("lea rdi, [rsp - 8192]; and rdi, -64; xor edx, "
                                                "edx; mov eax, 3; xsave [rdi]; xrstor [rdi]")));

  if ((supported & 4) != 0) {
    RunKernel(
        KERNEL_CODE("mov rcx, 0x99aabbccddeeff00; movq xmm6, rcx; vmovddup xmm6, xmm6; "
                    "vinsertf128 ymm6, ymm6, xmm6, 1"));  // AVX's own: not all have AVX2
    memset(area, 0, sizeof(area));
    RunKernel(xsave, all);
    const u64 offset = Cpuid(0xd, 2).ebx;
    CheckEq("CPUID 0xd: AVX's place", offset, 576);
    CheckEq("xsave: upper half of ymm6", Word(area, offset + 6 * 16), 0x99aabbccddeeff00);
    o = RunKernel(
        KERNEL_CODE("vzeroall; xrstor64 [rdi]; vextractf128 xmm0, ymm6, 1; movq rbx, xmm0"), all);
    CheckEq("xrstor: upper half of ymm6", o.frame.rbx, 0x99aabbccddeeff00);
    if (HasXsaveopt()) {
      memset(area, 0, sizeof(area));
      CheckDone("xsaveopt", RunKernel(KERNEL_CODE("xsaveopt64 [rdi]"), all));
      CheckEq("... upper half of ymm6", Word(area, offset + 6 * 16), 0x99aabbccddeeff00);
    }
    if (HasXsavec()) {
      memset(area, 0, sizeof(area));
      const void* xsavec = KERNEL_CODE("xsavec64 [rdi]");
      CheckDone("xsavec", RunKernel(xsavec, with(7, Area())));
      CheckEq("... XCOMP_BV", Word(area, 520), 1ull << 63 | 7);
      CheckEq("... AVX right behind the header", Word(area, 576 + 6 * 16), 0x99aabbccddeeff00);
      // Without SSE AVX keeps its place behind the legacy area and the header.
      memset(area, 0, sizeof(area));
      RunKernel(xsavec, with(4, Area()));
      CheckEq("xsavec of AVX alone: XCOMP_BV", Word(area, 520), 1ull << 63 | 4);
      CheckEq("... XSTATE_BV", Word(area, 512), 4);
      CheckEq("... its place", Word(area, 576 + 6 * 16), 0x99aabbccddeeff00);
      o = RunKernel(
          KERNEL_CODE("vzeroall; xrstor64 [rdi]; vextractf128 xmm0, ymm6, 1; movq rbx, xmm0"), all);
      CheckDone("xrstor of the compact format", o);
      CheckEq("... upper half of ymm6", o.frame.rbx, 0x99aabbccddeeff00);
      PutWord(area, 520, 1ull << 63 | 3);
      CheckGp("#GP xrstor: XSTATE_BV beyond XCOMP_BV", RunKernel(xrstor, all), xrstor);
      PutWord(area, 520, 1ull << 63 | 1ull << 62 | 7);
      CheckGp("#GP xrstor: XCOMP_BV has a bit that XCR0 has not", RunKernel(xrstor, all), xrstor);
      CheckGp("#GP xsavec misaligned", RunKernel(xsavec, with(7, Area() + 32)), xsavec);
    }
  }
  if (!HasXsaves() && !OptionIs("host", "qemu")) {
    const void* xsaves = KERNEL_CODE("xsaves [rdi]");
    const void* xrstors = KERNEL_CODE("xrstors [rdi]");
    CheckUd("#UD xsaves without CPUID's bit", RunKernel(xsaves, all), xsaves);
    CheckUd("#UD xrstors without CPUID's bit", RunKernel(xrstors, all), xrstors);
  }
}

constexpr Section kSections[] = {
    {"fxsave", TestFxsave},       {"mxcsr", TestMxcsr},       {"xm", TestSimdExceptions},
    {"control", TestControlBits}, {"x87", TestX87Exceptions}, {"ferr", TestFerr},
    {"xcr0", TestXcr0},           {"xsave", TestXsave},
};

}  // namespace

int Main() {
  xsetbv = KERNEL_CODE("xsetbv");
  if (HasXsave()) supported = Cpuid(0xd, 0).eax | u64{Cpuid(0xd, 0).edx} << 32;
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
