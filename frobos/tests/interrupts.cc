// SPDX-License-Identifier: Apache-2.0
// Interrupts: where they arrive (every shape of loop, CPL 0 and 3, inside REP), when they are held
// back (IF, STI's shadow, PIC masks, TPR), and the timers that raise them.

#include "frobos/lib/interrupts.h"

#include <initializer_list>

#include "frobos/common/console.h"
#include "frobos/lib/check.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u8 kTimer = kIrqBase, kUartVector = kIrqBase + 4;
constexpr u16 kMillisecond = kPitHz / 1000;
constexpr u64 kFlagsOn = kFlagsFixed | kFlagIf;

volatile u64 ticks;
TrapFrame last;  // as the handler found it

void CountTick(TrapFrame* frame) {
  ticks = ticks + 1;
  last = *frame;
  EndOfIrq(0);
}

// Ends an endless loop by leading it to its exit, whose address its code keeps in r15. A slow
// machine may get here before the loop began (r15 is still 0): then the timer is set again.
void LeaveLoop(TrapFrame* frame) {
  if (frame->r15 == 0) {
    EndOfIrq(0);
    StartPit(PitMode::kOneShot, kMillisecond);
    return;
  }
  CountTick(frame);
  frame->rip = frame->r15;
}

// Raises IRQ 0 once, as soon as possible, and waits until the PIC has it.
bool MakePending() {
  StartPit(PitMode::kOneShot, 100);
  return WaitFor([] { return (ReadPicRegister(false) & 1) != 0; });
}

void TestPit() {
  InitPic();
  ticks = 0;
  SetHandler(kTimer, CountTick);
  StartPit(PitMode::kPeriodic, kMillisecond);
  EnableInterrupts();
  Check(WaitFor([] { return (ReadPicRegister(false) & 1) != 0; }), "a masked IRQ is requested");
  CheckEq("... but not delivered", ticks, 0);
  UnmaskIrq(0);
  Check(WaitFor([] { return ticks >= 20; }), "20 periodic ticks");
  MaskIrq(0);
  const u64 seen = ticks;
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 20'000'000; });
  CheckEq("no tick while masked", ticks, seen);
  DisableInterrupts();
  UnmaskIrq(0);
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 20'000'000; });
  CheckEq("no tick while IF is clear", ticks, seen);
  EnableInterrupts();
  Check(WaitFor([=] { return ticks > seen; }), "ticks go on after sti");
  DisableInterrupts();
  CheckEq("frame: vector", last.vector, kTimer);
  CheckEq("frame: cs", last.cs, kKernelCode);
  CheckEq("frame: IF in the image", last.rflags & kFlagIf, kFlagIf);
  CheckEq("frame: RF not in the image", last.rflags & kFlagRf, 0);

  // One interrupt per one-shot count.
  StopPit();
  EnableInterrupts();
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 10'000'000; });
  ticks = 0;
  StartPit(PitMode::kOneShot, kMillisecond);
  Check(WaitFor([] { return ticks == 1; }), "one-shot tick");
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 20'000'000; });
  DisableInterrupts();
  CheckEq("... only one", ticks, 1);

  // Without an end of interrupt the line stays in service and blocks itself.
  SetHandler(kTimer, [](TrapFrame*) { ticks = ticks + 1; });
  ticks = 0;
  StartPit(PitMode::kPeriodic, kMillisecond);
  EnableInterrupts();
  WaitFor([] { return ticks != 0; });
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 20'000'000; });
  DisableInterrupts();
  CheckEq("no second interrupt before EOI", ticks, 1);
  CheckEq("in-service bit", ReadPicRegister(true) & 1, 1);
  EndOfIrq(0);
  CheckEq("in-service bit after EOI", ReadPicRegister(true) & 1, 0);

  // The counter can be read and runs down.
  StartPit(PitMode::kPeriodic, 0);
  const auto count = [] {
    Outb(0x43, 0x00);
    const u16 low = Inb(0x40);
    return static_cast<u16>(low | Inb(0x40) << 8);
  };
  const u16 first = count();
  Check(WaitFor([&] { return count() != first; }), "the counter runs");
  StopPit();
  MaskIrq(0);
  SetHandler(kTimer, nullptr);
}

void TestLoops() {
  struct Case {
    const char* name;
    const void* kernel;
    const void* user;
  };
#define BOTH(text)                                        \
  KERNEL_CODE("lea r15, [rip + 99f]\n" text "\n99: nop"), \
      USER_CODE("lea r15, [rip + 99f]\n" text "\n99: nop")
  const Case cases[] = {
      {"interrupt in jmp $", BOTH("2: jmp 2b")},
      {"interrupt in jmp $, long form", BOTH("2: .byte 0xe9, 0xfb, 0xff, 0xff, 0xff")},
      {"interrupt in a loop of two blocks", BOTH("2: jmp 3f; nop; 3: jmp 2b")},
      {"interrupt in a conditional loop", BOTH("2: cmp rsp, 1; jne 2b")},
      {"interrupt in a counting loop", BOTH("2: mov rcx, -1; 3: dec rcx; jnz 3b; jmp 2b")},
      {"interrupt in a LOOP loop", BOTH("2: mov rcx, -1; loop $; jmp 2b")},
      {"interrupt in an indirect jmp loop", BOTH("lea rax, [rip + 2f]; 2: jmp rax")},
      {"interrupt in indirect jumps that share a place in the jump table",
       BOTH("lea rax, [rip + 3f]; lea rcx, [rip + 4f]; 3: jmp rcx; .skip 0x7ffe; 4: jmp rax")},
      {"interrupt in a loop of calls", BOTH("2: call 3f; jmp 2b; 3: ret")},
      {"interrupt in a loop of indirect calls",
       BOTH("lea rax, [rip + 3f]; 2: call rax; jmp 2b; 3: ret")},
      {"interrupt in a loop of jumps by ret", BOTH("lea rax, [rip + 2f]; 2: push rax; ret")},
      {"interrupt in nested calls", BOTH("2: call 3f; jmp 2b; 3: call 4f; 4: call 5f; 5: ret")},
      {"interrupt in rep stosb",
       BOTH("2: lea rdi, [rsp - 2048]; mov ecx, 1024; rep stosb; jmp 2b")},
      {"interrupt in a loop of loads", BOTH("2: mov rax, [rsp - 8]; jmp 2b")},
      {"interrupt in a loop of stores", BOTH("2: mov [rsp - 8], rax; jmp 2b")},
      {"interrupt in a loop of rdtsc", BOTH("2: rdtsc; jmp 2b")},
      {"interrupt in a loop of cpuid", BOTH("2: xor eax, eax; cpuid; jmp 2b")},
      {"interrupt in a loop of lock xadd", BOTH("2: lock xadd [rsp - 8], rax; jmp 2b")},
  };
  InitPic();
  SetHandler(kTimer, LeaveLoop);
  UnmaskIrq(0);
  for (const Case& c : cases) {
    Group group(c.name);
    for (const bool user : {false, true}) {
      for (int round = 0; round < 3; round++) {
        ticks = 0;
        StartPit(PitMode::kOneShot, kMillisecond);
        const Outcome o = user ? RunUser(c.user, {.rflags = kFlagsOn})
                               : RunKernel(c.kernel, {.rflags = kFlagsOn});
        const u64 start = reinterpret_cast<u64>(user ? c.user : c.kernel);
        const bool inside = last.rip >= start && last.rip <= last.r15;
        if (!group.Case(o.Done() && ticks == 1 && inside && (last.cs & 3) == (user ? 3 : 0))) {
          Print("  %s: %s, %lu ticks, rip +%lx cs %lx\n", user ? "user" : "kernel",
                VectorName(o.frame.vector), static_cast<u64>(ticks), last.rip - start, last.cs);
        }
      }
    }
  }
  // Loops that open a window for interrupts only briefly must not starve them (Linux idles so).
  const Case kernel_only[] = {
      {"interrupt in cli; sti; nop",
       KERNEL_CODE("lea r15, [rip + 99f]; 2: cli; sti; nop; jmp 2b; 99: nop"), nullptr},
      {"interrupt in sti before jmp",
       KERNEL_CODE("lea r15, [rip + 99f]; 2: cli; sti; jmp 2b; 99: nop"), nullptr},
      {"interrupt in cli; call (sti; ret)",
       KERNEL_CODE("lea r15, [rip + 99f]; 2: cli; call 3f; jmp 2b; 3: sti; ret; 99: nop"), nullptr},
      {"interrupt in pushf; cli; popf",
       KERNEL_CODE("lea r15, [rip + 99f]; 2: pushfq; cli; nop; popfq; jmp 2b; 99: nop"), nullptr},
      {"interrupt in sti; hlt",
       KERNEL_CODE("lea r15, [rip + 99f]; 2: cli; sti; hlt; jmp 2b; 99: nop"), nullptr},
      {"interrupt in a loop of cr8 writes",
       KERNEL_CODE("lea r15, [rip + 99f]; xor eax, eax; 2: mov cr8, rax; jmp 2b; 99: nop"),
       nullptr},
      {"interrupt in a loop of in",
       KERNEL_CODE("lea r15, [rip + 99f]; 2: in al, 0x80; jmp 2b; 99: nop"), nullptr},
      {"interrupt in a loop of iretq",
       KERNEL_CODE("lea r15, [rip + 99f]; mov rbx, rsp; pushfq; pop rcx; lea rdx, [rip + 2f]\n"
                   "2: push 0x10; push rbx; push rcx; push 8; push rdx; iretq; 99: nop"),
       nullptr},
      {"interrupt in a loop of int3", KERNEL_CODE("lea r15, [rip + 99f]; 2: int3; jmp 2b; 99: nop"),
       nullptr},
  };
  SetHandler(kBreakpoint, [](TrapFrame*) {});
  for (const Case& c : kernel_only) {
    ticks = 0;
    StartPit(PitMode::kOneShot, kMillisecond);
    const Outcome o = RunKernel(c.kernel, {.rflags = kFlagsOn});
    Check(o.Done() && ticks == 1, c.name);
  }
  SetHandler(kBreakpoint, nullptr);

  // The interrupted state is exact: a loop that keeps an invariant between its registers.
  SetHandler(kTimer, CountTick);
  ticks = 0;
  StartPit(PitMode::kPeriodic, kMillisecond / 4);
  const void* invariant = USER_CODE(
      "xor eax, eax; xor ebx, ebx; xor ecx, ecx; mov rdx, 3000000\n"
      "2: add rax, 3; add rbx, 5; lea rcx, [rcx + 8]; push rax; xor rax, rbx; pop rsi; xor rax, "
      "rbx\n"
      "cmp rax, rsi; jne 3f; dec rdx; jnz 2b\n"
      "3: nop");
  const Outcome o = RunUser(invariant, {.rflags = kFlagsOn});
  StopPit();
  Check(o.Done() && o.frame.rax == 9000000 && o.frame.rbx == 15000000 && o.frame.rcx == 24000000 &&
            o.frame.rdx == 0,
        "a computation interrupted many times");
  Check(ticks >= 2, "... was interrupted");
  MaskIrq(0);
  SetHandler(kTimer, nullptr);
}

void TestWindow() {
  InitPic();
  UnmaskIrq(0);
  SetHandler(kTimer, CountTick);
  const auto run = [](const void* code, u64 flags = kFlagsFixed) {
    // A request left over from before would count twice.
    asm volatile("sti; nop; cli" : : : "memory");
    ticks = 0;
    last = {};
    Check(MakePending(), "interrupt pending");
    return RunKernel(code, {.rflags = flags});
  };
  const void* sti = KERNEL_CODE("sti; inc rax; inc rbx; inc rcx; cli");
  Outcome o = run(sti);
  Check(o.Done() && ticks == 1, "pending interrupt taken after sti");
  CheckEq("... after the instruction behind sti", last.rip, reinterpret_cast<u64>(sti) + 4);
  CheckEq("... which has run", last.rax, 1);
  CheckEq("... the next has not", last.rbx, 0);

  const void* nothing = KERNEL_CODE("sti; cli; nop; nop");
  run(nothing);
  CheckEq("sti; cli opens no window", ticks, 0);
  const void* popf = KERNEL_CODE("pushfq; or qword ptr [rsp], 0x200; popfq; inc rax; inc rbx; cli");
  o = run(popf);
  Check(o.Done() && ticks == 1, "pending interrupt taken after popf");
  CheckEq("... at once", last.rax, 0);
  const void* nop = KERNEL_CODE("inc rax; inc rbx; cli");
  o = run(nop, kFlagsOn);
  Check(o.Done() && ticks == 1, "pending interrupt taken after iretq");
  CheckEq("... at its target", last.rip, reinterpret_cast<u64>(nop));
  const void* shadow = KERNEL_CODE("sti; mov ax, ss; nop; cli");
  o = run(shadow);
  Check(o.Done() && ticks == 1, "pending interrupt taken, mov from ss");
  const void* when_on =
      KERNEL_CODE("mov eax, ss; pushfq; or qword ptr [rsp], 0x200; mov ss, eax; popfq; nop; cli");
  o = run(when_on);
  Check(o.Done() && ticks == 1, "pending interrupt taken after mov ss and popf");

  const void* hlt = KERNEL_CODE("sti; hlt; inc rax; cli");
  o = run(hlt);
  Check(o.Done() && ticks == 1, "sti; hlt with a pending interrupt wakes");
  CheckEq("... behind hlt", last.rip, reinterpret_cast<u64>(hlt) + 2);
  ticks = 0;
  StartPit(PitMode::kOneShot, kMillisecond);
  o = RunKernel(hlt);
  Check(o.Done() && ticks == 1, "hlt waits for an interrupt");
  CheckEq("... and ends behind itself", last.rip, reinterpret_cast<u64>(hlt) + 2);
  // A masked interrupt does not wake; the unmasked one behind it does.
  ticks = 0;
  StartPit(PitMode::kPeriodic, kMillisecond);
  const void* several = KERNEL_CODE("mov ebx, 5; 2: sti; hlt; cli; dec ebx; jnz 2b");
  o = RunKernel(several);
  StopPit();
  Check(o.Done() && ticks >= 5, "five times hlt");

  // A handler that itself allows interrupts.
  SetHandler(kTimer, [](TrapFrame* frame) {
    ticks = ticks + 1;
    last = *frame;
    EndOfIrq(0);
    if (ticks == 1) {
      StartPit(PitMode::kOneShot, 100);
      EnableInterrupts();
      WaitFor([] { return ticks == 2; });
      DisableInterrupts();
    }
  });
  run(sti);
  CheckEq("an interrupt inside a handler", ticks, 2);
  MaskIrq(0);
  SetHandler(kTimer, nullptr);
}

void TestRep() {
  InitPic();
  UnmaskIrq(0);
  SetHandler(kTimer, CountTick);
  constexpr u64 kSize = 4u << 20;
  const u64 target = AllocRange(kSize, kPageSize);
  bool interrupted = false, consistent = true, done = true;
  for (int round = 0; round < 20 && !interrupted; round++) {
    ticks = 0;
    const void* rep = KERNEL_CODE("sti; nop; rep stosb; cli; nop");
    StartPit(PitMode::kOneShot, 60);
    const Outcome o =
        RunKernel(rep, {.rax = static_cast<u64>(round + 1), .rcx = kSize, .rdi = target});
    done &= o.Done() && o.frame.rcx == 0 && o.frame.rdi == target + kSize;
    if (ticks == 1 && last.rip == reinterpret_cast<u64>(rep) + 2 && last.rcx != 0 &&
        last.rcx != kSize) {
      interrupted = true;
      consistent = last.rcx + last.rdi == kSize + target;
      const u8* bytes = reinterpret_cast<const u8*>(target);
      for (u64 i = 0; i < kSize; i++) consistent &= bytes[i] == round + 1;
    }
    // The tick may have come when all was stored.
    EnableInterrupts();
    WaitFor([] { return ticks == 1; });
    DisableInterrupts();
  }
  Check(done, "rep stosb runs to its end");
  Check(consistent, "rep stosb interrupted: rcx and rdi fit");
  MaskIrq(0);
  SetHandler(kTimer, nullptr);
}

void TestUart() {
  InitPic();
  static volatile u64 uart_interrupts;
  static volatile u64 order;
  uart_interrupts = 0;
  order = 0;
  SetHandler(kUartVector, [](TrapFrame*) {
    uart_interrupts = uart_interrupts + 1;
    order = order * 10 + 4;
    Inb(0x3fa);  // acknowledges "transmitter empty"
    Outb(0x3f9, 0);
    EndOfIrq(4);
  });
  Outb(0x3fc, 0x0b);  // OUT2 connects the interrupt
  Outb(0x3f9, 0x02);
  UnmaskIrq(4);
  EnableInterrupts();
  Check(WaitFor([] { return uart_interrupts != 0; }), "UART interrupt: transmitter empty");
  DisableInterrupts();
  // Two lines pending: the lower number first.
  SetHandler(kTimer, [](TrapFrame*) {
    ticks = ticks + 1;
    order = order * 10 + 1;
    EndOfIrq(0);
  });
  UnmaskIrq(0);
  ticks = 0;
  Outb(0x3f9, 0x02);
  WaitFor([] { return (ReadPicRegister(false) & 0x10) != 0; });
  Check(MakePending(), "timer and UART pending");
  order = 0;
  EnableInterrupts();
  WaitFor([] { return ticks == 1 && uart_interrupts == 2; });
  DisableInterrupts();
  CheckEq("IRQ 0 comes before IRQ 4", order, 14);
  Outb(0x3fc, 0x03);
  MaskAllInterrupts();
  SetHandler(kTimer, nullptr);
  SetHandler(kUartVector, nullptr);
}

constexpr u8 kLapicVector = 0x40, kVector50 = 0x50, kVector61 = 0x61;
u64 lapic_order;

void CountLapic(TrapFrame* frame) {
  ticks = ticks + 1;
  last = *frame;
  lapic_order = lapic_order << 8 | frame->vector;
  WriteLapic(kLapicEoi, 0);
}

void TestTaskPriority() {
  Group group("cr8 reads back");
  for (u64 v = 0; v < 16; v++) {
    WriteCr8(v);
    group.Case(ReadCr8() == v);
  }
  WriteCr8(0);
}

void TestLapic() {
  if (!HasApic()) return Skip("LAPIC", "CPUID has no APIC");
  InitPic();
  InitLapic();
  for (const u8 v : {kLapicVector, kVector50, kVector61}) SetHandler(v, CountLapic);
  SetHandler(kSpuriousVector, [](TrapFrame*) {});

  WriteCr8(7);
  CheckEq("cr8 is TPR's high half", ReadLapic(kLapicTpr), 0x70);
  WriteLapic(kLapicTpr, 0x35);
  CheckEq("TPR's high half is cr8", ReadCr8(), 3);
  WriteLapic(kLapicTpr, 0);
  CheckEq("TPR cleared", ReadCr8(), 0);

  ticks = 0;
  WriteLapic(kLapicTimer, kLapicVector);
  WriteLapic(kLapicInitialCount, 10'000'000);
  const u32 first = ReadLapic(kLapicCurrentCount);
  Check(WaitFor([=] { return first == 0 || ReadLapic(kLapicCurrentCount) < first; }),
        "LAPIC timer counts down");
  Check(WaitFor([] { return LapicBit(kLapicIrr, kLapicVector); }), "one-shot: requested");
  CheckEq("one-shot: the count stays 0", ReadLapic(kLapicCurrentCount), 0);
  CheckEq("one-shot: not delivered while IF is clear", ticks, 0);
  EnableInterrupts();
  Check(WaitFor([] { return ticks == 1; }), "one-shot: delivered");
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 20'000'000; });
  CheckEq("one-shot: once", ticks, 1);
  CheckEq("one-shot: request bit clear", LapicBit(kLapicIrr, kLapicVector), 0);
  CheckEq("one-shot: in-service bit clear after EOI", LapicBit(kLapicIsr, kLapicVector), 0);

  ticks = 0;
  WriteLapic(kLapicTimer, kLapicPeriodic | kLapicVector);
  WriteLapic(kLapicInitialCount, 500'000);
  Check(WaitFor([] { return ticks >= 10; }), "periodic: ten ticks");
  WriteLapic(kLapicTimer, kLapicMasked | kLapicPeriodic | kLapicVector);
  const u64 seen = ticks;
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 20'000'000; });
  CheckEq("masked: no tick", ticks, seen);
  WriteLapic(kLapicInitialCount, 0);

  DisableInterrupts();
  // Loops again, because a LAPIC may reach the CPU by another way than a PIC.
  SetHandler(kLapicVector, [](TrapFrame* frame) {
    if (frame->r15 == 0) {
      WriteLapic(kLapicEoi, 0);
      WriteLapic(kLapicInitialCount, 200'000);
      return;
    }
    CountLapic(frame);
    frame->rip = frame->r15;
  });
  WriteLapic(kLapicTimer, kLapicVector);
  ticks = 0;
  WriteLapic(kLapicInitialCount, 200'000);
  RunKernel(KERNEL_CODE("lea r15, [rip + 99f]; 2: jmp 2b; 99: nop"), {.rflags = kFlagsOn});
  CheckEq("LAPIC interrupt in jmp $", ticks, 1);
  WriteLapic(kLapicInitialCount, 200'000);
  RunUser(USER_CODE("lea r15, [rip + 99f]; 2: call 3f; jmp 2b; 3: ret; 99: nop"),
          {.rflags = kFlagsOn});
  CheckEq("LAPIC interrupt in a loop of calls, CPL 3", ticks, 2);
  SetHandler(kLapicVector, CountLapic);

  // The task priority holds back classes up to its own.
  ticks = 0;
  WriteCr8(5);
  SendSelfIpi(kVector50);
  EnableInterrupts();
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 1'000'000; });
  CheckEq("cr8 = 5 holds back vector 0x50", ticks, 0);
  CheckEq("... which is requested", LapicBit(kLapicIrr, kVector50), 1);
  SendSelfIpi(kVector61);
  Check(WaitFor([] { return ticks == 1; }), "cr8 = 5 lets vector 0x61 through");
  CheckEq("... it was that one", last.vector, kVector61);
  const void* lower = KERNEL_CODE("mov cr8, rax; nop; nop");
  RunKernel(lower, {.rax = 4, .rflags = kFlagsOn});
  CheckEq("lowering cr8 delivers vector 0x50", ticks, 2);
  CheckEq("... at once", last.rip, reinterpret_cast<u64>(lower) + 4);
  DisableInterrupts();
  WriteCr8(0);
  WriteLapic(kLapicTpr, 0x6f);
  SendSelfIpi(kVector61);
  EnableInterrupts();
  WaitFor([start = Rdtsc()] { return Rdtsc() - start > 1'000'000; });
  CheckEq("TPR = 0x6f holds back vector 0x61", ticks, 2);
  WriteLapic(kLapicTpr, 0x5f);
  Check(WaitFor([] { return ticks == 3; }), "TPR = 0x5f does not");
  WriteLapic(kLapicTpr, 0);
  DisableInterrupts();

  // The higher vector first, whatever the order of arrival.
  lapic_order = 0;
  ticks = 0;
  SendSelfIpi(kVector50);
  SendSelfIpi(kVector61);
  EnableInterrupts();
  WaitFor([] { return ticks == 2; });
  DisableInterrupts();
  CheckEq("vector 0x61 before 0x50", lapic_order, 0x6150);

  // In service, a vector blocks its class and below until EOI.
  static u64 isr_bit, ppr, nested;
  SetHandler(kVector50, [](TrapFrame*) {
    isr_bit = LapicBit(kLapicIsr, kVector50);
    ppr = ReadLapic(kLapicPpr);
    nested = ticks;
    SendSelfIpi(kLapicVector);
    SendSelfIpi(kVector61);
    EnableInterrupts();
    WaitFor([start = Rdtsc()] { return Rdtsc() - start > 1'000'000; });
    DisableInterrupts();
    nested = ticks - nested;
    WriteLapic(kLapicEoi, 0);
  });
  ticks = 0;
  SendSelfIpi(kVector50);
  EnableInterrupts();
  WaitFor([] { return ticks == 2; });
  DisableInterrupts();
  CheckEq("in-service bit", isr_bit, 1);
  CheckEq("PPR in service", ppr & 0xf0, 0x50);
  CheckEq("only the higher class interrupts it", nested, 1);
  CheckEq("the lower one after EOI", ticks, 2);
  CheckEq("PPR afterwards", ReadLapic(kLapicPpr), 0);

  // The PIC still comes through LINT0, untouched by the task priority.
  SetHandler(kTimer, CountTick);
  ticks = 0;
  UnmaskIrq(0);
  WriteCr8(15);
  StartPit(PitMode::kOneShot, kMillisecond);
  EnableInterrupts();
  Check(WaitFor([] { return ticks == 1; }), "PIC interrupt through LINT0 despite cr8 = 15");
  DisableInterrupts();
  WriteCr8(0);
  MaskIrq(0);

  CheckEq("LAPIC version has an integrated one", (ReadLapic(kLapicVersion) & 0xf0), 0x10);
  CheckEq("APIC base", ReadMsr(kMsrApicBase) & 0xfffff000, 0xfee00000);
  SetHandler(kTimer, nullptr);
  for (const u8 v : {kLapicVector, kVector50, kVector61}) SetHandler(v, nullptr);
}

constexpr Section kSections[] = {
    {"pit", TestPit},   {"window", TestWindow},    {"loops", TestLoops}, {"rep", TestRep},
    {"uart", TestUart}, {"cr8", TestTaskPriority}, {"lapic", TestLapic},
};

}  // namespace

int Main() {
  RunSections(kSections);
  return Summary();
}

}  // namespace alibi::frobos
