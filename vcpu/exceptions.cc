// SPDX-License-Identifier: Apache-2.0
#include "vcpu/exceptions.h"

#include <initializer_list>

#include "vcpu/breakpoints.h"
#include "vcpu/control_registers.h"
#include "vcpu/descriptors.h"
#include "vcpu/interrupt_flag.h"
#include "vcpu/stack_frame.h"
#include "vcpu/task_switch.h"

namespace alibi::vcpu {
namespace {

// What a handler starts with cleared, besides IF for interrupt gates.
constexpr u32 kClearedByGate = static_cast<u32>(kTf | kVm | kRf | kNt);

// EXT: the error code of a fault in this delivery belongs to an event outside the program.
u32 ExtBit(const Event& event) { return event.kind == EventKind::kSoftware ? 0 : 1; }

u64 PushedFlags(const VcpuState& state, const Event& event) {
  u64 flags = state.Rflags();
  if (event.kind == EventKind::kFault || event.between_iterations) return flags | kRf;
  // Trap and software interrupt come after an instruction, and completing one clears RF.
  return event.kind == EventKind::kExternal ? flags : flags & ~kRf;
}

Outcome CheckGate(const VcpuState& state, const Event& event, Descriptor gate, u32 types,
                  u32 idt_code) {
  if (gate.CodeOrData() || !((types >> gate.Type()) & 1)) return GeneralProtection(idt_code);
  if (event.kind == EventKind::kSoftware && gate.Dpl() < state.cpl) {
    return GeneralProtection(idt_code);
  }
  if (!gate.Present()) return Outcome::WithCode(kSegmentNotPresent, idt_code);
  return {};
}

// The handler's code segment: null, limit, type, DPL and presence.
Outcome ReadHandlerSegment(const VcpuState& state, LinearMemory& memory, u16 selector, u32 ext,
                           Descriptor* code, LinearAddr* address) {
  if (NullSelector(selector)) return GeneralProtection(ext);
  ALIBI_RETURN_IF_FAULT(
      ReadDescriptor(state, memory, selector, kGeneralProtection, ext, code, address));
  if (!code->Code() || code->Dpl() > state.cpl) {
    return GeneralProtection(SelectorCode(selector) | ext);
  }
  if (state.LongModeActive() && (!code->Long() || code->Big())) {
    return GeneralProtection(SelectorCode(selector) | ext);
  }
  if (!code->Present()) {
    return Outcome::WithCode(kSegmentNotPresent, SelectorCode(selector) | ext);
  }
  return {};
}

void EnterHandler(VcpuState& state, LinearMemory& memory, Segment code, u64 rip, unsigned cpl,
                  bool interrupt_gate) {
  code.selector = static_cast<u16>((code.selector & ~3u) | cpl);
  state.rip = rip;
  state.system_flags &= ~kClearedByGate;
  if (interrupt_gate) state.if_flag = 0;
  EnterCode(state, memory, code, cpl);
}

// SDM vol. 3, 6.14. Kept straight: every true page fault of a 64-bit guest comes through here.
Outcome DeliverLong(VcpuState& state, LinearMemory& memory, const Event& event, u64 return_rip) {
  const u32 ext = ExtBit(event);
  const u32 idt_code = event.vector * 8u + 2 + ext;
  const u32 offset = event.vector * 16u;
  LinearAddr gate_address(state.idtr.base + offset);
  if (offset + 15 > state.idtr.limit) return GeneralProtection(idt_code);
  if (!IsCanonical(gate_address.value)) return GeneralProtection(ext);
  u64 gate_words[2];
  GuestFault fault;
  if (!memory.Read(gate_address, gate_words, 16, Privilege::kSupervisor, &fault)) return fault;
  Descriptor gate{gate_words[0]};
  ALIBI_RETURN_IF_FAULT(
      CheckGate(state, event, gate, (1u << kTypeInterruptGate) | (1u << kTypeTrapGate), idt_code));

  const u16 selector = gate.GateSelector();
  Descriptor code;
  LinearAddr code_address;
  ALIBI_RETURN_IF_FAULT(ReadHandlerSegment(state, memory, selector, ext, &code, &code_address));
  const bool inner = !code.Conforming() && code.Dpl() < state.cpl;
  if (!inner && !code.Conforming() && code.Dpl() != state.cpl) {
    return GeneralProtection(SelectorCode(selector) | ext);
  }
  const unsigned new_cpl = inner ? code.Dpl() : state.cpl;

  const u32 ist = (gate.raw >> 32) & 7;
  u64 stack = state.gpr[kRsp];
  if (ist != 0 || inner) {
    const Segment& tss = state.segment[kTr];
    u32 field = ist != 0 ? ist * 8 + 28 : new_cpl * 8 + 4;
    if (field + 7 > tss.limit) {
      return Outcome::WithCode(kInvalidTss, SelectorCode(tss.selector) | ext);
    }
    if (!memory.ReadValue(LinearAddr(tss.base + field), &stack, Privilege::kSupervisor, &fault)) {
      return fault;
    }
  }
  stack &= ~u64{15};
  const unsigned bytes = event.has_error_code ? 48 : 40;
  if (!IsCanonical(stack - 1) || !IsCanonical(stack - bytes)) return StackFault(ext);
  const u64 target = gate.GateOffset32() | (gate_words[1] << 32);
  if (!IsCanonical(target)) return GeneralProtection(ext);

  const u64 frame[6] = {event.error_code,          return_rip,      state.segment[kCs].selector,
                        PushedFlags(state, event), state.gpr[kRsp], state.segment[kSs].selector};
  const u64* lowest = event.has_error_code ? frame : frame + 1;
  if (!memory.Write(LinearAddr(stack - bytes), lowest, bytes, StackPrivilege(new_cpl, state.cpl),
                    &fault)) {
    return fault;
  }
  ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, code_address, &code));

  state.gpr[kRsp] = stack - bytes;
  if (inner) state.segment[kSs] = Segment{.selector = static_cast<u16>(new_cpl)};
  EnterHandler(state, memory, code.ToSegment(selector), target, new_cpl,
               gate.Type() == kTypeInterruptGate);
  return {};
}

Outcome DeliverProtected(VcpuState& state, LinearMemory& memory, const Event& event,
                         u64 return_rip) {
  const u32 ext = ExtBit(event);
  const u32 idt_code = event.vector * 8u + 2 + ext;
  const u32 offset = event.vector * 8u;
  if (offset + 7 > state.idtr.limit) return GeneralProtection(idt_code);
  Descriptor gate;
  GuestFault fault;
  LinearAddr gate_address(static_cast<u32>(state.idtr.base + offset));
  if (!memory.ReadValue(gate_address, &gate.raw, Privilege::kSupervisor, &fault)) return fault;
  constexpr u32 kTypes = (1u << kTypeTaskGate) | (1u << kTypeInterruptGate16) |
                         (1u << kTypeTrapGate16) | (1u << kTypeInterruptGate) |
                         (1u << kTypeTrapGate);
  ALIBI_RETURN_IF_FAULT(CheckGate(state, event, gate, kTypes, idt_code));
  const u16 selector = gate.GateSelector();
  if (gate.Type() == kTypeTaskGate) {
    return SwitchTask(state, memory,
                      {.kind = TaskSwitchKind::kEvent,
                       .selector = selector,
                       .next_rip = return_rip,
                       .ext = ext,
                       .has_error_code = event.has_error_code,
                       .error_code = event.error_code,
                       .flags = PushedFlags(state, event)});
  }

  Descriptor code;
  LinearAddr code_address;
  ALIBI_RETURN_IF_FAULT(ReadHandlerSegment(state, memory, selector, ext, &code, &code_address));
  const bool virtual8086 = state.system_flags & kVm;
  const bool inner = !code.Conforming() && code.Dpl() < state.cpl;
  // Virtual-8086 mode is left to CPL 0 only.
  if (inner ? virtual8086 && code.Dpl() != 0
            : virtual8086 || (!code.Conforming() && code.Dpl() != state.cpl)) {
    return GeneralProtection(SelectorCode(selector) | ext);
  }
  const unsigned new_cpl = inner ? code.Dpl() : state.cpl;

  Segment stack = state.segment[kSs];
  u64 old_pointer = state.gpr[kRsp];
  u64 pointer = old_pointer;
  LinearAddr stack_address;
  Descriptor stack_descriptor;
  if (inner) {
    ALIBI_RETURN_IF_FAULT(ReadInnerStack(state, memory, new_cpl, ext, &stack, &pointer,
                                         &stack_descriptor, &stack_address));
  }

  const bool wide = gate.Type() >= kTypeInterruptGate;
  FrameWords frame(wide ? 4 : 2);
  if (event.has_error_code) frame.Add(event.error_code);
  frame.Add(return_rip);
  frame.Add(state.segment[kCs].selector);
  frame.Add(PushedFlags(state, event));
  if (inner) {
    frame.Add(old_pointer);
    frame.Add(state.segment[kSs].selector);
  }
  if (virtual8086) {
    for (SegmentIndex index : {kEs, kDs, kFs, kGs}) frame.Add(state.segment[index].selector);
  }
  const u32 target = wide ? gate.GateOffset32() : gate.GateOffset32() & 0xffff;
  const u32 stack_code = inner ? SelectorCode(stack.selector) | ext : ext;
  u32 new_pointer = static_cast<u32>(pointer);
  if (target > code.Limit()) {
    // The stack's room is checked before the target.
    LegacyStack probe{stack, StackPrivilege(new_cpl, state.cpl), stack_code};
    u32 low = (new_pointer - frame.size()) & StackMask(stack);
    if (probe.Contiguous(low, frame.size(), frame.word()) == 0) return StackFault(stack_code);
    return GeneralProtection(ext);
  }
  ALIBI_RETURN_IF_FAULT((LegacyStack{stack, StackPrivilege(new_cpl, state.cpl), stack_code}.Push(
      memory, &new_pointer, frame.data(), frame.size(), frame.word())));
  if (inner) ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, stack_address, &stack_descriptor));
  ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, code_address, &code));

  if (inner) state.segment[kSs] = stack_descriptor.ToSegment(stack.selector);
  state.gpr[kRsp] = MergeStackPointer(stack, pointer, new_pointer);
  if (virtual8086) {
    for (SegmentIndex index : {kEs, kDs, kFs, kGs}) state.segment[index] = Segment{};
  }
  EnterHandler(state, memory, code.ToSegment(selector), target, new_cpl,
               gate.Type() == kTypeInterruptGate || gate.Type() == kTypeInterruptGate16);
  return {};
}

Outcome DeliverReal(VcpuState& state, LinearMemory& memory, const Event& event, u64 return_rip) {
  const u32 offset = event.vector * 4u;
  if (offset + 3 > state.idtr.limit) return Outcome::Simple(kGeneralProtection);
  u16 entry[2];
  GuestFault fault;
  LinearAddr address(static_cast<u32>(state.idtr.base + offset));
  if (!memory.Read(address, entry, 4, Privilege::kSupervisor, &fault)) return fault;
  FrameWords frame(2);
  frame.Add(return_rip);
  frame.Add(state.segment[kCs].selector);
  frame.Add(state.Rflags());
  u32 pointer = static_cast<u32>(state.gpr[kRsp]);
  LegacyStack stack{state.segment[kSs], Privilege::kSupervisor, 0};
  Outcome pushed = stack.Push(memory, &pointer, frame.data(), frame.size(), frame.word());
  if (pushed.faulted()) {
    // Real mode has no error codes.
    return pushed.fault().vector == kStackFault ? Outcome::Simple(kStackFault) : pushed;
  }
  state.gpr[kRsp] = MergeStackPointer(state.segment[kSs], state.gpr[kRsp], pointer);
  state.segment[kCs].selector = entry[1];
  state.segment[kCs].base = u32{entry[1]} << 4;
  state.rip = entry[0];
  state.if_flag = 0;
  state.system_flags &= ~static_cast<u32>(kTf | kAc | kRf);
  return {};
}

// SDM vol. 3, table 6-5.
enum class Severity { kBenign, kContributory, kPageFault, kDoubleFault };

Severity SeverityOf(const Event& event) {
  if (event.kind == EventKind::kSoftware || event.kind == EventKind::kExternal) {
    return Severity::kBenign;
  }
  constexpr u32 kContributory = (1u << kDivideError) | (1u << kInvalidTss) |
                                (1u << kSegmentNotPresent) | (1u << kStackFault) |
                                (1u << kGeneralProtection);
  if (event.vector == kDoubleFault) return Severity::kDoubleFault;
  if (event.vector == kPageFault) return Severity::kPageFault;
  return event.vector < 32 && ((kContributory >> event.vector) & 1) ? Severity::kContributory
                                                                    : Severity::kBenign;
}

bool Escalates(const Event& first, const Event& second) {
  switch (SeverityOf(first)) {
    case Severity::kBenign:
      return false;
    case Severity::kContributory:
      return SeverityOf(second) == Severity::kContributory;
    case Severity::kPageFault:
    case Severity::kDoubleFault:
      return true;  // deliveries raise nothing benign
  }
  return true;
}

}  // namespace

Outcome TryDeliver(VcpuState& state, LinearMemory& memory, const Event& event, u64 return_rip) {
  Outcome outcome = __builtin_expect(state.LongModeActive(), 1)
                        ? DeliverLong(state, memory, event, return_rip)
                    : state.ProtectedMode() ? DeliverProtected(state, memory, event, return_rip)
                                            : DeliverReal(state, memory, event, return_rip);
  if (outcome.faulted()) return outcome;
  state.interrupt_shadow = 0;
  state.halted = 0;
  if (event.vector == kDebug && event.kind != EventKind::kSoftware) {
    state.dr[7] &= ~kDr7Gd;
    state.debugctl &= ~kDebugCtlBtf;
  }
  if (event.vector == kNmi && event.kind == EventKind::kExternal) state.nmi_blocked = 1;
  return outcome;
}

void DeliverEvent(VcpuState& state, LinearMemory& memory, const Event& event, u64 return_rip) {
  Event current = event;
  const u16 task = state.segment[kTr].selector;
  unsigned task_traps = 0;
  for (;;) {
    if (current.vector == kPageFault && current.kind == EventKind::kFault) state.cr2 = current.cr2;
    Outcome outcome = TryDeliver(state, memory, current, return_rip);
    if (outcome.done()) {
      if (__builtin_expect(!state.task_trap, 1)) return;
      // The handler is a task with the T flag. Tasks that overwrite their own descriptors could go
      // on like this forever, and nothing would get in: there are less than 256 gates.
      state.task_trap = 0;
      if (++task_traps == 256) {
        state.shutdown = 1;
        return;
      }
      ReportDebug(state, kDr6Bt);
      current = Event::Trap(kDebug);
      return_rip = state.rip;
      continue;
    }
    Event second = Event::Fault(outcome.fault());
    // The processor has CR2 from the walk, whatever becomes of the fault.
    if (second.vector == kPageFault) state.cr2 = second.cr2;
    if (Escalates(current, second)) {
      if (SeverityOf(current) == Severity::kDoubleFault) {
        state.shutdown = 1;
        return;
      }
      second = {EventKind::kFault, kDoubleFault, state.ProtectedMode(), 0, 0};
    }
    // A fault in INT n is the instruction's own fault; in the delivery of anything else it is
    // reported at the boundary where that event was taken. After a task switch the boundary is
    // the new task's first instruction.
    if (current.kind == EventKind::kSoftware || state.segment[kTr].selector != task) {
      return_rip = state.rip;
    }
    current = second;
  }
}

Outcome SoftwareInterrupt(VcpuState& state, LinearMemory& memory, u8 vector, u64 next_rip) {
  if (state.system_flags & kVm) {
    if (state.cr4 & kCr4Vme) {
      bool redirected = false;
      ALIBI_RETURN_IF_FAULT(RedirectInterrupt(state, memory, vector, next_rip, &redirected));
      if (redirected) return {};
    }
    if (state.Iopl() < 3) return GeneralProtection();
  }
  return SoftwareTrap(state, memory, vector, next_rip);
}

Outcome SoftwareTrap(VcpuState& state, LinearMemory& memory, u8 vector, u64 next_rip) {
  ALIBI_RETURN_IF_FAULT(TryDeliver(state, memory, Event::Software(vector), next_rip));
  DeliverTaskTrap(state, memory);
  return {};
}

Outcome DebugTrap(VcpuState& state, LinearMemory& memory, u64 next_rip) {
  ALIBI_RETURN_IF_FAULT(TryDeliver(state, memory, Event::Trap(kDebug), next_rip));
  DeliverTaskTrap(state, memory);
  return {};
}

void DeliverTaskTrap(VcpuState& state, LinearMemory& memory) {
  if (__builtin_expect(!state.task_trap, 1)) return;
  state.task_trap = 0;
  ReportDebug(state, kDr6Bt);
  DeliverEvent(state, memory, Event::Trap(kDebug), state.rip);
}

}  // namespace alibi::vcpu
