// SPDX-License-Identifier: Apache-2.0
// Control transfers, near and far.
#include "simulator/execution.h"
#include "vcpu/control_transfer.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/exceptions.h"

namespace alibi::simulator {

using vcpu::kCf, vcpu::kOf, vcpu::kPf, vcpu::kRcx, vcpu::kSf, vcpu::kZf;

namespace {

// In 64-bit mode the decoder knows whether this CPU heeds an operand-size prefix.
unsigned TargetBits(const Instr& instr) {
  return instr.operand_bits == 16 ? 16 : instr.code_bits == 64 ? 64 : 32;
}

u64 RelativeTarget(const Execution& e) {
  return LowBits(e.next_rip + e.instr.immediate, TargetBits(e.instr));
}

bool ConditionHolds(u64 flags, unsigned condition) {
  const bool less = ((flags & kSf) != 0) != ((flags & kOf) != 0);
  const bool table[8] = {(flags & kOf) != 0,
                         (flags & kCf) != 0,
                         (flags & kZf) != 0,
                         (flags & (kCf | kZf)) != 0,
                         (flags & kSf) != 0,
                         (flags & kPf) != 0,
                         less,
                         less || (flags & kZf)};
  return table[(condition >> 1) & 7] != ((condition & 1) != 0);
}

}  // namespace

Outcome handlers::Jmp(Execution& e) { return e.Jump(RelativeTarget(e)); }

Outcome handlers::Jcc(Execution& e) {
  if (!ConditionHolds(e.state.arithmetic_flags, e.instr.condition)) return {};
  return e.Jump(RelativeTarget(e));
}

Outcome handlers::Loop(Execution& e) {
  const unsigned bits = e.instr.address_bits;
  const u64 count = LowBits(e.state.gpr[kRcx] - 1, bits);
  const bool zero = e.state.arithmetic_flags & kZf;
  const bool wanted = e.instr.op == Op::kLoop || (e.instr.op == Op::kLoope) == zero;
  if (count != 0 && wanted) ALIBI_RETURN_IF_FAULT(e.Jump(RelativeTarget(e)));
  e.SetReg(kRcx, bits, count);
  return {};
}

Outcome handlers::Jcxz(Execution& e) {
  if (e.Reg(kRcx, e.instr.address_bits) != 0) return {};
  return e.Jump(RelativeTarget(e));
}

namespace {

Outcome IndirectTarget(Execution& e, u64* target) {
  const unsigned bits = TargetBits(e.instr);
  ALIBI_RETURN_IF_FAULT(e.ReadRm(0, bits / 8, target));
  *target = LowBits(*target, bits);
  return {};
}

}  // namespace

Outcome handlers::JmpIndirect(Execution& e) {
  u64 target;
  ALIBI_RETURN_IF_FAULT(IndirectTarget(e, &target));
  return e.Jump(target);
}

namespace {

Outcome CallTo(Execution& e, u64 target) {
  ALIBI_RETURN_IF_FAULT(e.CheckTarget(target));
  u64 pointer = e.StackPointer();
  ALIBI_RETURN_IF_FAULT(e.Push(&pointer, TargetBits(e.instr) / 8, e.next_rip));
  e.CommitStackPointer(pointer);
  return e.Jump(target);
}

}  // namespace

Outcome handlers::Call(Execution& e) { return CallTo(e, RelativeTarget(e)); }

Outcome handlers::CallIndirect(Execution& e) {
  u64 target;
  ALIBI_RETURN_IF_FAULT(IndirectTarget(e, &target));
  return CallTo(e, target);
}

namespace {

// 0 without an immediate.
u16 Release(const Instr& instr) { return static_cast<u16>(instr.immediate); }

}  // namespace

Outcome handlers::Ret(Execution& e) {
  u64 pointer = e.StackPointer();
  u64 target;
  ALIBI_RETURN_IF_FAULT(e.Pop(&pointer, TargetBits(e.instr) / 8, &target));
  ALIBI_RETURN_IF_FAULT(e.Jump(target));
  e.CommitStackPointer(LowBits(pointer + Release(e.instr), e.StackBits()));
  return {};
}

namespace {

// The far pointer of JMP and CALL: immediate, or offset and selector in memory.
Outcome FarTarget(Execution& e, u16* selector, u64* offset) {
  const Instr& instr = e.instr;
  if (!instr.mem.present) {
    *offset = instr.immediate;
    *selector = static_cast<u16>(instr.immediate2);
    return {};
  }
  const unsigned size = instr.operand_bits / 8;
  const auto segment = static_cast<SegmentIndex>(instr.mem.segment);
  LinearAddr whole;
  ALIBI_RETURN_IF_FAULT(e.OperandAddress(size + 2, false, &whole));
  ALIBI_RETURN_IF_FAULT(e.Read(segment, e.Offset(), size, offset));
  u64 high;
  ALIBI_RETURN_IF_FAULT(
      e.Read(segment, LowBits(e.Offset() + size, instr.mem.address_bits), 2, &high));
  *selector = static_cast<u16>(high);
  return {};
}

}  // namespace

Outcome handlers::JmpFar(Execution& e) {
  u16 selector;
  u64 offset;
  ALIBI_RETURN_IF_FAULT(FarTarget(e, &selector, &offset));
  return e.Transferred(
      vcpu::FarJump(e.state, e.memory, selector, offset, e.instr.operand_bits, e.next_rip));
}

Outcome handlers::CallFar(Execution& e) {
  u16 selector;
  u64 offset;
  ALIBI_RETURN_IF_FAULT(FarTarget(e, &selector, &offset));
  return e.Transferred(
      vcpu::FarCall(e.state, e.memory, selector, offset, e.instr.operand_bits, e.next_rip));
}

Outcome handlers::RetFar(Execution& e) {
  return e.Transferred(vcpu::FarReturn(e.state, e.memory, e.instr.operand_bits, Release(e.instr)));
}

Outcome handlers::Iret(Execution& e) {
  const Outcome outcome =
      vcpu::InterruptReturn(e.state, e.memory, e.instr.operand_bits, e.next_rip);
  if (outcome.faulted()) BlameCallSite(e);
  return e.Transferred(outcome);
}

Outcome handlers::Int(Execution& e) {
  return e.Transferred(
      vcpu::SoftwareInterrupt(e.state, e.memory, static_cast<u8>(e.instr.immediate), e.next_rip));
}

Outcome handlers::Int1(Execution& e) {
  return e.Transferred(vcpu::DebugTrap(e.state, e.memory, e.next_rip));
}

Outcome handlers::Int3(Execution& e) {
  return e.Transferred(vcpu::SoftwareTrap(e.state, e.memory, vcpu::kBreakpoint, e.next_rip));
}

Outcome handlers::Into(Execution& e) {
  if (!(e.state.arithmetic_flags & kOf)) return {};
  return e.Transferred(vcpu::SoftwareTrap(e.state, e.memory, vcpu::kOverflow, e.next_rip));
}

Outcome handlers::Bound(Execution& e) {
  const unsigned bits = e.instr.operand_bits, size = bits / 8;
  const auto segment = static_cast<SegmentIndex>(e.instr.mem.segment);
  const i64 index = static_cast<i64>(SignExtend(e.Reg(e.instr.gprs[0]), bits));
  u64 low, high;
  ALIBI_RETURN_IF_FAULT(e.Read(segment, e.Offset(), size, &low));
  const bool below = index < static_cast<i64>(SignExtend(low, bits));
  if (below && vcpu::HostHasIntelsWay(vcpu::HostDifference::kBoundFault)) {
    return Outcome::Simple(vcpu::kBoundRange);
  }
  ALIBI_RETURN_IF_FAULT(
      e.Read(segment, LowBits(e.Offset() + size, e.instr.mem.address_bits), size, &high));
  const bool above = index > static_cast<i64>(SignExtend(high, bits));
  return below || above ? Outcome::Simple(vcpu::kBoundRange) : Outcome();
}

Outcome handlers::Syscall(Execution& e) {
  return e.Transferred(vcpu::Syscall(e.state, e.memory, e.context.cpuid.vendor(), e.next_rip));
}
Outcome handlers::Sysret(Execution& e) {
  return e.Transferred(
      vcpu::Sysret(e.state, e.memory, e.context.cpuid.vendor(), e.instr.operand_bits));
}
Outcome handlers::Sysenter(Execution& e) {
  return e.Transferred(vcpu::Sysenter(e.state, e.memory, e.context.cpuid.vendor()));
}
Outcome handlers::Sysexit(Execution& e) {
  const Outcome outcome =
      vcpu::Sysexit(e.state, e.memory, e.context.cpuid.vendor(), e.instr.operand_bits);
  if (outcome.faulted()) BlameCallSite(e);
  return e.Transferred(outcome);
}

}  // namespace alibi::simulator
