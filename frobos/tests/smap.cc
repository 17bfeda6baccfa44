// SPDX-License-Identifier: Apache-2.0
// Supervisor-mode access prevention and user-mode instruction prevention: STAC and CLAC, which
// accesses EFLAGS.AC opens, events on user stacks; SGDT, SIDT, SLDT, STR and SMSW in CPL 3 (Intel
// SDM vol. 3A 4.6, vol. 2 STAC, vol. 3A 2.5 on CR4.UMIP). The whole matrix of SMAP is in access.cc.

#include <initializer_list>

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

constexpr u64 kUserPage = kUserBase + 0x600000;

u64 At(const void* code, u64 offset = 0) { return reinterpret_cast<u64>(code) + offset; }

void CheckGpAt(const char* name, const Outcome& o, const void* code) {
  CheckFault(name, o, kGeneralProtection, 0, At(code));
}

void TestStac() {
  const void* stac = KERNEL_CODE("stac; pushfq; pop rax; clac; pushfq; pop rbx");
  const void* user_stac = USER_CODE("stac");
  const void* user_clac = USER_CODE("clac");
  if (!HasSmap()) {
    Skip("SMAP", "CPUID has none");
    CheckFault("#UD stac without CPUID's bit", RunKernel(stac), kInvalidOpcode, 0, At(stac));
    const void* write = KERNEL_CODE("mov cr4, rax");
    CheckGpAt("#GP CR4.SMAP without CPUID's bit", RunKernel(write, {.rax = ReadCr4() | kCr4Smap}),
              write);
    return;
  }
  for (const bool on : {false, true}) {
    const u64 cr4 = ReadCr4();
    if (on) WriteCr4(cr4 | kCr4Smap);
    const Outcome o = RunKernel(stac);
    const Outcome user = RunUser(user_stac), user2 = RunUser(user_clac);
    WriteCr4(cr4);
    CheckDone(on ? "stac and clac with CR4.SMAP" : "stac and clac without CR4.SMAP", o);
    CheckEq("... AC set", o.frame.rax & kFlagAc, kFlagAc);
    CheckEq("... AC clear", o.frame.rbx & kFlagAc, 0);
    CheckFault("#UD stac in CPL 3", user, kInvalidOpcode, 0, At(user_stac));
    CheckFault("#UD clac in CPL 3", user2, kInvalidOpcode, 0, At(user_clac));
  }
  const void* locked = KERNEL_CODE(".byte 0xf0; stac");
  if (!SkipOnQemu("#UD stac locked")) {
    CheckFault("#UD stac locked", RunKernel(locked), kInvalidOpcode, 0, At(locked));
  }
  // Only AC changes.
  const Outcome o = RunKernel(KERNEL_CODE("stac; pushfq; pop rax"),
                              {.rflags = kFlagsFixed | kFlagsArithmetic | kFlagDf});
  CheckEq("stac leaves the other flags", o.frame.rax,
          kFlagsFixed | kFlagsArithmetic | kFlagDf | kFlagAc);
}

void TestAccesses() {
  if (!HasSmap()) return;
  const u64 frame = AllocPage();
  Map(kUserPage, frame, kPteW | kPteU);
  const u64 cr4 = ReadCr4();
  struct Case {
    const char* name;
    const void* code;
    u64 error;
    u64 offset;  // of the instruction that faults
    bool qemu_wrong = false;
  };
  const Case cases[] = {
      {"load", KERNEL_CODE("mov rax, [rdi]"), kPfPresent, 0},
      {"store", KERNEL_CODE("mov [rdi], rax"), kPfPresent | kPfWrite, 0},
      {"read-modify-write", KERNEL_CODE("lock inc qword ptr [rdi]"), kPfPresent | kPfWrite, 0,
       true},
      {"push", KERNEL_CODE("lea rsp, [rdi + 8]; push rax"), kPfPresent | kPfWrite, 4},
      {"pop", KERNEL_CODE("mov rsp, rdi; pop rax"), kPfPresent, 3},
      {"call", KERNEL_CODE("lea rsp, [rdi + 8]; call 2f; 2: nop"), kPfPresent | kPfWrite, 4},
      {"movs from", KERNEL_CODE("mov rsi, rdi; lea rdi, [rbx - 256]; movsq"), kPfPresent, 10},
      {"rep stos", KERNEL_CODE("mov ecx, 16; rep stosb"), kPfPresent | kPfWrite, 5},
      {"movups", KERNEL_CODE("movups xmm0, [rdi]"), kPfPresent, 0},
      {"fld", KERNEL_CODE("fninit; fld qword ptr [rdi]"), kPfPresent, 2},
      {"cmpxchg16b's operand", KERNEL_CODE("cmpxchg16b [rdi]"), kPfPresent | kPfWrite, 0, true},
      {"sidt's operand", KERNEL_CODE("sidt [rdi]"), kPfPresent | kPfWrite, 0},
      {"jmp's operand", KERNEL_CODE("jmp [rdi]"), kPfPresent, 0},
  };
  WriteCr4(cr4 | kCr4Smap);
  SetIst(kPageFault, 4);  // some of them fault with their stack on the user's page
  for (const Case& c : cases) {
    const Regs regs = {.rbx = ProbeStackTop(), .rdi = kUserPage};
    const Outcome o = RunKernel(c.code, regs);
    // QEMU reports atomic ones as loads.
    if (!SkipOnQemu(c.name, c.qemu_wrong)) {
      CheckFault(c.name, o, kPageFault, c.error, At(c.code, c.offset));
    }
    if (strcmp(c.name, "jmp's operand") == 0) continue;  // it would go wherever the page says
    Regs open = regs;
    open.rflags |= kFlagAc;
    *reinterpret_cast<u64*>(frame) = 0;
    CheckDone("... with EFLAGS.AC", RunKernel(c.code, open));
  }
  RestoreEntry(kPageFault);
  // Fetches are SMEP's concern.
  *reinterpret_cast<u8*>(frame) = 0xc3;
  CheckDone("a call of user code with SMAP, without SMEP",
            RunKernel(KERNEL_CODE("call rdi"), {.rdi = kUserPage}));
  // Explicitly, in the middle of translated code, both ways and by POPF.
  Outcome o =
      RunKernel(KERNEL_CODE("mov ecx, 100\n2: stac; mov rax, [rdi]; mov [rdi], rcx; clac\n"
                            "dec ecx; jnz 2b; stac; mov rbx, [rdi]; clac; nop; mov rax, [rdi]"),
                {.rdi = kUserPage});
  CheckFault("a loop of stac and clac, and then without", o, kPageFault, kPfPresent);
  CheckEq("... the last store", o.frame.rbx, 1);
  o = RunKernel(KERNEL_CODE("pushfq; or qword ptr [rsp], 0x40000; popfq; mov rax, [rdi]\n"
                            "and qword ptr [rsp - 8], ~0x40000; sub rsp, 8; popfq; mov rbx, [rdi]"),
                {.rdi = kUserPage});
  CheckFault("popfq opens and closes", o, kPageFault, kPfPresent);
  CheckEq("... opened", o.frame.rax, 1);
  // CPL 3 is not concerned, whatever its AC.
  CheckDone("user load with SMAP", RunUser(USER_CODE("mov rax, [rdi]"), {.rdi = kUserPage}));

  // An event in CPL 0 on a user stack: its pushes are the supervisor's, opened by AC.
  const void* ud = KERNEL_CODE("ud2");
  o = RunKernel(ud, {.rsp = kUserPage + 2048});
  CheckFault("#DF an exception on a user stack", o, kDoubleFault, 0);
  o = RunKernel(ud, {.rsp = kUserPage + 2048, .rflags = kFlagsFixed | kFlagAc});
  // The handler runs on that stack and sees AC, too.
  CheckFault("... opened by EFLAGS.AC", o, kInvalidOpcode, 0, At(ud));
  CheckEq("... AC in the image", o.frame.rflags & kFlagAc, kFlagAc);

  // SMAP set and cleared without a flush.
  Group group("CR4.SMAP toggled");
  const void* load = KERNEL_CODE("mov rax, [rdi]");
  for (int i = 0; i < 200; i++) {
    WriteCr4(cr4 | kCr4Smap);
    group.Case(RunKernel(load, {.rdi = kUserPage}).Is(kPageFault, kPfPresent));
    WriteCr4(cr4);
    group.Case(RunKernel(load, {.rdi = kUserPage}).Done());
  }
  WriteCr4(cr4);
  Unmap(kUserPage);
}

// SYSCALL masks AC like any other flag; interrupts leave it.
extern "C" void smap_syscall_entry();
extern "C" u64 smap_syscall_flags;
asm(R"(
.global smap_syscall_entry
smap_syscall_entry:
    mov %rsp, %rdx
    mov $smap_scratch_top, %rsp
    pushfq
    pop smap_syscall_flags
    mov %rdx, %rsp
    sysretq
.section .bss
.balign 16
.skip 64
smap_scratch_top:
.global smap_syscall_flags
smap_syscall_flags: .skip 8
.text
)");

void TestEntries() {
  if (!HasSmap()) return;
  WriteMsr(kMsrStar, u64{kKernelCode} << 32 | u64{kUserCode32} << 48);
  WriteMsr(kMsrLstar, reinterpret_cast<u64>(smap_syscall_entry));
  const void* syscall = USER_CODE("syscall; pushfq; pop rax");
  const Regs regs = {.rflags = kFlagsFixed | kFlagAc};
  WriteMsr(kMsrSfmask, kFlagIf);
  Outcome o = RunUser(syscall, regs);
  CheckDone("syscall with AC", o);
  CheckEq("... not masked, AC stays", smap_syscall_flags & kFlagAc, kFlagAc);
  WriteMsr(kMsrSfmask, kFlagIf | kFlagAc);
  o = RunUser(syscall, regs);
  CheckEq("... masked, AC is clear", smap_syscall_flags & kFlagAc, 0);
  CheckEq("... sysret gives it back", o.frame.rax & kFlagAc, kFlagAc);
  static u64 in_handler;
  SetHandler(kBreakpoint, [](TrapFrame*) { in_handler = ReadFlags(); });
  RunUser(USER_CODE("int3"), regs);
  SetHandler(kBreakpoint, nullptr);
  CheckEq("an exception leaves AC as it was", in_handler & kFlagAc, kFlagAc);
}

void TestUmip() {
  struct Case {
    const char* name;
    const void* user;
    const void* kernel;
  };
#define BOTH(text) USER_CODE(text), KERNEL_CODE(text)
  const Case cases[] = {
      {"sgdt", BOTH("sgdt [rdi]")},           {"sidt", BOTH("sidt [rdi]")},
      {"sldt to memory", BOTH("sldt [rdi]")}, {"sldt to a register", BOTH("sldt eax")},
      {"str to memory", BOTH("str [rdi]")},   {"str to a register", BOTH("str rax")},
      {"smsw to memory", BOTH("smsw [rdi]")}, {"smsw to a register", BOTH("smsw eax")},
  };
  const u64 cr4 = ReadCr4();
  const Regs regs = {.rdi = UserStackTop() - 256};
  const Regs absent = {.rdi = kHighBase + 0x700000};
  for (const Case& c : cases) CheckDone(c.name, RunUser(c.user, regs));
  if (!HasUmip()) {
    Skip("UMIP", "CPUID has none");
    const void* write = KERNEL_CODE("mov cr4, rax");
    if (!SkipOnQemu("#GP CR4.UMIP without CPUID's bit", false)) {
      CheckGpAt("#GP CR4.UMIP without CPUID's bit", RunKernel(write, {.rax = cr4 | kCr4Umip}),
                write);
    }
    return;
  }
  WriteCr4(cr4 | kCr4Umip);
  for (const Case& c : cases) {
    CheckGpAt("#GP in CPL 3 with CR4.UMIP", RunUser(c.user, regs), c.user);
    CheckGpAt("... before its operand's page fault", RunUser(c.user, absent), c.user);
    CheckDone("... not in CPL 0", RunKernel(c.kernel, regs));
  }
  CheckDone("UMIP leaves VERR alone", RunUser(USER_CODE("verr ax"), {.rax = kUserData}));
  CheckDone("UMIP leaves LAR alone", RunUser(USER_CODE("lar eax, eax"), {.rax = kUserData}));
  Group group("CR4.UMIP toggled");
  for (int i = 0; i < 100; i++) {
    WriteCr4(cr4);
    group.Case(RunUser(cases[0].user, regs).Done());
    WriteCr4(cr4 | kCr4Umip);
    group.Case(RunUser(cases[0].user, regs).Is(kGeneralProtection, 0));
  }
  WriteCr4(cr4);
}

constexpr Section kSections[] = {
    {"stac", TestStac}, {"accesses", TestAccesses}, {"entries", TestEntries}, {"umip", TestUmip}};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
