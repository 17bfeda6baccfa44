// SPDX-License-Identifier: Apache-2.0
// SetInitialAPState for 64-bit kernels, on a second processor (smp=yes on the command line says
// that there is one): the state in which it begins, and the states that are none.
#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/smp.h"
#include "frobos/lib/string.h"
#include "frobos/tests/vmi64.h"

namespace alibi::frobos {
namespace {

constexpr u64 kNoAddress = 0x0000'8000'0000'0000;  // not canonical
constexpr u64 kCr4Pcide = 1u << 17;
constexpr u64 kUpper = 0xffff'9000'0000'0000;
constexpr u32 kApId = 1;
// What is no processor's number.
constexpr u64 kOthers[] = {0, 77, u64{1} << 32 | kApId, ~u64{0}};

// The record (docs/vmi.md).
struct ApState {
  u64 cr0, cr2, cr3, cr4, efer, rip, rflags;
  u64 rax, rbx, rcx, rdx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15;
  u64 fs_base, gs_base, kernel_gs_base;
  u64 gdt_base, idt_base;
  u16 cs, ss, ds, es, fs, gs, gdt_limit, idt_limit;
  u64 reserved;
};
static_assert(sizeof(ApState) == 31 * 8);

// What the other processor found; the order is that of the stores below.
struct Image {
  u64 registers[16];
  u64 rflags, cr0, cr2, cr3, cr4;
  u64 cs, ss, ds, es, fs, gs, ldt;
  TablePointer gdt;
  u8 pad0[6];
  TablePointer idt;
  u8 pad1[6];
  u64 fs_word, gs_word;
};
extern "C" {
volatile Image vmi64_image;
volatile u64 vmi64_arrived;
void vmi64_entry();
}
asm(".pushsection .text\n"
    ".intel_syntax noprefix\n"
    "vmi64_entry:\n"
    "mov [vmi64_image], rax\nmov [vmi64_image + 8], rbx\nmov [vmi64_image + 16], rcx\n"
    "mov [vmi64_image + 24], rdx\nmov [vmi64_image + 32], rsp\nmov [vmi64_image + 40], rbp\n"
    "mov [vmi64_image + 48], rsi\nmov [vmi64_image + 56], rdi\nmov [vmi64_image + 64], r8\n"
    "mov [vmi64_image + 72], r9\nmov [vmi64_image + 80], r10\nmov [vmi64_image + 88], r11\n"
    "mov [vmi64_image + 96], r12\nmov [vmi64_image + 104], r13\nmov [vmi64_image + 112], r14\n"
    "mov [vmi64_image + 120], r15\n"
    "pushfq\npop qword ptr [vmi64_image + 128]\n"
    "mov rax, cr0\nmov [vmi64_image + 136], rax\nmov rax, cr2\nmov [vmi64_image + 144], rax\n"
    "mov rax, cr3\nmov [vmi64_image + 152], rax\nmov rax, cr4\nmov [vmi64_image + 160], rax\n"
    "mov eax, cs\nmov [vmi64_image + 168], rax\nmov eax, ss\nmov [vmi64_image + 176], rax\n"
    "mov eax, ds\nmov [vmi64_image + 184], rax\nmov eax, es\nmov [vmi64_image + 192], rax\n"
    "mov eax, fs\nmov [vmi64_image + 200], rax\nmov eax, gs\nmov [vmi64_image + 208], rax\n"
    "sldt eax\nmov [vmi64_image + 216], rax\n"
    "sgdt [vmi64_image + 224]\nsidt [vmi64_image + 240]\n"
    "mov rax, fs:[0]\nmov [vmi64_image + 256], rax\n"
    "mov rax, gs:[0]\nmov [vmi64_image + 264], rax\n"
    "swapgs\nmov rax, gs:[0]\nadd rax, [vmi64_image + 264]\nmov [vmi64_image + 264], rax\n"
    "mov qword ptr [vmi64_arrived], 1\n"
    "1: cli\nhlt\njmp 1b\n"
    ".att_syntax prefix\n"
    ".popsection");

u64 At(const void* p) { return reinterpret_cast<u64>(p); }

alignas(16) u8 stack[4096];
u64 words[3] = {0xf500000000000001, 0x6500000000000000, 0x0000000000007766};

ApState Usual() {
  ApState state = {};
  state.cr0 = ReadCr0(), state.cr2 = 0x1234567812345678, state.cr3 = ReadCr3();
  state.cr4 = ReadCr4(), state.efer = ReadMsr(kMsrEfer);
  state.rip = At(reinterpret_cast<const void*>(vmi64_entry));
  u64 value = 0xa100000000000000;
  for (u64* r = &state.rax; r <= &state.r15; ++r) *r = ++value;
  state.rsp = At(stack) + sizeof(stack);
  state.fs_base = At(&words[0]), state.gs_base = At(&words[1]);
  state.kernel_gs_base = At(&words[2]);
  state.gdt_base = At(gdt), state.idt_base = At(idt);
  state.cs = kKernelCode, state.ss = kKernelData, state.ds = kKernelData, state.es = 0;
  state.fs = kUserData, state.gs = 0;
  state.gdt_limit = kTssSelector + 15, state.idt_limit = sizeof(idt) - 1;
  return state;
}

void Startup() {
  SendIpi(kApId, kIpiInit | kIpiAssert);
  SendIpi(kApId, kIpiStartup | kIpiAssert | kStartPage);
  SendIpi(kApId, kIpiStartup | kIpiAssert | kStartPage);  // the second finds nobody waiting
}

void CheckBeginning(const char* name, const ApState& state) {
  vmi64_arrived = 0;
  CheckVmi(name, kVmiSetInitialApState, At(&state), kApId);
  Startup();
  if (!WaitFor([] { return vmi64_arrived != 0; })) return Check(false, "the processor arrives");
  const volatile Image& image = vmi64_image;
  bool same = true;
  for (unsigned i = 0; i < 16; ++i) same = same && image.registers[i] == (&state.rax)[i];
  Check(same, "it begins with its registers");
  CheckEq("... rflags", image.rflags, state.rflags | kFlagsFixed);
  CheckEq("... cr0", image.cr0, state.cr0);
  CheckEq("... cr2", image.cr2, state.cr2);
  CheckEq("... cr3", image.cr3, state.cr3);
  CheckEq("... cr4", image.cr4, state.cr4);
  Check(image.cs == state.cs && image.ss == state.ss && image.ds == state.ds &&
            image.es == state.es && image.fs == state.fs && image.gs == state.gs && image.ldt == 0,
        "... selectors");
  Check(image.gdt.base == state.gdt_base && image.gdt.limit == state.gdt_limit, "... GDT");
  Check(image.idt.base == state.idt_base && image.idt.limit == state.idt_limit, "... IDT");
  CheckEq("... FS", image.fs_word, words[0]);
  CheckEq("... GS, and SWAPGS's", image.gs_word, words[1] + words[2]);
}

// Where it begins without a state.
volatile u8& RealModeMark() { return *reinterpret_cast<volatile u8*>(0x7000); }
void CheckRealMode(const char* name) {
  static constexpr u8 kCode16[] = {0xc6, 0x06, 0x00, 0x70, 0xa5,  // mov byte [7000h], a5h
                                   0xfa, 0xf4, 0xeb, 0xfd};       // cli; again: hlt; jmp again
  memcpy(reinterpret_cast<void*>(u64{kStartPage} << 12), kCode16, sizeof(kCode16));
  RealModeMark() = 0;
  vmi64_arrived = 0;
  Startup();
  Check(WaitFor([] { return RealModeMark() == 0xa5; }) && vmi64_arrived == 0, name);
}

struct Wrong {
  const char* what;
  void (*change)(ApState* state);
};
constexpr Wrong kWrong[] = {
    {"without protection", [](ApState* s) { s->cr0 &= ~kCr0Pe; }},
    {"without paging", [](ApState* s) { s->cr0 &= ~kCr0Pg; }},
    {"with bits of CR0 above 32", [](ApState* s) { s->cr0 |= u64{1} << 32; }},
    {"without PAE", [](ApState* s) { s->cr4 &= ~u64{0x20}; }},
    {"with reserved bits of CR4", [](ApState* s) { s->cr4 |= u64{1} << 63; }},
    {"with a CR3 beyond physical addresses", [](ApState* s) { s->cr3 |= u64{1} << 62; }},
    {"outside long mode", [](ApState* s) { s->efer &= ~kEferLme; }},
    {"with reserved bits of EFER", [](ApState* s) { s->efer |= u64{1} << 40; }},
    {"in virtual-8086 mode", [](ApState* s) { s->rflags |= 1u << 17; }},
    {"with a RIP that is no address", [](ApState* s) { s->rip = kNoAddress; }},
    {"with such a GDT", [](ApState* s) { s->gdt_base = kNoAddress, s->gdt_limit = 0; }},
    {"with such an IDT", [](ApState* s) { s->idt_base = kNoAddress; }},
    {"with such a base of FS", [](ApState* s) { s->fs_base = kNoAddress; }},
    {"with such a base of GS", [](ApState* s) { s->gs_base = ~kNoAddress; }},
    {"with such a base for SWAPGS", [](ApState* s) { s->kernel_gs_base = kNoAddress; }},
    {"with a null CS", [](ApState* s) { s->cs = 0; }},
    {"with a CS that is data", [](ApState* s) { s->cs = kKernelData; }},
    {"with a CS of ring 3", [](ApState* s) { s->cs = kUserCode; }},
    {"with a CS of 32 bits", [](ApState* s) { s->cs = kSpareSelector; }},
    {"with a CS of an LDT", [](ApState* s) { s->cs |= 4; }},
    {"with a CS outside the GDT", [](ApState* s) { s->cs = 0x1000; }},
    {"with a CS just outside it", [](ApState* s) { s->gdt_limit = kKernelCode + 6; }},
    {"with an SS of ring 3", [](ApState* s) { s->ss = kUserData; }},
    {"with a null SS of ring 3", [](ApState* s) { s->ss = 3; }},
    {"with an SS that is code", [](ApState* s) { s->ss = kKernelCode; }},
    {"with a DS that is a TSS", [](ApState* s) { s->ds = kTssSelector; }},
    {"with a DS of ring 0 asked for by ring 3", [](ApState* s) { s->ds = kKernelData | 3; }},
};

void TestWrong() {
  SetGdtEntry(kSpareSelector, SegmentDescriptor(0xb, 0));
  for (const Wrong& wrong : kWrong) {
    ApState state = Usual();
    wrong.change(&state);
    CheckVmi(wrong.what, kVmiSetInitialApState, At(&state), kApId);
    CheckRealMode("... is none: it begins in real mode");
  }
  const ApState usual = Usual();
  for (const u64 id : kOthers) {
    CheckVmi("SetInitialAPState of another", kVmiSetInitialApState, At(&usual), id);
  }
  CheckRealMode("... is nobody else's");
  // What the guest cannot read is the guest's fault.
  CheckFault("a record at no address", Vmi(kVmiSetInitialApState, kNoAddress, kApId),
             kGeneralProtection);
  CheckFault("a record that is not mapped", Vmi(kVmiSetInitialApState, kUpper, kApId), kPageFault);
  ApState state = usual;
  state.gdt_base = kUpper;
  CheckFault("a GDT that is not mapped", Vmi(kVmiSetInitialApState, At(&state), kApId), kPageFault);
  CheckRealMode("... is half a state, which is none");
  // A 32-bit state's words, and words that there are not.
  const void* word = KERNEL_CODE("push rbx; vmcall");
  for (u64 number = 0; number < 64; ++number) {
    CheckDone("SetStartState in 64-bit code",
              RunKernel(word, {.rax = kApId, .rbx = 9, .rcx = ~u64{0}, .rdx = number}));
  }
  CheckVmi("... and a whole state", kVmiSetInitialApState, At(&usual), kApId);
  for (const u64 number : {u64{37}, u64{1} << 32, u64{1} << 63, ~u64{0}}) {
    CheckDone("SetStartState64 of no word",
              RunKernel(word, {.rax = kApId, .rbx = 10, .rcx = 0, .rdx = number}));
  }
  vmi64_arrived = 0;
  Startup();
  Check(WaitFor([] { return vmi64_arrived != 0; }), "... which is the one that counts");
}

}  // namespace

void TestSmp() {
  if (!OptionIs("smp", "yes")) return Skip("the second processor", "there is none");
  CheckRealMode("without a state it begins in real mode");
  if (!Is("SetInitialAPState", kVmiSetInitialApState)) return;
  ApState state = Usual();
  CheckBeginning("SetInitialAPState", state);
  CheckRealMode("a state serves one start");
  // A null SS is one in ring 0, and so are PCIDs.
  state.ss = 0, state.rflags = kFlagCf | kFlagDf | kFlagIf | kFlagIopl;
  if (Features().ecx >> 17 & 1) state.cr4 |= kCr4Pcide, state.cr3 |= 7;
  CheckBeginning("SetInitialAPState with a null SS, and a PCID", state);
  TestWrong();
}

}  // namespace alibi::frobos
