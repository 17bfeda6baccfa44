// SPDX-License-Identifier: Apache-2.0
// Interrupt latency: cycles from the moment a timer expires until its handler's first instruction
// in C++, while the CPU runs loops that do nothing else. One line per timer and loop on the
// console:
//     {"name":"deadline/register","median":N,"p99":N,"max":N,"unit":"ns","samples":N}
// then {"done":true}. Command line: samples=N; only=a,b.

#include "frobos/bench/quantiles.h"
#include "frobos/common/console.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {
namespace {

constexpr u8 kVector = 0x60;
constexpr u32 kMsrDeadline = 0x6e0, kDeadlineMode = 2u << 17;
constexpr u64 kMaxSamples = 4096;
// An interval is drawn between these, so that nothing can be in step with it.
constexpr u64 kShortestNs = 30'000, kSpreadNs = 200'000;

u64 samples[kMaxSamples];
u64 cycles_per_us;
u64 lapic_ticks_per_us;
volatile u64 entered_at;

// The ACPI timer is the one clock of known speed that every PC has at a known place.
u32 PmTimer() {
  u32 value;
  asm volatile("inl %1, %0" : "=a"(value) : "d"(u16{0x608}));
  return value & 0xffffff;
}
// The host may stop us in the middle of it: the shortest of several attempts is right.
u64 CyclesPerUs() {
  constexpr u32 kTicks = 7159;  // 2 ms
  u64 least = ~0ull;
  for (int i = 0; i < 20; i++) {
    const u32 start = PmTimer();
    const u64 begin = Rdtsc();
    while (((PmTimer() - start) & 0xffffff) < kTicks) {
    }
    const u64 cycles = Rdtsc() - begin;
    if (cycles < least) least = cycles;
  }
  return least / 2000;
}

u64 LapicTicksPerUs() {
  WriteLapic(kLapicTimer, kLapicMasked | kVector);
  WriteLapic(kLapicInitialCount, 0xffffffff);
  u64 least = ~0ull;
  for (int i = 0; i < 20; i++) {
    const u32 from = ReadLapic(kLapicCurrentCount);
    const u64 begin = Rdtsc();
    while (Rdtsc() - begin < 2000 * cycles_per_us) {
    }
    const u32 ticks = from - ReadLapic(kLapicCurrentCount);
    if (ticks < least) least = ticks;
  }
  WriteLapic(kLapicInitialCount, 0);
  return least / 2000;
}

u64 Random() {
  static u64 state = 88172645463325252;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

// Every loop ends when the handler sets rax.
void OnTimer(TrapFrame* frame) {
  entered_at = Rdtsc();
  frame->rax = 1;
  WriteLapic(kLapicEoi, 0);
}

#define LOOP_(name, text)                                                           \
  void name() {                                                                     \
    static u8 buffer[4096];                                                         \
    u64 flag = 0, data = reinterpret_cast<u64>(buffer), at = data, count = 0;       \
    asm volatile(".intel_syntax noprefix\n sti\n" text "\n cli\n.att_syntax prefix" \
                 : "+a"(flag), "+d"(data), "+D"(at), "+c"(count)                    \
                 :                                                                  \
                 : "rbx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");         \
  }
LOOP_(RunRegister, "1: test rax, rax\n jz 1b")
LOOP_(RunLoads, "1: add rcx, [rdx]\n add [rdx + 8], rcx\n test rax, rax\n jz 1b")
// The red zone is not ours: step over it.
LOOP_(RunCalls,
      "lea rsp, [rsp - 128]\n 1: call 2f\n test rax, rax\n jz 1b\n jmp 3f\n 2: ret\n"
      " 3: lea rsp, [rsp + 128]")
LOOP_(RunIndirect, "1: lea r8, [rip + 2f]\n jmp r8\n .balign 4096\n 2: test rax, rax\n jz 1b")
LOOP_(RunStrings, "1: mov rdi, rdx\n mov ecx, 4096\n rep stosb\n test rax, rax\n jz 1b")
LOOP_(RunCliSti, "1: cli\n nop\n sti\n nop\n test rax, rax\n jz 1b")
LOOP_(RunHalt, "1: hlt\n test rax, rax\n jz 1b")
#undef LOOP_

// Starts the timer; the result is when it expires, in cycles.
u64 StartDeadline(u64 ns) {
  const u64 deadline = Rdtsc() + ns * cycles_per_us / 1000;
  WriteMsr(kMsrDeadline, deadline);
  return deadline;
}
u64 StartCount(u64 ns) {
  const u64 now = Rdtsc();
  WriteLapic(kLapicInitialCount, static_cast<u32>(ns * lapic_ticks_per_us / 1000));
  return now + ns * cycles_per_us / 1000;
}

struct Loop {
  const char* name;
  void (*run)();
};
constexpr Loop kLoops[] = {{"register", RunRegister}, {"loads", RunLoads},
                           {"calls", RunCalls},       {"indirect", RunIndirect},
                           {"strings", RunStrings},   {"clisti", RunCliSti},
                           {"halt", RunHalt}};

void Measure(const char* timer, u64 (*start)(u64), const Loop& loop, u64 count) {
  for (u64 i = 0; i < count; i++) {
    const u64 expires = start(kShortestNs + Random() % kSpreadNs);
    loop.run();
    const u64 late = entered_at > expires ? entered_at - expires : 0;
    samples[i] = late * 1000 / cycles_per_us;
  }
  Print("{\"name\":\"%s/%s\",", timer, loop.name);
  PrintQuantiles(samples, count, "ns");
}

}  // namespace

int Main() {
  u64 count = NumberOption("samples", 1000);
  if (count < 2 || count > kMaxSamples) count = 1000;
  InitPic();
  InitLapic();
  SetHandler(kVector, OnTimer);
  cycles_per_us = CyclesPerUs();
  lapic_ticks_per_us = LapicTicksPerUs();
  Print("TSC %lu MHz, local APIC timer %lu MHz\n", cycles_per_us, lapic_ticks_per_us);
  const bool has_deadline = Features().ecx >> 24 & 1;
  for (const Loop& loop : kLoops) {
    if (!Selected("only", loop.name)) continue;
    if (has_deadline) {
      WriteLapic(kLapicTimer, kDeadlineMode | kVector);
      Measure("deadline", StartDeadline, loop, count);
    }
    WriteLapic(kLapicTimer, kVector);
    Measure("count", StartCount, loop, count);
    WriteLapic(kLapicTimer, kLapicMasked);
  }
  Print("{\"done\":true}\n");
  return 0;
}

}  // namespace alibi::frobos
