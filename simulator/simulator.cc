// SPDX-License-Identifier: Apache-2.0
#include "simulator/simulator.h"

#include <array>

#include "simulator/execution.h"
#include "vcpu/descriptors.h"

namespace alibi::simulator {
namespace {

using Handler = Outcome (*)(Execution&);

constexpr std::array<Handler, isa::kOpCount> kHandlers = {{
#define ALIBI_OP(name, emit, needs, simulate, traits) handlers::simulate,
#include "isa/ops.inc"
}};

// May it be executed here at all?
Outcome Permission(const isa::OpInfo& op, const VcpuState& state) {
  if (op.Has(isa::kProtectedOnly) && vcpu::RealOrVirtual8086(state)) return vcpu::InvalidOpcode();
  const bool privileged =
      op.Has(isa::kPrivileged) || (op.Has(isa::kPrivilegedByUmip) && (state.cr4 & vcpu::kCr4Umip));
  return privileged && state.cpl != 0 ? vcpu::GeneralProtection() : Outcome();
}

}  // namespace

// What runs on a bounce operand does not come here.
Outcome handlers::Bounce(Execution&) { return vcpu::InvalidOpcode(); }

Outcome LinearOperand(const Instr& instr, SimulatorContext& context, u64 offset, unsigned size,
                      LinearAddr* linear) {
  Execution execution(instr, context);
  const vcpu::Segment& named = context.state.segment[instr.mem.segment];
  // CLFLUSH, CLFLUSHOPT, CLWB: they may also name execute-only code (SDM vol. 2).
  if ((named.Type() & 8) && instr.Is(isa::kFlushesLine) && !context.state.In64BitCode() &&
      vcpu::InSegmentLimit(named, static_cast<u32>(offset), size)) {
    *linear = LinearAddr(static_cast<u32>(named.base + offset));
    return {};
  }
  return execution.LinearElement(static_cast<SegmentIndex>(instr.mem.segment), offset, size,
                                 instr.mem.written, linear);
}

Outcome Simulate(const Instr& instr, SimulatorContext& context) {
  ALIBI_RETURN_IF_FAULT(Permission(InfoOf(instr.op), context.state));
  Execution execution(instr, context);
  const u8 shadow = context.state.interrupt_shadow;
  context.state.interrupt_shadow = 0;
  Outcome outcome = kHandlers[static_cast<std::size_t>(instr.op)](execution);
  if (outcome.faulted()) {
    context.state.interrupt_shadow = shadow;
    return outcome;
  }
  if (!execution.rip_set) {
    context.state.rip = execution.next_rip;
    // RF holds for one instruction; what loads it (IRET, task switches) stores RIP as well.
    context.state.system_flags &= ~static_cast<u32>(vcpu::kRf);
  }
  return outcome;
}

}  // namespace alibi::simulator
