// The simulator: executes ONE guest instruction in software, on VcpuState and guest memory.
//
// It is what SIMULATE translations call for everything that cannot be done by running the
// instruction itself on a bounce operand: system instructions, control transfers, strings, the
// stack. Runs while guest vector state is live: general registers only.
#ifndef ALIBI_RUNTIME_SIMULATOR_SIMULATOR_H_
#define ALIBI_RUNTIME_SIMULATOR_SIMULATOR_H_

#include "translator/ir.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/platform.h"
#include "vcpu/state.h"

namespace alibi::runtime {

struct SimulatorContext {
  vcpu::VcpuState& state;
  vcpu::LinearMemory& memory;
  vcpu::PortIo& ports;
  vcpu::Platform& platform;
};

// Precondition: state.rip == instr.pc. On success state.rip is the next instruction (or the branch
// target, or instr.pc again for a string instruction that is not finished). On a fault nothing
// architectural has changed, except completed iterations of a string instruction; the caller
// delivers it. Instructions it does not know raise #UD.
vcpu::Outcome Simulate(const translator::Instr& instr, SimulatorContext& context);

// The linear address of instr.mem, from the current registers and segment bases; address-size and,
// outside 64-bit mode, 32-bit wrap-around applied.
u64 EffectiveAddress(const translator::Instr& instr, const vcpu::VcpuState& state);

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_SIMULATOR_SIMULATOR_H_
