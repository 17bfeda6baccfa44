// SPDX-License-Identifier: Apache-2.0
// CPL 3 and the ways in and out of it: privileged instructions, IOPL and the I/O bitmap, SYSCALL
// and SYSRET, IRET, the TSS's stack, SWAPGS, FSGSBASE, RDTSC and UMIP controls.

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

u64 At(const void* code, u64 offset = 0) { return reinterpret_cast<u64>(code) + offset; }

void TestPrivileged() {
  struct Case {
    const char* name;
    const void* code;
  };
  const Case cases[] = {
      {"user hlt", USER_CODE("hlt")},
      {"user cli", USER_CODE("cli")},
      {"user sti", USER_CODE("sti")},
      {"user in al, imm8", USER_CODE("in al, 0x80")},
      {"user in al, dx", USER_CODE("in al, dx")},
      {"user out dx, eax", USER_CODE("out dx, eax")},
      {"user insb", USER_CODE("insb")},
      {"user rep outsb", USER_CODE("mov ecx, 1; rep outsb")},
      {"user mov from cr0", USER_CODE("mov rax, cr0")},
      {"user mov to cr0", USER_CODE("mov cr0, rax")},
      {"user mov from cr2", USER_CODE("mov rax, cr2")},
      {"user mov from cr3", USER_CODE("mov rax, cr3")},
      {"user mov to cr3", USER_CODE("mov cr3, rax")},
      {"user mov from cr4", USER_CODE("mov rax, cr4")},
      {"user mov from cr8", USER_CODE("mov rax, cr8")},
      {"user mov to cr8", USER_CODE("mov cr8, rax")},
      {"user mov from dr7", USER_CODE("mov rax, dr7")},
      {"user mov to dr0", USER_CODE("mov dr0, rax")},
      {"user clts", USER_CODE("clts")},
      {"user lgdt", USER_CODE("lgdt [rsp - 16]")},
      {"user lidt", USER_CODE("lidt [rsp - 16]")},
      {"user lldt", USER_CODE("xor eax, eax; lldt ax")},
      {"user ltr", USER_CODE("mov eax, 0x80; ltr ax")},
      {"user lmsw", USER_CODE("mov eax, 1; lmsw ax")},
      {"user invlpg", USER_CODE("invlpg [rsp]")},
      {"user invd", USER_CODE("invd")},
      {"user wbinvd", USER_CODE("wbinvd")},
      {"user rdmsr", USER_CODE("mov ecx, 0xc0000080; rdmsr")},
      {"user wrmsr", USER_CODE("mov ecx, 0xc0000102; wrmsr")},
      {"user swapgs", USER_CODE("swapgs")},
      {"user sysret", USER_CODE("sysretq")},
      {"user int to a kernel gate", USER_CODE("int 0x20")},
  };
  for (const Case& c : cases) {
    const Outcome o = RunUser(c.code, {.rdx = 0x80});
    const bool last = c.name == cases[sizeof(cases) / sizeof(cases[0]) - 1].name;
    // The INT's error code is checked in exceptions.cc.
    if (last) {
      CheckEq(c.name, o.frame.vector, kGeneralProtection);
    } else {
      CheckFault(c.name, o, kGeneralProtection, 0);
    }
  }
}

void TestIopl() {
  const Regs iopl3 = {.rflags = kFlagsFixed | kFlagIopl};
  CheckDone("user in with IOPL 3", RunUser(USER_CODE("in al, 0x80"), iopl3));
  CheckDone("user out with IOPL 3", RunUser(USER_CODE("out 0x80, al"), iopl3));
  Outcome o = RunUser(USER_CODE("cli; pushfq; pop rax; sti; pushfq; pop rbx"), iopl3);
  CheckDone("user cli and sti with IOPL 3", o);
  CheckEq("... cli cleared IF", o.frame.rax & kFlagIf, 0);
  CheckEq("... sti set IF", o.frame.rbx & kFlagIf, kFlagIf);
  CheckFault("user hlt with IOPL 3", RunUser(USER_CODE("hlt"), iopl3), kGeneralProtection);

  // popf in CPL 3 changes neither IOPL nor (with IOPL 0) IF, silently (SDM vol. 2B, POPF).
  const void* popf = USER_CODE("push rax; popfq; pushfq; pop rbx");
  o = RunUser(popf, {.rax = kFlagsFixed | kFlagIopl | kFlagIf | kFlagCf});
  CheckEq("user popf cannot raise IOPL or set IF", o.frame.rbx, kFlagsFixed | kFlagCf);
  o = RunUser(popf, {.rax = kFlagsFixed, .rflags = kFlagsFixed | kFlagIf});
  CheckEq("user popf cannot clear IF", o.frame.rbx, kFlagsFixed | kFlagIf);
  o = RunUser(popf, {.rax = kFlagsFixed, .rflags = kFlagsFixed | kFlagIopl | kFlagIf});
  CheckEq("user popf with IOPL 3 clears IF, keeps IOPL", o.frame.rbx, kFlagsFixed | kFlagIopl);
  o = RunUser(popf, {.rax = kFlagsFixed | kFlagAc | kFlagId | kFlagDf | kFlagNt});
  CheckEq("user popf sets AC, ID, DF, NT", o.frame.rbx,
          kFlagsFixed | kFlagAc | kFlagId | kFlagDf | kFlagNt);
  // 16-bit popf keeps the upper half.
  o = RunUser(USER_CODE("push ax; .byte 0x66, 0x9d; pushfq; pop rbx"),
              {.rax = kFlagCf, .rflags = kFlagsFixed | kFlagId});
  CheckEq("16-bit popf keeps the upper half", o.frame.rbx, kFlagsFixed | kFlagId | kFlagCf);

  // The I/O permission bitmap: only with a TSS that is large enough.
  const u64 descriptor = gdt[kTssSelector / 8];
  const auto load_tss = [&](u64 limit) {
    gdt[kTssSelector / 8] = (descriptor & ~0xffffull & ~(0xfull << 40)) | limit | 9ull << 40;
    asm volatile("ltr %0" : : "r"(kTssSelector));
  };
  for (u8& b : tss.io_map) b = 0xff;
  tss.io_map_base = static_cast<u16>(offsetof(Tss, io_map));
  tss.io_map[0x80 / 8] = 0xfe;  // 0x80 only
  load_tss(sizeof(Tss) - 1);
  CheckDone("user in allowed by the bitmap", RunUser(USER_CODE("in al, 0x80")));
  CheckFault("user in, next port", RunUser(USER_CODE("in al, 0x81")), kGeneralProtection);
  CheckFault("user in of a word, second port denied", RunUser(USER_CODE("in ax, 0x80")),
             kGeneralProtection);
  tss.io_map[0x80 / 8] = 0xfc;
  CheckDone("user in of a word", RunUser(USER_CODE("in ax, 0x80")));
  CheckFault("user in beyond the bitmap", RunUser(USER_CODE("mov edx, 0x500; in al, dx")),
             kGeneralProtection);
  tss.io_map_base = sizeof(Tss);
  load_tss(kTssLimitNoIoMap);
  CheckFault("user in without a bitmap", RunUser(USER_CODE("in al, 0x80")), kGeneralProtection);
}

// A SYSCALL entry that notes what it sees and returns at once.
extern "C" {
void syscall_entry();
u64 syscall_rcx, syscall_r11, syscall_flags, syscall_cs, syscall_ss, syscall_rsp;
}
asm(R"(
.global syscall_entry
syscall_entry:
    mov %rsp, syscall_rsp
    mov %rcx, syscall_rcx
    mov %r11, syscall_r11
    mov $syscall_stack_top, %esp
    pushfq
    pop syscall_flags
    mov %cs, %r11d
    mov %r11, syscall_cs
    mov %ss, %r11d
    mov %r11, syscall_ss
    mov syscall_r11, %r11
    mov syscall_rsp, %rsp
    sysretq
.pushsection .bss
.balign 16
.skip 256
syscall_stack_top:
.popsection
)");

void TestSyscall() {
  WriteMsr(kMsrStar, u64{kKernelCode} << 32 | u64{kUserCode32} << 48);
  WriteMsr(kMsrLstar, reinterpret_cast<u64>(syscall_entry));
  WriteMsr(kMsrSfmask, kFlagDf | kFlagIf | kFlagCf);
  CheckEq("STAR reads back", ReadMsr(kMsrStar), u64{kKernelCode} << 32 | u64{kUserCode32} << 48);
  CheckEq("LSTAR reads back", ReadMsr(kMsrLstar), reinterpret_cast<u64>(syscall_entry));
  const void* code = USER_CODE("syscall; mov ebx, cs; mov edx, ss; pushfq; pop rsi");
  const u64 flags = kFlagsFixed | kFlagCf | kFlagZf | kFlagDf | kFlagIopl | kFlagId;
  const Outcome o =
      RunUser(code, {.rax = 0x1234, .rcx = 7, .r8 = 8, .r11 = 11, .r15 = 15, .rflags = flags});
  CheckDone("syscall and sysret", o);
  CheckEq("rcx is the return address", syscall_rcx, At(code, 2));
  CheckEq("r11 is the flags", syscall_r11, flags);
  const u64 masked = flags & ~(kFlagDf | kFlagIf | kFlagCf);
  CheckEq("system flags masked by SFMASK", syscall_flags & ~kFlagsArithmetic,
          masked & ~kFlagsArithmetic);
  // SDM vol. 2B, SYSCALL: RFLAGS AND NOT IA32_FMASK; QEMU 7.2 clears all arithmetic flags.
  if (!SkipOnQemu("arithmetic flags masked by SFMASK")) {
    CheckEq("arithmetic flags masked by SFMASK", syscall_flags, masked);
  }
  CheckEq("cs in the kernel", syscall_cs, kKernelCode);
  CheckEq("ss in the kernel", syscall_ss, kKernelData);
  CheckEq("rsp unchanged by syscall", syscall_rsp, UserStackTop());
  CheckEq("cs after sysret", o.frame.rbx, kUserCode);
  CheckEq("ss after sysret", o.frame.rdx, kUserData);
  CheckEq("flags after sysret", o.frame.rsi, flags);
  CheckEq("rax kept", o.frame.rax, 0x1234);
  CheckEq("r8 kept", o.frame.r8, 8);
  CheckEq("r15 kept", o.frame.r15, 15);
  const Outcome many = RunUser(USER_CODE("mov ebx, 1000; 2: syscall; dec ebx; jnz 2b"));
  Check(many.Done() && many.frame.rbx == 0, "1000 system calls");

  WriteMsr(kMsrSfmask, kFlagTf);
  const void* kernel_syscall = USER_CODE("syscall");
  CheckDone("SFMASK without IF", RunUser(kernel_syscall));
  // SDM vol. 2B, SYSCALL: #UD if EFER.SCE is clear.
  WriteMsr(kMsrEfer, ReadMsr(kMsrEfer) & ~kEferSce);
  CheckFault("#UD syscall without EFER.SCE", RunUser(kernel_syscall), kInvalidOpcode, 0,
             At(kernel_syscall));
  const void* sysret = KERNEL_CODE("sysretq");
  CheckFault("#UD sysret without EFER.SCE", RunKernel(sysret), kInvalidOpcode, 0, At(sysret));
  WriteMsr(kMsrEfer, ReadMsr(kMsrEfer) | kEferSce);

  // SYSCALL from CPL 0 is legal; the way back by SYSRET would be to CPL 3.
  asm volatile(
      "lea 1f(%%rip), %%rax\n"
      "mov %%rax, %%rdx; shr $32, %%rdx; mov $0xc0000082, %%ecx; wrmsr\n"
      "syscall\n"
      "1:\n"
      :
      :
      : "rax", "rcx", "rdx", "r11", "memory");
  Check(true, "syscall from CPL 0");

  // SYSRET loads RFLAGS from r11 with RF, VM and reserved bits forced.
  const void* target = USER_CODE("pushfq; pop rax; mov ebx, cs; mov edx, ss");
  const Outcome forced = RunKernel(
      KERNEL_CODE("sysretq"),
      {.rcx = At(target), .rsp = UserStackTop(), .r11 = ~0ull & ~(kFlagTf | kFlagIf | kFlagAc)});
  CheckDone("sysret with all flag bits", forced);
  CheckEq("... reserved bits, RF and VM read 0",
          forced.frame.rax & (kFlagRf | 1u << 17 | 8 | 32 | ~0x3fffffull | 1u << 15), 0);
  CheckEq("... cs", forced.frame.rbx, kUserCode);
  CheckEq("... ss", forced.frame.rdx, kUserData);
  CheckFault("#GP sysret outside CPL 0", RunUser(USER_CODE("sysretq")), kGeneralProtection);
}

void TestIret() {
  TrapFrame f = {};
  const void* code = USER_CODE("mov eax, cs; mov ebx, ss; pushfq; pop rcx");
  f.rip = At(code);
  f.cs = kUserCode;
  f.ss = kUserData;
  f.rsp = UserStackTop() - 123;
  f.rflags = kFlagsFixed | kFlagCf | kFlagAc | kFlagId;
  Outcome o = RunFrame(f);
  CheckDone("iretq to CPL 3", o);
  CheckEq("iretq: cs", o.frame.rax, kUserCode);
  CheckEq("iretq: ss", o.frame.rbx, kUserData);
  CheckEq("iretq: flags", o.frame.rcx, f.rflags);
  CheckEq("iretq: rsp", o.frame.rsp, UserStackTop() - 123);

  // Data segments the lower privilege must not see become null (SDM vol. 2A, IRET).
  asm volatile("mov %0, %%ds; mov %0, %%es; mov %0, %%fs" : : "r"(u32{kKernelData}));
  const Outcome nulled = RunUser(USER_CODE("mov eax, ds; mov ebx, es; mov ecx, fs"));
  CheckEq("iretq: kernel ds becomes null", nulled.frame.rax, 0);
  CheckEq("iretq: kernel es becomes null", nulled.frame.rbx, 0);
  CheckEq("iretq: kernel fs becomes null", nulled.frame.rcx, 0);
  asm volatile("mov %0, %%ds; mov %0, %%es; mov %1, %%fs" : : "r"(u32{kUserData}), "r"(0));
  const Outcome kept = RunUser(USER_CODE("mov eax, ds; mov ebx, es"));
  CheckEq("iretq: user ds stays", kept.frame.rax, kUserData);
  asm volatile("mov %0, %%ds; mov %0, %%es" : : "r"(u32{kKernelData}));

  struct Case {
    const char* name;
    u64 rip, cs, ss;
    u64 error;
    bool qemu_wrong;
  };
  constexpr u64 kNonCanonical = 0x0000800000000000ull;
  const Case cases[] = {
      {"#GP iretq, null cs", At(code), 0, kUserData, 0, false},
      {"#GP iretq, cs beyond the GDT", At(code), 0x7f8 | 3, kUserData, 0x7f8, false},
      {"#GP iretq, cs is data", At(code), kUserData, kUserData, kUserData & ~3u, false},
      {"#GP iretq, cs RPL 3 with DPL 0", At(code), kKernelCode | 3, kUserData, kKernelCode, false},
      {"#GP iretq, ss is code", At(code), kUserCode, kUserCode, kUserCode & ~3u, false},
      {"#GP iretq, ss RPL differs", At(code), kUserCode, kUserData & ~3u, kUserData & ~3u, false},
      {"#GP iretq, null ss to CPL 3", At(code), kUserCode, 3, 0, false},
      // SDM vol. 2A, IRET: #GP(0) if the new RIP is not canonical; QEMU faults at the target.
      {"#GP iretq, non-canonical rip", kNonCanonical, kUserCode, kUserData, 0, true},
  };
  for (const Case& c : cases) {
    if (SkipOnQemu(c.name, c.qemu_wrong)) continue;
    const void* iret = KERNEL_CODE("push rdx; push rsi; push 2; push rcx; push rbx; 2: iretq; nop");
    o = RunKernel(iret, {.rbx = c.rip, .rcx = c.cs, .rdx = c.ss, .rsi = UserStackTop()});
    CheckFault(c.name, o, kGeneralProtection, c.error);
    CheckEq("... in CPL 0", o.frame.cs, kKernelCode);
  }
  // To CPL 0 with a null SS: allowed in 64-bit mode.
  o =
      RunKernel(KERNEL_CODE("mov rax, rsp; push 0; push rax; push 2; push 8; lea rbx, [rip + 2f]\n"
                            "push rbx; iretq; 2: mov ecx, ss"));
  CheckDone("iretq in CPL 0 with a null ss", o);
  CheckEq("... ss", o.frame.rcx, 0);
}

void TestStackSwitch() {
  const u64 saved = tss.rsp[0];
  const u64 other = IstTop(5);
  tss.rsp[0] = other;
  const Outcome o = RunUser(USER_CODE("ud2"));
  tss.rsp[0] = saved;
  CheckEq("RSP0 is read at each entry", o.frame_address + sizeof(TrapFrame), other);
  tss.rsp[0] = other - 8;
  const Outcome unaligned = RunUser(USER_CODE("ud2"));
  tss.rsp[0] = saved;
  CheckEq("RSP0 is aligned to 16 bytes", unaligned.frame_address + sizeof(TrapFrame), other - 16);
  Check(o.frame.ss == kUserData && o.frame.rsp == UserStackTop(),
        "the user's stack is in the frame");
  asm volatile("mov %0, %%ss" : : "r"(u32{kKernelData}));

  // The new SS after an entry from CPL 3 is null with RPL 0 (SDM vol. 3A 6.14.4).
  static u64 handler_ss;
  SetHandler(kInvalidOpcode, [](TrapFrame* frame) {
    asm volatile("mov %%ss, %0" : "=r"(handler_ss));
    frame->rip += 2;
  });
  const Outcome resumed = RunUser(USER_CODE("ud2; mov eax, 5"));
  SetHandler(kInvalidOpcode, nullptr);
  Check(resumed.Done() && resumed.frame.rax == 5, "a handler returns to CPL 3");
  CheckEq("ss is null after entry from CPL 3", handler_ss & 0xffff, 0);
}

void TestGs() {
  constexpr u64 kUserGs = 0x00007000'00000000ull, kKernelGs = 0xffff9000'00000000ull;
  WriteMsr(kMsrGsBase, kUserGs);
  WriteMsr(kMsrKernelGsBase, kKernelGs);
  asm volatile("swapgs");
  const u64 gs = ReadMsr(kMsrGsBase), kernel = ReadMsr(kMsrKernelGsBase);
  asm volatile("swapgs");
  CheckEq("swapgs: GS base", gs, kKernelGs);
  CheckEq("swapgs: KERNEL_GS_BASE", kernel, kUserGs);
  CheckEq("swapgs twice", ReadMsr(kMsrGsBase), kUserGs);

  static u64 words[4] = {0x11, 0x22, 0x33, 0x44};
  WriteMsr(kMsrGsBase, reinterpret_cast<u64>(&words[0]));
  WriteMsr(kMsrFsBase, reinterpret_cast<u64>(&words[2]));
  WriteMsr(kMsrKernelGsBase, reinterpret_cast<u64>(&words[1]));
  u64 a, b, c;
  asm volatile("mov %%gs:0, %0; mov %%fs:8, %1; swapgs; mov %%gs:0, %2; swapgs"
               : "=&r"(a), "=&r"(b), "=&r"(c));
  CheckEq("load through gs", a, 0x11);
  CheckEq("load through fs", b, 0x44);
  CheckEq("load through gs after swapgs", c, 0x22);
  // Negative displacements and an address-size prefix: the base is added after truncation.
  u64 low;
  asm volatile("mov %%gs:-8(%1), %0" : "=r"(low) : "r"(u64{16}));
  CheckEq("gs with base and displacement", low, 0x22);
  asm volatile("mov %%gs:(%k1), %0" : "=r"(low) : "r"(0xffffffff00000008ull));
  CheckEq("gs with a 32-bit address", low, 0x22);
  asm volatile(".byte 0x65; lea 8(%1), %0" : "=r"(low) : "r"(u64{16}));
  CheckEq("lea ignores gs", low, 24);
  const u64 stack_value = [] {
    u64 v;
    asm volatile("push $0x55; mov %%ds:(%%rsp), %0; add $8, %%rsp" : "=r"(v));
    return v;
  }();
  CheckEq("ds prefix is ignored", stack_value, 0x55);

  if (!HasFsgsbase()) {
    Skip("FSGSBASE", "CPUID has no FSGSBASE");
  } else {
    const u64 cr4 = ReadCr4();
    const void* read = USER_CODE("rdgsbase rax");
    WriteCr4(cr4 & ~kCr4Fsgsbase);
    const Outcome disabled = RunUser(read);
    WriteCr4(cr4 | kCr4Fsgsbase);
    const Outcome o = RunUser(
        USER_CODE("mov rax, 0x123456789abc; wrgsbase rax; rdgsbase rbx; mov eax, 0x89abcdef\n"
                  "wrfsbase eax; rdfsbase rcx; rdgsbase edx"),
        {.rdx = ~0ull});
    const u64 gs_base = ReadMsr(kMsrGsBase), fs_base = ReadMsr(kMsrFsBase);
    const Outcome bad = RunUser(USER_CODE("mov rax, 0x800000000000; wrfsbase rax"));
    WriteCr4(cr4);
    CheckFault("#UD rdgsbase without CR4.FSGSBASE", disabled, kInvalidOpcode, 0, At(read));
    CheckDone("FSGSBASE in CPL 3", o);
    CheckEq("rdgsbase", o.frame.rbx, 0x123456789abc);
    CheckEq("rdfsbase after a 32-bit wrfsbase", o.frame.rcx, 0x89abcdef);
    CheckEq("32-bit rdgsbase zero-extends", o.frame.rdx, 0x56789abc);
    CheckEq("the MSR agrees (GS)", gs_base, 0x123456789abc);
    CheckEq("the MSR agrees (FS)", fs_base, 0x89abcdef);
    // SDM vol. 2B, WRFSBASE.
    if (!SkipOnQemu("#GP wrfsbase non-canonical")) {
      CheckFault("#GP wrfsbase non-canonical", bad, kGeneralProtection, 0);
    }
  }
  // User accesses through the bases.
  WriteMsr(kMsrFsBase, UserStackTop() - 64);
  const Outcome o = RunUser(USER_CODE("mov qword ptr fs:[8], 99; mov rax, [rsp - 56]"));
  Check(o.Done() && o.frame.rax == 99, "user store through fs");
  WriteMsr(kMsrFsBase, reinterpret_cast<u64>(&gdt));
  CheckFault("user store through fs to the kernel", RunUser(USER_CODE("mov qword ptr fs:[8], 99")),
             kPageFault, kPfUser | kPfWrite | kPfPresent);
  // Loading a null selector into FS: on Intel the base becomes 0, on AMD it stays.
  WriteMsr(kMsrFsBase, 0);
  WriteMsr(kMsrGsBase, 0);
  WriteMsr(kMsrKernelGsBase, 0);
}

void TestControls() {
  const u64 cr4 = ReadCr4();
  const void* rdtsc = USER_CODE("rdtsc");
  CheckDone("user rdtsc", RunUser(rdtsc));
  WriteCr4(cr4 | kCr4Tsd);
  const Outcome user = RunUser(rdtsc), kernel = RunKernel(KERNEL_CODE("rdtsc"));
  WriteCr4(cr4);
  CheckFault("user rdtsc with CR4.TSD", user, kGeneralProtection, 0, At(rdtsc));
  CheckDone("kernel rdtsc with CR4.TSD", kernel);
  if (HasRdtscp()) {
    WriteMsr(kMsrTscAux, 0x1234abcd);
    const Outcome o = RunUser(USER_CODE("rdtscp"), {.rcx = ~0ull});
    CheckEq("rdtscp gives TSC_AUX", o.frame.rcx, 0x1234abcd);
    WriteMsr(kMsrTscAux, 0);
  } else {
    Skip("rdtscp", "CPUID has no RDTSCP");
  }
  const void* smsw = USER_CODE("smsw eax");
  const Outcome o = RunUser(smsw);
  Check(o.Done() && (o.frame.rax & 0xffff) == (ReadCr0() & 0xffff), "user smsw shows CR0");
  CheckDone("user sgdt, sidt, str, sldt",
            RunUser(USER_CODE("sgdt [rsp - 16]; sidt [rsp - 16]; str eax; sldt eax")));
  if (HasUmip()) {
    WriteCr4(cr4 | kCr4Umip);
    const Outcome blocked = RunUser(smsw), sgdt = RunUser(USER_CODE("sgdt [rsp - 16]"));
    WriteCr4(cr4);
    CheckFault("user smsw with UMIP", blocked, kGeneralProtection, 0, At(smsw));
    CheckFault("user sgdt with UMIP", sgdt, kGeneralProtection);
  } else {
    Skip("UMIP", "CPUID has no UMIP");
  }
  CheckDone("user cpuid", RunUser(USER_CODE("xor eax, eax; cpuid")));
}

constexpr Section kSections[] = {
    {"privileged", TestPrivileged}, {"iopl", TestIopl},
    {"syscall", TestSyscall},       {"iret", TestIret},
    {"stack", TestStackSwitch},     {"gs", TestGs},
    {"controls", TestControls},
};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
