// SPDX-License-Identifier: Apache-2.0
// The simulator: one guest instruction in software, on the VCPU's state.
//
// It knows every instruction that cannot run unchanged on a bounce operand: privileged and system
// instructions, control transfers, strings, the stack, port I/O, and what has no 64-bit encoding.
// Compiled for general registers only: guest vector state is live in the host's registers, where
// gathers and masked moves find and leave it.
#ifndef ALIBI_SIMULATOR_SIMULATOR_H_
#define ALIBI_SIMULATOR_SIMULATOR_H_

#include "isa/ir.h"
#include "vcpu/cpuid.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/platform.h"
#include "vcpu/state.h"

namespace alibi::simulator {

// Where translations come from.
class HostCode {
 public:
  // RIP and the linear address of the guest instruction that the instruction at `host` is a
  // translation of, or part of.
  virtual bool GuestRip(HostAddr host, u64* rip, LinearAddr* linear) const = 0;
  // The x87 opcodes (SDM vol. 1, 8.1.9) of such an instruction and of its translation, whose
  // operand is another one. Takes a decoding.
  virtual bool X87Opcodes(HostAddr host, u16* guest, u16* translated) const = 0;

 protected:
  ~HostCode() = default;
};

struct SimulatorContext {
  vcpu::VcpuState& state;
  vcpu::LinearMemory& memory;
  vcpu::PortIo& ports;
  vcpu::Platform& platform;
  const vcpu::CpuidPolicy& cpuid;
  const HostCode* host_code = nullptr;  // null: there are no translations
};

// Does Simulate know this operation? What it does not know runs on a bounce operand; Simulate
// answers #UD to it.
constexpr bool CanSimulate(isa::Op op) {
  return isa::InfoOf(op).simulate == isa::OpInfo::Simulate::kFunction;
}

// Segmentation of `size` bytes of the memory operand, at `offset`: limit, type and canonical
// checks, and their linear address. For operands that are bounced, whole or by elements.
vcpu::Outcome LinearOperand(const isa::Instr& instr, SimulatorContext& context, u64 offset,
                            unsigned size, LinearAddr* linear);

// Executes `instr`, which state.rip points at. Done: state.rip is the next instruction - or still
// this one when a REP has more to do than one call may take (so that interrupts get in); the state
// is at an instruction boundary either way, and halted is set after HLT. Fault: nothing changed
// but the progress of a REP; the caller delivers it. Sets and clears the interrupt shadow.
vcpu::Outcome Simulate(const isa::Instr& instr, SimulatorContext& context);

}  // namespace alibi::simulator

#endif  // ALIBI_SIMULATOR_SIMULATOR_H_
