// SPDX-License-Identifier: Apache-2.0
// Exceptions and interrupts as C++ sees them, and probes: code run with given registers, in CPL 0
// or 3, until it leaves or faults, with the exact machine state reported back.
#ifndef ALIBI_FROBOS_LIB_TRAP_H_
#define ALIBI_FROBOS_LIB_TRAP_H_

#include "frobos/lib/types.h"

namespace alibi::frobos {

// As pushed by traps.S; the order is fixed by it.
struct TrapFrame {
  u64 r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax;
  u64 vector, error;
  u64 rip, cs, rflags, rsp, ss;
};

void InitTraps();

// A handler's changes to the frame take effect on return. nullptr removes it.
using TrapHandler = void (*)(TrapFrame* frame);
void SetHandler(u8 vector, TrapHandler handler);

// A raw assembly entry, for measurements and for tests of the frame itself. RestoreEntry puts the
// library's own back.
void SetEntry(u8 vector, const void* entry, unsigned dpl = 0, unsigned ist = 0);
void RestoreEntry(u8 vector);

// Registers a probe starts with. rsp 0 means: a good stack of the probe's own.
struct Regs {
  u64 rax = 0, rbx = 0, rcx = 0, rdx = 0, rsi = 0, rdi = 0, rbp = 0, rsp = 0;
  u64 r8 = 0, r9 = 0, r10 = 0, r11 = 0, r12 = 0, r13 = 0, r14 = 0, r15 = 0;
  u64 rflags = 2;
};

// How it ended: vector kProbeExit if the code ran to its end, else the exception. frame is the
// exact frame of that event; cr2 was read first thing in the handler.
inline constexpr u8 kProbeExit = 0x7f;
struct Outcome {
  TrapFrame frame;
  u64 cr2;
  // Where the frame lay in memory: tells which stack the CPU chose.
  u64 frame_address;
  bool Done() const { return frame.vector == kProbeExit; }
  bool Is(u8 vector) const { return frame.vector == vector; }
  bool Is(u8 vector, u64 error) const { return frame.vector == vector && frame.error == error; }
};

// Pieces of code for probes, in Intel syntax. They live in pages of their own, end by leaving the
// probe, and may use numeric labels. User code must only touch user pages.
#define FROBOS_CODE_IN_SECTION_(section, text)                  \
  ({                                                            \
    const void* code_;                                          \
    asm volatile("lea 1f(%%rip), %0\n.pushsection " section     \
                 ", \"ax\"\n.intel_syntax noprefix\n1:\n" text  \
                 "\n int 0x7f\n.att_syntax prefix\n.popsection" \
                 : "=r"(code_));                                \
    code_;                                                      \
  })
#define KERNEL_CODE(text) FROBOS_CODE_IN_SECTION_(".snippet", text)
#define USER_CODE(text) FROBOS_CODE_IN_SECTION_(".utext", text)

Outcome RunKernel(const void* code, const Regs& regs = {});
Outcome RunUser(const void* code, const Regs& regs = {});
// The same with every register of the frame chosen by the caller (selectors too).
Outcome RunFrame(const TrapFrame& frame);

// The frame that enters an ordinary function in CPL 3, with its return address on the stack.
TrapFrame UserCall(const void* function, u64 argument, u64 stack_top, const void* return_to,
                   u64 rflags);
// Runs an ordinary function in CPL 3 on a user stack; rax is its result. Code and data it touches
// must be user pages.
Outcome CallUser(const void* function, u64 argument, u64 stack_top);

// Runs a callable in CPL 0; a fault in it ends it there.
Outcome CatchCall(void (*function)(void*), void* argument);
template <class F>
Outcome Catch(F&& f) {
  return CatchCall([](void* argument) { (*static_cast<F*>(argument))(); }, &f);
}

// What probes are made of (traps.S): starts the frame, interrupts as it says; and, called from a
// handler, returns from there.
extern "C" void EnterFrame(const TrapFrame* frame, u64* saved_rsp);
extern "C" [[noreturn]] void LeaveFrame(u64 saved_rsp);

// The default stacks of probes (tops).
u64 ProbeStackTop();
u64 UserStackTop();

const char* VectorName(u64 vector);

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_TRAP_H_
