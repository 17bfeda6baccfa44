// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib/smp.h"

#include "frobos/common/console.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"
#include "frobos/lib/interrupts.h"
#include "frobos/lib/kernel.h"
#include "frobos/lib/paging.h"
#include "frobos/lib/string.h"
#include "frobos/lib/trap.h"

namespace alibi::frobos {

extern "C" {
extern u8 smp_start_begin[], smp_start_end[];
extern u8 smp_start_cr0[], smp_start_cr3[], smp_start_cr4[], smp_start_efer[], smp_start_stacks[],
    smp_start_ticket[];
extern u8 smp_user_done[];
}

namespace {

constexpr u64 kStartAddress = u64{kStartPage} << 12;
constexpr u64 kStackBytes = 16384;
// Processors may be started again and again.
constexpr u64 kStarts = 64;
constexpr u32 kMsrX2apicEoi = 0x80b, kMsrX2apicSpurious = 0x80f, kMsrX2apicIcr = 0x830;
constexpr u64 kX2apic = 1u << 10;

struct Cpu {
  u64 gdt[kTssSelector / 8 + 2];
  Tss tss;
  StartState start;
  u64 work_argument;
  u64 user_result, before_user_code;  // the latter is a stack pointer
  void (*volatile work)(u64);
  volatile bool up;
};
Cpu cpus[kMaxCpus];

u64& StartVariable(const u8* variable) {
  return *reinterpret_cast<u64*>(kStartAddress + static_cast<u64>(variable - smp_start_begin));
}

void OnWake(TrapFrame*) { EndOfIpi(); }
void OnUserDone(TrapFrame* frame) {
  Cpu* const cpu = &cpus[CpuNumber()];
  cpu->user_result = frame->rax;
  LeaveFrame(cpu->before_user_code);
}

void LoadDescriptors(Cpu* cpu) {
  memcpy(cpu->gdt, gdt, sizeof(cpu->gdt));
  memcpy(&cpu->tss, &tss, sizeof(tss));
  for (unsigned i = 0; i < 7; ++i) cpu->tss.ist[i] = AllocPage() + kPageSize;
  cpu->tss.rsp[0] = AllocPage() + kPageSize;
  const u64 base = reinterpret_cast<u64>(&cpu->tss);
  cpu->gdt[kTssSelector / 8] =
      kTssLimitNoIoMap | (base & 0xffffff) << 16 | 0x89ull << 40 | (base >> 24 & 0xff) << 56;
  cpu->gdt[kTssSelector / 8 + 1] = base >> 32;
}

void UseDescriptors(Cpu* cpu) {
  // An INIT leaves it busy.
  cpu->gdt[kTssSelector / 8] &= ~(2ull << 40);
  const TablePointer gdt_pointer = {sizeof(cpu->gdt) - 1, reinterpret_cast<u64>(cpu->gdt)};
  const TablePointer idt_pointer = {sizeof(idt) - 1, reinterpret_cast<u64>(idt)};
  LoadGdtr(reinterpret_cast<u64>(&gdt_pointer));
  LoadIdtr(reinterpret_cast<u64>(&idt_pointer));
  asm volatile(
      "mov %0, %%ss\n"
      "mov %0, %%ds\n"
      "mov %0, %%es\n"
      :
      : "r"(u32{kKernelData})
      : "memory");
  WriteTr(kTssSelector);
}

}  // namespace

bool InX2apic() { return ReadMsr(kMsrApicBase) & kX2apic; }

void EndOfIpi() {
  if (InX2apic()) {
    WriteMsr(kMsrX2apicEoi, 0);
  } else {
    WriteLapic(kLapicEoi, 0);
  }
}

void SendIpi(u32 destination, u32 command) {
  if (InX2apic()) {
    WriteMsr(kMsrX2apicIcr, u64{destination} << 32 | command);
    return;
  }
  WriteLapic(kLapicIcrHigh, destination << 24);
  WriteLapic(kLapicIcrLow, command);
}

unsigned CpusWanted() { return static_cast<unsigned>(NumberOption("cpus", 4)); }
unsigned CpuNumber() { return Cpuid(1).ebx >> 24; }

extern "C" [[gnu::used]] void SmpEnter(u32, u32 cr0, u32 cs, u32 edx) {
  const unsigned number = CpuNumber();
  if (number >= kMaxCpus) return;
  Cpu* cpu = &cpus[number];
  UseDescriptors(cpu);
  cpu->start = {cs, cr0, edx};
  cpu->work = nullptr;
  // All of its own sources are masked.
  constexpr u32 kEnable = kLapicSoftwareEnable | kSpuriousVector;
  if (InX2apic()) {
    WriteMsr(kMsrX2apicSpurious, kEnable);
  } else {
    WriteLapic(kLapicSpurious, kEnable);
  }
  asm volatile("" : : : "memory");
  cpu->up = true;
  for (;;) {
    DisableInterrupts();
    if (cpu->work == nullptr) {
      Halt();
      continue;
    }
    EnableInterrupts();
    cpu->work(cpu->work_argument);
    asm volatile("" : : : "memory");
    cpu->work = nullptr;
  }
}

void PrepareStart() {
  memcpy(reinterpret_cast<void*>(kStartAddress), smp_start_begin,
         static_cast<size_t>(smp_start_end - smp_start_begin));
  StartVariable(smp_start_cr0) = ReadCr0();
  StartVariable(smp_start_cr3) = ReadCr3();
  StartVariable(smp_start_cr4) = ReadCr4();
  StartVariable(smp_start_efer) = ReadMsr(kMsrEfer) & ~kEferLma;
  StartVariable(smp_start_stacks) = AllocRange(kStarts * kStackBytes, kPageSize);
  StartVariable(smp_start_ticket) = 0;
  for (Cpu& cpu : cpus) LoadDescriptors(&cpu);
  SetHandler(kWakeVector, OnWake);
  SetHandler(kUserDoneVector, OnUserDone);
  Gate for_users = GetGate(kUserDoneVector);
  for_users.low |= u64{3} << 45;
  RestoreGate(kUserDoneVector, for_users);
}

bool IsUp(unsigned cpu) { return cpus[cpu].up; }
void ForgetCpu(unsigned cpu) { cpus[cpu].up = false; }
StartState StartStateOf(unsigned cpu) { return cpus[cpu].start; }

bool StartCpu(unsigned cpu) {
  SendIpi(cpu, kIpiInit | kIpiAssert);
  for (const u64 begin = Rdtsc(); Rdtsc() - begin < 2'000'000;) Relax();
  SendIpi(cpu, kIpiStartup | kIpiAssert | kStartPage);
  return WaitFor([cpu] {
    Relax();
    return IsUp(cpu);
  });
}

unsigned StartAllCpus() {
  PrepareStart();
  unsigned up = 1;
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) up += StartCpu(cpu);
  return up;
}

void Begin(unsigned cpu, void (*function)(u64), u64 argument) {
  cpus[cpu].work_argument = argument;
  asm volatile("" : : : "memory");
  cpus[cpu].work = function;
  SendIpi(cpu, kIpiAssert | kWakeVector);
}

// Several processors may share one of the host's, which has others to serve.
bool Finish(unsigned cpu) {
  const auto finished = [cpu] {
    Relax();
    return cpus[cpu].work == nullptr;
  };
  return WaitFor(finished, 10 * kPatience);
}

bool RunOn(unsigned cpu, void (*function)(u64), u64 argument) {
  Begin(cpu, function, argument);
  return Finish(cpu);
}

bool Everywhere(void (*function)(u64), u64 argument) {
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) Begin(cpu, function, argument);
  function(argument);
  bool ended = true;
  for (unsigned cpu = 1; cpu < CpusWanted(); ++cpu) ended = Finish(cpu) && ended;
  return ended;
}

u64 CallUserHere(u64 (*function)(u64), u64 argument, u64 stack_top) {
  const TrapFrame frame = UserCall(reinterpret_cast<const void*>(function), argument, stack_top,
                                   smp_user_done, kFlagsFixed | kFlagIf);
  Cpu* const cpu = &cpus[CpuNumber()];
  EnterFrame(&frame, &cpu->before_user_code);
  asm volatile("" : : : "memory");
  return cpu->user_result;
}

void TakeLock(volatile u32* lock) {
  for (u32 taken = 1;;) {
    asm volatile("xchg %0, %1" : "+r"(taken), "+m"(*lock) : : "memory");
    if (taken == 0) return;
    while (*lock != 0) Relax();
    taken = 1;
  }
}

}  // namespace alibi::frobos
