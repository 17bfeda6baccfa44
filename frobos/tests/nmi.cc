// SPDX-License-Identifier: Apache-2.0
// Non-maskable interrupts: they come whatever IF and TPR say, block themselves until IRET, wake the
// processor (Intel SDM vol. 3A 6.7), and the shadows that hold back events for one instruction
// (6.8.3).

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u64 kIcr = 0xfee00000 + kLapicIcrLow;
constexpr u32 kSendNmi = 4u << 8 | 1u << 14;
constexpr u32 kSendVector = 1u << 18 | 1u << 14;
constexpr u32 kDeliverNmi = 4u << 8;
constexpr u8 kVector = 0x51;

volatile u64 nmis, depth, deepest, interrupts;
TrapFrame last;

u64 At(const void* code, u64 offset = 0) { return reinterpret_cast<u64>(code) + offset; }

void SendNmi() { *reinterpret_cast<volatile u32*>(kIcr) = kSendNmi; }
void Settle() {
  for (const u64 start = Rdtsc(); Rdtsc() - start < 20000;) {
  }
}

void Enter(const TrapFrame* frame) {
  nmis = nmis + 1;
  depth = depth + 1;
  if (depth > deepest) deepest = depth;
  last = *frame;
}
void Leave() { depth = depth - 1; }
void Count(TrapFrame* frame) {
  Enter(frame);
  Leave();
}

void Reset(TrapHandler handler) {
  nmis = 0;
  depth = 0;
  deepest = 0;
  interrupts = 0;
  SetHandler(kNmi, handler);
}

void TestDelivery() {
  // The way through the APIC may take a while.
  const void* send = KERNEL_CODE("mov [rdi], eax; mov ecx, 1000; 2: dec ecx; jnz 2b; nop; nop");
  const Regs regs = {.rax = kSendNmi, .rdi = kIcr};
  Reset(Count);
  Outcome o = RunKernel(send, regs);
  CheckDone("NMI in CPL 0, IF clear", o);
  CheckEq("... once", nmis, 1);
  Check(last.rip >= At(send, 2) && last.rip <= At(send, 13), "... behind the store that sends it");
  CheckEq("... vector 2", last.vector, kNmi);
  CheckEq("... IF in its image", last.rflags & kFlagIf, 0);
  CheckEq("... on the stack of its gate", reinterpret_cast<u64>(__builtin_frame_address(0)) != 0,
          1);
  Regs on = regs;
  on.rflags |= kFlagIf;
  Reset(Count);
  RunKernel(send, on);
  CheckEq("NMI with IF set", nmis, 1);
  CheckEq("... IF in its image", last.rflags & kFlagIf, kFlagIf);

  WriteCr8(15);
  Reset(Count);
  RunKernel(send, regs);
  CheckEq("NMI with TPR at its highest", nmis, 1);
  WriteCr8(0);

  // From CPL 3: by the kernel's page of the APIC made the user's.
  const u64 va = kUserBase + 0x500000;
  Map(va, 0xfee00000, kPteW | kPteU | kPtePcd);
  Reset(Count);
  o = RunUser(USER_CODE("mov [rdi], eax; mov ecx, 1000; 2: dec ecx; jnz 2b; nop; nop"),
              {.rax = kSendNmi, .rdi = va + kLapicIcrLow});
  Unmap(va);
  CheckDone("NMI in CPL 3", o);
  CheckEq("... once", nmis, 1);
  CheckEq("... from the user's code", last.cs, kUserCode);
  CheckEq("... IOPL and IF do not matter", last.rflags & (kFlagIf | kFlagIopl), 0);
}

void TestBlocking() {
  // In the handler another two: one is remembered, and comes after IRET.
  Reset([](TrapFrame* frame) {
    Enter(frame);
    if (nmis == 1) {
      SendNmi();
      Settle();
      SendNmi();
      Settle();
    }
    Leave();
  });
  SendNmi();
  Settle();
  CheckEq("two NMIs in an NMI's handler are one", nmis, 2);
  CheckEq("... and wait for its end", deepest, 1);

  // Any IRET ends the blocking, also that of another handler inside. Without IST, because the
  // inner frame would overwrite the outer one.
  SetIst(kNmi, 0);
  SetHandler(kBreakpoint, [](TrapFrame*) {});
  Reset([](TrapFrame* frame) {
    Enter(frame);
    if (nmis == 1) {
      SendNmi();
      Settle();
      interrupts = nmis;
      asm volatile("int3" : : : "memory");
      Settle();
    }
    Leave();
  });
  SendNmi();
  Settle();
  CheckEq("an NMI waits in a handler", interrupts, 1);
  CheckEq("... until an inner IRET", deepest, 2);
  CheckEq("... two in all", nmis, 2);
  SetHandler(kBreakpoint, nullptr);

  // INT 2 is no NMI.
  Reset([](TrapFrame* frame) {
    Enter(frame);
    if (nmis == 1) {
      SendNmi();
      Settle();
    }
    Leave();
  });
  asm volatile("int $2" : : : "memory");
  CheckEq("INT 2 does not block NMIs", deepest, 2);

  // Interrupts and exceptions are not blocked by an NMI, if IF allows.
  SetHandler(kVector, [](TrapFrame*) {
    interrupts = interrupts + 1;
    WriteLapic(kLapicEoi, 0);
  });
  Reset([](TrapFrame* frame) {
    Enter(frame);
    SendSelfIpi(kVector);
    asm volatile("sti; nop; nop; cli" : : : "memory");
    Leave();
  });
  SendNmi();
  Settle();
  CheckEq("an interrupt in an NMI's handler", interrupts, 1);
  SetHandler(kVector, nullptr);
  RestoreEntry(kNmi);

  Reset(Count);
  for (int i = 0; i < 100; i++) {
    SendNmi();
    Settle();
  }
  CheckEq("a hundred NMIs", nmis, 100);
}

// Makes the PIC's output an NMI, which then comes by itself, and puts it back.
class TimerNmi {
 public:
  TimerNmi() {
    WriteLapic(kLapicLint0, kDeliverNmi);
    Start();
  }
  static void Start() {
    StopPit();
    InitPic();  // forgets older requests: the next one is an edge
    UnmaskIrq(0);
    StartPit(PitMode::kOneShot, 5000);
  }
  ~TimerNmi() {
    StopPit();
    InitPic();
    WriteLapic(kLapicLint0, kLapicExtInt);
  }
};

void TestHlt() {
  // QEMU raises a new NMI whenever the PIC looks at its output (SDM vol. 3A 11.5.1: it is an edge).
  if (SkipOnQemu("NMI by LINT0")) return;
  // A busy host may let the NMI come before the HLT, or before the loop: then again.
  static const void* hlt;
  hlt = KERNEL_CODE("hlt; inc rax");
  Reset([](TrapFrame* frame) {
    if (frame->rip != At(hlt, 1)) return TimerNmi::Start();
    Count(frame);
  });
  {
    const TimerNmi timer;
    const Outcome o = RunKernel(hlt);
    CheckDone("NMI wakes from HLT, IF clear", o);
    CheckEq("... and goes on there", o.frame.rax, 1);
  }
  CheckEq("... taken", nmis, 1);
  CheckEq("... behind HLT", last.rip, At(hlt, 1));

  // A loop that never leaves itself.
  Reset([](TrapFrame* frame) {
    if (frame->r15 == 0) return TimerNmi::Start();
    Count(frame);
    frame->rip = frame->r15;
  });
  {
    const TimerNmi timer;
    CheckDone("NMI in jmp $, IF clear",
              RunKernel(KERNEL_CODE("lea r15, [rip + 99f]; 2: jmp 2b; 99: nop")));
  }
  CheckEq("... taken", nmis, 1);
}

// An interrupt of our own waits until IF and the shadows allow it.
void TestShadows() {
  SetHandler(kNmi, nullptr);
  SetHandler(kVector, [](TrapFrame* frame) {
    interrupts = interrupts + 1;
    last = *frame;
    WriteLapic(kLapicEoi, 0);
  });
  struct Case {
    const char* name;
    const void* code;
    u64 first, most;  // where it may arrive: offsets in the code; 0: not at all
    bool qemu_wrong = false;
  };
  const Case cases[] = {
      {"sti: after the next instruction", KERNEL_CODE("sti; inc rbx; inc rcx; cli"), 4, 4},
      {"sti; cli: not at all", KERNEL_CODE("sti; cli; nop; nop"), 0, 0},
      // The second STI has no shadow: IF is set already.
      {"sti; sti: after the second", KERNEL_CODE("sti; sti; inc rcx; cli"), 2, 2},
      {"sti; hlt wakes at once", KERNEL_CODE("sti; hlt; inc rcx; cli"), 2, 2},
      // MOV SS within STI's shadow may or may not cast its own.
      {"sti; mov ss", KERNEL_CODE("mov eax, ss; sti; mov ss, eax; inc rcx; cli"), 5, 8},
      {"popfq: at once", KERNEL_CODE("pushfq; or qword ptr [rsp], 0x200; popfq; inc rcx; cli"), 10,
       10},
      {"mov ss; popfq: at once behind popfq",
       KERNEL_CODE("pushfq; or qword ptr [rsp], 0x200; mov eax, ss; mov ss, eax; popfq; inc rcx; "
                   "cli"),
       14, 14},
      {"mov ss; sti: after the next instruction",
       KERNEL_CODE("mov eax, ss; mov ss, eax; sti; inc rcx; inc rdx; cli"), 8, 8, true},
      {"sti; jmp: at its target", KERNEL_CODE("sti; jmp 2f; nop; 2: inc rcx; cli"), 4, 4},
      {"sti; a conditional jump not taken", KERNEL_CODE("xor eax, eax; sti; jnz 2f; nop; 2: cli"),
       5, 5},
      {"sti; call: in the callee", KERNEL_CODE("sti; call 2f; jmp 3f; 2: inc rcx; ret; 3: cli"), 8,
       8},
      {"sti; a store", KERNEL_CODE("sti; mov [rsp - 8], rax; inc rcx; cli"), 6, 6},
      {"sti; rep movsb of nothing", KERNEL_CODE("xor ecx, ecx; sti; rep movsb; nop; cli"), 5, 5},
      {"sti; cpuid", KERNEL_CODE("sti; cpuid; nop; cli"), 3, 3},
  };
  for (const Case& c : cases) {
    if (SkipOnQemu(c.name, c.qemu_wrong)) continue;
    interrupts = 0;
    SendSelfIpi(kVector);
    const Outcome o = RunKernel(c.code);
    asm volatile("sti; nop; nop; cli" : : : "memory");  // what was held back altogether
    const bool arrived = last.rip >= At(c.code, c.first) && last.rip <= At(c.code, c.most);
    const bool ours = last.rip >= At(c.code) && last.rip < At(c.code, 40);
    const bool good = o.Done() && interrupts == 1 && (c.first == 0 ? !ours : arrived);
    if (!good) {
      Print("  %s: %s, %lu interrupts, at offset %ld\n", c.name, VectorName(o.frame.vector),
            static_cast<u64>(interrupts), static_cast<i64>(last.rip - At(c.code)));
    }
    Check(good, c.name);
  }

  // A fault in the shadow ends it without an interrupt before the handler.
  const void* fault = KERNEL_CODE("sti; ud2");
  interrupts = 0;
  SendSelfIpi(kVector);
  const Outcome o = RunKernel(fault);
  CheckFault("sti; a fault", o, kInvalidOpcode, 0, At(fault, 1));
  CheckEq("... comes before the interrupt", interrupts, 0);
  CheckEq("... IF in its image", o.frame.rflags & kFlagIf, kFlagIf);
  asm volatile("sti; nop; nop; cli" : : : "memory");

  // IRET opens the window at its target.
  interrupts = 0;
  SendSelfIpi(kVector);
  const void* target = KERNEL_CODE("inc rcx; cli");
  RunKernel(target, {.rflags = kFlagsFixed | kFlagIf});
  CheckEq("iretq: at its target", last.rip, At(target));
  SetHandler(kVector, nullptr);
}

constexpr Section kSections[] = {
    {"delivery", TestDelivery}, {"block", TestBlocking}, {"hlt", TestHlt}, {"shadow", TestShadows}};

}  // namespace

int Main() {
  if (!HasApic()) {
    Skip("everything", "CPUID has no APIC");
    return Summary();
  }
  InitPic();
  InitLapic();
  SetHandler(kSpuriousVector, [](TrapFrame*) {});
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
