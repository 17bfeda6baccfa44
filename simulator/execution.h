// SPDX-License-Identifier: Apache-2.0
// One instruction in execution: what the handlers of the simulator share.
#ifndef ALIBI_SIMULATOR_EXECUTION_H_
#define ALIBI_SIMULATOR_EXECUTION_H_

#include "base/bits.h"
#include "base/types.h"
#include "isa/ir.h"
#include "simulator/simulator.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/state.h"

namespace alibi::simulator {

using isa::GprUse;
using isa::Instr;
using isa::Op;
using vcpu::Outcome;
using vcpu::SegmentIndex;
using vcpu::VcpuState;

struct Execution {
  Execution(const Instr& instruction, SimulatorContext& c);

  const Instr& instr;
  SimulatorContext& context;
  VcpuState& state;
  vcpu::LinearMemory& memory;
  u64 next_rip;
  bool rip_set = false;  // the handler has stored RIP itself

  // --- General registers. Results of 32 bits clear the upper half, smaller ones keep the rest. ---
  u64 Reg(const GprUse& use) const;
  void SetReg(const GprUse& use, u64 value);
  u64 Reg(unsigned reg, unsigned bits) const { return LowBits(state.gpr[reg], bits); }
  void SetReg(unsigned reg, unsigned bits, u64 value);

  // --- Memory ---
  // Segmentation: limit, type and canonical checks; size is at least 1.
  Outcome Linear(SegmentIndex segment, u64 offset, unsigned size, bool write, LinearAddr* linear);
  // That, and EFLAGS.AC. `alignment` is a power of two.
  Outcome AlignedLinear(SegmentIndex segment, u64 offset, unsigned size, unsigned alignment,
                        bool write, LinearAddr* linear);
  // Linear() for a part of a vector operand, whose offset may be 4 GB and more
  // (vcpu/cpu_differences.inc: EndOf4Gb).
  Outcome LinearElement(SegmentIndex segment, u64 offset, unsigned size, bool write,
                        LinearAddr* linear);
  // The offset of instr.mem inside its segment.
  u64 Offset() const;
  Outcome OperandAddress(unsigned size, bool write, LinearAddr* linear);
  // Values of 1, 2, 4 or 8 bytes.
  Outcome Read(SegmentIndex segment, u64 offset, unsigned size, u64* value);
  Outcome Write(SegmentIndex segment, u64 offset, unsigned size, u64 value);
  // The read of a read-modify-write: its faults are those of the write.
  Outcome ReadForUpdate(SegmentIndex segment, u64 offset, unsigned size, u64* value);
  Outcome ReadOperand(unsigned size, u64* value);
  Outcome WriteOperand(unsigned size, u64 value);
  // The ModRM operand: memory of `size` bytes, or gprs[index] at its own width.
  Outcome ReadRm(unsigned index, unsigned size, u64* value);
  Outcome WriteRm(unsigned index, unsigned size, u64 value);

  // --- Stack. Handlers move a copy of the pointer and commit it when nothing can fault. ---
  unsigned StackBits() const;
  u64 StackPointer() const { return LowBits(state.gpr[vcpu::kRsp], StackBits()); }
  void CommitStackPointer(u64 pointer) { SetReg(vcpu::kRsp, StackBits(), pointer); }
  Outcome Push(u64* pointer, unsigned size, u64 value);
  Outcome Pop(u64* pointer, unsigned size, u64* value);

  // --- Control ---
  Outcome CheckTarget(u64 rip) const;
  Outcome Jump(u64 rip);
  // The system semantics functions store RIP themselves.
  Outcome Transferred(Outcome outcome) {
    rip_set = outcome.done();
    return outcome;
  }

  // The register of the string instructions' source, and of XLAT: DS unless overridden.
  SegmentIndex SourceSegment() const {
    return instr.segment_override == 0xff ? vcpu::kDs
                                          : static_cast<SegmentIndex>(instr.segment_override);
  }
  void SetFlag(u64 flag, bool value) {
    state.arithmetic_flags = value ? state.arithmetic_flags | flag : state.arithmetic_flags & ~flag;
  }
};

// IRET or SYSEXIT has faulted. Where hypercalls are offered, and it is the end of a function that
// drops its return address and does nothing else (pc/boot/vmi_rom.S), then the call instruction is
// to blame: a kernel knows that place, and can mend what it wanted to return to. EIP becomes its
// address; ESP is what it was there.
void BlameCallSite(Execution& e);

// One function per operation, or per few that differ little: those that isa/ops.inc names,
// and no others.
namespace handlers {
#define ALIBI_OP(name, emit, needs, simulate, traits) Outcome simulate(Execution& e);
#include "isa/ops.inc"
}  // namespace handlers

}  // namespace alibi::simulator

#endif  // ALIBI_SIMULATOR_EXECUTION_H_
