// SPDX-License-Identifier: Apache-2.0
// PUSH, POP and their relatives.
#include "simulator/execution.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/interrupt_flag.h"
#include "vcpu/segments.h"

namespace alibi::simulator {

using vcpu::kRbp, vcpu::kRsp;

Outcome handlers::Push(Execution& e) {
  const Instr& instr = e.instr;
  const unsigned size = instr.operand_bits / 8;
  u64 value = instr.immediate;
  if (instr.mem.present) {
    ALIBI_RETURN_IF_FAULT(e.ReadOperand(size, &value));
  } else if (instr.gpr_count > 0) {
    value = e.Reg(instr.gprs[0]);
  }
  u64 pointer = e.StackPointer();
  ALIBI_RETURN_IF_FAULT(e.Push(&pointer, size, value));
  e.CommitStackPointer(pointer);
  return {};
}

Outcome handlers::Pop(Execution& e) {
  const Instr& instr = e.instr;
  const unsigned size = instr.operand_bits / 8;
  const u64 old = e.state.gpr[kRsp];
  u64 pointer = e.StackPointer();
  u64 value;
  ALIBI_RETURN_IF_FAULT(e.Pop(&pointer, size, &value));
  // The address of a memory operand uses the incremented RSP, and POP RSP overwrites it.
  e.CommitStackPointer(pointer);
  if (!instr.mem.present) {
    e.SetReg(instr.gprs[0], value);
    return {};
  }
  Outcome outcome = e.WriteOperand(size, value);
  if (outcome.faulted()) e.state.gpr[kRsp] = old;
  return outcome;
}

Outcome handlers::PushSreg(Execution& e) {
  u64 pointer = e.StackPointer();
  const u16 selector = e.state.segment[e.instr.system_reg].selector;
  const unsigned size = e.instr.operand_bits / 8;
  const bool half = size == 4 && vcpu::HostHasIntelsWay(vcpu::HostDifference::kPushOfSelector);
  pointer = LowBits(pointer - size, e.StackBits());
  ALIBI_RETURN_IF_FAULT(e.Write(vcpu::kSs, pointer, half ? 2 : size, selector));
  e.CommitStackPointer(pointer);
  return {};
}

Outcome handlers::PopSreg(Execution& e) {
  u64 pointer = e.StackPointer();
  // The pointer's width is that of the stack it was popped from.
  const unsigned stack_bits = e.StackBits();
  const unsigned size = e.instr.operand_bits / 8;
  const bool part = vcpu::HostHasIntelsWay(vcpu::HostDifference::kPopOfSelector);
  u64 value;
  ALIBI_RETURN_IF_FAULT(e.Read(vcpu::kSs, pointer, part ? 2 : size, &value));
  pointer = LowBits(pointer + size, stack_bits);
  const auto index = static_cast<SegmentIndex>(e.instr.system_reg);
  ALIBI_RETURN_IF_FAULT(vcpu::LoadSegment(e.state, e.memory, index, static_cast<u16>(value)));
  e.SetReg(kRsp, stack_bits, pointer);
  if (index == vcpu::kSs) e.state.interrupt_shadow = 1;
  return {};
}

Outcome handlers::Pusha(Execution& e) {
  const unsigned size = e.instr.operand_bits / 8;
  const u64 start = e.StackPointer();
  // All eight slots must be writable before the first is written.
  u64 pointer = start;
  for (unsigned reg = 0; reg < 8; ++reg) {
    pointer = LowBits(pointer - size, e.StackBits());
    LinearAddr linear;
    ALIBI_RETURN_IF_FAULT(e.AlignedLinear(vcpu::kSs, pointer, size, size, true, &linear));
    vcpu::GuestFault fault;
    if (!e.memory.ProbeWrite(linear, size, vcpu::Privilege::kCpl, &fault)) return fault;
  }
  pointer = start;
  for (unsigned reg = 0; reg < 8; ++reg) {
    ALIBI_RETURN_IF_FAULT(e.Push(&pointer, size, e.state.gpr[reg]));
  }
  e.CommitStackPointer(pointer);
  return {};
}

Outcome handlers::Popa(Execution& e) {
  const unsigned size = e.instr.operand_bits / 8;
  u64 values[8];
  u64 pointer = e.StackPointer();
  for (unsigned reg = 8; reg-- > 0;) ALIBI_RETURN_IF_FAULT(e.Pop(&pointer, size, &values[reg]));
  for (unsigned reg = 0; reg < 8; ++reg) {
    if (reg != kRsp) e.SetReg(reg, size * 8, values[reg]);
  }
  e.CommitStackPointer(pointer);
  return {};
}

Outcome handlers::Pushf(Execution& e) {
  const unsigned bits = e.instr.operand_bits;
  ALIBI_RETURN_IF_FAULT(vcpu::CheckFlagsAccess(e.state, bits));
  u64 pointer = e.StackPointer();
  ALIBI_RETURN_IF_FAULT(e.Push(&pointer, bits / 8, vcpu::PushedFlagsImage(e.state)));
  e.CommitStackPointer(pointer);
  return {};
}

Outcome handlers::Popf(Execution& e) {
  const unsigned bits = e.instr.operand_bits;
  ALIBI_RETURN_IF_FAULT(vcpu::CheckFlagsAccess(e.state, bits));
  u64 pointer = e.StackPointer();
  u64 value;
  ALIBI_RETURN_IF_FAULT(e.Pop(&pointer, bits / 8, &value));
  ALIBI_RETURN_IF_FAULT(vcpu::PopFlags(e.state, e.memory, bits, value));
  e.CommitStackPointer(pointer);
  return {};
}

Outcome handlers::Enter(Execution& e) {
  const unsigned size = e.instr.operand_bits / 8, stack_bits = e.StackBits();
  const u64 locals = e.instr.immediate & 0xffff;
  const unsigned level = e.instr.immediate2 & 31;
  u64 pointer = e.StackPointer();
  ALIBI_RETURN_IF_FAULT(e.Push(&pointer, size, e.state.gpr[kRbp]));
  // The register takes all of the stack pointer, also where the stack uses 16 bits of it.
  const u64 frame = (e.state.gpr[kRsp] & ~LowBits(~u64{0}, stack_bits)) | pointer;
  u64 outer = LowBits(e.state.gpr[kRbp], stack_bits);
  for (unsigned i = 1; i < level; ++i) {
    outer = LowBits(outer - size, stack_bits);
    u64 value;
    ALIBI_RETURN_IF_FAULT(e.Read(vcpu::kSs, outer, size, &value));
    ALIBI_RETURN_IF_FAULT(e.Push(&pointer, size, value));
  }
  if (level > 0) ALIBI_RETURN_IF_FAULT(e.Push(&pointer, size, frame));
  pointer = LowBits(pointer - locals, stack_bits);
  // The new stack must be writable at its end (SDM vol. 2, ENTER).
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(e.Linear(vcpu::kSs, pointer, size, true, &linear));
  vcpu::GuestFault fault;
  if (!e.memory.ProbeWrite(linear, size, vcpu::Privilege::kCpl, &fault)) return fault;
  e.SetReg(kRbp, size * 8, frame);
  e.CommitStackPointer(pointer);
  return {};
}

Outcome handlers::Leave(Execution& e) {
  const unsigned size = e.instr.operand_bits / 8;
  u64 pointer = LowBits(e.state.gpr[kRbp], e.StackBits());
  u64 value;
  ALIBI_RETURN_IF_FAULT(e.Pop(&pointer, size, &value));
  e.CommitStackPointer(pointer);
  e.SetReg(kRbp, size * 8, value);
  return {};
}

}  // namespace alibi::simulator
