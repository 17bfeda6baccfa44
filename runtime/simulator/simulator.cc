// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/simulator.h"

#include <array>

#include "runtime/simulator/execution.h"
#include "vcpu/descriptors.h"

namespace alibi::runtime {
namespace {

constexpr unsigned kOpCount = static_cast<unsigned>(Op::kCount);

Handler Search(Op op) {
  Handler (*const kFiles[])(Op) = {DataHandler,   StackHandler,  ControlHandler, StringHandler,
                                   SystemHandler, VectorHandler, XsaveHandler,   X87Handler};
  for (auto file : kFiles) {
    if (Handler handler = file(op)) return handler;
  }
  return nullptr;
}

std::array<Handler, kOpCount> MakeTable() {
  std::array<Handler, kOpCount> table;
  for (unsigned op = 0; op < kOpCount; ++op) table[op] = Search(static_cast<Op>(op));
  return table;
}

const std::array<Handler, kOpCount> kHandlers = MakeTable();

// CLFLUSH, CLFLUSHOPT, CLWB: they may also name execute-only code (SDM vol. 2).
bool FlushesLine(const Instr& instr) {
  const unsigned at = instr.layout.opcode;
  return instr.encoding == translator::Encoding::kLegacy && instr.mem.size == 1 && at > 0 &&
         instr.bytes[at] == 0xae && instr.bytes[at - 1] == 0x0f;
}

}  // namespace

bool CanSimulate(Op op) { return kHandlers[static_cast<unsigned>(op)] != nullptr; }

Outcome LinearOperand(const Instr& instr, SimulatorContext& context, u64 offset, unsigned size,
                      LinearAddr* linear) {
  Execution execution(instr, context);
  const vcpu::Segment& named = context.state.segment[instr.mem.segment];
  if ((named.Type() & 8) && FlushesLine(instr) && !context.state.In64BitCode() &&
      vcpu::InSegmentLimit(named, static_cast<u32>(offset), size)) {
    *linear = LinearAddr(static_cast<u32>(named.base + offset));
    return {};
  }
  return execution.LinearElement(static_cast<SegmentIndex>(instr.mem.segment), offset, size,
                                 instr.mem.written, linear);
}

Outcome Simulate(const Instr& instr, SimulatorContext& context) {
  Execution execution(instr, context);
  const u8 shadow = context.state.interrupt_shadow;
  context.state.interrupt_shadow = 0;
  const Handler handler = kHandlers[static_cast<unsigned>(instr.op)];
  Outcome outcome = handler != nullptr ? handler(execution) : vcpu::InvalidOpcode();
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

}  // namespace alibi::runtime
