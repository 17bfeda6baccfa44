// SPDX-License-Identifier: Apache-2.0
// VMI on a second processor (smp=yes on the command line says that there is one): the state in
// which it begins, and what it has of its own, clock and local APIC.
#include "frobos/tests/vmi.h"

namespace alibi::frobos {

extern "C" {
// What the other processor found; the order is that of the stores below.
struct ApImage {
  u32 eax, ebx, ecx, edx, esi, edi, ebp, esp, eflags, cr0, cr2, cr3, cr4;
  u32 cs, ss, ds, es, fs, gs, ldt;
  TablePointer gdt;
  u16 pad0;
  TablePointer idt;
  u16 pad1;
  u32 fs_word;
};
volatile ApImage vmi_ap_image;
volatile u32 vmi_ap_ticks;
void vmi_ap_entry();
void vmi_ap_tick();
[[noreturn]] void vmi_ap_main();
}
asm(".pushsection .text\n"
    "vmi_ap_entry:\n"
    "movl %eax, vmi_ap_image\nmovl %ebx, vmi_ap_image + 4\nmovl %ecx, vmi_ap_image + 8\n"
    "movl %edx, vmi_ap_image + 12\nmovl %esi, vmi_ap_image + 16\nmovl %edi, vmi_ap_image + 20\n"
    "movl %ebp, vmi_ap_image + 24\nmovl %esp, vmi_ap_image + 28\n"
    "pushfl\npopl vmi_ap_image + 32\n"
    "movl %cr0, %eax\nmovl %eax, vmi_ap_image + 36\nmovl %cr2, %eax\nmovl %eax, vmi_ap_image + 40\n"
    "movl %cr3, %eax\nmovl %eax, vmi_ap_image + 44\nmovl %cr4, %eax\nmovl %eax, vmi_ap_image + 48\n"
    "movl %cs, %eax\nmovl %eax, vmi_ap_image + 52\nmovl %ss, %eax\nmovl %eax, vmi_ap_image + 56\n"
    "movl %ds, %eax\nmovl %eax, vmi_ap_image + 60\nmovl %es, %eax\nmovl %eax, vmi_ap_image + 64\n"
    "movl %fs, %eax\nmovl %eax, vmi_ap_image + 68\nmovl %gs, %eax\nmovl %eax, vmi_ap_image + 72\n"
    "sldt %eax\nmovl %eax, vmi_ap_image + 76\n"
    "sgdtl vmi_ap_image + 80\nsidtl vmi_ap_image + 88\n"
    "movl %fs:0, %eax\nmovl %eax, vmi_ap_image + 96\n"
    "call vmi_ap_main\n"
    "vmi_ap_tick:\n"
    "pushl %eax\nincl vmi_ap_ticks\nmovl $0, 0xfee000b0\npopl %eax\niretl\n"
    ".popsection");

namespace {

constexpr u32 kApic = 0xfee00000, kLvtTimer = 0x320, kLocalAlarm = 0x10000, kPeriodic = 0x100;
constexpr u32 kApId = 1, kRealModePage = 8;
constexpr u8 kApVector = 0x42;
constexpr u32 kP = 1, kW = 2, kU = 4, kPs = 0x80;

// The record, as kernels lay it out.
struct [[gnu::packed]] ApState {
  u32 cr0, cr2, cr3, cr4;
  u64 efer;
  u32 eip, eflags, eax, ebx, ecx, edx, esp, ebp, esi, edi;
  u16 cs, ss, ds, es, fs, gs, ldtr;
  u16 gdt_limit;
  u32 gdt_base, idt_base;
  u16 idt_limit, pad;
};
static_assert(sizeof(ApState) == 92);

alignas(4096) u32 ap_directory[1024];
alignas(32) u64 ap_pointers[4];
alignas(4096) u64 ap_directories[4][512];
alignas(16) u8 ap_stack[4096];
u32 per_cpu_word = 0xfee1600d;
volatile u32 ap_arrived, ap_done, ap_id, ap_clock_errors;

typedef u64 (*RomFunction)(u32, u32, u32, u32, u32) __attribute__((regparm(3)));
struct ApCalls {
  u32 alarm, cancel, counter, halt, apic_read;
} ap_calls;
u64 CallRom(u32 address, u32 a = 0, u32 d = 0, u32 c = 0, u32 low = 0, u32 high = 0) {
  return reinterpret_cast<RomFunction>(address)(a, d, c, low, high);
}
u32 AddressOf(VmiCall call) {
  const Relocation to = RelocationOf(call);
  return to.type == Relocation::kCall ? to.address : 0;
}
volatile u32& Apic(u32 offset) { return *reinterpret_cast<volatile u32*>(kApic + offset); }

u64 Tsc() {
  u32 low, high;
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
  return u64{high} << 32 | low;
}

bool WaitFor(const volatile u32& what, u32 value) {
  for (const u64 end = Tsc() + 40'000'000'000; what != value;) {
    if (Tsc() > end) return false;
    asm volatile("pause");
  }
  return true;
}

void Startup() {
  const auto send = [](u32 command) {
    Apic(0x310) = kApId << 24;
    Apic(0x300) = command;
  };
  send(0x4500);
  send(0x4600 | kRealModePage);
  send(0x4600 | kRealModePage);  // as kernels do; the second finds nobody waiting
}

ApState Usual(bool pae) {
  for (u32 i = 0; i < 1024; i++) ap_directory[i] = i << 22 | kPs | kU | kW | kP;
  for (u32 i = 0; i < 2048; i++) ap_directories[i / 512][i % 512] = u64{i} << 21 | kPs | kW | kP;
  for (u32 i = 0; i < 4; i++) ap_pointers[i] = At(ap_directories[i]) | kP;
  return {.cr0 = 0x80050023,
          .cr2 = 0x12345678,
          .cr3 = pae ? At(ap_pointers) : At(ap_directory),
          .cr4 = pae ? kCr4Pae : kCr4Pse,
          .efer = 0,
          .eip = At(reinterpret_cast<const void*>(vmi_ap_entry)),
          .eflags = 0,
          .eax = 0xa1,
          .ebx = 0xb1,
          .ecx = 0xc1,
          .edx = 0xd1,
          .esp = At(ap_stack) + sizeof(ap_stack),
          .ebp = 0xe1,
          .esi = 0xf1,
          .edi = 0xf2,
          .cs = CodeSelector(0),
          .ss = DataSelector(0),
          .ds = DataSelector(3),
          .es = DataSelector(3),
          .fs = kSpare,
          .gs = 0,
          .ldtr = 0,
          .gdt_limit = sizeof(gdt) - 1,
          .gdt_base = At(gdt),
          .idt_base = At(idt),
          .idt_limit = sizeof(idt) - 1,
          .pad = 0};
}

void TestBeginning(bool pae) {
  const ApState state = Usual(pae);
  for (volatile u32* word : List{&ap_arrived, &ap_done, &vmi_ap_ticks, &ap_clock_errors}) *word = 0;
  CheckVmi("SetInitialAPState", kVmiSetInitialApState, At(&state), kApId);
  Startup();
  if (!WaitFor(ap_arrived, 1)) return Check(false, "the processor arrives");
  const volatile ApImage& image = vmi_ap_image;
  Check(image.eax == 0xa1 && image.ebx == 0xb1 && image.ecx == 0xc1 && image.edx == 0xd1 &&
            image.esi == 0xf1 && image.edi == 0xf2 && image.ebp == 0xe1,
        "it begins with its registers");
  CheckEq("... esp", image.esp, state.esp);
  CheckEq("... eflags", image.eflags, kFlagsFixed);
  CheckEq("... cr0", image.cr0, 0x80050033);
  CheckEq("... cr2", image.cr2, state.cr2);
  CheckEq("... cr3", image.cr3, state.cr3);
  CheckEq("... cr4", image.cr4, state.cr4);
  Check(image.cs == state.cs && image.ss == state.ss && image.ds == state.ds &&
            image.es == state.es && image.fs == state.fs && image.gs == 0 && image.ldt == 0,
        "... selectors");
  CheckEq("... a segment with a base", image.fs_word, per_cpu_word);
  CheckEq("... GDT", image.gdt.base, At(gdt));
  CheckEq("... IDT", image.idt.limit, sizeof(idt) - 1);
  Check(WaitFor(ap_done, 1), "its alarms go off at its own APIC");
  CheckEq("... APICRead is its own APIC's", ap_id, kApId);
  CheckEq("... its clocks", ap_clock_errors, 0);
}

// Where it begins without a state.
volatile u32& RealModeMark() { return *reinterpret_cast<volatile u32*>(0x7000); }
void CheckRealMode(const char* name) {
  RealModeMark() = 0;
  Startup();
  Check(WaitFor(RealModeMark(), 0xa5), name);
}

void TestRealMode() {
  static constexpr u8 kCode16[] = {0xc6, 0x06, 0x00, 0x70, 0xa5,  // mov byte [7000h], a5h
                                   0xfa, 0xf4, 0xeb, 0xfd};       // cli; again: hlt; jmp again
  memcpy(reinterpret_cast<void*>(kRealModePage << 12), kCode16, sizeof(kCode16));
  CheckRealMode("without a state it begins in real mode");
  if (AddressOf(kVmiSetInitialApState) == 0) return;
  ApState wrong = Usual(false);
  wrong.cr0 = 0x10;
  Vmi(kVmiSetInitialApState, At(&wrong), kApId);
  CheckRealMode("... with one outside protected mode, too");
  wrong = Usual(false);
  wrong.cs = sizeof(gdt) & 0xffff;
  Vmi(kVmiSetInitialApState, At(&wrong), kApId);
  CheckRealMode("... with a CS outside the GDT");
  wrong = Usual(false);
  wrong.cr4 = ~0u;
  Vmi(kVmiSetInitialApState, At(&wrong), kApId);
  CheckRealMode("... with reserved bits of CR4");
  // Of processors that there are not, and of the one that runs.
  wrong = Usual(false);
  for (const u32 id : List{0u, 77u, 0x80000000u, ~0u}) {
    CheckVmi("SetInitialAPState of another", kVmiSetInitialApState, At(&wrong), id);
  }
  CheckRealMode("... and is nobody else's");
}

}  // namespace

void vmi_ap_main() {
  ap_arrived = 1;
  ap_id = ap_calls.apic_read != 0 ? static_cast<u32>(CallRom(ap_calls.apic_read, 0x20)) >> 24
                                  : Apic(0x20) >> 24;
  if (ap_calls.alarm != 0) {
    Apic(0xf0) = 0x1ff;
    Apic(kLvtTimer) = kApVector;
    u64 last[3] = {};
    for (u32 i = 0; i < 200; i++) {
      const u64 real = CallRom(ap_calls.counter, 0), available = CallRom(ap_calls.counter, 1),
                stolen = CallRom(ap_calls.counter, 2);
      if (real < last[0] || available < last[1] || stolen < last[2] || available > Tsc() ||
          available + stolen < real) {
        ap_clock_errors = ap_clock_errors + 1;
      }
      last[0] = real, last[1] = available, last[2] = stolen;
    }
    const u64 now = CallRom(ap_calls.counter, 0);
    CallRom(ap_calls.alarm, kLocalAlarm | kPeriodic, static_cast<u32>(now),
            static_cast<u32>(now >> 32), 5'000'000);
    while (vmi_ap_ticks < 5) CallRom(ap_calls.halt);
    asm volatile("cli");
    CallRom(ap_calls.cancel, kLocalAlarm);
  }
  ap_done = 1;
  for (;;) asm volatile("cli; hlt");
}

void TestSmp() {
  if (Option("smp") == nullptr) return Skip("the second processor", "there is none");
  Apic(0xf0) = Apic(0xf0) | 0x100;
  TestRealMode();
  if (AddressOf(kVmiSetInitialApState) == 0) {
    return Skip("SetInitialAPState", "the kernel starts processors itself");
  }
  ap_calls = {.alarm = AddressOf(kVmiSetAlarm),
              .cancel = AddressOf(kVmiCancelAlarm),
              .counter = AddressOf(kVmiGetCycleCounter),
              .halt = AddressOf(kVmiHalt),
              .apic_read = AddressOf(kVmiApicRead)};
  SetGdt(kSpare, Descriptor(At(&per_cpu_word), 0xfff, kData, k32Bit));
  SetIdt(kApVector,
         Gate(CodeSelector(0), At(reinterpret_cast<const void*>(vmi_ap_tick)), kInterruptGate32));
  TestBeginning(false);
  TestBeginning(true);
  RestoreIdt(kApVector);
}

}  // namespace alibi::frobos
