// SPDX-License-Identifier: Apache-2.0
#include "vcpu/interrupt_flag.h"

#include "vcpu/stack_frame.h"

namespace alibi::vcpu {
namespace {

bool Virtual8086(const VcpuState& state) { return state.system_flags & kVm; }

enum class FlagOwner : u8 { kReal, kVirtual, kNobody };  // IF, VIF, a fault

FlagOwner OwnerOfInterruptFlag(const VcpuState& state) {
  if (!state.ProtectedMode() || state.cpl <= state.Iopl()) return FlagOwner::kReal;
  const u64 enable = Virtual8086(state) ? kCr4Vme : kCr4Pvi;
  return state.cpl == 3 && (state.cr4 & enable) ? FlagOwner::kVirtual : FlagOwner::kNobody;
}

// A program that cannot reach IF sees VIF there, and an IOPL of 3.
u64 VirtualImage(const VcpuState& state) {
  const u64 flags = (state.Rflags() & ~kIf) | kIopl;
  return state.system_flags & kVif ? flags | kIf : flags;
}

// FLAGS from an image with VIF in the place of IF. Single steps and an interrupt that waits for VIF
// are the monitor's business.
Outcome LoadVirtualImage(VcpuState& state, u64 value) {
  const bool waiting = (state.system_flags & kVip) && (value & kIf);
  if (waiting || (value & kTf)) return GeneralProtection();
  constexpr u64 kMask = kArithmeticFlags | kTf | kDf | kNt | kVif;
  const u64 image = value & kIf ? value | kVif : value & ~kVif;
  state.SetRflags((state.Rflags() & ~kMask) | (image & kMask));
  return {};
}

}  // namespace

Outcome ClearInterruptFlag(VcpuState& state) {
  switch (OwnerOfInterruptFlag(state)) {
    case FlagOwner::kReal:
      state.if_flag = 0;
      return {};
    case FlagOwner::kVirtual:
      state.system_flags &= ~static_cast<u32>(kVif);
      return {};
    case FlagOwner::kNobody:
      break;
  }
  return GeneralProtection();
}

Outcome SetInterruptFlag(VcpuState& state) {
  switch (OwnerOfInterruptFlag(state)) {
    case FlagOwner::kReal:
      if (state.if_flag == 0) state.interrupt_shadow = 1;
      state.if_flag = 1;
      return {};
    case FlagOwner::kVirtual:
      if (state.system_flags & kVip) return GeneralProtection();
      state.system_flags |= kVif;
      return {};
    case FlagOwner::kNobody:
      break;
  }
  return GeneralProtection();
}

Outcome CheckFlagsAccess(const VcpuState& state, unsigned operand_bits) {
  if (!Virtual8086(state) || state.Iopl() == 3) return {};
  return (state.cr4 & kCr4Vme) && operand_bits == 16 ? Outcome() : GeneralProtection();
}

u64 PushedFlagsImage(const VcpuState& state) {
  const u64 flags = Virtual8086(state) && state.Iopl() < 3 ? VirtualImage(state) : state.Rflags();
  return flags & ~(kVm | kRf);
}

Outcome PopFlags(VcpuState& state, LinearMemory& memory, unsigned operand_bits, u64 value) {
  if (Virtual8086(state) && state.Iopl() < 3) return LoadVirtualImage(state, value);
  u64 mask = kArithmeticFlags | kTf | kDf | kNt;
  if (operand_bits != 16) mask |= kAc | kId;
  const unsigned cpl = state.ProtectedMode() ? state.cpl : 0;
  if (cpl <= state.Iopl()) mask |= kIf;
  if (cpl == 0) mask |= kIopl;
  // VIF and VIP stay as they are at any privilege.
  LoadFlags(state, memory, (state.Rflags() & ~mask) | (value & mask));
  return {};
}

Outcome ReturnVirtualFlags(VcpuState& state, unsigned operand_bits, u64 value) {
  if (operand_bits != 16) return GeneralProtection();
  return LoadVirtualImage(state, value);
}

Outcome RedirectInterrupt(VcpuState& state, LinearMemory& memory, u8 vector, u64 next_rip,
                          bool* redirected) {
  *redirected = false;
  const Segment& tss = state.segment[kTr];
  constexpr u32 kMapBaseField = 0x66, kBitmapBytes = 32;
  if (!tss.Present() || (tss.Type() & ~2u) != kTypeTss || tss.limit < kMapBaseField + 1) {
    return GeneralProtection();
  }
  GuestFault fault;
  u16 map = 0;
  if (!memory.ReadValue(LinearAddr(static_cast<u32>(tss.base + kMapBaseField)), &map,
                        Privilege::kSupervisor, &fault)) {
    return fault;
  }
  // A map that begins too low for its bitmap wraps to far beyond the limit.
  const u32 offset = map - kBitmapBytes + vector / 8u;
  if (offset > tss.limit) return GeneralProtection();
  u8 bits = 0;
  if (!memory.ReadValue(LinearAddr(static_cast<u32>(tss.base + offset)), &bits,
                        Privilege::kSupervisor, &fault)) {
    return fault;
  }
  if ((bits >> (vector & 7)) & 1) return {};

  const bool virtual_flag = state.Iopl() < 3;
  u16 entry[2];
  if (!memory.Read(LinearAddr(vector * 4u), entry, 4, Privilege::kCpl, &fault)) return fault;
  FrameWords frame(2);
  frame.Add(next_rip);
  frame.Add(state.segment[kCs].selector);
  frame.Add(virtual_flag ? VirtualImage(state) : state.Rflags());
  u32 pointer = static_cast<u32>(state.gpr[kRsp]);
  LegacyStack stack{state.segment[kSs], Privilege::kCpl, 0};
  ALIBI_RETURN_IF_FAULT(stack.Push(memory, &pointer, frame.data(), frame.size(), frame.word()));
  state.gpr[kRsp] = MergeStackPointer(state.segment[kSs], state.gpr[kRsp], pointer);
  state.segment[kCs].selector = entry[1];
  state.segment[kCs].base = u32{entry[1]} << 4;
  state.rip = entry[0];
  if (virtual_flag) {
    state.system_flags &= ~static_cast<u32>(kVif);
  } else {
    state.if_flag = 0;
  }
  state.system_flags &= ~static_cast<u32>(kTf | kRf);
  *redirected = true;
  return {};
}

}  // namespace alibi::vcpu
