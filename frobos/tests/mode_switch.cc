// SPDX-License-Identifier: Apache-2.0
// Between the modes of a long-mode machine: compatibility mode of 16 and 32 bits with segments that
// have bases, far transfers within a page, gates, SYSCALL, and out of long mode to both kinds of
// 32-bit paging and back (SDM vol. 3A 5.8, 9.8; vol. 2; APM vol. 2 ch. 14).

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u16 kCode16 = kSpareSelector, kCode32 = kSpareSelector + 8,
              kBasedData = kSpareSelector + 16, kGate = kSpareSelector + 24,
              kFlat32 = kSpareSelector + 40;

struct [[gnu::packed]] FarPointer {
  u32 offset;
  u16 selector;
};

// A code or data descriptor with a base; flags are G, D/B, L, AVL.
constexpr u64 Segment(u64 base, u32 limit, unsigned type, unsigned dpl, unsigned flags) {
  return (limit & 0xffff) | (base & 0xffffff) << 16 | u64{type | 0x90u} << 40 | u64{dpl} << 45 |
         u64{limit >> 16 & 15} << 48 | u64{flags} << 52 | (base >> 24 & 0xff) << 56;
}
constexpr unsigned kG = 8, kD = 4;

u64 At(const void* p) { return reinterpret_cast<u64>(p); }

void Reload() {
  asm volatile("mov %0, %%ds; mov %0, %%es; mov %0, %%ss" : : "r"(u32{kKernelData}));
  asm volatile("mov %0, %%fs; mov %0, %%gs" : : "r"(0));
}

// Code of all widths in one stretch of user memory.
asm(R"(
.pushsection .utext, "ax"
.intel_syntax noprefix
.balign 64
mixed16:
.code16
    mov ax, 0x1234
    push ax
    pop cx
    mov bx, 0x10
    mov dx, [bx]
    .byte 0x67
    mov si, [edi]
    call 1f
    mov bp, sp
    int 0x7f
1:  mov di, cs
    ret
fault16:
    mov ax, 0xffff
    .byte 0x48                      # dec ax here
    hlt
word16:
    mov ax, [bx]
    int 0x7f
.balign 64
mixed32:
.code32
    call 1f
1:  pop eax
    mov ecx, cs
    mov edx, ds:[0x10]
    .byte 0x40                      # inc eax here
    .byte 0x67
    mov esi, [bx]
    int 0x7f
.code64
.att_syntax prefix
.popsection
)");
extern "C" const u8 mixed16[], fault16[], word16[], mixed32[];

void TestCompatibility() {
  static u32 words[16] __attribute__((section(".udata")));
  for (u32 i = 0; i < 16; i++) words[i] = 0x11110000 + i;
  const u64 base = At(mixed16);
  SetGdtEntry(kCode16, Segment(base, 0xffff, 0xb, 3, 0));
  SetGdtEntry(kCode32, Segment(At(mixed32) - 0x40, 0xfffff, 0xb, 3, kG | kD));
  SetGdtEntry(kBasedData, Segment(At(words), 0xffff, 3, 3, kD));
  asm volatile("mov %0, %%ds" : : "r"(u32{kBasedData | 3}));
  TrapFrame f = {};
  f.rip = 0;
  f.cs = kCode16 | 3;
  f.ss = kUserData;
  f.rsp = UserStackTop();
  f.rflags = kFlagsFixed;
  f.rax = ~0ull;
  f.rdi = 8;
  Outcome o = RunFrame(f);
  CheckDone("16-bit compatibility mode", o);
  CheckEq("... ax", o.frame.rax & 0xffffffff, 0xffff1234);
  CheckEq("... push and pop of 2 bytes", o.frame.rcx & 0xffff, 0x1234);
  CheckEq("... ds has a base", o.frame.rdx & 0xffff, 0x0004);
  CheckEq("... 32-bit addresses by a prefix", o.frame.rsi & 0xffff, 0x0002);
  CheckEq("... cs", o.frame.rdi & 0xffff, kCode16 | 3);
  CheckEq("... a 32-bit stack", o.frame.rbp & 0xffff, UserStackTop() & 0xffff);
  Check(o.frame.rip < 0x40, "... rip in the frame is an offset");
  f.rip = At(fault16) - base;
  o = RunFrame(f);
  CheckFault("a fault in 16-bit code", o, kGeneralProtection, 0, f.rip + 4);
  CheckEq("... which has no REX", o.frame.rax & 0xffff, 0xfffe);
  CheckEq("... its frame is 64-bit", o.frame.ss, kUserData);
  // SDM vol. 3A 5.3: limits count in compatibility mode; QEMU checks none.
  if (!SkipOnQemu("limits in compatibility mode")) {
    f.rip = At(word16) - base;
    f.rbx = 0xfffe;
    SetGdtEntry(kBasedData, Segment(At(words), 0x3f, 3, 3, kD));
    asm volatile("mov %0, %%ds" : : "r"(u32{kBasedData | 3}));
    f.rbx = 0x3e;
    CheckDone("a word at the end of a segment", RunFrame(f));
    f.rbx = 0x3f;
    CheckFault("a word beyond it", RunFrame(f), kGeneralProtection, 0, f.rip);
  }
  SetGdtEntry(kBasedData, Segment(At(words), 0xffff, 3, 3, kD));
  asm volatile("mov %0, %%ds" : : "r"(u32{kBasedData | 3}));
  f.rip = 0x40;
  f.cs = kCode32 | 3;
  f.rbx = 0x12340014;
  o = RunFrame(f);
  CheckDone("32-bit code with a base", o);
  CheckEq("... the return address is an offset; inc eax", o.frame.rax & 0xffffffff, 0x46);
  CheckEq("... ds has a base", o.frame.rdx & 0xffffffff, 0x11110004);
  CheckEq("... 16-bit addresses by a prefix", o.frame.rsi & 0xffffffff, 0x11110005);
  Reload();
}

// A chain through all three widths by all kinds of transfers, ten bytes apart from each other; CPL
// 0.
asm(R"(
.pushsection .snippet, "ax"
.balign 64
chain:
    xorl %eax, %eax
    incl %eax                       # 64-bit
    movq $-1, %r8
    ljmpl *chain_32(%rip)
.code32
chain32:
    incl %eax
    .byte 0x48, 0x48                # dec eax, twice
    addl $10, %eax
    lcall $0x40, $chain16 - chain
    addl $100, %eax
    pushfl
    pushl $0x08
    pushl $chain64
    iretl                           # to 64-bit code, with a 32-bit frame
.code16
chain16:
    incw %ax
    movw %cs, %bx
    .byte 0x66
    lretw
.code64
chain64:
    .byte 0x48
    incl %eax                       # REX.W: inc rax
    pushq $0x48
    leaq 1f(%rip), %rcx
    pushq %rcx
    lretq
.code32
1:  incl %eax
    movl %cs, %esi
    pushl $0x08
    pushl $2f
    lretl
.code64
2:  movl %ss, %ecx
    pushq %rcx
    leaq 8(%rsp), %rcx
    pushq %rcx
    pushfq
    pushq $0x40
    pushq $(3f - chain)
    iretq
.code16
3:  incw %ax
    movw %cs, %di
    .byte 0x66
    ljmpw *%cs:(chain_64 - chain)
.code64
4:  incl %eax
    int $0x7f
.balign 8
chain_32:
    .long chain32
    .word 0x48
chain_64:
    .long 4b
    .word 0x08
.popsection
)");
extern "C" const u8 chain[];

void TestChain() {
  static_assert(kCode16 == 0x40 && kCode32 == 0x48);
  SetGdtEntry(kCode16, Segment(At(chain), 0xffff, 0xb, 0, 0));
  SetGdtEntry(kCode32, Segment(0, 0xfffff, 0xb, 0, kG | kD));
  for (u32 round = 0; round < 3; round++) {
    const Outcome o = RunKernel(chain);
    CheckDone("a chain through all modes", o);
    // 1 + 1 - 2 + 10 + 1 + 100 + 1 + 1 + 1 + 1
    CheckEq("... each step once", o.frame.rax, 115);
    // SDM vol. 1 3.4.1.1.
    CheckEq("... r8 stays", o.frame.r8, ~0ull);
    CheckEq("... cs in 16-bit code", o.frame.rbx & 0xffff, kCode16);
    CheckEq("... and by iretq", o.frame.rdi & 0xffff, kCode16);
    CheckEq("... cs in 32-bit code", o.frame.rsi & 0xffff, kCode32);
    CheckEq("... ends in 64-bit code", o.frame.cs, kKernelCode);
    CheckEq("... with the stack it had", o.frame.rsp, ProbeStackTop());
  }
}

// User code that calls through the gate by all widths.
asm(R"(
.pushsection .utext, "ax"
gate_call32:
.code32
    lcall $0x58, $0x12345678
    movl %cs, %esi
    movl %esp, %edi
    int $0x7f
gate_jump32:
    ljmp $0x58, $0x12345678
gate_call16:
.code16
    lcallw $0x58, $0x1234
    movw %cs, %si
    int $0x7f
.code64
.popsection
)");
extern "C" const u8 gate_call32[], gate_jump32[], gate_call16[];

void SetCallGate(u64 target, u16 selector, unsigned type = 12, unsigned dpl = 3, u64 upper = 0) {
  gdt[kGate / 8] = (target & 0xffff) | u64{selector} << 16 | u64{type | 0x80u} << 40 |
                   u64{dpl} << 45 | (target >> 16 & 0xffff) << 48;
  gdt[kGate / 8 + 1] = target >> 32 | upper << 32;
}

void TestGates() {
  static_assert(kGate == 0x58);
  const void* target = KERNEL_CODE(
      "mov ecx, cs; mov edx, ss; mov rax, [rsp + 8]; mov rbx, [rsp]; mov r9, rsp; retfq");
  SetGdtEntry(kCode32, Segment(0, 0xfffff, 0xb, 3, kG | kD));
  SetGdtEntry(kCode16, Segment(At(gate_call32) & ~0xfffull, 0xffff, 0xb, 3, 0));
  SetCallGate(At(target), kKernelCode);
  TrapFrame f = {};
  f.rip = At(gate_call32);
  f.cs = kCode32 | 3;
  f.ss = kUserData;
  f.rsp = UserStackTop();
  f.rflags = kFlagsFixed;
  Outcome o = RunFrame(f);
  CheckDone("a call gate from 32-bit code, and back", o);
  CheckEq("... cs inside", o.frame.rcx, kKernelCode);
  CheckEq("... ss is null", o.frame.rdx & ~3ull, 0);
  CheckEq("... the caller's cs, 8 bytes", o.frame.rax, kCode32 | 3);
  CheckEq("... the return address", o.frame.rbx, f.rip + 7);
  CheckEq("... four quadwords on the TSS's stack", o.frame.r9, TrapStackTop() - 32);
  CheckEq("... cs back", o.frame.rsi & 0xffff, kCode32 | 3);
  CheckEq("... the stack back", o.frame.rdi & 0xffffffff, UserStackTop());
  TrapFrame g = f;
  g.cs = kCode16 | 3;
  g.rip = At(gate_call16) - (At(gate_call32) & ~0xfffull);
  o = RunFrame(g);
  CheckDone("a call gate from 16-bit code, and back", o);
  CheckEq("... the caller's cs", o.frame.rax, kCode16 | 3);
  CheckEq("... the return address", o.frame.rbx, g.rip + 5);
  CheckEq("... cs back", o.frame.rsi & 0xffff, kCode16 | 3);

  TrapFrame j = f;
  j.rip = At(gate_jump32);
  CheckFault("a jump through it cannot change the ring", RunFrame(j), kGeneralProtection,
             kKernelCode, j.rip);
  SetCallGate(At(USER_CODE("mov ecx, cs")), kUserCode);
  o = RunFrame(j);
  CheckDone("a jump through a gate to 64-bit user code", o);
  CheckEq("... cs", o.frame.cs, kUserCode);
  struct Case {
    const char* name;
    u16 selector;
    unsigned type, dpl;
    u64 upper;
    u32 error;
    bool qemu_wrong;
  };
  const Case cases[] = {
      {"a gate to 32-bit code", kCode32 & ~7, 12, 3, 0, kCode32, false},
      {"a gate of DPL 0", kKernelCode, 12, 0, 0, kGate, false},
      {"a 16-bit call gate", kKernelCode, 4, 3, 0, kGate, false},
      {"a task gate", kKernelCode, 5, 3, 0, kGate, false},
      {"a gate whose upper half has a type", kKernelCode, 12, 3, 0xc00, kGate, true},
      {"a gate to a null selector", 0, 12, 3, 0, 0, false},
  };
  for (const Case& c : cases) {
    SetCallGate(At(target), c.selector, c.type, c.dpl, c.upper);
    // SDM vol. 3A 5.8.3.1; QEMU does not look there.
    if (SkipOnQemu(c.name, c.qemu_wrong)) continue;
    CheckFault(c.name, RunFrame(f), kGeneralProtection, c.error, f.rip);
  }
  // Its target is not canonical.
  SetCallGate(0x0000'8000'0000'0000, kKernelCode);
  if (!SkipOnQemu("a gate to no address (SDM vol. 2, CALL)")) {
    CheckFault("a gate to no address", RunFrame(f), kGeneralProtection, 0, f.rip);
  }

  // The IDT: 64-bit handlers only, and no task gates.
  const Gate saved = GetGate(0x60);
  const void* int60 = USER_CODE("int 0x60");
  SetGate(0x60, target, 3, 0, kInterruptGate, kCode32 & ~7);
  SetGdtEntry(kCode32, Segment(0, 0xfffff, 0xb, 0, kG | kD));
  CheckFault("an interrupt gate to 32-bit code", RunUser(int60), kGeneralProtection, kCode32,
             At(int60));
  SetGate(0x60, target, 3, 0, static_cast<GateType>(5), kTssSelector);
  // SDM vol. 3A 6.13: the vector times 8; QEMU: times 16.
  if (!SkipOnQemu("a task gate in the IDT"))
    CheckFault("a task gate in the IDT", RunUser(int60), kGeneralProtection, 0x60 * 8 + 2,
               At(int60));
  RestoreGate(0x60, saved);
  // Tasks are gone, and so is what they need.
  static FarPointer tss_pointer = {0, kTssSelector};
  const void* to_tss = KERNEL_CODE(".byte 0xff, 0x28");
  CheckFault("a far jump to a TSS", RunKernel(to_tss, {.rax = At(&tss_pointer)}),
             kGeneralProtection, kTssSelector, At(to_tss));
  const void* nested = KERNEL_CODE("pushfq; or qword ptr [rsp], 0x4000; popfq; iretq");
  CheckFault("IRET with NT", RunKernel(nested), kGeneralProtection, 0);
}

// SYSCALL and SYSENTER from compatibility mode.
asm(R"(
.pushsection .utext, "ax"
.code32
syscall32:
    movl $0x77, %ecx
    syscall
    movl %cs, %esi
    int $0x7f
sysenter32:
    sysenter
    int $0x7f
.code64
.popsection
)");
extern "C" const u8 syscall32[], sysenter32[];

void TestFastCalls() {
  const bool amd = Cpuid(0).ebx == 0x68747541;
  const u64 star = ReadMsr(kMsrStar), cstar = ReadMsr(kMsrCstar), mask = ReadMsr(kMsrSfmask);
  const void* entry =
      KERNEL_CODE("mov r12, rcx; mov r13, r11; mov r14d, cs; mov r15d, ss; sysretd");
  WriteMsr(kMsrStar, u64{kKernelCode} << 32 | u64{kUserCode32} << 48);
  WriteMsr(kMsrCstar, At(entry));
  WriteMsr(kMsrSfmask, kFlagDf | kFlagCf);
  TrapFrame f = {};
  f.rip = At(syscall32);
  f.cs = kUserCode32;
  f.ss = kUserData;
  f.rsp = UserStackTop();
  f.rflags = kFlagsFixed | kFlagCf | kFlagDf;
  Outcome o = RunFrame(f);
  if (amd) {
    // SYSRET may leave the stack segment's attributes as they are; here they fit.
    CheckDone("SYSCALL from 32-bit code, and SYSRET to it", o);
    CheckEq("... entered at CSTAR with the return address", o.frame.r12, f.rip + 7);
    CheckEq("... r11 has the flags", o.frame.r13, f.rflags);
    CheckEq("... cs", o.frame.r14, kKernelCode);
    CheckEq("... ss", o.frame.r15, kKernelCode + 8);
    CheckEq("... back in 32-bit code", o.frame.rsi & 0xffff, kUserCode32);
    CheckEq("... with its flags", o.frame.rflags & (kFlagCf | kFlagDf), kFlagCf | kFlagDf);
  } else {
    CheckFault("SYSCALL from 32-bit code", o, kInvalidOpcode, 0, f.rip + 5);
  }
  f.rip = At(sysenter32);
  f.rflags = kFlagsFixed;
  const void* sysenter_entry = KERNEL_CODE("mov r12d, cs; mov r13, rsp");
  WriteMsr(kMsrSysenterCs, kKernelCode);
  WriteMsr(kMsrSysenterEsp, ProbeStackTop() - 0x800);
  WriteMsr(kMsrSysenterEip, At(sysenter_entry));
  o = RunFrame(f);
  if (amd) {
    // APM vol. 3, SYSENTER: #UD in long mode, compatibility mode included.
    // QEMU runs it.
    if (!SkipOnQemu("SYSENTER in compatibility mode"))
      CheckFault("SYSENTER in compatibility mode", o, kInvalidOpcode, 0, f.rip);
    const void* enter64 = USER_CODE("sysenter");
    CheckFault("SYSENTER in 64-bit mode", RunUser(enter64), kInvalidOpcode, 0, At(enter64));
  } else {
    Check(o.Done() && o.frame.r12 == kKernelCode && o.frame.r13 == ProbeStackTop() - 0x800,
          "SYSENTER from compatibility mode");
  }
  WriteMsr(kMsrSysenterCs, 0);
  WriteMsr(kMsrStar, star);
  WriteMsr(kMsrCstar, cstar);
  WriteMsr(kMsrSfmask, mask);
}

// Out of long mode and back. The stack and all tables lie below 4 GB, in the identity map.
struct Excursion {
  u32 cr3, cr4;  // of the 32-bit mode; cr4 without PAE or with
  u32 paging;    // 0: none
  u32 cr0, efer, word, decoded, address;
};
asm(R"(
.pushsection .text
// void RunExcursion(Excursion*)
RunExcursion:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %cr3, %r12
    movq %cr4, %r13
    movl %edi, %ebp
    ljmpl *excursion_32(%rip)
.code32
1:  movl $0x68, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %cr0, %eax
    andl $0x7fffffff, %eax
    movl %eax, %cr0                 # long mode is off, paging is off
    movl $0xc0000080, %ecx
    rdmsr
    andl $0xfffffeff, %eax
    wrmsr
    movl 4(%ebp), %eax
    movl %eax, %cr4
    movl 0(%ebp), %eax
    movl %eax, %cr3
    movl %cr0, %eax
    cmpl $0, 8(%ebp)
    je 2f
    orl $0x80000000, %eax
    movl %eax, %cr0
2:  movl %cr0, %eax
    movl %eax, 12(%ebp)
    movl $0xc0000080, %ecx
    rdmsr
    movl %eax, 16(%ebp)
    movl 28(%ebp), %eax
    movl (%eax), %ecx
    movl %ecx, 20(%ebp)
    movl $5, %eax
    .byte 0x48                      # dec eax here
    incl %eax
    .byte 0x40
    movl %eax, 24(%ebp)
    call 4f
    movl %cr0, %eax
    andl $0x7fffffff, %eax
    movl %eax, %cr0
    movl excursion_cr4, %eax
    movl %eax, %cr4
    movl excursion_cr3, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl %cr0, %eax
    orl $0x80000000, %eax
    movl %eax, %cr0                 # compatibility mode
    ljmp $0x08, $3f
4:  ret
.code64
3:  movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret
.balign 8
excursion_32:
    .long 1b
    .word 0x48
.popsection
)");
extern "C" {
void RunExcursion(Excursion* e);
[[gnu::used]] u32 excursion_cr3, excursion_cr4;
}

alignas(4096) u32 directory32[1024];
alignas(4096) u64 pae_directories[4][512];
alignas(32) u64 pae_pointers[4];

void TestExcursions() {
  static_assert(kFlat32 == 0x68);
  static Excursion e;
  SetGdtEntry(kCode32, Segment(0, 0xfffff, 0xb, 0, kG | kD));
  SetGdtEntry(kFlat32, Segment(0, 0xfffff, 3, 0, kG | kD));
  const u32 cr4 = static_cast<u32>(ReadCr4());
  excursion_cr3 = static_cast<u32>(ReadCr3());
  excursion_cr4 = cr4;
  // The same virtual page leads elsewhere in each mode: 0x3000000 is itself, or 4 or 8 MB further.
  constexpr u32 kPage = 0x3000000;
  *reinterpret_cast<volatile u32*>(kPage) = 0x1111;
  *reinterpret_cast<volatile u32*>(kPage + 0x400000) = 0x2222;
  *reinterpret_cast<volatile u32*>(kPage + 0x800000) = 0x3333;
  for (u32 i = 0; i < 1024; i++) directory32[i] = i << 22 | 0x83;
  directory32[kPage >> 22] = (kPage + 0x400000) | 0x83;
  for (u32 i = 0; i < 2048; i++) pae_directories[i / 512][i % 512] = u64{i} << 21 | 0x83;
  pae_directories[0][kPage >> 21] = (kPage + 0x800000) | 0x83;
  for (u32 i = 0; i < 4; i++) pae_pointers[i] = At(pae_directories[i]) | 1;
  struct Case {
    const char* name;
    u32 cr3, cr4, paging, word;
  };
  constexpr u32 kPae = 0x20, kPse = 0x10, kPge = 0x80, kPcide = 0x20000;
  const u32 plain = cr4 & ~(kPae | kPge | kPcide);
  const Case cases[] = {
      {"without paging", 0, plain, 0, 0x1111},
      {"32-bit paging with 4 MB pages", static_cast<u32>(At(directory32)), plain | kPse, 1, 0x2222},
      {"PAE paging", static_cast<u32>(At(pae_pointers)), plain | kPae, 1, 0x3333},
      {"32-bit paging again", static_cast<u32>(At(directory32)), plain | kPse, 1, 0x2222},
  };
  for (const Case& c : cases) {
    e = {};
    e.cr3 = c.cr3, e.cr4 = c.cr4, e.paging = c.paging, e.address = kPage;
    asm volatile("cli");
    RunExcursion(&e);
    CheckEq(c.name, e.cr0 >> 31, c.paging);
    CheckEq("... LMA and LME are off", e.efer & 0x500, 0);
    CheckEq("... the page of this mode", e.word, c.word);
    CheckEq("... no REX", e.decoded, 6);
    CheckEq("... long mode again", ReadMsr(kMsrEfer) & 0x500, 0x500);
    CheckEq("... with its own page", *reinterpret_cast<volatile u32*>(kPage), 0x1111);
    Check(RunUser(USER_CODE("mov rax, -1")).frame.rax == ~0ull, "... and user code");
  }
  Reload();

  // What may not be changed in 64-bit mode.
  const void* mov_cr0 = KERNEL_CODE("mov cr0, rax");
  const void* mov_cr4 = KERNEL_CODE("mov cr4, rax");
  const void* wrmsr = KERNEL_CODE("wrmsr");
  // SDM vol. 2, MOV to a control register, and WRMSR; QEMU takes these.
  if (!SkipOnQemu("PG and PAE cleared and LME changed in long mode")) {
    CheckFault("PG cleared in 64-bit code", RunKernel(mov_cr0, {.rax = ReadCr0() & ~kCr0Pg}),
               kGeneralProtection, 0, At(mov_cr0));
    CheckFault("PAE cleared in long mode", RunKernel(mov_cr4, {.rax = cr4 & ~kPae}),
               kGeneralProtection, 0, At(mov_cr4));
    CheckFault("LME cleared in long mode",
               RunKernel(wrmsr, {.rax = ReadMsr(kMsrEfer) & ~kEferLme, .rcx = kMsrEfer}),
               kGeneralProtection, 0, At(wrmsr));
  }
}

struct TestSection {
  const char* name;
  void (*run)();
};
constexpr TestSection kSections[] = {
    {"compatibility", TestCompatibility},
    {"chain", TestChain},
    {"gates", TestGates},
    {"calls", TestFastCalls},
    {"excursions", TestExcursions},
};

}  // namespace

int Main() {
  for (const TestSection& s : kSections) {
    if (Selected("only", s.name)) s.run();
  }
  return Summary();
}

}  // namespace alibi::frobos
