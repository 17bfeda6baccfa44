// SPDX-License-Identifier: Apache-2.0
// What control registers forbid: x87, MMX, SSE and AVX instructions by CR0, CR4 and XCR0 (Intel SDM
// vol. 3A 2.5, 13.1; vol. 2A 2.4), and misaligned accesses by EFLAGS.AC (vol. 3A 6.15).

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u8 kFine = kProbeExit;

alignas(64) u8 area[4096];

bool HasAvx512() { return ExtendedFeatures().ebx >> 16 & 1; }

void WriteXcr0(u32 low) { asm volatile("xsetbv" : : "c"(0), "a"(low), "d"(0)); }

enum Needs : u8 { kNothing, kAvx, kAvx512 };

// One instruction and what becomes of it under each rule.
struct Case {
  const char* name;
  const void* code;
  u8 task_switched, emulated, no_sse, no_xsave, no_avx;
  Needs needs = kNothing;
  bool qemu_wrong = false;
};

void TestUnits() {
  constexpr u8 kNm = kDeviceNotAvailable, kUd = kInvalidOpcode;
  // QEMU 7.2: wrong about CR0.EM and CR4.OSFXSR for some MMX and AVX instructions.
  const Case cases[] = {
      {"x87", KERNEL_CODE("fnop"), kNm, kNm, kFine, kFine, kFine},
      {"x87 with memory", KERNEL_CODE("fnstcw [rdi]"), kNm, kNm, kFine, kFine, kFine},
      {"fninit", KERNEL_CODE("fninit"), kNm, kNm, kFine, kFine, kFine},
      {"fisttp (SSE3)", KERNEL_CODE("fldz; fisttp dword ptr [rdi]"), kNm, kNm, kFine, kFine, kFine},
      {"MMX", KERNEL_CODE("paddb mm0, mm1; emms"), kNm, kUd, kFine, kFine, kFine},
      {"MMX from a register", KERNEL_CODE("movd mm0, eax; emms"), kNm, kUd, kFine, kFine, kFine},
      {"emms", KERNEL_CODE("emms"), kNm, kUd, kFine, kFine, kFine, kNothing, true},
      {"MMX instruction of SSE", KERNEL_CODE("pshufw mm0, mm1, 3; emms"), kNm, kUd, kFine, kFine,
       kFine, kNothing, true},
      {"SSE", KERNEL_CODE("xorps xmm0, xmm0"), kNm, kUd, kUd, kFine, kFine},
      {"SSE load", KERNEL_CODE("movups xmm0, [rdi]"), kNm, kUd, kUd, kFine, kFine},
      {"SSE2 integer", KERNEL_CODE("paddb xmm0, xmm1"), kNm, kUd, kUd, kFine, kFine},
      {"SSE to a register", KERNEL_CODE("cvttss2si eax, xmm0"), kNm, kUd, kUd, kFine, kFine},
      {"SSE and MMX", KERNEL_CODE("cvtps2pi mm0, xmm0; emms"), kNm, kUd, kUd, kFine, kFine,
       kNothing, true},
      {"ldmxcsr", KERNEL_CODE("stmxcsr [rdi]; ldmxcsr [rdi]"), kNm, kUd, kUd, kFine, kFine},
      {"prefetch", KERNEL_CODE("prefetcht0 [rdi]"), kFine, kFine, kFine, kFine, kFine},
      {"fences", KERNEL_CODE("sfence; lfence; mfence"), kFine, kFine, kFine, kFine, kFine},
      {"movnti", KERNEL_CODE("movnti [rdi], eax"), kFine, kFine, kFine, kFine, kFine},
      {"crc32", KERNEL_CODE("crc32 eax, bl"), kFine, kFine, kFine, kFine, kFine},
      {"popcnt", KERNEL_CODE("popcnt eax, ebx"), kFine, kFine, kFine, kFine, kFine},
      {"fxsave", KERNEL_CODE("fxsave [rdi]"), kNm, kNm, kFine, kFine, kFine},
      {"fxrstor", KERNEL_CODE("fxrstor [rsi]"), kNm, kNm, kFine, kFine, kFine},
      {"andn (VEX, no vector)", KERNEL_CODE("andn eax, ebx, ecx"), kFine, kFine, kFine, kFine,
       kFine, kAvx},
      {"AVX", KERNEL_CODE("vpxor xmm0, xmm0, xmm0"), kNm, kFine, kFine, kUd, kUd, kAvx, true},
      {"vzeroupper", KERNEL_CODE("vzeroupper"), kNm, kFine, kFine, kUd, kUd, kAvx, true},
      {"AVX load", KERNEL_CODE("vmovdqu ymm1, [rdi]"), kNm, kFine, kFine, kUd, kUd, kAvx, true},
      {"vstmxcsr", KERNEL_CODE("vstmxcsr [rdi]"), kNm, kFine, kFine, kUd, kUd, kAvx, true},
      {"xsave", KERNEL_CODE("mov eax, 1; xor edx, edx; xsave [rdi]"), kNm, kFine, kFine, kUd, kFine,
       kAvx, true},
      {"AVX-512", KERNEL_CODE("vpxord zmm0, zmm0, zmm0"), kNm, kFine, kFine, kUd, kUd, kAvx512},
      {"a mask register", KERNEL_CODE("kmovw k1, eax"), kNm, kFine, kFine, kUd, kUd, kAvx512},
  };
  const u64 cr0 = ReadCr0(), cr4 = ReadCr4();
  const bool avx = HasAvx() && HasXsave(), avx512 = avx && HasAvx512();
  const u32 xcr0 = avx512 ? 0xe7 : 7;
  const Regs regs = {.rsi = reinterpret_cast<u64>(area + 2048), .rdi = reinterpret_cast<u64>(area)};
  if (avx) {
    WriteCr4(cr4 | kCr4Osxsave);
    WriteXcr0(xcr0);
  }
  const u64 all = ReadCr4();
  asm volatile("fxsave %0" : "=m"(area[2048]));
  const auto expect = [&](const Case& c, const char* under, u8 vector, const Outcome& o) {
    CheckEq(c.name, o.frame.vector, vector);
    if (o.frame.vector != vector) Print("     under %s\n", under);
  };
  for (const Case& c : cases) {
    if ((c.needs == kAvx && !avx) || (c.needs == kAvx512 && !avx512)) {
      Skip(c.name, "CPUID does not show it");
      continue;
    }
    if (SkipOnQemu(c.name, c.qemu_wrong)) continue;
    expect(c, "no rule", kFine, RunKernel(c.code, regs));
    WriteCr0(cr0 | kCr0Ts);
    const Outcome switched = RunKernel(c.code, regs);
    WriteCr0(cr0 | kCr0Em);
    const Outcome emulated = RunKernel(c.code, regs);
    WriteCr0(cr0);
    WriteCr4(all & ~kCr4Osfxsr);
    const Outcome no_sse = RunKernel(c.code, regs);
    WriteCr4(all & ~kCr4Osxsave);
    const Outcome no_xsave = RunKernel(c.code, regs);
    WriteCr4(all);
    expect(c, "CR0.TS", c.task_switched, switched);
    expect(c, "CR0.EM", c.emulated, emulated);
    expect(c, "CR4.OSFXSR clear", c.no_sse, no_sse);
    expect(c, "CR4.OSXSAVE clear", avx ? c.no_xsave : kFine, no_xsave);
    if (!avx) continue;
    WriteXcr0(3);
    const Outcome no_avx = RunKernel(c.code, regs);
    WriteXcr0(xcr0);
    expect(c, "XCR0 without AVX", c.no_avx, no_avx);
    // Forbidden, then allowed again: the same code both ways.
    expect(c, "no rule", kFine, RunKernel(c.code, regs));
  }
  // A program that meets CR0.TS, as a kernel that saves vector state lazily serves it.
  SetHandler(kDeviceNotAvailable, [](TrapFrame*) { asm volatile("clts"); });
  WriteCr0(cr0 | kCr0Ts);
  const Outcome lazy =
      RunUser(USER_CODE("mov eax, 7; movd xmm0, eax; paddd xmm0, xmm0; movd ebx, "
                        "xmm0"));
  const u64 after = ReadCr0();
  SetHandler(kDeviceNotAvailable, nullptr);
  WriteCr0(cr0);
  WriteCr4(cr4);
  Check(lazy.Done() && lazy.frame.rbx == 14, "#NM, clts, and on");
  CheckEq("... CR0.TS", after & kCr0Ts, 0);
}

void TestAlignment() {
  // SDM vol. 3A 6.15, interrupt 17: QEMU 7.2 has no alignment checks.
  if (SkipOnQemu("alignment checks")) return;
  struct Case {
    const char* name;
    const void* code;  // rsp is a multiple of 16
    bool fault;
    u64 at = 0;
  };
  const Case cases[] = {
      {"byte load", USER_CODE("mov al, [rsp - 63]"), false},
      {"word load", USER_CODE("mov ax, [rsp - 63]"), true},
      {"word load, aligned", USER_CODE("mov ax, [rsp - 62]"), false},
      {"dword load", USER_CODE("mov eax, [rsp - 62]"), true},
      {"qword load", USER_CODE("mov rax, [rsp - 60]"), true},
      {"qword load, aligned", USER_CODE("mov rax, [rsp - 64]"), false},
      {"movzx of a word", USER_CODE("movzx eax, word ptr [rsp - 63]"), true},
      {"dword store", USER_CODE("mov [rsp - 62], eax"), true},
      {"store of an immediate", USER_CODE("mov dword ptr [rsp - 61], 5"), true},
      {"read-modify-write", USER_CODE("add dword ptr [rsp - 63], 1"), true},
      {"xchg", USER_CODE("xchg [rsp - 63], ax"), true},
      {"push", USER_CODE("lea rsp, [rsp - 36]; push rax"), true, 5},
      {"pop", USER_CODE("lea rsp, [rsp - 36]; pop rax"), true, 5},
      {"call", USER_CODE("lea rsp, [rsp - 36]; call 2f; 2: nop"), true, 5},
      {"ret", USER_CODE("lea rsp, [rsp - 36]; ret"), true, 5},
      {"pushf", USER_CODE("lea rsp, [rsp - 36]; pushfq"), true, 5},
      {"movs", USER_CODE("lea rsi, [rsp - 63]; lea rdi, [rsp - 128]; movsw"), true, 10},
      {"rep stos", USER_CODE("lea rdi, [rsp - 126]; mov ecx, 3; rep stosd"), true, 10},
      {"movs of bytes", USER_CODE("lea rsi, [rsp - 63]; lea rdi, [rsp - 127]; movsb"), false},
      {"bit test with a register", USER_CODE("mov eax, 5; bt [rsp - 62], eax"), true, 5},
      {"x87 single", USER_CODE("fld dword ptr [rsp - 62]"), true},
      {"x87 double", USER_CODE("fld qword ptr [rsp - 60]"), true},
      {"x87 extended", USER_CODE("fld tbyte ptr [rsp - 60]"), true},
      {"x87 control word", USER_CODE("fnstcw [rsp - 63]"), true},
      {"SSE scalar", USER_CODE("movss xmm0, dword ptr [rsp - 62]"), true},
      {"8 bytes of SSE", USER_CODE("movlps xmm0, qword ptr [rsp - 60]"), true},
      {"indirect jump", USER_CODE("jmp [rsp - 60]"), true},
      {"lea", USER_CODE("lea rax, [rsp - 63]"), false},
      {"in the kernel's words", USER_CODE("mov eax, [rsp - 64]; mov [rsp - 64], ax"), false},
  };
  const u64 cr0 = ReadCr0();
  WriteCr0(cr0 | kCr0Am);
  for (const Case& c : cases) {
    const Outcome o = RunUser(c.code, {.rflags = kFlagsFixed | kFlagAc});
    if (c.fault) {
      CheckFault(c.name, o, kAlignmentCheck, 0, reinterpret_cast<u64>(c.code) + c.at);
    } else {
      CheckDone(c.name, o);
    }
  }
  // POPF arms the checks for the next instruction already, and disarms them.
  const void* popf = USER_CODE("pushfq; or dword ptr [rsp], 0x40000; popfq; mov eax, [rsp - 61]");
  const Outcome armed = RunUser(popf);
  const Outcome disarmed =
      RunUser(USER_CODE("pushfq; and dword ptr [rsp], 0xfffbffff; popfq; mov eax, [rsp - 61]"),
              {.rflags = kFlagsFixed | kFlagAc});
  // The handler of a fault runs with AC set, and the program goes on with it.
  SetHandler(kInvalidOpcode, [](TrapFrame* frame) { frame->rip += 2; });
  const void* trap = USER_CODE("ud2; mov ax, [rsp - 63]");
  const Outcome after = RunUser(trap, {.rflags = kFlagsFixed | kFlagAc});
  SetHandler(kInvalidOpcode, nullptr);
  WriteCr0(cr0);
  CheckFault("armed by popf", armed, kAlignmentCheck, 0, reinterpret_cast<u64>(popf) + 9);
  CheckDone("disarmed by popf", disarmed);
  CheckFault("still armed after a fault", after, kAlignmentCheck, 0,
             reinterpret_cast<u64>(trap) + 2);
  CheckDone("not armed without CR0.AM",
            RunUser(USER_CODE("mov eax, [rsp - 61]"), {.rflags = kFlagsFixed | kFlagAc}));
}

constexpr Section kSections[] = {{"units", TestUnits}, {"alignment", TestAlignment}};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
