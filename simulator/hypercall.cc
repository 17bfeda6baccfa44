// SPDX-License-Identifier: Apache-2.0
// VMCALL: how the guest asks its platform for what vcpu/hypercalls.inc lists.
#include "vcpu/hypercall.h"

#include <iterator>

#include "simulator/execution.h"
#include "vcpu/control_transfer.h"
#include "vcpu/descriptors.h"
#include "vcpu/interrupt_flag.h"

namespace alibi::simulator {

using vcpu::Hypercall, vcpu::kRax, vcpu::kRcx, vcpu::kRdx, vcpu::kSs;

namespace {

constexpr u8 kStackWords[] = {
#define ALIBI_HYPERCALL(name, number, stack_words, what) stack_words,
#include "vcpu/hypercalls.inc"
};
// A row's place is its number.
constexpr u32 kNumbers[] = {
#define ALIBI_HYPERCALL(name, number, stack_words, what) number,
#include "vcpu/hypercalls.inc"
};
constexpr bool NumbersFollow() {
  for (u32 i = 0; i < std::size(kNumbers); ++i) {
    if (kNumbers[i] != i) return false;
  }
  return true;
}
static_assert(NumbersFollow());

constexpr unsigned kWord = 4;
constexpr u32 kCallBytes = 5;  // E8h and a displacement

bool Callable(const Execution& e) {
  return e.context.platform.OffersHypercalls() && e.state.cpl == 0 && e.instr.code_bits == 32 &&
         !vcpu::RealOrVirtual8086(e.state);
}

// IRET, or STI and SYSEXIT, as if the call instruction that led here had been that. A fault, too,
// is then the call instruction's: a kernel knows the place and can mend what it tried to return to.
Outcome ReturnAtSite(Execution& e, Hypercall which, u64 pointer) {
  u64 behind;
  ALIBI_RETURN_IF_FAULT(e.Pop(&pointer, kWord, &behind));
  e.state.rip = LowBits(behind - kCallBytes, 32);
  e.CommitStackPointer(pointer);
  if (which == Hypercall::kReturnFromInterrupt) {
    return e.Transferred(vcpu::InterruptReturn(e.state, e.memory, 32, behind));
  }
  ALIBI_RETURN_IF_FAULT(vcpu::SetInterruptFlag(e.state));
  const Outcome outcome = vcpu::Sysexit(e.state, e.memory, e.context.cpuid.vendor(), 32);
  e.state.interrupt_shadow = 0;  // it held interrupts back until here
  return e.Transferred(outcome);
}

}  // namespace

Outcome handlers::Hypercall(Execution& e) {
  if (!Callable(e)) return vcpu::InvalidOpcode();
  u64 pointer = e.StackPointer(), number;
  ALIBI_RETURN_IF_FAULT(e.Pop(&pointer, kWord, &number));
  if (number >= std::size(kStackWords)) return vcpu::InvalidOpcode();
  const auto which = static_cast<vcpu::Hypercall>(number);
  if (which == vcpu::Hypercall::kReturnFromInterrupt || which == vcpu::Hypercall::kReturnToUser) {
    return ReturnAtSite(e, which, pointer);
  }
  const auto low = [&](unsigned reg) { return static_cast<u32>(e.Reg(reg, 32)); };
  vcpu::HypercallArguments arguments = {which, low(kRax), low(kRdx), low(kRcx), {}};
  u64 argument = LowBits(pointer + kWord, e.StackBits());  // above the return address
  for (unsigned i = 0; i < kStackWords[number]; ++i) {
    u64 word;
    ALIBI_RETURN_IF_FAULT(e.Pop(&argument, kWord, &word));
    arguments.stack[i] = static_cast<u32>(word);
  }
  u64 result = 0;
  e.context.platform.Hypercall(arguments, &result);
  e.SetReg(kRax, 32, result);
  e.SetReg(kRdx, 32, result >> 32);
  e.CommitStackPointer(pointer);
  return {};
}

}  // namespace alibi::simulator
