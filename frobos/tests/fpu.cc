// SPDX-License-Identifier: Apache-2.0
// x87, SSE and AVX state: arithmetic and control words, and that it survives what must not touch it
// (exceptions, system calls, interrupts, page faults in the middle of a vector access). The kernel
// itself is compiled without vector registers.

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

struct alignas(64) State {
  u8 bytes[2048];
};
State saved;
[[gnu::section(".udata"), gnu::aligned(64)]] u8 pattern[1024] = {1};
[[gnu::section(".udata"), gnu::aligned(64)]] u8 result[1024] = {1};

bool avx = false;

void FillPattern(u64 seed) {
  for (u64 i = 0; i < sizeof(pattern); i++) pattern[i] = static_cast<u8>(seed + i * 7 + (i >> 8));
  memset(result, 0, sizeof(result));
}

// Loads all vector registers from rdi, does something, stores them to rsi.
#define LOAD_XMM                                                                                  \
  "movups xmm0, [rdi]; movups xmm1, [rdi+16]; movups xmm2, [rdi+32]; movups xmm3, [rdi+48]\n"     \
  "movups xmm4, [rdi+64]; movups xmm5, [rdi+80]; movups xmm6, [rdi+96]; movups xmm7, [rdi+112]\n" \
  "movups xmm8, [rdi+128]; movups xmm9, [rdi+144]; movups xmm10, [rdi+160]\n"                     \
  "movups xmm11, [rdi+176]; movups xmm12, [rdi+192]; movups xmm13, [rdi+208]\n"                   \
  "movups xmm14, [rdi+224]; movups xmm15, [rdi+240]\n"
#define STORE_XMM                                                                                 \
  "movups [rsi], xmm0; movups [rsi+16], xmm1; movups [rsi+32], xmm2; movups [rsi+48], xmm3\n"     \
  "movups [rsi+64], xmm4; movups [rsi+80], xmm5; movups [rsi+96], xmm6; movups [rsi+112], xmm7\n" \
  "movups [rsi+128], xmm8; movups [rsi+144], xmm9; movups [rsi+160], xmm10\n"                     \
  "movups [rsi+176], xmm11; movups [rsi+192], xmm12; movups [rsi+208], xmm13\n"                   \
  "movups [rsi+224], xmm14; movups [rsi+240], xmm15\n"
#define LOAD_YMM                                                                                  \
  "vmovdqu ymm0, [rdi]; vmovdqu ymm1, [rdi+32]; vmovdqu ymm7, [rdi+64]; vmovdqu ymm8, [rdi+96]\n" \
  "vmovdqu ymm14, [rdi+128]; vmovdqu ymm15, [rdi+160]\n"
#define STORE_YMM                                                                                 \
  "vmovdqu [rsi], ymm0; vmovdqu [rsi+32], ymm1; vmovdqu [rsi+64], ymm7; vmovdqu [rsi+96], ymm8\n" \
  "vmovdqu [rsi+128], ymm14; vmovdqu [rsi+160], ymm15\n"

// What happens between load and store. Every event must leave the registers alone.
void SkipFrame(TrapFrame* frame) { frame->rip = frame->r15; }

extern "C" void fpu_syscall_entry();
asm(R"(
.global fpu_syscall_entry
fpu_syscall_entry:
    sysretq
)");

void TestSurvival() {
  WriteMsr(kMsrStar, u64{kKernelCode} << 32 | u64{kUserCode32} << 48);
  WriteMsr(kMsrLstar, reinterpret_cast<u64>(fpu_syscall_entry));
  WriteMsr(kMsrSfmask, kFlagIf);
  struct Case {
    const char* name;
    const void* xmm;
    const void* ymm;
    bool user;
  };
#define EVENT(name, text)                                                                        \
  {name ", CPL 0", KERNEL_CODE(LOAD_XMM text STORE_XMM), KERNEL_CODE(LOAD_YMM text STORE_YMM),   \
   false},                                                                                       \
  {                                                                                              \
    name ", CPL 3", USER_CODE(LOAD_XMM text STORE_XMM), USER_CODE(LOAD_YMM text STORE_YMM), true \
  }
  const Case cases[] = {
      EVENT("nothing", "nop\n"),
      EVENT("int3", "int3\n"),
      EVENT("#UD", "lea r15, [rip + 2f]; ud2; 2:\n"),
      EVENT("#DE", "lea r15, [rip + 2f]; xor ecx, ecx; div ecx; 2:\n"),
      EVENT("#PF", "lea r15, [rip + 2f]; mov rax, [rbx]; 2:\n"),
      EVENT("#GP", "lea r15, [rip + 2f]; mov rax, [rdx]; 2:\n"),
      EVENT("cpuid", "mov r8, rbx; xor eax, eax; cpuid; mov rbx, r8\n"),
      EVENT("rdtsc", "rdtsc\n"),
      EVENT("rep movsb",
            "mov r8, rdi; mov r9, rsi; lea rsi, [rsp - 512]; lea rdi, [rsp - 256]; mov ecx, 99\n"
            "rep movsb; mov rdi, r8; mov rsi, r9\n"),
      EVENT("calls", "call 2f; jmp 4f; 2: call 3f; 3: ret; 4:\n"),
      {"in and out, CPL 0", KERNEL_CODE(LOAD_XMM "in al, 0x80; out 0x80, al\n" STORE_XMM),
       KERNEL_CODE(LOAD_YMM "in al, 0x80; out 0x80, al\n" STORE_YMM), false},
      {"cr3 reload, CPL 0", KERNEL_CODE(LOAD_XMM "mov rax, cr3; mov cr3, rax\n" STORE_XMM),
       KERNEL_CODE(LOAD_YMM "mov rax, cr3; mov cr3, rax\n" STORE_YMM), false},
      {"wrmsr, CPL 0", KERNEL_CODE(LOAD_XMM "mov ecx, 0xc0000102; rdmsr; wrmsr\n" STORE_XMM),
       KERNEL_CODE(LOAD_YMM "mov ecx, 0xc0000102; rdmsr; wrmsr\n" STORE_YMM), false},
      {"PTE store, invlpg and touch, CPL 0",
       KERNEL_CODE(LOAD_XMM
                   "mov rax, [r12]; mov [r12], rax; invlpg [r13]; mov al, [r13]\n" STORE_XMM),
       KERNEL_CODE(LOAD_YMM
                   "mov rax, [r12]; mov [r12], rax; invlpg [r13]; mov al, [r13]\n" STORE_YMM),
       false},
      {"self-modifying code, CPL 0",
       KERNEL_CODE(LOAD_XMM "inc dword ptr [rip + 2f + 1]; 2: mov eax, 5\n" STORE_XMM),
       KERNEL_CODE(LOAD_YMM "inc dword ptr [rip + 2f + 1]; 2: mov eax, 5\n" STORE_YMM), false},
      {"syscall, CPL 3", USER_CODE(LOAD_XMM "mov r8, rcx; syscall\n" STORE_XMM),
       USER_CODE(LOAD_YMM "syscall\n" STORE_YMM), true},
      {"an interrupt, CPL 3", USER_CODE(LOAD_XMM "lea r15, [rip + 3f]; 2: jmp 2b; 3:\n" STORE_XMM),
       USER_CODE(LOAD_YMM "lea r15, [rip + 3f]; 2: jmp 2b; 3:\n" STORE_YMM), true},
  };
  for (const u8 v : {kInvalidOpcode, kDivideError, kPageFault, kGeneralProtection})
    SetHandler(v, SkipFrame);
  SetHandler(kBreakpoint, [](TrapFrame*) {});
  SetHandler(kIrqBase, [](TrapFrame* frame) {
    EndOfIrq(0);
    // Before the loop began r15 is still 0: try again later.
    if (frame->r15 == 0) return StartPit(PitMode::kOneShot, 2000);
    SkipFrame(frame);
  });
  const u64 page = kHighBase + 0x5000;
  Map(page, AllocPage(), kPteW);
  UnmaskIrq(0);
  u64 seed = 1;
  for (const Case& c : cases) {
    const bool interrupt = strcmp(c.name, "an interrupt, CPL 3") == 0;
    const auto run = [&](const void* code, u64 size) {
      FillPattern(seed += 31);
      const Regs regs = {.rbx = kHighBase + 0x100000,  // absent
                         .rdx = 0x0000900000000000,    // not canonical
                         .rsi = reinterpret_cast<u64>(result),
                         .rdi = reinterpret_cast<u64>(pattern),
                         .r12 = reinterpret_cast<u64>(Entry(page)),
                         .r13 = page,
                         .rflags = kFlagsFixed | (interrupt ? kFlagIf : 0)};
      if (interrupt) StartPit(PitMode::kOneShot, 2000);
      const Outcome o = c.user ? RunUser(code, regs) : RunKernel(code, regs);
      return o.Done() && memcmp(pattern, result, size) == 0;
    };
    Check(run(c.xmm, 256), c.name);
    if (avx) Check(run(c.ymm, 192), "... with AVX");
  }
  MaskIrq(0);
  for (const u8 v : {kInvalidOpcode, kDivideError, kPageFault, kGeneralProtection, kBreakpoint}) {
    SetHandler(v, nullptr);
  }
  SetHandler(kIrqBase, nullptr);
  Unmap(page);
}

void TestX87() {
  const auto run = [](const void* code) {
    memset(result, 0, sizeof(result));
    return RunUser(code, {.rsi = reinterpret_cast<u64>(result)});
  };
  const auto word64 = [](u64 at) {
    u64 v;
    memcpy(&v, result + at, 8);
    return v;
  };
  Outcome o =
      run(USER_CODE("fninit; fld1; fldpi; faddp; fstp qword ptr [rsi]; fnstsw ax; fnstcw [rsi+8]"));
  CheckEq("1 + pi", word64(0), 0x401090fdaa22168c);
  CheckEq("control word after fninit", word64(8) & 0xffff, 0x37f);
  CheckEq("stack empty again", o.frame.rax & 0x3800, 0);
  run(USER_CODE("fninit; fldpi; fstp tbyte ptr [rsi]"));
  CheckEq("80-bit store: mantissa", word64(0), 0xc90fdaa22168c235);
  CheckEq("80-bit store: exponent", word64(8) & 0xffff, 0x4000);
  o = run(USER_CODE("fninit; fld1; fldz; fdivp; fstp qword ptr [rsi]; fnstsw ax"));
  CheckEq("1 / 0 masked", word64(0), 0x7ff0000000000000);
  CheckEq("... sets ZE", o.frame.rax & 0x3f, 4);
  o = run(USER_CODE("fninit; fstp st(0); fnstsw ax"));
  // SDM vol. 1 8.5.1.1; QEMU does not model it.
  if (!SkipOnQemu("stack underflow sets IE and SF")) {
    CheckEq("stack underflow sets IE and SF", o.frame.rax & 0x41, 0x41);
  }
  run(
      USER_CODE("fninit; push 7; fild qword ptr [rsp]; fsqrt; fistp qword ptr [rsi]; pop rax\n"
                "push -9; fild word ptr [rsp]; fabs; fstp dword ptr [rsi + 8]; pop rax"));
  CheckEq("round(sqrt(7))", word64(0), 3);
  CheckEq("abs(-9) as a float", word64(8), 0x41100000);
  o = run(USER_CODE("fninit; fld1; fldz; fcomip st, st(1); setb al; seta bl; setz cl; fstp st(0)"));
  CheckEq("fcomip sets CF", o.frame.rax & 1, 1);

  // FXSAVE and FXRSTOR carry everything.
  run(USER_CODE(
      "fninit; fldpi; fld1; movups xmm3, [rsi + 512]; fxsave64 [rsi]; fninit; pxor xmm3, xmm3\n"
      "fxrstor64 [rsi]; fstp tbyte ptr [rsi + 528]; fstp tbyte ptr [rsi + 544]"));
  CheckEq("fxrstor: st(0)", word64(528), 0x8000000000000000);
  CheckEq("fxrstor: st(1)", word64(544), 0xc90fdaa22168c235);
  CheckEq("fxsave: tag byte", result[4], 0xc0);
  o = run(USER_CODE(
      "fninit; fld1; fnsave [rsi]; frstor [rsi]; fstp qword ptr [rsi + 256]; fnstenv [rsi + 128]"));
  CheckEq("frstor", word64(256), 0x3ff0000000000000);
  CheckEq("fnstenv: tags all empty", word64(128 + 8) & 0xffff, 0xffff);
  // The opcode of a pending exception: FDIV with [RDI], also where the CPU runs another form of it.
  // There is none on CPUs that do not keep it.
  run(
      USER_CODE("push 0x37b; mov rdi, rsp; fninit; fldcw [rdi]; mov dword ptr [rdi], 0; fld1; fdiv "
                "dword ptr [rdi]; fxsave64 [rsi]; fnstenv [rsi + 512]; fninit; pop rdi"));
  constexpr u64 kOpcode = 0x037;
  const u64 shown = word64(0) >> 48, again = word64(512 + 16) >> 16 & 0x7ff;
  CheckEq("fxsave64: the pending exception's opcode", shown, shown == 0 ? 0 : kOpcode);
  CheckEq("fnstenv: the same", again, shown);
  run(USER_CODE(
      "fninit; mov eax, 0x1234567; movd mm1, eax; paddd mm1, mm1; movd [rsi], mm1; emms"));
  CheckEq("MMX", word64(0), 0x2468ace);
}

void TestSse() {
  const auto run = [](const void* code) {
    return RunUser(code,
                   {.rsi = reinterpret_cast<u64>(result), .rdi = reinterpret_cast<u64>(pattern)});
  };
  FillPattern(3);
  Outcome o = run(USER_CODE(
      "mov eax, 7; cvtsi2sd xmm0, eax; sqrtsd xmm0, xmm0; movq rbx, xmm0; cvttsd2si ecx, xmm0"));
  CheckEq("sqrtsd(7)", o.frame.rbx, 0x40052a7fa9d2f8ea);
  CheckEq("cvttsd2si", o.frame.rcx, 2);
  o =
      run(USER_CODE("movdqu xmm0, [rdi]; pshufd xmm0, xmm0, 0x1b; paddb xmm0, [rdi + 64]; movq "
                    "rax, xmm0; pmovmskb ebx, xmm0"));
  CheckDone("integer SSE with an aligned memory operand", o);
  CheckFault("#GP aligned operand that is not", run(USER_CODE("paddb xmm0, [rdi + 4]")),
             kGeneralProtection);
  // Rounding modes and sticky flags in MXCSR.
  o = run(
      USER_CODE("mov dword ptr [rsp - 8], 0x5f80; ldmxcsr [rsp - 8]\n"  // round up
                "mov eax, 1; cvtsi2ss xmm0, eax; mov eax, 3; cvtsi2ss xmm1, eax; divss xmm0, xmm1\n"
                "movd ebx, xmm0; stmxcsr [rsp - 8]; mov ecx, [rsp - 8]; mov dword ptr [rsp - 8], "
                "0x1f80; ldmxcsr [rsp - 8]"));
  CheckEq("1/3 rounded up", o.frame.rbx, 0x3eaaaaab);
  CheckEq("MXCSR: inexact is sticky", o.frame.rcx, 0x5fa0);
  o = run(
      USER_CODE("pxor xmm0, xmm0; divss xmm0, xmm0; movd eax, xmm0; ucomiss xmm0, xmm0; setp bl"));
  CheckEq("0/0 is the default NaN", o.frame.rax, 0xffc00000);
  CheckEq("... unordered", o.frame.rbx & 1, 1);
  o = run(USER_CODE("movd xmm0, eax; maskmovdqu xmm0, xmm0; nop"));
  CheckDone("maskmovdqu with an empty mask",
            RunUser(USER_CODE("pxor xmm0, xmm0; maskmovdqu xmm1, xmm0"),
                    {.rdi = reinterpret_cast<u64>(result)}));

  // A vector load that faults, is repaired, and is repeated.
  static u64 faults;
  static u64 page;
  page = kUserBase + 0x300000;
  static u64 frame;
  frame = AllocPage();
  memset(reinterpret_cast<void*>(frame), 0x5a, kPageSize);
  faults = 0;
  SetHandler(kPageFault, [](TrapFrame*) {
    faults++;
    Map(page, frame, kPteW | kPteU);
  });
  o = RunUser(USER_CODE("movups xmm5, [rsi]; movups xmm6, [rdi]; addps xmm5, xmm5; movups [rsp - "
                        "64], xmm6; mov rax, [rsp - 64]"),
              {.rsi = reinterpret_cast<u64>(pattern), .rdi = page + 8});
  SetHandler(kPageFault, nullptr);
  Check(o.Done() && faults == 1 && o.frame.rax == 0x5a5a5a5a5a5a5a5a,
        "a vector load restarted after #PF");
  Unmap(page);
}

void TestAvx() {
  if (!avx) return Skip("AVX", "CPUID has no AVX");
  FillPattern(9);
  const Regs regs = {.rsi = reinterpret_cast<u64>(result), .rdi = reinterpret_cast<u64>(pattern)};
  Outcome o = RunUser(USER_CODE("xor ecx, ecx; xgetbv"));
  CheckEq("xgetbv", o.frame.rax & 7, 7);
  CheckFault("#GP user xsetbv",
             RunUser(USER_CODE("xor ecx, ecx; mov eax, 7; xor edx, edx; xsetbv")),
             kGeneralProtection);
  CheckFault("#GP xsetbv without x87",
             RunKernel(KERNEL_CODE("xor ecx, ecx; mov eax, 6; xor edx, edx; xsetbv")),
             kGeneralProtection);
  CheckFault("#GP xsetbv AVX without SSE",
             RunKernel(KERNEL_CODE("xor ecx, ecx; mov eax, 5; xor edx, edx; xsetbv")),
             kGeneralProtection);
  CheckFault("#GP xsetbv of XCR1",
             RunKernel(KERNEL_CODE("mov ecx, 1; mov eax, 7; xor edx, edx; xsetbv")),
             kGeneralProtection);
  // A legacy SSE write keeps the upper half, a VEX one clears it.
  o = RunUser(
      USER_CODE("vmovdqu ymm0, [rdi]; vmovdqa ymm1, ymm0; pxor xmm0, xmm0; vpxor xmm1, xmm1, xmm1\n"
                "vmovdqu [rsi], ymm0; vmovdqu [rsi + 32], ymm1"),
      regs);
  Check(o.Done() && memcmp(result + 16, pattern + 16, 16) == 0, "legacy SSE keeps the upper half");
  bool zero = true;
  for (u64 i = 32; i < 64; i++) zero &= result[i] == 0;
  Check(zero, "VEX clears the upper half");
  o = RunUser(
      USER_CODE(
          "vmovups ymm2, [rdi + 1]; vmovups [rsi + 3], ymm2; vzeroupper; vmovups [rsi + 64], ymm2"),
      regs);
  Check(o.Done() && memcmp(result + 3, pattern + 1, 32) == 0 && result[64 + 20] == 0,
        "unaligned AVX, vzeroupper");
  // XSAVE and XRSTOR.
  memset(&saved, 0, sizeof(saved));
  o = RunKernel(
      KERNEL_CODE("vmovdqu ymm9, [rdi]; mov eax, 7; xor edx, edx; xsave [rbx]; vzeroall; fninit\n"
                  "mov eax, 7; xrstor [rbx]; vmovdqu [rsi], ymm9"),
      {.rbx = reinterpret_cast<u64>(&saved), .rsi = regs.rsi, .rdi = regs.rdi});
  Check(o.Done() && memcmp(result, pattern, 32) == 0, "xsave and xrstor");
  CheckEq("xsave header", saved.bytes[512] & 7, 7);
  CheckFault("#GP xsave misaligned",
             RunKernel(KERNEL_CODE("mov eax, 7; xor edx, edx; xsave [rbx]"),
                       {.rbx = reinterpret_cast<u64>(&saved) + 8}),
             kGeneralProtection);
  const u64 cr4 = ReadCr4();
  WriteCr4(cr4 & ~kCr4Osxsave);
  const Outcome no_avx = RunUser(USER_CODE("vpxor xmm0, xmm0, xmm0"));
  const Outcome no_xgetbv = RunUser(USER_CODE("xor ecx, ecx; xgetbv"));
  const u32 osxsave = Features().ecx >> 27 & 1;
  WriteCr4(cr4);
  CheckFault("#UD AVX without CR4.OSXSAVE", no_avx, kInvalidOpcode);
  CheckFault("#UD xgetbv without CR4.OSXSAVE", no_xgetbv, kInvalidOpcode);
  CheckEq("CPUID.OSXSAVE follows CR4", osxsave, 0);
  asm volatile("xsetbv" : : "c"(0), "a"(3), "d"(0));
  const Outcome sse_only = RunUser(USER_CODE("vpxor xmm0, xmm0, xmm0"));
  asm volatile("xsetbv" : : "c"(0), "a"(7), "d"(0));
  CheckFault("#UD AVX without XCR0.AVX", sse_only, kInvalidOpcode);
}

constexpr Section kSections[] = {
    {"x87", TestX87},
    {"sse", TestSse},
    {"avx", TestAvx},
    {"survival", TestSurvival},
};

}  // namespace

int Main() {
  if (HasAvx() && HasXsave()) {
    WriteCr4(ReadCr4() | kCr4Osxsave);
    asm volatile("xsetbv" : : "c"(0), "a"(7), "d"(0));
    avx = true;
  }
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
