// SPDX-License-Identifier: Apache-2.0
// Every vector reachable from software: vector, error code, RIP, flags, stack and CR2, exactly
// (Intel SDM vol. 3A ch. 6). "qemu-wrong" marks checks that QEMU TCG 7.2 fails against the manual;
// host=qemu skips them.

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u64 kNonCanonical = 0x0000'8000'0000'0000ull;

u64 At(const void* code, u64 offset = 0) { return reinterpret_cast<u64>(code) + offset; }

// An IDT entry that is present in the table but marked not present.
void RemoveGate(u8 vector) { idt[vector].low &= ~(1ull << 47); }

void TestDivide() {
  struct Case {
    const char* name;
    const void* code;
    Regs regs;
  };
  const Case cases[] = {
      {"#DE div r8 by 0", KERNEL_CODE("div cl"), {.rax = 5}},
      {"#DE div r16 by 0", KERNEL_CODE("div cx"), {.rax = 5}},
      {"#DE div r32 by 0", KERNEL_CODE("div ecx"), {.rax = 5}},
      {"#DE div r64 by 0", KERNEL_CODE("div rcx"), {.rax = 5}},
      {"#DE idiv r32 by 0", KERNEL_CODE("idiv ecx"), {.rax = 5}},
      {"#DE div r8 overflow", KERNEL_CODE("div cl"), {.rax = 0x100, .rcx = 1}},
      {"#DE div r32 overflow", KERNEL_CODE("div ecx"), {.rcx = 2, .rdx = 2}},
      {"#DE div r64 overflow", KERNEL_CODE("div rcx"), {.rcx = 2, .rdx = 2}},
      {"#DE idiv r8 overflow", KERNEL_CODE("idiv cl"), {.rax = 0xff80, .rcx = 0xff}},
      {"#DE idiv r32 minimum by -1",
       KERNEL_CODE("idiv ecx"),
       {.rax = 0x80000000, .rcx = 0xffffffff, .rdx = 0xffffffff}},
      {"#DE idiv r64 minimum by -1",
       KERNEL_CODE("idiv rcx"),
       {.rax = 1ull << 63, .rcx = ~0ull, .rdx = ~0ull}},
  };
  for (const Case& c : cases)
    CheckFault(c.name, RunKernel(c.code, c.regs), kDivideError, 0, At(c.code));
  const void* memory = KERNEL_CODE("div dword ptr [rsi]");
  const u32 zero = 0;
  CheckFault("#DE div m32 by 0", RunKernel(memory, {.rsi = reinterpret_cast<u64>(&zero)}),
             kDivideError, 0, At(memory));
  CheckDone("idiv largest quotient",
            RunKernel(KERNEL_CODE("idiv ecx"), {.rax = 0x7fffffff, .rcx = 1}));

  // Fault class: nothing may have changed.
  const Outcome o = RunKernel(cases[7].code, {.rax = 0x1122334455667788,
                                              .rbx = 0x99,
                                              .rcx = 2,
                                              .rdx = 2,
                                              .r15 = 0x1515,
                                              .rflags = kFlagsFixed | kFlagCf | kFlagZf | kFlagOf});
  CheckEq("#DE leaves rax", o.frame.rax, 0x1122334455667788);
  CheckEq("#DE leaves rdx", o.frame.rdx, 2);
  CheckEq("#DE leaves r15", o.frame.r15, 0x1515);
  CheckEq("#DE leaves the arithmetic flags", o.frame.rflags & kFlagsArithmetic,
          kFlagCf | kFlagZf | kFlagOf);
}

void TestTraps() {
  const void* int3 = KERNEL_CODE("int3");
  CheckFault("#BP int3, rip after it", RunKernel(int3), kBreakpoint, 0, At(int3, 1));
  const void* int_3 = KERNEL_CODE(".byte 0xcd, 3");
  CheckFault("#BP int 3, rip after it", RunKernel(int_3), kBreakpoint, 0, At(int_3, 2));
  const void* user_int3 = USER_CODE("int3");
  CheckFault("#BP int3 from CPL 3", RunUser(user_int3), kBreakpoint, 0, At(user_int3, 1));
  const void* int4 = KERNEL_CODE("int 4");
  CheckFault("#OF vector by int 4", RunKernel(int4), kOverflow, 0, At(int4, 2));
  const void* int90 = KERNEL_CODE("int 0x90");
  CheckFault("int 0x90", RunKernel(int90), 0x90, 0, At(int90, 2));

  const void* icebp = KERNEL_CODE(".byte 0xf1");
  // SDM vol. 2A, INT1: QEMU TCG has no such instruction.
  if (!SkipOnQemu("#DB int1, rip after it")) {
    CheckFault("#DB int1, rip after it", RunKernel(icebp), kDebug, 0, At(icebp, 1));
  }
  const void* user_icebp = USER_CODE(".byte 0xf1");
  if (!SkipOnQemu("#DB int1 from CPL 3 ignores the gate's DPL")) {
    CheckFault("#DB int1 from CPL 3 ignores the gate's DPL", RunUser(user_icebp), kDebug, 0,
               At(user_icebp, 1));
  }
  const void* prefixed = KERNEL_CODE(".byte 0x48, 0xcc");
  CheckFault("#BP int3 with a REX prefix", RunKernel(prefixed), kBreakpoint, 0, At(prefixed, 2));
}

void TestInvalidOpcode() {
  struct Case {
    const char* name;
    const void* code;
    // SDM vol. 2A, LOCK: #UD for every other instruction. QEMU checks only some.
    bool qemu_wrong = false;
  };
  const Case cases[] = {
      {"#UD ud2", KERNEL_CODE("ud2")},
      {"#UD ud1", KERNEL_CODE(".byte 0x0f, 0xb9, 0xc0")},
      {"#UD push es", KERNEL_CODE(".byte 0x06")},
      {"#UD pop ds", KERNEL_CODE(".byte 0x1f")},
      {"#UD daa", KERNEL_CODE(".byte 0x27")},
      {"#UD aaa", KERNEL_CODE(".byte 0x37")},
      {"#UD pusha", KERNEL_CODE(".byte 0x60")},
      {"#UD popa", KERNEL_CODE(".byte 0x61")},
      {"#UD group 1 by 82", KERNEL_CODE(".byte 0x82, 0xc0, 0x00")},
      {"#UD far call ptr16:32", KERNEL_CODE(".byte 0x9a, 0, 0, 0, 0, 8, 0")},
      {"#UD into", KERNEL_CODE(".byte 0xce")},
      {"#UD aam", KERNEL_CODE(".byte 0xd4, 0x0a")},
      {"#UD aad", KERNEL_CODE(".byte 0xd5, 0x0a")},
      {"#UD salc", KERNEL_CODE(".byte 0xd6")},
      {"#UD far jump ptr16:32", KERNEL_CODE(".byte 0xea, 0, 0, 0, 0, 8, 0")},
      {"#UD lea with a register", KERNEL_CODE(".byte 0x8d, 0xc0")},
      {"#UD mov to cs", KERNEL_CODE(".byte 0x8e, 0xc8")},
      {"#UD mov from segment register 6", KERNEL_CODE(".byte 0x8c, 0xf0")},
      {"#UD mov from segment register 7", KERNEL_CODE(".byte 0x8c, 0xf8")},
      {"#UD mov to cr1", KERNEL_CODE(".byte 0x0f, 0x22, 0xc8")},
      {"#UD mov from cr5", KERNEL_CODE(".byte 0x0f, 0x20, 0xe8")},
      {"#UD lock nop", KERNEL_CODE(".byte 0xf0, 0x90")},
      {"#UD lock add to a register", KERNEL_CODE(".byte 0xf0, 0x01, 0xc0")},
      {"#UD lock mov to memory", KERNEL_CODE(".byte 0xf0, 0x89, 0x04, 0x24"), true},
      {"#UD lock cmp", KERNEL_CODE(".byte 0xf0, 0x39, 0x04, 0x24")},
      {"#UD lock bt", KERNEL_CODE(".byte 0xf0, 0x0f, 0xa3, 0x04, 0x24"), true},
      {"#UD cmpxchg8b with a register", KERNEL_CODE(".byte 0x0f, 0xc7, 0xc9")},
      {"#UD group 4, /2", KERNEL_CODE(".byte 0xfe, 0xd0")},
      {"#UD group 5, /7", KERNEL_CODE(".byte 0xff, 0xf8")},
      {"#UD group 8, /0", KERNEL_CODE(".byte 0x0f, 0xba, 0xc0, 0x00")},
      {"#UD far indirect call with a register", KERNEL_CODE(".byte 0xff, 0xd8")},
  };
  for (const Case& c : cases) {
    if (!SkipOnQemu(c.name, c.qemu_wrong))
      CheckFault(c.name, RunKernel(c.code), kInvalidOpcode, 0, At(c.code));
  }
  const void* user = USER_CODE("ud2");
  CheckFault("#UD from CPL 3", RunUser(user), kInvalidOpcode, 0, At(user));
}

void TestGeneralProtection() {
  struct Case {
    const char* name;
    const void* code;
    u64 value;  // in rax
    // SDM vol. 2A MOV-control registers, RDMSR, WRMSR; vol. 3A 2.5 (CR0, CR4), 4.5 (CR3): QEMU
    // ignores reserved bits and absent MSRs, and does not check canonical MSR values.
    bool qemu_wrong = false;
  };
  const Case cases[] = {
      {"#GP load non-canonical", KERNEL_CODE("mov rbx, [rax]"), kNonCanonical},
      {"#GP store non-canonical", KERNEL_CODE("mov [rax], rbx"), kNonCanonical},
      {"#GP load just below the upper half", KERNEL_CODE("mov rbx, [rax]"), 0xffff7fffffffffffull},
      {"#GP load that ends in the hole", KERNEL_CODE("mov rbx, [rax]"), kNonCanonical - 4, true},
      {"#GP rsi-based string", KERNEL_CODE("mov rsi, rax; lodsb"), kNonCanonical},
      {"#GP cr0 PG without PE", KERNEL_CODE("mov cr0, rax"), kCr0Pg, true},
      {"#GP cr0 upper half", KERNEL_CODE("mov rbx, cr0; or rax, rbx; mov cr0, rax"), 1ull << 32,
       true},
      {"#GP cr0 NW without CD", KERNEL_CODE("mov rbx, cr0; or rax, rbx; mov cr0, rax"), 1ull << 29,
       true},
      {"#GP cr0 clear PG in long mode", KERNEL_CODE("mov rbx, cr0; btr rbx, 31; mov cr0, rbx"), 0,
       true},
      {"#GP cr4 clear PAE in long mode", KERNEL_CODE("mov rbx, cr4; btr rbx, 5; mov cr4, rbx"), 0,
       true},
      {"#GP cr4 reserved bit", KERNEL_CODE("mov rbx, cr4; or rax, rbx; mov cr4, rax"), 1ull << 40,
       true},
      {"#GP cr3 reserved bit", KERNEL_CODE("mov rbx, cr3; or rax, rbx; mov cr3, rax"), 1ull << 56,
       true},
      {"#GP cr8 above 15", KERNEL_CODE("mov cr8, rax"), 16, true},
      {"#GP rdmsr of an absent MSR", KERNEL_CODE("mov ecx, eax; rdmsr"), 0x12345678, true},
      {"#GP wrmsr of an absent MSR", KERNEL_CODE("mov ecx, eax; xor eax, eax; xor edx, edx; wrmsr"),
       0x12345678, true},
      {"#GP wrmsr non-canonical FS base",
       KERNEL_CODE("mov ecx, 0xc0000100; xor eax, eax; mov edx, 0x8000; wrmsr"), 0, true},
      {"#GP wrmsr non-canonical GS base",
       KERNEL_CODE("mov ecx, 0xc0000101; xor eax, eax; mov edx, 0x8000; wrmsr"), 0, true},
      {"#GP wrmsr non-canonical LSTAR",
       KERNEL_CODE("mov ecx, 0xc0000082; xor eax, eax; mov edx, 0x8000; wrmsr"), 0, true},
      {"#GP wrmsr reserved bit of EFER",
       KERNEL_CODE("mov ecx, 0xc0000080; rdmsr; mov edx, 0x8000; wrmsr"), 0, true},
      {"#GP movaps misaligned", KERNEL_CODE("lea rbx, [rsp - 56]; movaps xmm0, [rbx]"), 0},
      {"#GP fxsave misaligned", KERNEL_CODE("lea rbx, [rsp - 1016]; fxsave [rbx]"), 0},
      {"#GP instruction of 16 bytes",
       KERNEL_CODE(".byte 0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66\n"
                   ".byte 0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x90"),
       0},
  };
  for (const Case& c : cases) {
    if (!SkipOnQemu(c.name, c.qemu_wrong))
      CheckFault(c.name, RunKernel(c.code, {.rax = c.value}), kGeneralProtection, 0);
  }
  CheckDone("instruction of 15 bytes",
            RunKernel(KERNEL_CODE(".byte 0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66\n"
                                  ".byte 0x66,0x66,0x66,0x66,0x66,0x66,0x90")));

  // Near transfers check the target before they commit (SDM vol. 2A, JMP and CALL; vol. 2B, RET).
  const void* jump = KERNEL_CODE("jmp rax");
  const void* call = KERNEL_CODE("call rax");
  const void* ret = KERNEL_CODE("push rax; ret");
  const Regs target = {.rax = kNonCanonical};
  // QEMU faults at the target instead.
  if (!SkipOnQemu("#GP near transfers to a non-canonical target")) {
    CheckFault("#GP jmp non-canonical", RunKernel(jump, target), kGeneralProtection, 0, At(jump));
    const Outcome o = RunKernel(call, target);
    CheckFault("#GP call non-canonical", o, kGeneralProtection, 0, At(call));
    CheckEq("#GP call non-canonical leaves rsp", o.frame.rsp, ProbeStackTop());
    // The target is checked before the push.
    const void* both = KERNEL_CODE("mov rsp, rdi; call rax");
    SetIst(kGeneralProtection, 3);
    const Outcome unpushed = RunKernel(both, {.rax = kNonCanonical, .rdi = kHighBase + 0x200800});
    SetIst(kGeneralProtection, 0);
    CheckFault("#GP call non-canonical without a stack", unpushed, kGeneralProtection, 0,
               At(both, 3));
    CheckFault("#GP ret non-canonical", RunKernel(ret, target), kGeneralProtection, 0, At(ret, 1));
  }
}

// Through the IDT the error code is vector * 8 + 2 (IDT), + 1 (EXT) if not by INT n: SDM vol. 3A
// 6.13. QEMU 7.2 makes it vector * 16 + 2 and leaves EXT clear.
void CheckIdtError(const char* name, const Outcome& o, u8 vector, u64 error, const void* code) {
  CheckEq(name, o.frame.vector, vector);
  if (!SkipOnQemu("... and its error code")) CheckFault(name, o, vector, error, At(code));
}

void TestIdtErrors() {
  const Gate saved = GetGate(0x90), saved_ud = GetGate(kInvalidOpcode);
  constexpr u64 kError = 0x90 * 8 + 2;
  RemoveGate(0x90);
  const void* int90 = KERNEL_CODE("int 0x90");
  CheckIdtError("#NP int through a gate not present", RunKernel(int90), kSegmentNotPresent, kError,
                int90);
  SetGate(0x90, nullptr, 0, 0, static_cast<GateType>(5));
  CheckIdtError("#GP int through a task gate", RunKernel(int90), kGeneralProtection, kError, int90);
  RestoreGate(0x90, saved);
  const void* user_int90 = USER_CODE("int 0x90");
  CheckIdtError("#GP int with a DPL 0 gate from CPL 3", RunUser(user_int90), kGeneralProtection,
                kError, user_int90);
  const void* ud = KERNEL_CODE("ud2");
  RemoveGate(kInvalidOpcode);
  const Outcome no_ud = RunKernel(ud);
  RestoreGate(kInvalidOpcode, saved_ud);
  CheckIdtError("#NP delivering #UD", no_ud, kSegmentNotPresent, kInvalidOpcode * 8 + 3, ud);

  const TablePointer full = {sizeof(idt) - 1, reinterpret_cast<u64>(idt)};
  const TablePointer small = {0x80 * 16 - 1, reinterpret_cast<u64>(idt)};
  const void* int7f = KERNEL_CODE("int 0x7f");
  asm volatile("lidt %0" : : "m"(small));
  const Outcome beyond = RunKernel(int90);
  const Outcome last = RunKernel(int7f);
  asm volatile("lidt %0" : : "m"(full));
  CheckIdtError("#GP int beyond the IDT", beyond, kGeneralProtection, kError, int90);
  CheckDone("int through the last gate of a short IDT", last);
}

void TestSelectorErrors() {
  struct Case {
    const char* name;
    const void* code;
    u16 selector;
    u64 descriptor;
    u8 vector;
    // SDM vol. 3A 5.2.1: L and D must not both be set.
    bool qemu_wrong = false;
  };
  constexpr u16 kSpare = kSpareSelector;
  constexpr u64 kPresent = 1ull << 47;
  const void* load_ds = KERNEL_CODE("mov ds, eax");
  const void* load_ss = KERNEL_CODE("mov ss, eax");
  const void* load_fs = KERNEL_CODE("mov fs, eax");
  const void* far_return = KERNEL_CODE("lea rbx, [rip + 2f]; push rax; push rbx; retfq; 2: nop");
  const u64 data = SegmentDescriptor(3, 0), code = SegmentDescriptor(0xb, 0, true);
  const Case cases[] = {
      {"#GP ds beyond the GDT", load_ds, 0x7f8, data, kGeneralProtection},
      {"#GP ds in an absent LDT", load_ds, 0xc, data, kGeneralProtection},
      {"#NP ds not present", load_ds, kSpare, data & ~kPresent, kSegmentNotPresent},
      {"#NP fs not present", load_fs, kSpare, data & ~kPresent, kSegmentNotPresent},
      {"#SS ss not present", load_ss, kSpare, data & ~kPresent, kStackFault},
      {"#GP ds with an execute-only segment", load_ds, kSpare, SegmentDescriptor(9, 0, true),
       kGeneralProtection},
      {"#GP ds with a system segment", load_ds, kTssSelector, 0, kGeneralProtection},
      {"#GP ss read-only", load_ss, kSpare, SegmentDescriptor(1, 0), kGeneralProtection},
      {"#GP ss with RPL 3", load_ss, kSpare | 3, data, kGeneralProtection},
      {"#GP ss with DPL 3", load_ss, kSpare, SegmentDescriptor(3, 3), kGeneralProtection},
      {"#NP cs not present", far_return, kSpare, code & ~kPresent, kSegmentNotPresent},
      {"#GP cs is data", far_return, kSpare, data, kGeneralProtection},
      {"#GP cs with L and D", far_return, kSpare, code | 1ull << 54, kGeneralProtection, true},
      {"#GP cs with DPL 3, RPL 0", far_return, kSpare, SegmentDescriptor(0xb, 3, true),
       kGeneralProtection},
      {"#GP ltr of a busy TSS", KERNEL_CODE("ltr ax"), kTssSelector, 0, kGeneralProtection},
      {"#GP ltr of a data segment", KERNEL_CODE("ltr ax"), kSpare, data, kGeneralProtection},
      {"#GP lldt of a data segment", KERNEL_CODE("lldt ax"), kSpare, data, kGeneralProtection},
  };
  asm volatile("lldt %0" : : "r"(u16{0}));
  for (const Case& c : cases) {
    if ((c.selector & ~3) == kSpare) SetGdtEntry(kSpare, c.descriptor);
    if (SkipOnQemu(c.name, c.qemu_wrong)) continue;
    CheckFault(c.name, RunKernel(c.code, {.rax = c.selector}), c.vector, c.selector & ~3u);
  }
  CheckFault("#GP null cs by retf", RunKernel(far_return, {.rax = 0}), kGeneralProtection, 0);
  // SDM vol. 2A, MOV and LTR.
  if (!SkipOnQemu("#GP null ss with RPL 3, null tr")) {
    CheckFault("#GP null ss with RPL 3", RunKernel(load_ss, {.rax = 3}), kGeneralProtection, 0);
    CheckFault("#GP null tr", RunKernel(KERNEL_CODE("ltr ax"), {.rax = 0}), kGeneralProtection, 0);
  }
  CheckDone("null ds", RunKernel(KERNEL_CODE("xor eax, eax; mov ds, eax; mov rax, ds:[rsp]")));
  asm volatile("mov %0, %%ds" : : "r"(u32{kKernelData}));

  TestIdtErrors();
}

void TestStackFault() {
  // rsp or rbp as the base means SS: #SS(0) instead of #GP(0) (SDM vol. 1 3.3.7.1).
  SetIst(kStackFault, 4);
  SetIst(kGeneralProtection, 4);
  SetIst(kPageFault, 4);
  const Regs bad_rsp = {.rsp = kNonCanonical + 64};
  const Regs bad_rbp = {.rbp = kNonCanonical};
  struct Case {
    const char* name;
    const void* code;
    const Regs& regs;
  };
  const Case cases[] = {
      {"#SS push", KERNEL_CODE("push rax"), bad_rsp},
      {"#SS pop", KERNEL_CODE("pop rax"), bad_rsp},
      {"#SS call", KERNEL_CODE("call 2f; 2: nop"), bad_rsp},
      {"#SS ret", KERNEL_CODE("ret"), bad_rsp},
      {"#SS pushfq", KERNEL_CODE("pushfq"), bad_rsp},
      {"#SS popfq", KERNEL_CODE("popfq"), bad_rsp},
      {"#SS load off rsp", KERNEL_CODE("mov rax, [rsp + 8]"), bad_rsp},
      {"#SS load off rbp", KERNEL_CODE("mov rax, [rbp]"), bad_rbp},
      {"#SS store off rbp", KERNEL_CODE("mov [rbp + 16], rax"), bad_rbp},
      {"#SS leave", KERNEL_CODE("leave"), bad_rbp},
  };
  for (const Case& c : cases) {
    // QEMU 7.2 makes it #GP.
    if (SkipOnQemu(c.name)) continue;
    const Outcome o = RunKernel(c.code, c.regs);
    CheckFault(c.name, o, kStackFault, 0, At(c.code));
    if (c.regs.rsp != 0 && o.frame.rsp != c.regs.rsp) CheckEq(c.name, o.frame.rsp, c.regs.rsp);
  }
  const void* override_code = KERNEL_CODE("mov rax, fs:[rbp]");
  CheckFault("#GP fs override of an rbp base", RunKernel(override_code, bad_rbp),
             kGeneralProtection, 0, At(override_code));
  const Outcome o = RunKernel(KERNEL_CODE("push rax"), {.rsp = kHighBase + 16});
  CheckFault("#PF push on an unmapped stack", o, kPageFault, kPfWrite);
  CheckEq("#PF push: cr2", o.cr2, kHighBase + 8);
  CheckEq("#PF push: rsp unchanged", o.frame.rsp, kHighBase + 16);
  CheckEq("IST stack taken", o.frame_address + sizeof(TrapFrame), IstTop(4));
  SetIst(kStackFault, 0);
  SetIst(kGeneralProtection, 0);
  SetIst(kPageFault, 0);
}

void TestPageFault() {
  const u64 page = kHighBase + 0x100000;
  const void* load = KERNEL_CODE("mov rax, [rdi]");
  const void* store = KERNEL_CODE("mov [rdi], rax");
  const void* add = KERNEL_CODE("add dword ptr [rdi], 1");
  const void* jump = KERNEL_CODE("jmp rdi");
  const void* locked = KERNEL_CODE("lock inc dword ptr [rdi]");
  Outcome o = RunKernel(load, {.rdi = page + 0x123});
  CheckFault("#PF load, not present", o, kPageFault, 0, At(load));
  CheckEq("#PF load: cr2", o.cr2, page + 0x123);
  o = RunKernel(store, {.rdi = page + 0x456});
  CheckFault("#PF store, not present", o, kPageFault, kPfWrite, At(store));
  CheckEq("#PF store: cr2", o.cr2, page + 0x456);
  // A read-modify-write access is a write from the start (seen on Intel and AMD); QEMU loads first.
  if (!SkipOnQemu("#PF read-modify-write, not present")) {
    CheckFault("#PF add to memory, not present", RunKernel(add, {.rdi = page}), kPageFault,
               kPfWrite, At(add));
    CheckFault("#PF lock inc, not present", RunKernel(locked, {.rdi = page}), kPageFault, kPfWrite,
               At(locked));
  }
  o = RunKernel(jump, {.rdi = page + 0x789});
  CheckFault("#PF fetch, not present", o, kPageFault, HasNx() ? kPfFetch : 0, page + 0x789);
  CheckEq("#PF fetch: cr2", o.cr2, page + 0x789);

  const void* user_load = USER_CODE("mov rax, [rdi]");
  const void* user_store = USER_CODE("mov [rdi], rax");
  CheckFault("#PF user load, not present", RunUser(user_load, {.rdi = page}), kPageFault, kPfUser,
             At(user_load));
  o = RunUser(user_store, {.rdi = reinterpret_cast<u64>(&gdt)});
  CheckFault("#PF user store to a supervisor page", o, kPageFault, kPfUser | kPfWrite | kPfPresent,
             At(user_store));
  CheckEq("#PF user store: cr2", o.cr2, reinterpret_cast<u64>(&gdt));

  const u64 frame = AllocPage();
  Map(page, frame, 0);
  CheckFault("#PF store, read-only", RunKernel(store, {.rdi = page}), kPageFault,
             kPfPresent | kPfWrite, At(store));
  if (HasNx()) {
    Map(page, frame, kPteW | kPteNx);
    CheckFault("#PF fetch, NX", RunKernel(jump, {.rdi = page + 8}), kPageFault,
               kPfPresent | kPfFetch, page + 8);
  }
  *Entry(page) = frame | kPteP | kPteW | 1ull << 51;
  Invlpg(page);
  o = RunKernel(load, {.rdi = page});
  CheckEq("#PF reserved bit of the PTE", o.frame.error & kPfReserved, kPfReserved);
  // SDM vol. 3A 4.7: RSVD is set only together with P.
  if (!SkipOnQemu("#PF reserved bit of the PTE: error code")) {
    CheckFault("#PF reserved bit of the PTE: error code", o, kPageFault, kPfPresent | kPfReserved,
               At(load));
  }
  Map(page, frame, kPteW);
  // The second page of a crossing access is the one that faults, and cr2 is its first byte.
  o = RunKernel(load, {.rdi = page + 0xffd});
  CheckFault("#PF load across pages", o, kPageFault, 0, At(load));
  CheckEq("#PF load across pages: cr2", o.cr2, page + 0x1000);
  *reinterpret_cast<volatile u64*>(page + 0xff0) = 0;
  *reinterpret_cast<volatile u64*>(page + 0xff8) = 0;
  o = RunKernel(store, {.rax = ~0ull, .rdi = page + 0xffd});
  CheckFault("#PF store across pages", o, kPageFault, kPfWrite, At(store));
  CheckEq("#PF store across pages: cr2", o.cr2, page + 0x1000);
  CheckEq("#PF store across pages: nothing written", *reinterpret_cast<u64*>(page + 0xff8), 0);
  // An instruction that begins on a good page and ends on a bad one faults with rip at its start.
  const u8 mov_imm[] = {0x48, 0xb8};
  for (u64 i = 0; i < sizeof(mov_imm); i++) {
    *reinterpret_cast<volatile u8*>(page + 0xffc + i) = mov_imm[i];
  }
  o = RunKernel(reinterpret_cast<const void*>(page + 0xffc));
  CheckFault("#PF fetch across pages", o, kPageFault, HasNx() ? kPfFetch : 0, page + 0xffc);
  CheckEq("#PF fetch across pages: cr2", o.cr2, page + 0x1000);
  Unmap(page);
}

void TestDoubleFault() {
  // Contributory during #PF, and contributory during contributory, make #DF(0) (SDM table 6-5).
  const Gate pf = GetGate(kPageFault), gp = GetGate(kGeneralProtection),
             ud = GetGate(kInvalidOpcode);
  const void* load = KERNEL_CODE("mov rax, [rdi]");
  const u64 page = kHighBase + 0x200000;
  RemoveGate(kPageFault);
  Outcome o = RunKernel(load, {.rdi = page});
  RestoreGate(kPageFault, pf);
  CheckFault("#DF #NP during #PF", o, kDoubleFault, 0);
  CheckEq("#DF on its IST stack", o.frame_address + sizeof(TrapFrame), IstTop(1));

  RemoveGate(kGeneralProtection);
  o = RunKernel(load, {.rdi = kNonCanonical});
  RestoreGate(kGeneralProtection, gp);
  CheckFault("#DF #NP during #GP", o, kDoubleFault, 0);

  // An exception whose frame cannot be pushed: #UD (benign) then #PF is serial, #PF then #PF is
  // not.
  SetIst(kPageFault, 4);
  const void* undefined = KERNEL_CODE("ud2");
  o = RunKernel(undefined, {.rsp = page + 64});
  CheckFault("#PF while pushing the frame of #UD", o, kPageFault, kPfWrite, At(undefined));
  CheckEq("#PF while pushing the frame of #UD: rsp", o.frame.rsp, page + 64);
  SetIst(kPageFault, 0);
  o = RunKernel(load, {.rdi = page + 0x1000, .rsp = page + 64});
  CheckFault("#DF #PF while pushing the frame of #PF", o, kDoubleFault, 0);
  CheckEq("#DF #PF during #PF: rsp", o.frame.rsp, page + 64);
  RestoreGate(kInvalidOpcode, ud);
}

// A raw handler that notes the flags it starts with, and returns.
extern "C" void note_flags();
extern "C" u64 noted_flags;
u64 noted_flags;
asm(R"(
.global note_flags
note_flags:
    push %rax
    pushfq
    pop %rax
    mov %rax, noted_flags
    pop %rax
    iretq
)");

void TestFrames() {
  const void* ud = KERNEL_CODE("ud2");
  const u64 top = ProbeStackTop();
  bool aligned = true, exact = true;
  for (u64 misalign = 0; misalign < 16; misalign++) {
    const Outcome o = RunKernel(ud, {.rsp = top - 256 + misalign});
    aligned &= o.frame_address + sizeof(TrapFrame) == top - 256;
    exact &= o.frame.rsp == top - 256 + misalign;
  }
  Check(aligned, "frame aligned to 16 bytes");
  Check(exact, "frame holds the unaligned rsp");

  Outcome o = RunKernel(ud);
  CheckEq("kernel frame: cs", o.frame.cs, kKernelCode);
  CheckEq("kernel frame: ss", o.frame.ss, kKernelData);
  o = RunUser(USER_CODE("ud2"));
  CheckEq("user frame: cs", o.frame.cs, kUserCode);
  CheckEq("user frame: ss", o.frame.ss, kUserData);
  CheckEq("user frame: rsp", o.frame.rsp, UserStackTop());
  CheckEq("user frame lies on RSP0", o.frame_address + sizeof(TrapFrame), TrapStackTop());
  for (unsigned ist = 1; ist <= 7; ist++) {
    SetIst(kInvalidOpcode, ist);
    o = RunKernel(ud);
    if (o.frame_address + sizeof(TrapFrame) != IstTop(ist)) break;
    o = RunUser(USER_CODE("ud2"));
    if (o.frame_address + sizeof(TrapFrame) != IstTop(ist)) break;
  }
  CheckEq("IST stacks 1 to 7", o.frame_address + sizeof(TrapFrame), IstTop(7));
  SetIst(kInvalidOpcode, 0);

  const u64 flags = kFlagsFixed | kFlagCf | kFlagPf | kFlagAf | kFlagZf | kFlagSf | kFlagDf |
                    kFlagOf | kFlagAc | kFlagId | kFlagNt;
  o = RunKernel(ud, {.rflags = flags});
  CheckEq("flags image", o.frame.rflags & ~kFlagRf, flags);
  // SDM vol. 3B 17.3.1.1: the image pushed for a fault has RF set. QEMU 7.2 does not set it.
  if (!SkipOnQemu("RF set in a fault's image")) {
    CheckEq("RF set in a fault's image", o.frame.rflags & kFlagRf, kFlagRf);
  }
  o = RunKernel(KERNEL_CODE("int 0x90"), {.rflags = flags});
  CheckEq("RF clear in a trap's image", o.frame.rflags, flags);
  o = RunUser(USER_CODE("ud2"), {.rflags = flags | kFlagIopl | kFlagIf});
  CheckEq("user flags image", o.frame.rflags & ~kFlagRf, flags | kFlagIopl | kFlagIf);

  const u64 cleared = kFlagTf | kFlagNt | kFlagRf | kFlagIf;
  SetEntry(0x90, reinterpret_cast<const void*>(note_flags));
  RunKernel(KERNEL_CODE("int 0x90"), {.rflags = flags | kFlagIf});
  CheckEq("interrupt gate clears IF, TF, NT, RF", noted_flags, flags & ~cleared);
  SetGate(0x90, reinterpret_cast<const void*>(note_flags), 0, 0, kTrapGate);
  o = RunKernel(KERNEL_CODE("int 0x90"), {.rflags = flags | kFlagIf});
  CheckEq("trap gate keeps IF", noted_flags, (flags & ~cleared) | kFlagIf);
  CheckEq("iretq restores the flags", o.frame.rflags, flags | kFlagIf);
  RestoreEntry(0x90);

  // A handler that repairs the cause restarts the instruction; registers are what it set.
  SetHandler(kPageFault, [](TrapFrame* frame) { frame->rdi = frame->rsp; });
  o = RunKernel(KERNEL_CODE("mov qword ptr [rdi], 77; mov rax, [rsp]"),
                {.rdi = kHighBase, .rsp = top - 64});
  SetHandler(kPageFault, nullptr);
  Check(o.Done() && o.frame.rax == 77, "restart after #PF");
}

void TestDebug() {
  const void* steps = KERNEL_CODE("nop; nop; nop");
  Outcome o = RunKernel(steps, {.rflags = kFlagsFixed | kFlagTf});
  CheckFault("#DB single step", o, kDebug, 0, At(steps, 1));
  u64 dr6;
  asm volatile("mov %%dr6, %0" : "=r"(dr6));
  CheckEq("DR6.BS", dr6 & 0x400f, 0x4000);
  CheckEq("TF set in the image", o.frame.rflags & kFlagTf, kFlagTf);
  const void* popf = KERNEL_CODE("pushfq; or qword ptr [rsp], 0x100; popfq; nop; nop");
  const Outcome after = RunKernel(popf);
  CheckFault("#DB one instruction after popf sets TF", after, kDebug);
  const void* repeated = KERNEL_CODE("rep stosb; nop");
  o = RunKernel(repeated,
                {.rcx = 3, .rdi = ProbeStackTop() - 512, .rflags = kFlagsFixed | kFlagTf});
  CheckFault("#DB after one iteration of rep", o, kDebug, 0, At(repeated));
  CheckEq("#DB after one iteration of rep: rcx", o.frame.rcx, 2);

  u64 word = 0;
  asm volatile("mov %0, %%dr6" : : "r"(0ull));
  asm volatile("mov %0, %%dr0" : : "r"(At(steps, 1)));
  asm volatile("mov %0, %%dr1" : : "r"(&word));
  asm volatile("mov %0, %%dr7" : : "r"(0x402ull));
  o = RunKernel(steps);
  asm volatile("mov %%dr6, %0" : "=r"(dr6));
  CheckFault("#DB instruction breakpoint", o, kDebug, 0, At(steps, 1));
  CheckEq("DR6.B0", dr6 & 0x400f, 1);
  const Outcome resumed = RunFrame([&] {
    TrapFrame f = o.frame;
    f.rflags |= kFlagRf;
    return f;
  }());
  CheckDone("RF passes the breakpoint", resumed);
  asm volatile("mov %0, %%dr6" : : "r"(0ull));
  asm volatile("mov %0, %%dr7" : : "r"(0xd00408ull));  // DR1: 4 bytes, on write
  const void* write = KERNEL_CODE("mov eax, [rdi]; mov dword ptr [rdi], 1; nop");
  o = RunKernel(write, {.rdi = reinterpret_cast<u64>(&word)});
  asm volatile("mov %%dr6, %0" : "=r"(dr6));
  asm volatile("mov %0, %%dr7" : : "r"(0x400ull));
  CheckFault("#DB data breakpoint, after the store", o, kDebug, 0, At(write, 8));
  CheckEq("DR6.B1", dr6 & 0x400f, 2);
}

void TestFpuFaults() {
  const u64 cr0 = ReadCr0();
  const void* x87 = KERNEL_CODE("fld1");
  const void* sse = KERNEL_CODE("xorps xmm0, xmm0");
  WriteCr0(cr0 | kCr0Ts);
  const Outcome ts_x87 = RunKernel(x87), ts_sse = RunKernel(sse);
  const Outcome ts_wait = RunKernel(KERNEL_CODE("fwait"));
  WriteCr0((cr0 | kCr0Ts) & ~kCr0Mp);
  const Outcome wait_no_mp = RunKernel(KERNEL_CODE("fwait"));
  WriteCr0(cr0 | kCr0Em);
  const Outcome em_x87 = RunKernel(x87), em_sse = RunKernel(sse);
  WriteCr0(cr0 | kCr0Ts);
  RunKernel(KERNEL_CODE("clts"));
  const u64 after_clts = ReadCr0();
  WriteCr0(cr0);
  CheckFault("#NM x87 with CR0.TS", ts_x87, kDeviceNotAvailable, 0, At(x87));
  CheckFault("#NM SSE with CR0.TS", ts_sse, kDeviceNotAvailable, 0, At(sse));
  CheckFault("#NM fwait with CR0.TS and MP", ts_wait, kDeviceNotAvailable);
  CheckDone("fwait with CR0.TS without MP", wait_no_mp);
  CheckFault("#NM x87 with CR0.EM", em_x87, kDeviceNotAvailable, 0, At(x87));
  CheckFault("#UD SSE with CR0.EM", em_sse, kInvalidOpcode, 0, At(sse));
  CheckEq("clts", after_clts, cr0);

  const u16 unmasked = 0x37f & ~4;  // zero divide
  const void* divide = KERNEL_CODE("fninit; fldcw [rdi]; fldz; fld1; fdivrp; nop; fwait; nop");
  const Outcome mf = RunKernel(divide, {.rdi = reinterpret_cast<u64>(&unmasked)});
  asm volatile("fninit");
  CheckFault("#MF at the next waiting instruction", mf, kMathFault);
  const u32 mxcsr = 0x1f80 & ~0x200u, standard = 0x1f80;
  const void* divps = KERNEL_CODE(
      "ldmxcsr [rdi]; xorps xmm1, xmm1; mov eax, 0x3f800000; movd xmm0, eax\n"
      "2: divss xmm0, xmm1");
  const Outcome xm = RunKernel(divps, {.rdi = reinterpret_cast<u64>(&mxcsr)});
  asm volatile("ldmxcsr %0" : : "m"(standard));
  // SDM vol. 1 11.5: unmasked SIMD exceptions are delivered; QEMU 7.2 only sets MXCSR bits.
  if (!SkipOnQemu("#XM unmasked SSE exception")) {
    CheckFault("#XM unmasked SSE exception", xm, kSimdFault);
  }
  // SDM vol. 2A, LDMXCSR.
  const void* reserved = KERNEL_CODE("mov dword ptr [rsp - 8], 0x80000000; ldmxcsr [rsp - 8]");
  if (!SkipOnQemu("#GP ldmxcsr reserved bit")) {
    CheckFault("#GP ldmxcsr reserved bit", RunKernel(reserved), kGeneralProtection);
  }
}

void TestAlignmentCheck() {
  const u64 cr0 = ReadCr0();
  const void* user = USER_CODE("mov eax, [rsp - 63]");
  const void* kernel = KERNEL_CODE("mov eax, [rsp - 63]");
  const Regs ac = {.rflags = kFlagsFixed | kFlagAc};
  CheckDone("no #AC without CR0.AM", RunUser(user, ac));
  WriteCr0(cr0 | kCr0Am);
  const Outcome without = RunUser(user), with = RunUser(user, ac),
                in_kernel = RunKernel(kernel, ac);
  const Outcome aligned = RunUser(USER_CODE("mov eax, [rsp - 64]; mov bl, [rsp - 63]"), ac);
  WriteCr0(cr0);
  CheckDone("no #AC without EFLAGS.AC", without);
  CheckDone("no #AC in CPL 0", in_kernel);
  CheckDone("no #AC for aligned accesses", aligned);
  // SDM vol. 3A 6.15, interrupt 17: QEMU 7.2 has no alignment checks.
  if (!SkipOnQemu("#AC misaligned load in CPL 3")) {
    CheckFault("#AC misaligned load in CPL 3", with, kAlignmentCheck, 0, At(user));
  }
}

constexpr Section kSections[] = {
    {"divide", TestDivide},           {"traps", TestTraps},
    {"opcode", TestInvalidOpcode},    {"protection", TestGeneralProtection},
    {"selector", TestSelectorErrors}, {"stack", TestStackFault},
    {"page", TestPageFault},          {"double", TestDoubleFault},
    {"frames", TestFrames},           {"debug", TestDebug},
    {"fpu", TestFpuFaults},           {"alignment", TestAlignmentCheck},
};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
