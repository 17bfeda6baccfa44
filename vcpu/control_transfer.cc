// SPDX-License-Identifier: Apache-2.0
#include "vcpu/control_transfer.h"

#include <initializer_list>

#include "vcpu/breakpoints.h"
#include "vcpu/control_registers.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/descriptors.h"
#include "vcpu/exceptions.h"
#include "vcpu/interrupt_flag.h"
#include "vcpu/stack_frame.h"
#include "vcpu/task_switch.h"

namespace alibi::vcpu {
namespace {

u64 Truncate(u64 value, unsigned bits) {
  return bits == 64 ? value : bits == 32 ? static_cast<u32>(value) : static_cast<u16>(value);
}

// A stack frame of up to five words of 2, 4 or 8 bytes; words[0] is at the lowest address.
struct Words {
  u64 word[5] = {};
};

// Of a 64-bit frame all words are aligned or none is.
bool MisalignedFrame(const VcpuState& state, u64 pointer, unsigned width) {
  return state.ChecksAlignment() && (pointer & (width - 1)) != 0;
}

LegacyStack CurrentStack(const VcpuState& state) {
  return {state.segment[kSs], Privilege::kCpl, 0, state.ChecksAlignment()};
}

Outcome PeekWords(const VcpuState& state, LinearMemory& memory, u64 pointer, unsigned first,
                  unsigned count, unsigned width, Words* words) {
  alignas(8) u8 bytes[40];
  const u32 size = count * width;
  if (state.In64BitCode()) {
    if (!IsCanonical(pointer) || !IsCanonical(pointer + size - 1)) return StackFault();
    if (MisalignedFrame(state, pointer, width)) return Outcome::WithCode(kAlignmentCheck, 0);
    GuestFault fault;
    if (!memory.Read(LinearAddr(pointer), bytes, size, Privilege::kCpl, &fault)) return fault;
  } else {
    ALIBI_RETURN_IF_FAULT(
        CurrentStack(state).Peek(memory, static_cast<u32>(pointer), bytes, size, width));
  }
  for (unsigned i = 0; i < count; ++i) {
    const u8* at = bytes + i * width;
    if (width == 8) {
      __builtin_memcpy(&words->word[first + i], at, 8);
    } else if (width == 4) {
      u32 value;
      __builtin_memcpy(&value, at, 4);
      words->word[first + i] = value;
    } else {
      u16 value;
      __builtin_memcpy(&value, at, 2);
      words->word[first + i] = value;
    }
  }
  return {};
}

// Writes 64-bit-mode words below *pointer.
Outcome PushLong(LinearMemory& memory, u64* pointer, const Words& words, unsigned count,
                 unsigned width, Privilege privilege) {
  alignas(8) u8 bytes[40];
  for (unsigned i = 0; i < count; ++i) __builtin_memcpy(bytes + i * width, &words.word[i], width);
  const u32 size = count * width;
  u64 low = *pointer - size;
  if (!IsCanonical(low) || !IsCanonical(*pointer - 1)) return StackFault();
  GuestFault fault;
  if (!memory.Write(LinearAddr(low), bytes, size, privilege, &fault)) return fault;
  *pointer = low;
  return {};
}

// Pushes CS:IP on the current stack in the current mode.
Outcome PushReturn(VcpuState& state, LinearMemory& memory, u64 next_rip, unsigned width,
                   u64* pointer) {
  u16 cs = state.segment[kCs].selector;
  *pointer = state.gpr[kRsp];
  if (state.In64BitCode()) {
    if (MisalignedFrame(state, *pointer, width)) return Outcome::WithCode(kAlignmentCheck, 0);
    return PushLong(memory, pointer, {{next_rip, cs}}, 2, width, Privilege::kCpl);
  }
  FrameWords frame(width);
  frame.Add(next_rip);
  frame.Add(cs);
  u32 offset = static_cast<u32>(*pointer);
  ALIBI_RETURN_IF_FAULT(
      CurrentStack(state).Push(memory, &offset, frame.data(), frame.size(), width));
  *pointer = MergeStackPointer(state.segment[kSs], *pointer, offset);
  return {};
}

// RIP as a far jump, call or return of 64-bit code to this segment takes it.
u64 TargetOf(const VcpuState& state, const Descriptor& code, u64 rip) {
  const bool whole = (state.LongModeActive() && code.Long()) ||
                     !HostHasIntelsWay(HostDifference::kFarTargetUpperHalf);
  return whole ? rip : static_cast<u32>(rip);
}

Outcome CheckTarget(const VcpuState& state, const Descriptor& code, u64 rip) {
  bool inside = state.LongModeActive() && code.Long() ? IsCanonical(rip) : rip <= code.Limit();
  return inside ? Outcome() : GeneralProtection();
}

void LoadCode(VcpuState& state, LinearMemory& memory, const Descriptor& code, u16 selector,
              unsigned cpl, u64 rip) {
  state.rip = rip;
  EnterCode(state, memory, code.ToSegment(static_cast<u16>((selector & ~3u) | cpl)), cpl);
}

Outcome JumpShifted(VcpuState& state, u16 selector, u64 offset) {
  if (offset > state.segment[kCs].limit) return GeneralProtection();
  state.segment[kCs].selector = selector;
  state.segment[kCs].base = u32{selector} << 4;
  state.rip = offset;
  return {};
}

// What JMP and CALL share: null, limit, and for code segments privilege, mode and presence.
Outcome CheckDirectCode(const VcpuState& state, u16 selector, const Descriptor& code) {
  unsigned rpl = selector & 3;
  bool allowed =
      code.Conforming() ? code.Dpl() <= state.cpl : rpl <= state.cpl && code.Dpl() == state.cpl;
  bool bad_mode = state.LongModeActive() && code.Long() && code.Big();
  if (!allowed || bad_mode) return GeneralProtection(SelectorCode(selector));
  if (!code.Present()) return Outcome::WithCode(kSegmentNotPresent, SelectorCode(selector));
  return {};
}

// A call gate and the code segment it names.
struct Gate {
  u16 selector = 0;  // of the code
  u64 offset = 0;
  unsigned width = 4;  // of the words pushed
  unsigned parameters = 0;
  Descriptor code;
  LinearAddr code_address;
};

Outcome CheckGatePrivilege(const VcpuState& state, u16 selector, const Descriptor& gate) {
  if (gate.Dpl() < state.cpl || gate.Dpl() < (selector & 3u)) {
    return GeneralProtection(SelectorCode(selector));
  }
  if (!gate.Present()) return Outcome::WithCode(kSegmentNotPresent, SelectorCode(selector));
  return {};
}

Outcome ReadCallGate(const VcpuState& state, LinearMemory& memory, u16 selector,
                     const Descriptor& descriptor, LinearAddr address, Gate* gate) {
  ALIBI_RETURN_IF_FAULT(CheckGatePrivilege(state, selector, descriptor));
  gate->selector = descriptor.GateSelector();
  gate->offset = descriptor.GateOffset32();
  gate->parameters = (descriptor.raw >> 32) & 31;
  const bool long_mode = state.LongModeActive();
  if (long_mode) {
    LinearAddr whole;
    u64 upper = 0;
    GuestFault fault;
    if (!LocateDescriptor(state, selector, 16, &whole)) {
      return GeneralProtection(SelectorCode(selector));
    }
    if (!memory.ReadValue(address + 8, &upper, Privilege::kSupervisor, &fault)) return fault;
    if ((upper >> 40) & 0x1f) return GeneralProtection(SelectorCode(selector));
    gate->offset |= upper << 32;
    gate->width = 8;
    gate->parameters = 0;
  } else if (descriptor.Type() == kTypeCallGate16) {
    gate->offset &= 0xffff;
    gate->width = 2;
  }
  if (NullSelector(gate->selector)) return GeneralProtection();
  ALIBI_RETURN_IF_FAULT(ReadDescriptor(state, memory, gate->selector, kGeneralProtection, 0,
                                       &gate->code, &gate->code_address));
  const Descriptor& code = gate->code;
  const u32 code_error = SelectorCode(gate->selector);
  if (!code.Code() || code.Dpl() > state.cpl) return GeneralProtection(code_error);
  if (long_mode && (!code.Long() || code.Big())) return GeneralProtection(code_error);
  return {};
}

Outcome CheckCodePresent(const Gate& gate) {
  if (gate.code.Present()) return {};
  return Outcome::WithCode(kSegmentNotPresent, SelectorCode(gate.selector));
}

Outcome JumpThroughGate(VcpuState& state, LinearMemory& memory, Gate& gate) {
  if (!gate.code.Conforming() && gate.code.Dpl() != state.cpl) {
    return GeneralProtection(SelectorCode(gate.selector));
  }
  ALIBI_RETURN_IF_FAULT(CheckCodePresent(gate));
  ALIBI_RETURN_IF_FAULT(CheckTarget(state, gate.code, gate.offset));
  ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, gate.code_address, &gate.code));
  LoadCode(state, memory, gate.code, gate.selector, state.cpl, gate.offset);
  return {};
}

Outcome CallInnerLong(VcpuState& state, LinearMemory& memory, Gate& gate, u64 next_rip) {
  const unsigned cpl = gate.code.Dpl();
  const Segment& tss = state.segment[kTr];
  const u32 field = cpl * 8 + 4;
  if (field + 7 > tss.limit) {
    return Outcome::WithCode(kInvalidTss, SelectorCode(tss.selector));
  }
  u64 pointer = 0;
  GuestFault fault;
  if (!memory.ReadValue(LinearAddr(tss.base + field), &pointer, Privilege::kSupervisor, &fault)) {
    return fault;
  }
  if (!IsCanonical(pointer - 32) || !IsCanonical(pointer - 1)) return StackFault();
  ALIBI_RETURN_IF_FAULT(CheckTarget(state, gate.code, gate.offset));
  Words frame{
      {next_rip, state.segment[kCs].selector, state.gpr[kRsp], state.segment[kSs].selector}};
  ALIBI_RETURN_IF_FAULT(PushLong(memory, &pointer, frame, 4, 8, StackPrivilege(cpl, state.cpl)));
  ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, gate.code_address, &gate.code));
  state.gpr[kRsp] = pointer;
  state.segment[kSs] = Segment{.selector = static_cast<u16>(cpl)};
  LoadCode(state, memory, gate.code, gate.selector, cpl, gate.offset);
  return {};
}

Outcome CallInnerLegacy(VcpuState& state, LinearMemory& memory, Gate& gate, u64 next_rip) {
  const unsigned cpl = gate.code.Dpl();
  Segment stack;
  u64 pointer = 0;
  Descriptor stack_descriptor;
  LinearAddr stack_address;
  ALIBI_RETURN_IF_FAULT(
      ReadInnerStack(state, memory, cpl, 0, &stack, &pointer, &stack_descriptor, &stack_address));
  alignas(4) u8 parameters[31 * 4];
  const u32 parameter_bytes = gate.parameters * gate.width;
  if (parameter_bytes != 0) {
    ALIBI_RETURN_IF_FAULT((LegacyStack{state.segment[kSs], Privilege::kCpl}.Peek(
        memory, static_cast<u32>(state.gpr[kRsp]), parameters, parameter_bytes, gate.width)));
  }
  ALIBI_RETURN_IF_FAULT(CheckTarget(state, gate.code, gate.offset));
  FrameWords frame(gate.width);
  frame.Add(next_rip);
  frame.Add(state.segment[kCs].selector);
  for (u32 i = 0; i < parameter_bytes; i += gate.width) {
    u32 value = 0;
    __builtin_memcpy(&value, parameters + i, gate.width);
    frame.Add(value);
  }
  frame.Add(state.gpr[kRsp]);
  frame.Add(state.segment[kSs].selector);
  u32 offset = static_cast<u32>(pointer);
  ALIBI_RETURN_IF_FAULT(
      (LegacyStack{stack, StackPrivilege(cpl, state.cpl), SelectorCode(stack.selector)}.Push(
          memory, &offset, frame.data(), frame.size(), gate.width)));
  ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, stack_address, &stack_descriptor));
  ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, gate.code_address, &gate.code));
  state.gpr[kRsp] = MergeStackPointer(stack, pointer, offset);
  state.segment[kSs] = stack_descriptor.ToSegment(stack.selector);
  LoadCode(state, memory, gate.code, gate.selector, cpl, gate.offset);
  return {};
}

Outcome CallThroughGate(VcpuState& state, LinearMemory& memory, Gate& gate, u64 next_rip) {
  ALIBI_RETURN_IF_FAULT(CheckCodePresent(gate));
  if (!gate.code.Conforming() && gate.code.Dpl() < state.cpl) {
    return state.LongModeActive() ? CallInnerLong(state, memory, gate, next_rip)
                                  : CallInnerLegacy(state, memory, gate, next_rip);
  }
  u64 pointer = state.gpr[kRsp];
  if (gate.width == 8) {
    // The target is 64-bit code, so its stack rules hold even for a call from compatibility mode.
    ALIBI_RETURN_IF_FAULT(CheckTarget(state, gate.code, gate.offset));
    ALIBI_RETURN_IF_FAULT(PushLong(memory, &pointer, {{next_rip, state.segment[kCs].selector}}, 2,
                                   8, Privilege::kCpl));
  } else {
    ALIBI_RETURN_IF_FAULT(CheckTarget(state, gate.code, gate.offset));
    ALIBI_RETURN_IF_FAULT(PushReturn(state, memory, next_rip, gate.width, &pointer));
  }
  ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, gate.code_address, &gate.code));
  state.gpr[kRsp] = pointer;
  LoadCode(state, memory, gate.code, gate.selector, state.cpl, gate.offset);
  return {};
}

// JMP and CALL to a TSS or a task gate.
Outcome TransferToTask(VcpuState& state, LinearMemory& memory, u16 selector,
                       const Descriptor& descriptor, TaskSwitchKind kind, u64 next_rip) {
  const bool gate = descriptor.Type() == kTypeTaskGate;
  if (gate || descriptor.Dpl() < state.cpl || descriptor.Dpl() < (selector & 3u)) {
    ALIBI_RETURN_IF_FAULT(CheckGatePrivilege(state, selector, descriptor));
  }
  // A TSS itself may be absent only if it is not busy: SwitchTask looks.
  u16 tss = gate ? descriptor.GateSelector() : selector;
  ALIBI_RETURN_IF_FAULT(
      SwitchTask(state, memory,
                 {.kind = kind, .selector = tss, .next_rip = next_rip, .flags = state.Rflags()}));
  DeliverTaskTrap(state, memory);
  return {};
}

bool IsCallGate(const VcpuState& state, const Descriptor& descriptor) {
  if (descriptor.CodeOrData()) return false;
  return descriptor.Type() == kTypeCallGate ||
         (descriptor.Type() == kTypeCallGate16 && !state.LongModeActive());
}

bool IsTask(const VcpuState& state, const Descriptor& descriptor) {
  if (descriptor.CodeOrData() || state.LongModeActive()) return false;
  constexpr u32 kTypes = (1u << kTypeTss16) | (1u << kTypeTss16Busy) | (1u << kTypeTss) |
                         (1u << kTypeTssBusy) | (1u << kTypeTaskGate);
  return (kTypes >> descriptor.Type()) & 1;
}

// The part of RFLAGS that IRET may load at the current privilege.
u64 ReturnFlagsMask(const VcpuState& state, unsigned operand_bits) {
  u64 mask = kArithmeticFlags | kTf | kDf | kNt;
  if (operand_bits != 16) mask |= kRf | kAc | kId;
  if (state.cpl <= state.Iopl()) mask |= kIf;
  if (state.cpl == 0) {
    mask |= kIopl;
    if (operand_bits != 16) mask |= kVif | kVip;
  }
  return mask;
}

void MergeFlags(VcpuState& state, u64 value, u64 mask) {
  state.SetRflags((state.Rflags() & ~mask) | (value & mask));
}

// Data segments that the outer level must not keep. Null selectors lose their RPL (SDM vol. 2,
// RET).
void DropInnerSegments(VcpuState& state, unsigned cpl) {
  for (SegmentIndex index : {kEs, kDs, kFs, kGs}) {
    Segment& segment = state.segment[index];
    const bool conforming = (segment.Type() & 0xc) == 0xc;
    const bool inner = segment.CodeOrData() && !conforming && segment.Dpl() < cpl;
    if (inner || NullSelector(segment.selector)) {
      // In long mode the base stays: only the selector and the rights are taken away.
      segment = Segment{.base = state.LongModeActive() ? segment.base : 0};
    }
  }
}

// RET and IRET in protected mode; words: RIP, CS, then for IRET RFLAGS, then RSP, SS.
Outcome ReturnProtected(VcpuState& state, LinearMemory& memory, unsigned operand_bits, u16 release,
                        bool iret) {
  const unsigned width = operand_bits / 8;
  const unsigned count = iret ? 3 : 2;
  // In 64-bit mode IRET pops SS:RSP whatever the privilege.
  const bool always_stack = iret && state.In64BitCode();
  const u64 pointer = state.gpr[kRsp];
  Words frame;
  ALIBI_RETURN_IF_FAULT(
      PeekWords(state, memory, pointer, 0, always_stack ? 5 : count, width, &frame));
  const u16 cs = static_cast<u16>(frame.word[1]);
  if (NullSelector(cs)) return GeneralProtection();
  Descriptor code;
  LinearAddr code_address;
  ALIBI_RETURN_IF_FAULT(
      ReadDescriptor(state, memory, cs, kGeneralProtection, 0, &code, &code_address));
  const unsigned rpl = cs & 3;
  const bool level_matches = code.Conforming() ? code.Dpl() <= rpl : code.Dpl() == rpl;
  const bool bad_mode = state.LongModeActive() && code.Long() && code.Big();
  if (!code.Code() || rpl < state.cpl || !level_matches || bad_mode) {
    return GeneralProtection(SelectorCode(cs));
  }
  if (!code.Present()) return Outcome::WithCode(kSegmentNotPresent, SelectorCode(cs));
  const bool to_long = state.LongModeActive() && code.Long();

  const bool outer = rpl > state.cpl;
  const bool new_stack = outer || always_stack;
  Segment stack = state.segment[kSs];
  Descriptor stack_descriptor;
  LinearAddr stack_address;
  bool mark_stack = false;
  if (new_stack) {
    if (!always_stack) {
      ALIBI_RETURN_IF_FAULT(
          PeekWords(state, memory, pointer + count * width + release, count, 2, width, &frame));
    }
    const u16 ss = static_cast<u16>(frame.word[count + 1]);
    if (NullSelector(ss)) {
      if (!to_long || rpl == 3 || (ss & 3u) != rpl) return GeneralProtection();
      stack = Segment{.selector = ss};
    } else {
      ALIBI_RETURN_IF_FAULT(ReadDescriptor(state, memory, ss, kGeneralProtection, 0,
                                           &stack_descriptor, &stack_address));
      if ((ss & 3u) != rpl || !stack_descriptor.WritableData() || stack_descriptor.Dpl() != rpl) {
        return GeneralProtection(SelectorCode(ss));
      }
      if (!stack_descriptor.Present()) return StackFault(SelectorCode(ss));
      mark_stack = true;
    }
  }
  const u64 rip = TargetOf(state, code, frame.word[0]);
  ALIBI_RETURN_IF_FAULT(CheckTarget(state, code, rip));
  ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, code_address, &code));
  if (mark_stack) {
    ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, stack_address, &stack_descriptor));
    stack = stack_descriptor.ToSegment(static_cast<u16>(frame.word[count + 1]));
  }

  if (new_stack) {
    u64 popped = frame.word[count] + release;
    state.gpr[kRsp] = to_long ? popped : MergeStackPointer(stack, pointer, popped);
  } else {
    u64 popped = pointer + count * width + release;
    state.gpr[kRsp] = state.In64BitCode() ? popped : MergeStackPointer(stack, pointer, popped);
  }
  if (iret) MergeFlags(state, frame.word[2], ReturnFlagsMask(state, operand_bits));
  state.segment[kSs] = stack;
  if (outer) DropInnerSegments(state, rpl);
  LoadCode(state, memory, code, cs, rpl, rip);
  return {};
}

// IRET at CPL 0 with VM set in the popped flags.
Outcome ReturnToVirtual8086(VcpuState& state, LinearMemory& memory) {
  u32 words[9];
  ALIBI_RETURN_IF_FAULT((LegacyStack{state.segment[kSs], Privilege::kCpl}.Peek(
      memory, static_cast<u32>(state.gpr[kRsp]), words, sizeof(words), 4)));
  if (words[0] > 0xffff) return GeneralProtection();
  state.SetRflags(words[2]);
  state.rip = words[0];
  state.gpr[kRsp] = words[3];
  auto segment = [&words](int word) {
    u16 selector = static_cast<u16>(words[word]);
    return Segment{
        .base = u32{selector} << 4, .limit = 0xffff, .selector = selector, .attributes = 0xf3};
  };
  constexpr SegmentIndex kOrder[5] = {kSs, kEs, kDs, kFs, kGs};
  for (int i = 0; i < 5; ++i) state.segment[kOrder[i]] = segment(4 + i);
  EnterCode(state, memory, segment(1), 3);
  return {};
}

// RET and IRET in real-address and virtual-8086 mode.
Outcome ReturnShifted(VcpuState& state, LinearMemory& memory, unsigned operand_bits, u16 release,
                      bool iret) {
  const bool virtual8086 = state.system_flags & kVm;
  const bool virtual_flag = iret && virtual8086 && state.Iopl() < 3;
  if (virtual_flag && !(state.cr4 & kCr4Vme)) return GeneralProtection();
  const unsigned width = operand_bits / 8;
  const unsigned count = iret ? 3 : 2;
  Words frame;
  ALIBI_RETURN_IF_FAULT(PeekWords(state, memory, state.gpr[kRsp], 0, count, width, &frame));
  if (frame.word[0] > state.segment[kCs].limit) return GeneralProtection();
  if (virtual_flag) ALIBI_RETURN_IF_FAULT(ReturnVirtualFlags(state, operand_bits, frame.word[2]));
  ALIBI_RETURN_IF_FAULT(JumpShifted(state, static_cast<u16>(frame.word[1]), frame.word[0]));
  state.gpr[kRsp] = MergeStackPointer(state.segment[kSs], state.gpr[kRsp],
                                      state.gpr[kRsp] + count * width + release);
  if (iret && !virtual_flag) {
    u64 mask = kArithmeticFlags | kTf | kIf | kDf | kNt;
    if (!virtual8086) mask |= kIopl;
    if (operand_bits == 32) mask |= kRf | kAc | kId;
    MergeFlags(state, frame.word[2], mask);
  }
  return {};
}

Outcome TaskReturn(VcpuState& state, LinearMemory& memory, u64 next_rip) {
  u16 link = 0;
  GuestFault fault;
  LinearAddr base(static_cast<u32>(state.segment[kTr].base));
  if (!memory.ReadValue(base, &link, Privilege::kSupervisor, &fault)) return fault;
  ALIBI_RETURN_IF_FAULT(SwitchTask(state, memory,
                                   {.kind = TaskSwitchKind::kReturn,
                                    .selector = link,
                                    .next_rip = next_rip,
                                    .flags = state.Rflags()}));
  DeliverTaskTrap(state, memory);
  return {};
}

// The made-up segments of the fast system calls.
Segment Flat(unsigned selector, u16 attributes, unsigned dpl) {
  return {.base = 0,
          .limit = 0xffffffff,
          .selector = static_cast<u16>(selector),
          .attributes = WithDpl(attributes, dpl)};
}

// SYSCALL and SYSRET trap by the TF that they leave behind, not by the one they began with: SYSCALL
// with TF masked does not step into the kernel, SYSRET steps at once. The single-stepper leaves
// both to this.
void SingleStepAfterTransfer(VcpuState& state, LinearMemory& memory) {
  if (!(state.system_flags & kTf)) return;
  ReportDebug(state, kDr6Bs);
  DeliverEvent(state, memory, Event::Trap(kDebug), state.rip);
}

}  // namespace

Outcome FarJump(VcpuState& state, LinearMemory& memory, u16 selector, u64 offset,
                unsigned operand_bits, u64 next_rip) {
  offset = Truncate(offset, operand_bits);
  if (RealOrVirtual8086(state)) return JumpShifted(state, selector, offset);
  if (NullSelector(selector)) return GeneralProtection();
  Descriptor descriptor;
  LinearAddr address;
  ALIBI_RETURN_IF_FAULT(
      ReadDescriptor(state, memory, selector, kGeneralProtection, 0, &descriptor, &address));
  if (descriptor.Code()) {
    ALIBI_RETURN_IF_FAULT(CheckDirectCode(state, selector, descriptor));
    offset = TargetOf(state, descriptor, offset);
    ALIBI_RETURN_IF_FAULT(CheckTarget(state, descriptor, offset));
    ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, address, &descriptor));
    LoadCode(state, memory, descriptor, selector, state.cpl, offset);
    return {};
  }
  if (IsCallGate(state, descriptor)) {
    Gate gate;
    ALIBI_RETURN_IF_FAULT(ReadCallGate(state, memory, selector, descriptor, address, &gate));
    return JumpThroughGate(state, memory, gate);
  }
  if (IsTask(state, descriptor)) {
    return TransferToTask(state, memory, selector, descriptor, TaskSwitchKind::kJump, next_rip);
  }
  return GeneralProtection(SelectorCode(selector));
}

Outcome FarCall(VcpuState& state, LinearMemory& memory, u16 selector, u64 offset,
                unsigned operand_bits, u64 next_rip) {
  offset = Truncate(offset, operand_bits);
  const unsigned width = operand_bits / 8;
  u64 pointer = 0;
  if (RealOrVirtual8086(state)) {
    if (offset > state.segment[kCs].limit) return GeneralProtection();
    ALIBI_RETURN_IF_FAULT(PushReturn(state, memory, next_rip, width, &pointer));
    state.gpr[kRsp] = pointer;
    return JumpShifted(state, selector, offset);
  }
  if (NullSelector(selector)) return GeneralProtection();
  Descriptor descriptor;
  LinearAddr address;
  ALIBI_RETURN_IF_FAULT(
      ReadDescriptor(state, memory, selector, kGeneralProtection, 0, &descriptor, &address));
  if (descriptor.Code()) {
    ALIBI_RETURN_IF_FAULT(CheckDirectCode(state, selector, descriptor));
    offset = TargetOf(state, descriptor, offset);
    ALIBI_RETURN_IF_FAULT(CheckTarget(state, descriptor, offset));
    ALIBI_RETURN_IF_FAULT(PushReturn(state, memory, next_rip, width, &pointer));
    ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, address, &descriptor));
    state.gpr[kRsp] = pointer;
    LoadCode(state, memory, descriptor, selector, state.cpl, offset);
    return {};
  }
  if (IsCallGate(state, descriptor)) {
    Gate gate;
    ALIBI_RETURN_IF_FAULT(ReadCallGate(state, memory, selector, descriptor, address, &gate));
    return CallThroughGate(state, memory, gate, next_rip);
  }
  if (IsTask(state, descriptor)) {
    return TransferToTask(state, memory, selector, descriptor, TaskSwitchKind::kCall, next_rip);
  }
  return GeneralProtection(SelectorCode(selector));
}

Outcome FarReturn(VcpuState& state, LinearMemory& memory, unsigned operand_bits, u16 release) {
  return RealOrVirtual8086(state) ? ReturnShifted(state, memory, operand_bits, release, false)
                                  : ReturnProtected(state, memory, operand_bits, release, false);
}

Outcome InterruptReturn(VcpuState& state, LinearMemory& memory, unsigned operand_bits,
                        u64 next_rip) {
  const u32 old_ac = state.system_flags & kAc;
  Outcome outcome;
  if (RealOrVirtual8086(state)) {
    outcome = ReturnShifted(state, memory, operand_bits, 0, true);
  } else if (state.system_flags & kNt) {
    outcome = state.LongModeActive() ? GeneralProtection() : TaskReturn(state, memory, next_rip);
  } else {
    bool to_virtual8086 = false;
    if (!state.LongModeActive() && operand_bits == 32 && state.cpl == 0) {
      Words frame;
      ALIBI_RETURN_IF_FAULT(PeekWords(state, memory, state.gpr[kRsp], 0, 3, 4, &frame));
      to_virtual8086 = frame.word[2] & kVm;
    }
    outcome = to_virtual8086 ? ReturnToVirtual8086(state, memory)
                             : ReturnProtected(state, memory, operand_bits, 0, true);
  }
  if (outcome.faulted()) return outcome;
  state.nmi_blocked = 0;
  // The run loop delivers the NMI that had to wait.
  if (state.nmi_pending) state.stop_requested = 1;
  if ((state.system_flags & kAc) != old_ac) memory.PrivilegeChanged();
  return outcome;
}

Outcome Syscall(VcpuState& state, LinearMemory& memory, Vendor vendor, u64 next_rip) {
  if (!(state.efer & kEferSce)) return InvalidOpcode();
  if (!state.In64BitCode() && HasIntelsWay(GuestDifference::kSyscallOutside64BitCode, vendor)) {
    return InvalidOpcode();
  }
  const unsigned selector = (state.star >> 32) & 0xffff;
  const bool long_mode = state.LongModeActive();
  const u64 flags = state.Rflags() & ~kRf;
  if (long_mode) {
    state.gpr[kRcx] = next_rip;
    state.gpr[kR11] = flags;
    state.rip = state.In64BitCode() ? state.lstar : state.cstar;
    LoadFlags(state, memory, flags & ~state.sfmask);
  } else {
    state.gpr[kRcx] = static_cast<u32>(next_rip);
    state.rip = static_cast<u32>(state.star);
    state.SetRflags(flags & ~(kVm | kIf));
  }
  state.segment[kSs] = Flat(selector + 8, kFlatData, 0);
  EnterCode(state, memory, Flat(selector & 0xfffc, long_mode ? kFlatCode64 : kFlatCode32, 0), 0);
  SingleStepAfterTransfer(state, memory);
  return {};
}

void PrepareFastSyscall(VcpuState& state) {
  VcpuState::FastSyscall& fast = state.fast_syscall;
  const auto image = [](u64 out[2], const Segment& segment) {
    static_assert(sizeof(Segment) == 16);
    __builtin_memcpy(out, &segment, sizeof(segment));
  };
  // Under SMAP an AC that survives means another view than the one SYSCALL switches to by itself.
  const bool keeps_ac = (state.cr4 & kCr4Smap) && !(state.sfmask & kAc);
  fast.unusable = !(state.efer & kEferSce) || !state.LongModeActive() || keeps_ac;
  fast.kept_flags = ~state.sfmask;
  const unsigned enter = (state.star >> 32) & 0xffff, leave = (state.star >> 48) & 0xffff;
  image(fast.enter_cs, Flat(enter & 0xfffc, kFlatCode64, 0));
  image(fast.enter_ss, Flat(enter + 8, kFlatData, 0));
  image(fast.leave_cs, Flat((leave + 16) | 3, kFlatCode64, 3));
  image(fast.leave_ss, Flat((leave + 8) | 3, kFlatData, 3));
}

Outcome Sysret(VcpuState& state, LinearMemory& memory, Vendor vendor, unsigned operand_bits) {
  if (!(state.efer & kEferSce)) return InvalidOpcode();
  if (!state.In64BitCode() && HasIntelsWay(GuestDifference::kSyscallOutside64BitCode, vendor)) {
    return InvalidOpcode();
  }
  if (!state.ProtectedMode() || state.cpl != 0) return GeneralProtection();
  const bool from64 = state.In64BitCode();
  const bool to64 = from64 && operand_bits == 64;
  const u64 target = to64 ? state.gpr[kRcx] : static_cast<u32>(state.gpr[kRcx]);
  if (to64 && !IsCanonical(target) && HasIntelsWay(GuestDifference::kSysretNonCanonical, vendor)) {
    return GeneralProtection();
  }
  const unsigned selector = (state.star >> 48) & 0xffff;
  if (HasIntelsWay(GuestDifference::kSysretStackSegment, vendor)) {
    state.segment[kSs] = Flat((selector + 8) | 3, kFlatData, 3);
  } else {
    // A null SS stays unusable in compatibility mode.
    state.segment[kSs].selector = static_cast<u16>(selector + 8);
  }
  if (from64) {
    state.SetRflags(state.gpr[kR11] & ~(kRf | kVm));
  } else {
    state.if_flag = 1;
  }
  state.rip = target;
  const unsigned code = (to64 ? selector + 16 : selector) | 3;
  EnterCode(state, memory, Flat(code, to64 ? kFlatCode64 : kFlatCode32, 3), 3);
  SingleStepAfterTransfer(state, memory);
  return {};
}

Outcome Sysenter(VcpuState& state, LinearMemory& memory, Vendor vendor) {
  const bool long_mode = state.LongModeActive();
  if (long_mode && !HasIntelsWay(GuestDifference::kSysenterInLongMode, vendor)) {
    return InvalidOpcode();
  }
  const unsigned selector = state.sysenter_cs & 0xfffc;
  if (!state.ProtectedMode() || selector == 0) return GeneralProtection();
  state.system_flags &= ~static_cast<u32>(kVm | kRf);
  state.if_flag = 0;
  state.gpr[kRsp] = long_mode ? state.sysenter_esp : static_cast<u32>(state.sysenter_esp);
  state.rip = long_mode ? state.sysenter_eip : static_cast<u32>(state.sysenter_eip);
  state.segment[kSs] = Flat(selector + 8, kFlatData, 0);
  EnterCode(state, memory, Flat(selector, long_mode ? kFlatCode64 : kFlatCode32, 0), 0);
  return {};
}

Outcome Sysexit(VcpuState& state, LinearMemory& memory, Vendor vendor, unsigned operand_bits) {
  if (state.LongModeActive() && !HasIntelsWay(GuestDifference::kSysenterInLongMode, vendor)) {
    return InvalidOpcode();
  }
  const unsigned selector = state.sysenter_cs & 0xffff;
  if (!state.ProtectedMode() || (selector & 0xfffc) == 0 || state.cpl != 0) {
    return GeneralProtection();
  }
  const bool to64 = operand_bits == 64;
  const u64 rsp = to64 ? state.gpr[kRcx] : static_cast<u32>(state.gpr[kRcx]);
  const u64 rip = to64 ? state.gpr[kRdx] : static_cast<u32>(state.gpr[kRdx]);
  if (to64 && (!IsCanonical(rsp) || !IsCanonical(rip))) return GeneralProtection();
  const unsigned code = (selector + (to64 ? 32 : 16)) | 3;
  state.segment[kSs] = Flat(code + 8, kFlatData, 3);
  state.gpr[kRsp] = rsp;
  state.rip = rip;
  EnterCode(state, memory, Flat(code, to64 ? kFlatCode64 : kFlatCode32, 3), 3);
  return {};
}

}  // namespace alibi::vcpu
