// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib/trap.h"

#include "frobos/common/console.h"
#include "frobos/lib/cpu.h"
#include "frobos/lib/descriptors.h"

namespace alibi::frobos {

extern "C" {
extern u8 trap_stubs[];
extern u8 user_return[];
}

namespace {

constexpr unsigned kStubSize = 16;
constexpr unsigned kDoubleFaultIst = 1, kNmiIst = 2, kProbeExitIst = 3;
constexpr unsigned kMaxDepth = 4;

TrapHandler handlers[256];

// Probes may nest (a handler may probe); each remembers where to return.
struct Probe {
  u64 saved_rsp;
  Outcome* outcome;
};
Probe probes[kMaxDepth];
unsigned depth = 0;

alignas(16) u8 probe_stacks[kMaxDepth][8192];
[[gnu::section(".udata"), gnu::aligned(4096)]] u8 user_stack[16384];

constexpr const char* kNames[] = {"#DE", "#DB", "NMI", "#BP", "#OF", "#BR", "#UD",
                                  "#NM", "#DF", "9",   "#TS", "#NP", "#SS", "#GP",
                                  "#PF", "15",  "#MF", "#AC", "#MC", "#XM"};

}  // namespace

const char* VectorName(u64 vector) {
  if (vector == kProbeExit) return "no fault";
  return vector < sizeof(kNames) / sizeof(kNames[0]) ? kNames[vector] : "interrupt";
}

extern "C" [[gnu::used]] void TrapDispatch(TrapFrame* frame) {
  const u64 cr2 = ReadCr2();
  if (frame->vector != kProbeExit && handlers[frame->vector] != nullptr) {
    handlers[frame->vector](frame);
    return;
  }
  if (depth > 0) {
    const Probe probe = probes[--depth];
    *probe.outcome = {*frame, cr2, reinterpret_cast<u64>(frame)};
    LeaveFrame(probe.saved_rsp);
  }
  Panic("unexpected %s (vector %lu) error %lx cr2 %lx at %lx:%lx flags %lx stack %lx:%lx",
        VectorName(frame->vector), frame->vector, frame->error, cr2, frame->cs, frame->rip,
        frame->rflags, frame->ss, frame->rsp);
}

void SetHandler(u8 vector, TrapHandler handler) { handlers[vector] = handler; }

void SetEntry(u8 vector, const void* entry, unsigned dpl, unsigned ist) {
  SetGate(vector, entry, dpl, ist);
}

void RestoreEntry(u8 vector) {
  const unsigned ist = vector == kDoubleFault ? kDoubleFaultIst
                       : vector == kNmi       ? kNmiIst
                       : vector == kProbeExit ? kProbeExitIst
                                              : 0;
  const bool user = vector == kBreakpoint || vector == kOverflow || vector == kProbeExit;
  SetGate(vector, trap_stubs + kStubSize * vector, user ? 3 : 0, ist);
}

void InitTraps() {
  for (unsigned v = 0; v < 256; v++) RestoreEntry(static_cast<u8>(v));
}

u64 ProbeStackTop() { return reinterpret_cast<u64>(probe_stacks[depth] + sizeof(probe_stacks[0])); }
u64 UserStackTop() { return reinterpret_cast<u64>(user_stack + sizeof(user_stack)); }

Outcome RunFrame(const TrapFrame& frame) {
  if (depth == kMaxDepth) Panic("probes nested too deep");
  Outcome outcome;
  probes[depth].outcome = &outcome;
  u64* saved_rsp = &probes[depth].saved_rsp;
  depth++;
  EnterFrame(&frame, saved_rsp);
  // The LeaveFrame half wrote it behind the compiler's back.
  asm volatile("" : "+m"(outcome) : : "memory");
  return outcome;
}

namespace {

TrapFrame MakeFrame(const void* code, const Regs& r, bool user) {
  TrapFrame f = {};
  f.rax = r.rax, f.rbx = r.rbx, f.rcx = r.rcx, f.rdx = r.rdx;
  f.rsi = r.rsi, f.rdi = r.rdi, f.rbp = r.rbp;
  f.r8 = r.r8, f.r9 = r.r9, f.r10 = r.r10, f.r11 = r.r11;
  f.r12 = r.r12, f.r13 = r.r13, f.r14 = r.r14, f.r15 = r.r15;
  f.rip = reinterpret_cast<u64>(code);
  f.rflags = r.rflags;
  f.rsp = r.rsp != 0 ? r.rsp : user ? UserStackTop() : ProbeStackTop();
  f.cs = user ? kUserCode : kKernelCode;
  f.ss = user ? kUserData : kKernelData;
  return f;
}

}  // namespace

Outcome RunKernel(const void* code, const Regs& regs) {
  return RunFrame(MakeFrame(code, regs, false));
}

Outcome RunUser(const void* code, const Regs& regs) {
  return RunFrame(MakeFrame(code, regs, true));
}

TrapFrame UserCall(const void* function, u64 argument, u64 stack_top, const void* return_to,
                   u64 rflags) {
  u64* stack = reinterpret_cast<u64*>(stack_top & ~u64{15}) - 1;
  *stack = reinterpret_cast<u64>(return_to);
  Regs regs;
  regs.rdi = argument;
  regs.rsp = reinterpret_cast<u64>(stack);
  regs.rflags = rflags;
  return MakeFrame(function, regs, true);
}

Outcome CallUser(const void* function, u64 argument, u64 stack_top) {
  return RunFrame(UserCall(function, argument, stack_top, user_return, kFlagsFixed));
}

Outcome CatchCall(void (*function)(void*), void* argument) {
  const void* code = KERNEL_CODE("call rsi");
  Regs regs;
  regs.rsi = reinterpret_cast<u64>(function);
  regs.rdi = reinterpret_cast<u64>(argument);
  return RunKernel(code, regs);
}

}  // namespace alibi::frobos
