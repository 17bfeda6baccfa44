// SPDX-License-Identifier: Apache-2.0
#include "simulator/execution.h"

#include "base/bits.h"
#include "isa/effective_address.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/descriptors.h"

namespace alibi::simulator {

using vcpu::GuestFault;
using vcpu::Privilege;
using vcpu::Segment;

Execution::Execution(const Instr& instruction, SimulatorContext& c)
    : instr(instruction),
      context(c),
      state(c.state),
      memory(c.memory),
      // EIP has 32 bits in 16-bit code, too: what follows offset 0xffff is behind the limit.
      next_rip(LowBits(c.state.rip + instruction.length, instruction.code_bits == 64 ? 64 : 32)) {}

u64 Execution::Reg(const GprUse& use) const {
  return use.high_byte ? (state.gpr[use.reg] >> 8) & 0xff : LowBits(state.gpr[use.reg], use.bits);
}

void Execution::SetReg(const GprUse& use, u64 value) {
  if (use.high_byte) {
    state.gpr[use.reg] = (state.gpr[use.reg] & ~u64{0xff00}) | ((value & 0xff) << 8);
  } else {
    SetReg(use.reg, use.bits, value);
  }
}

void Execution::SetReg(unsigned reg, unsigned bits, u64 value) {
  u64& r = state.gpr[reg];
  r = bits >= 32 ? LowBits(value, bits) : (r & ~LowBits(~u64{0}, bits)) | LowBits(value, bits);
}

Outcome Execution::Linear(SegmentIndex index, u64 offset, unsigned size, bool write,
                          LinearAddr* linear) {
  const Segment& segment = state.segment[index];
  if (state.In64BitCode()) {
    // Only FS and GS have a base here.
    const u64 address = index >= vcpu::kFs ? segment.base + offset : offset;
    *linear = LinearAddr(address);
    if (IsCanonical(address) && IsCanonical(address + size - 1)) return {};
  } else {
    *linear = LinearAddr(static_cast<u32>(segment.base + offset));
    bool allowed = vcpu::InSegmentLimit(segment, static_cast<u32>(offset), size);
    if (!vcpu::RealOrVirtual8086(state)) {
      const bool code = segment.Type() & 8, type_bit = segment.Type() & 2;
      // Bit 1 is "writable" of data and "readable" of code.
      const bool type_allows = write ? !code && type_bit : !code || type_bit;
      allowed = allowed && segment.Present() && type_allows;
    }
    if (allowed) return {};
  }
  return index == vcpu::kSs ? vcpu::StackFault() : vcpu::GeneralProtection();
}

Outcome Execution::AlignedLinear(SegmentIndex index, u64 offset, unsigned size, unsigned alignment,
                                 bool write, LinearAddr* linear) {
  const Outcome outcome = Linear(index, offset, size, write, linear);
  // On some hosts #AC comes first where the end of the canonical addresses cuts the operand.
  const bool cut = state.In64BitCode() && IsCanonical(linear->value) &&
                   vcpu::HostHasIntelsWay(vcpu::HostDifference::kEndOfCanonical);
  if (outcome.faulted() && !cut) return outcome;
  const bool misaligned = state.ChecksAlignment() && (linear->value & (alignment - 1)) != 0;
  return misaligned ? Outcome::WithCode(vcpu::kAlignmentCheck, 0) : outcome;
}

Outcome Execution::LinearElement(SegmentIndex index, u64 offset, unsigned size, bool write,
                                 LinearAddr* linear) {
  const bool wraps = vcpu::HostHasIntelsWay(vcpu::HostDifference::kEndOf4Gb);
  if (!state.In64BitCode() && offset >> 32 != 0 && !wraps) {
    return index == vcpu::kSs ? vcpu::StackFault() : vcpu::GeneralProtection();
  }
  return Linear(index, state.In64BitCode() ? offset : static_cast<u32>(offset), size, write,
                linear);
}

u64 Execution::Offset() const { return EffectiveAddress(instr, state.gpr); }

Outcome Execution::OperandAddress(unsigned size, bool write, LinearAddr* linear) {
  // Far pointers and descriptor-table registers.
  return AlignedLinear(static_cast<SegmentIndex>(instr.mem.segment), Offset(), size,
                       size == 4 ? 2 : 4, write, linear);
}

Outcome Execution::Read(SegmentIndex segment, u64 offset, unsigned size, u64* value) {
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(AlignedLinear(segment, offset, size, size, false, &linear));
  GuestFault fault;
  u64 result = 0;
  if (!memory.Read(linear, &result, size, Privilege::kCpl, &fault)) return fault;
  *value = result;
  return {};
}

Outcome Execution::Write(SegmentIndex segment, u64 offset, unsigned size, u64 value) {
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(AlignedLinear(segment, offset, size, size, true, &linear));
  GuestFault fault;
  if (!memory.Write(linear, &value, size, Privilege::kCpl, &fault)) return fault;
  return {};
}

Outcome Execution::ReadForUpdate(SegmentIndex segment, u64 offset, unsigned size, u64* value) {
  LinearAddr linear;
  ALIBI_RETURN_IF_FAULT(AlignedLinear(segment, offset, size, size, true, &linear));
  GuestFault fault;
  if (!memory.ProbeWrite(linear, size, Privilege::kCpl, &fault)) return fault;
  return Read(segment, offset, size, value);
}

Outcome Execution::ReadOperand(unsigned size, u64* value) {
  return Read(static_cast<SegmentIndex>(instr.mem.segment), Offset(), size, value);
}

Outcome Execution::WriteOperand(unsigned size, u64 value) {
  return Write(static_cast<SegmentIndex>(instr.mem.segment), Offset(), size, value);
}

Outcome Execution::ReadRm(unsigned index, unsigned size, u64* value) {
  if (instr.mem.present) return ReadOperand(size, value);
  *value = Reg(instr.gprs[index]);
  return {};
}

Outcome Execution::WriteRm(unsigned index, unsigned size, u64 value) {
  if (instr.mem.present) return WriteOperand(size, value);
  SetReg(instr.gprs[index], value);
  return {};
}

unsigned Execution::StackBits() const {
  return state.In64BitCode() ? 64 : state.segment[vcpu::kSs].Big() ? 32 : 16;
}

Outcome Execution::Push(u64* pointer, unsigned size, u64 value) {
  const u64 below = LowBits(*pointer - size, StackBits());
  ALIBI_RETURN_IF_FAULT(Write(vcpu::kSs, below, size, value));
  *pointer = below;
  return {};
}

Outcome Execution::Pop(u64* pointer, unsigned size, u64* value) {
  ALIBI_RETURN_IF_FAULT(Read(vcpu::kSs, *pointer, size, value));
  *pointer = LowBits(*pointer + size, StackBits());
  return {};
}

Outcome Execution::CheckTarget(u64 rip) const {
  const bool inside =
      state.In64BitCode() ? IsCanonical(rip) : rip <= state.segment[vcpu::kCs].limit;
  return inside ? Outcome() : vcpu::GeneralProtection();
}

Outcome Execution::Jump(u64 rip) {
  ALIBI_RETURN_IF_FAULT(CheckTarget(rip));
  state.rip = rip;
  rip_set = true;
  return {};
}

}  // namespace alibi::simulator
