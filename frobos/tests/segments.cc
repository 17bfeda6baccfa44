// SPDX-License-Identifier: Apache-2.0
// Segmentation in long mode: loads and their checks, null selectors, LDT and task register, far
// transfers, compatibility mode, FS and GS bases (SDM vol. 3A ch. 3, 5).

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

constexpr u16 kSpare = kSpareSelector;
constexpr u64 kAccessed = 1ull << 40;

void Reload() {
  asm volatile("mov %0, %%ds; mov %0, %%es; mov %0, %%ss" : : "r"(u32{kKernelData}));
  asm volatile("mov %0, %%fs; mov %0, %%gs" : : "r"(0));
}

void TestLoads() {
  struct Case {
    const char* name;
    const void* code;
  };
  const Case cases[] = {
      {"mov ds", KERNEL_CODE("mov ds, eax; mov ebx, ds")},
      {"mov es", KERNEL_CODE("mov es, eax; mov ebx, es")},
      {"mov fs", KERNEL_CODE("mov fs, eax; mov ebx, fs")},
      {"mov gs", KERNEL_CODE("mov gs, eax; mov ebx, gs")},
      {"push and pop fs", KERNEL_CODE("push rax; pop fs; push fs; pop rbx")},
      {"push and pop gs", KERNEL_CODE("push rax; pop gs; push gs; pop rbx")},
  };
  for (const Case& c : cases) {
    SetGdtEntry(kSpare, SegmentDescriptor(2, 3));
    const Outcome o = RunKernel(c.code, {.rax = kSpare | 3, .rbx = ~0ull});
    Check(o.Done() && o.frame.rbx == (kSpare | 3), c.name);
    CheckEq("... sets the accessed bit", gdt[kSpare / 8] & kAccessed, kAccessed);
    const Outcome null = RunKernel(c.code, {.rax = 2, .rbx = ~0ull});
    Check(null.Done() && null.frame.rbx == 2, "... null selector with RPL 2");
  }
  SetGdtEntry(kSpare, SegmentDescriptor(2, 0));
  Outcome o = RunKernel(KERNEL_CODE("mov ss, eax; mov ebx, ss"), {.rax = kSpare});
  Check(o.Done() && o.frame.rbx == kSpare, "mov ss");
  CheckEq("... in the frame", o.frame.ss, kSpare);
  o = RunKernel(KERNEL_CODE("xor eax, eax; mov ss, eax; push rax; pop rbx"));
  CheckDone("null ss in CPL 0", o);
  o =
      RunKernel(KERNEL_CODE("mov eax, 0x12340010; mov ds, eax; mov ebx, ds; mov word ptr [rsp - "
                            "8], ds; mov cx, [rsp - 8]"));
  CheckEq("only 16 bits of the source count", o.frame.rbx, 0x10);
  CheckEq("store of a selector to memory is 16 bits", o.frame.rcx & 0xffff, 0x10);
  o = RunKernel(KERNEL_CODE("mov rax, -1; mov ax, ds; mov rbx, -1; mov ebx, ds"));
  CheckEq("16-bit store of a selector keeps the rest", o.frame.rax & ~0xffffull, ~0xffffull);
  CheckEq("32-bit store of a selector clears the rest", o.frame.rbx & ~0xffffull, 0);
  Reload();

  // Bases and limits of DS, ES and SS are ignored; those of FS and GS are not.
  SetGdtEntry(kSpare, 0x0000'9310'0000'000full | 0x1000ull << 16);  // base 0x101000..., limit 15
  static u64 word = 0x5ca1ab1e;
  o = RunKernel(KERNEL_CODE("mov ds, eax; mov es, eax; mov rbx, [rdi]"),
                {.rax = kSpare, .rdi = reinterpret_cast<u64>(&word)});
  Check(o.Done() && o.frame.rbx == word, "base and limit of ds are ignored");
  Reload();
  const u64 base = reinterpret_cast<u64>(&word);
  SetGdtEntry(kSpare,
              0x0000'9300'0000'0000ull | (base & 0xffffff) << 16 | (base >> 24 & 0xff) << 56);
  o = RunKernel(KERNEL_CODE("mov fs, eax; mov rbx, fs:[0]; mov gs, eax; mov rcx, gs:[0]"),
                {.rax = kSpare});
  Check(o.Done() && o.frame.rbx == word && o.frame.rcx == word,
        "fs and gs take the descriptor's 32-bit base");
  CheckEq("... which the FS MSR shows", ReadMsr(kMsrFsBase), base);
  CheckEq("... which the GS MSR shows", ReadMsr(kMsrGsBase), base);
  WriteMsr(kMsrFsBase, 0xffff800012345678);
  CheckEq("a 64-bit FS base", ReadMsr(kMsrFsBase), 0xffff800012345678);
  u32 fs;
  asm volatile("mov %%fs, %0" : "=r"(fs));
  CheckEq("... leaves the selector", fs, kSpare);
  Reload();
}

void TestRights() {
  // What CPL 3 may load.
  const void* load = USER_CODE("mov ds, eax");
  const auto user_load = [&](u64 descriptor, u16 rpl) {
    SetGdtEntry(kSpare, descriptor);
    return RunUser(load, {.rax = static_cast<u64>(kSpare | rpl)});
  };
  CheckDone("user ds, DPL 3", user_load(SegmentDescriptor(3, 3), 3));
  CheckDone("user ds, DPL 3, RPL 0", user_load(SegmentDescriptor(3, 3), 0));
  CheckFault("user ds, DPL 0", user_load(SegmentDescriptor(3, 0), 0), kGeneralProtection, kSpare);
  CheckFault("user ds, DPL 2", user_load(SegmentDescriptor(3, 2), 3), kGeneralProtection, kSpare);
  CheckDone("user ds, readable code, DPL 3", user_load(SegmentDescriptor(0xb, 3, true), 3));
  CheckDone("user ds, conforming code, DPL 0", user_load(SegmentDescriptor(0xf, 0, true), 3));
  CheckFault("user ds, execute-only", user_load(SegmentDescriptor(9, 3, true), 3),
             kGeneralProtection, kSpare);
  const void* load_ss = USER_CODE("mov ss, eax; nop");
  SetGdtEntry(kSpare, SegmentDescriptor(3, 3));
  CheckDone("user ss, DPL 3", RunUser(load_ss, {.rax = kSpare | 3}));
  CheckFault("user ss, RPL 0", RunUser(load_ss, {.rax = kSpare}), kGeneralProtection, kSpare);
  CheckFault("user ss, null", RunUser(load_ss, {.rax = 0}), kGeneralProtection, 0);
  Reload();

  // LAR, LSL, VERR, VERW.
  SetGdtEntry(kSpare, SegmentDescriptor(3, 3));
  const Outcome o = RunUser(
      USER_CODE(
          "lar ebx, eax; setz cl; lsl edx, eax; setz ch; verr ax; setz sil; verw ax; setz dil"),
      {.rax = kSpare | 3});
  CheckEq("lar", o.frame.rbx & 0xf0ff00, SegmentDescriptor(3, 3) >> 32 & 0xf0ff00);
  CheckEq("lsl", o.frame.rdx & 0xffffffff, 0xffffffff);
  CheckEq("lar, lsl set ZF", o.frame.rcx & 0xffff, 0x0101);
  CheckEq("verr", o.frame.rsi & 0xff, 1);
  CheckEq("verw", o.frame.rdi & 0xff, 1);
  SetGdtEntry(kSpare, SegmentDescriptor(3, 0));
  const Outcome hidden = RunUser(USER_CODE("mov ebx, 7; lar ebx, eax; setz cl; verr ax; setz ch"),
                                 {.rax = kSpare | 3});
  CheckEq("lar of a hidden segment clears ZF", hidden.frame.rcx & 0xffff, 0);
  CheckEq("... and leaves the register", hidden.frame.rbx, 7);
}

void TestTables() {
  TablePointer p = {};
  asm volatile("sgdt %0" : "=m"(p));
  CheckEq("sgdt: base", p.base, reinterpret_cast<u64>(gdt));
  CheckEq("sgdt: limit", p.limit, kTssSelector + 15);
  asm volatile("sidt %0" : "=m"(p));
  CheckEq("sidt: base", p.base, reinterpret_cast<u64>(idt));
  CheckEq("sidt: limit", p.limit, sizeof(Gate) * 256 - 1);
  u32 tr, ldtr;
  asm volatile("str %0" : "=r"(tr));
  CheckEq("str", tr, kTssSelector);
  CheckEq("the TSS is busy", gdt[kTssSelector / 8] >> 40 & 0xf, 0xb);

  // An LDT with one data segment.
  static u64 ldt[4];
  ldt[1] = SegmentDescriptor(2, 0);
  const u64 base = reinterpret_cast<u64>(ldt);
  gdt[kSpare / 8 + 2] =
      (sizeof(ldt) - 1) | (base & 0xffffff) << 16 | 0x82ull << 40 | (base >> 24 & 0xff) << 56;
  gdt[kSpare / 8 + 3] = base >> 32;
  asm volatile("lldt %0" : : "r"(static_cast<u16>(kSpare + 16)));
  asm volatile("sldt %0" : "=r"(ldtr));
  CheckEq("sldt", ldtr, kSpare + 16);
  const void* load = KERNEL_CODE("mov ds, eax; mov ebx, ds");
  Outcome o = RunKernel(load, {.rax = 8 | 4});
  Check(o.Done() && o.frame.rbx == 12, "a segment of the LDT");
  CheckEq("... its accessed bit", ldt[1] & kAccessed, kAccessed);
  CheckFault("#GP beyond the LDT", RunKernel(load, {.rax = 0x20 | 4}), kGeneralProtection, 0x24);
  asm volatile("lldt %0" : : "r"(u16{0}));
  CheckFault("#GP without an LDT", RunKernel(load, {.rax = 8 | 4}), kGeneralProtection, 0xc);
  Reload();

  // The GDT's limit counts.
  const TablePointer full = {kTssSelector + 15, reinterpret_cast<u64>(gdt)};
  const TablePointer small = {kSpareSelector - 1, reinterpret_cast<u64>(gdt)};
  SetGdtEntry(kSpare, SegmentDescriptor(3, 0));
  asm volatile("lgdt %0" : : "m"(small));
  const Outcome beyond = RunKernel(load, {.rax = kSpare});
  asm volatile("lgdt %0" : : "m"(full));
  CheckFault("#GP beyond a short GDT", beyond, kGeneralProtection, kSpare);
  // A GDT moved to another place, in the upper half.
  const u64 copy = AllocPage();
  memcpy(reinterpret_cast<void*>(copy), gdt, full.limit + 1u);
  Map(kHighBase, copy, kPteW);
  const TablePointer high = {full.limit, kHighBase};
  asm volatile("lgdt %0" : : "m"(high));
  const Outcome user = RunUser(USER_CODE("mov eax, 5"));
  SetGdtEntry(kSpare, 0);
  const Outcome moved = RunKernel(load, {.rax = kSpare});
  asm volatile("lgdt %0" : : "m"(full));
  Unmap(kHighBase);
  Check(user.Done() && moved.Done(), "a GDT in the upper half");
  Reload();
}

void TestFarTransfers() {
  SetGdtEntry(kSpare, SegmentDescriptor(0xa, 0, true));
  Outcome o =
      RunKernel(KERNEL_CODE("lea rbx, [rip + 2f]; push rax; push rbx; retfq; 2: mov ecx, cs"),
                {.rax = kSpare});
  CheckDone("far return to another code segment", o);
  CheckEq("... cs", o.frame.rcx, kSpare);
  // SDM vol. 3A 3.4.5.1; QEMU sets it for data segments only.
  if (!SkipOnQemu("... its accessed bit")) {
    CheckEq("... its accessed bit", gdt[kSpare / 8] & kAccessed, kAccessed);
  }
  CheckEq("... the stack", o.frame.rsp, ProbeStackTop());

  struct [[gnu::packed]] FarPointer {
    u32 offset;
    u16 selector;
  };
  static FarPointer pointer;
  const void* jump_target = KERNEL_CODE("mov ecx, cs");
  pointer = {static_cast<u32>(reinterpret_cast<u64>(jump_target)), kSpare};
  const u64 at = reinterpret_cast<u64>(&pointer);
  o = RunKernel(KERNEL_CODE(".byte 0xff, 0x28"), {.rax = at});  // jmp far [rax], m16:32
  Check(o.Done() && o.frame.rcx == kSpare, "far jump through memory");
  const void* call_target = KERNEL_CODE("mov ecx, cs; mov rdx, rsp; .byte 0xcb");  // retf, 32-bit
  pointer = {static_cast<u32>(reinterpret_cast<u64>(call_target)), kSpare};
  const void* call = KERNEL_CODE(".byte 0xff, 0x18; mov esi, cs");  // call far [rax]
  o = RunKernel(call, {.rax = at});
  CheckDone("far call and return, 32-bit operands", o);
  CheckEq("... cs inside", o.frame.rcx, kSpare);
  CheckEq("... cs after", o.frame.rsi, kKernelCode);
  CheckEq("... pushed two doublewords", o.frame.rdx, ProbeStackTop() - 8);
  o = RunKernel(KERNEL_CODE("lea rbx, [rip + 2f]; push 0x11; push 0x22; push rax; push rbx; .byte "
                            "0x48, 0xca, 0x10, 0x00; 2: nop"),
                {.rax = kSpare});
  Check(o.Done() && o.frame.rsp == ProbeStackTop(), "far return that drops 16 bytes");

  // To CPL 3 by far return, and back by the probe's end.
  const void* user = USER_CODE("mov ecx, cs; mov edx, ss");
  o = RunKernel(KERNEL_CODE("push rbx; push rdx; push rcx; push rax; retfq"),
                {.rax = reinterpret_cast<u64>(user),
                 .rbx = kUserData,
                 .rcx = kUserCode,
                 .rdx = UserStackTop()});
  CheckDone("far return to CPL 3", o);
  CheckEq("... cs", o.frame.rcx, kUserCode);
  CheckEq("... ss", o.frame.rdx, kUserData);
  CheckFault("#GP far return to a lower ring",
             RunUser(USER_CODE("push 8; push rax; retfq"), {.rax = 0}), kGeneralProtection, 8);

  // A conforming segment keeps the CPL.
  SetGdtEntry(kSpare, SegmentDescriptor(0xe, 0, true));
  const void* conforming =
      USER_CODE("lea rbx, [rip + 2f]; push rax; push rbx; retfq; 2: mov ecx, cs");
  o = RunUser(conforming, {.rax = kSpare | 3});
  CheckDone("user code in a conforming segment of DPL 0", o);
  CheckEq("... with CPL 3", o.frame.cs, kSpare | 3);

  // A 64-bit call gate (SDM vol. 3A 5.8.3.1) from CPL 3 to CPL 0.
  const void* gate_target =
      KERNEL_CODE("mov ecx, cs; mov edx, ss; mov rsi, [rsp + 24]; mov rdi, rsp");
  const u64 entry = reinterpret_cast<u64>(gate_target);
  gdt[kSpare / 8 + 4] =
      (entry & 0xffff) | u64{kKernelCode} << 16 | 0xecull << 40 | (entry >> 16 & 0xffff) << 48;
  gdt[kSpare / 8 + 5] = entry >> 32;
  static FarPointer gate [[gnu::section(".udata")]] = {0, kSpare + 32};
  o = RunUser(USER_CODE(".byte 0xff, 0x18"), {.rax = reinterpret_cast<u64>(&gate)});
  CheckDone("call gate to CPL 0", o);
  CheckEq("... cs", o.frame.rcx, kKernelCode);
  CheckEq("... ss is null", o.frame.rdx & ~3ull, 0);
  CheckEq("... the user's ss on the stack", o.frame.rsi & 0xffff, kUserData);
  CheckEq("... stack from the TSS", o.frame.rdi, TrapStackTop() - 32);
  Reload();
}

// 32-bit user code (compatibility mode): assembled as such, in user pages.
asm(R"(
.pushsection .utext, "ax"
.code32
compat_code:
    mov %cs, %ecx
    push $0x12345678
    pop %edx
    mov %esp, %esi
    inc %edi   # one byte, 0x47: in 64-bit code a REX prefix
    dec %ebp
    pushl %es
    popl %ebx
    call 1f
    int $0x7f
1:  addl $1, (%eax)
    ret
compat_fault:
    mov (%eax), %ebx
    int $0x7f
compat_pusha:
    pushal
    popal
    aaa
    into
    int $0x7f
.code64
.popsection
)");
extern "C" u8 compat_code[], compat_fault[], compat_pusha[];
[[gnu::section(".udata")]] u32 compat_word = 41;

void TestCompatibilityMode() {
  TrapFrame f = {};
  f.rip = reinterpret_cast<u64>(compat_code);
  f.cs = kUserCode32;
  f.ss = kUserData;
  f.rsp = UserStackTop();
  f.rflags = kFlagsFixed;
  f.rax = reinterpret_cast<u64>(&compat_word);
  f.rdi = 0xffffffff;
  f.rbp = 0;
  asm volatile("mov %0, %%ds; mov %0, %%es" : : "r"(u32{kUserData}));
  Outcome o = RunFrame(f);
  CheckDone("32-bit user code", o);
  CheckEq("... cs", o.frame.rcx & 0xffffffff, kUserCode32);
  CheckEq("... push and pop of 4 bytes", o.frame.rdx, 0x12345678);
  CheckEq("... esp", o.frame.rsi & 0xffffffff, UserStackTop());
  CheckEq("... inc edi", o.frame.rdi & 0xffffffff, 0);
  CheckEq("... dec ebp", o.frame.rbp & 0xffffffff, 0xffffffff);
  CheckEq("... es", o.frame.rbx & 0xffff, kUserData);
  CheckEq("... memory", compat_word, 42);
  f.rip = reinterpret_cast<u64>(compat_fault);
  f.rax = reinterpret_cast<u64>(gdt) & 0xffffffff;
  o = RunFrame(f);
  CheckFault("#PF in 32-bit user code", o, kPageFault, kPfUser | kPfPresent, f.rip);
  CheckEq("... cs in the frame", o.frame.cs, kUserCode32);
  f.rip = reinterpret_cast<u64>(compat_pusha);
  CheckDone("instructions that exist in 32-bit code only", RunFrame(f));
  asm volatile("mov %0, %%ds; mov %0, %%es" : : "r"(u32{kKernelData}));
}

void TestFsGs() {
  static u64 words[3] = {1, 2, 3};
  const u64 base = reinterpret_cast<u64>(words);
  WriteMsr(kMsrFsBase, base);
  WriteMsr(kMsrGsBase, base + 8);
  const Outcome o =
      RunKernel(KERNEL_CODE("mov rax, fs:[0]; mov rbx, gs:[0]; mov ecx, 8; mov rdx, fs:[rcx + "
                            "rcx]; add qword ptr gs:[rcx], 10\n"
                            "mov rsi, fs:[rcx * 2]; push qword ptr gs:[0]; pop r8; lea rdi, [rip + "
                            "2f]; mov fs:[0], rdi; jmp qword ptr fs:[0]\n"
                            "nop; 2: mov r9, -8; mov r10, gs:[r9]"));
  CheckDone("fs and gs operands of all shapes", o);
  CheckEq("... fs:[0]", o.frame.rax, 1);
  CheckEq("... gs:[0]", o.frame.rbx, 2);
  CheckEq("... fs:[rcx + rcx]", o.frame.rdx, 3);
  CheckEq("... fs:[rcx * 2] after the add through gs", o.frame.rsi, 13);
  CheckEq("... push gs:[0]", o.frame.r8, 2);
  CheckEq("... gs with a negative index", o.frame.r10, words[0]);
  // String instructions: the source can be overridden, the target cannot.
  static char source[8] = "frobos", target[8];
  WriteMsr(kMsrFsBase, reinterpret_cast<u64>(source));
  const Outcome movs = RunKernel(KERNEL_CODE("rep movs byte ptr es:[rdi], byte ptr fs:[rsi]"),
                                 {.rcx = 7, .rsi = 0, .rdi = reinterpret_cast<u64>(target)});
  Check(movs.Done() && strcmp(target, "frobos") == 0, "rep movsb with an fs source");
  // A base that makes the sum wrap around, and one that makes it non-canonical.
  WriteMsr(kMsrFsBase, 0xffffffffffffff00);
  const Outcome wrap =
      RunKernel(KERNEL_CODE("mov rax, fs:[rdi]"), {.rdi = reinterpret_cast<u64>(words) + 0x108});
  Check(wrap.Done() && wrap.frame.rax == words[1], "fs base + offset wraps around");
  WriteMsr(kMsrFsBase, 0x00007fffffffffff);
  CheckFault("#GP fs base + offset not canonical", RunKernel(KERNEL_CODE("mov rax, fs:[1]")),
             kGeneralProtection);
  WriteMsr(kMsrFsBase, 0);
  WriteMsr(kMsrGsBase, 0);
}

constexpr Section kSections[] = {
    {"loads", TestLoads},
    {"rights", TestRights},
    {"tables", TestTables},
    {"far", TestFarTransfers},
    {"compatibility", TestCompatibilityMode},
    {"fsgs", TestFsGs},
};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
