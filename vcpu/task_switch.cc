// SPDX-License-Identifier: Apache-2.0
#include "vcpu/task_switch.h"

#include <initializer_list>

#include "vcpu/control_registers.h"
#include "vcpu/stack_frame.h"

namespace alibi::vcpu {
namespace {

// The TSS as it lies in memory (SDM vol. 3, figures 7-2 and 7-10).
struct Tss32 {
  u32 link;
  u32 stacks[6];
  u32 cr3;
  u32 eip;
  u32 eflags;
  u32 gpr[8];
  u32 segment[6];
  u32 ldt;
  u32 trap_and_io_base;
};
static_assert(sizeof(Tss32) == 104);

struct Tss16 {
  u16 link;
  u16 stacks[6];
  u16 ip;
  u16 flags;
  u16 gpr[8];
  u16 segment[4];
  u16 ldt;
};
static_assert(sizeof(Tss16) == 44);

// What a task switch stores is one contiguous piece: EIP up to the segment selectors.
constexpr u32 kSaved32 = 0x20, kSaved32Bytes = 0x60 - 0x20;
constexpr u32 kSaved16 = 0x0e, kSaved16Bytes = 0x2a - 0x0e;

bool Is32Bit(unsigned type) { return type & 8; }
LinearAddr Legacy(u64 base, u32 offset = 0) { return LinearAddr(static_cast<u32>(base + offset)); }

Tss32 Widen(const Tss16& narrow) {
  Tss32 wide{};
  wide.eip = narrow.ip;
  wide.eflags = narrow.flags;
  // The upper halves of the registers are undefined after a switch to a 16-bit task.
  for (int i = 0; i < 8; ++i) wide.gpr[i] = 0xffff0000 | narrow.gpr[i];
  for (int i = 0; i < 4; ++i) wide.segment[i] = narrow.segment[i];
  wide.ldt = narrow.ldt;
  return wide;
}

Outcome SaveOldTask(const VcpuState& state, LinearMemory& memory, const TaskSwitchRequest& request,
                    u32 flags) {
  const Segment& tr = state.segment[kTr];
  GuestFault fault;
  if (Is32Bit(tr.Type())) {
    Tss32 tss{};
    tss.eip = static_cast<u32>(request.next_rip);
    tss.eflags = flags;
    for (int i = 0; i < 8; ++i) tss.gpr[i] = static_cast<u32>(state.gpr[i]);
    for (int i = 0; i < 6; ++i) tss.segment[i] = state.segment[i].selector;
    const u8* bytes = reinterpret_cast<const u8*>(&tss) + kSaved32;
    if (!memory.Write(Legacy(tr.base, kSaved32), bytes, kSaved32Bytes, Privilege::kSupervisor,
                      &fault)) {
      return fault;
    }
    return {};
  }
  Tss16 tss{};
  tss.ip = static_cast<u16>(request.next_rip);
  tss.flags = static_cast<u16>(flags);
  for (int i = 0; i < 8; ++i) tss.gpr[i] = static_cast<u16>(state.gpr[i]);
  for (int i = 0; i < 4; ++i) tss.segment[i] = state.segment[i].selector;
  const u8* bytes = reinterpret_cast<const u8*>(&tss) + kSaved16;
  if (!memory.Write(Legacy(tr.base, kSaved16), bytes, kSaved16Bytes, Privilege::kSupervisor,
                    &fault)) {
    return fault;
  }
  return {};
}

// Flips the busy bit of a TSS descriptor in the GDT.
Outcome SetBusy(const VcpuState& state, LinearMemory& memory, u16 selector, bool busy) {
  LinearAddr address = Legacy(state.gdtr.base, selector & 0xfff8u) + 5;
  u8 byte = 0;
  GuestFault fault;
  if (!memory.ReadValue(address, &byte, Privilege::kSupervisor, &fault)) return fault;
  byte = static_cast<u8>(busy ? byte | 2 : byte & ~2);
  if (!memory.WriteValue(address, byte, Privilege::kSupervisor, &fault)) return fault;
  return {};
}

Outcome InvalidTss(u16 selector, u32 ext) {
  return Outcome::WithCode(kInvalidTss, SelectorCode(selector) | ext);
}

Outcome LoadTaskSegment(VcpuState& state, LinearMemory& memory, SegmentIndex index, u32 ext) {
  u16 selector = state.segment[index].selector;
  unsigned cpl = state.segment[kCs].selector & 3;
  if (NullSelector(selector)) {
    return index == kCs || index == kSs ? InvalidTss(selector, ext) : Outcome();
  }
  Descriptor descriptor;
  LinearAddr address;
  ALIBI_RETURN_IF_FAULT(
      ReadDescriptor(state, memory, selector, kInvalidTss, ext, &descriptor, &address));
  unsigned rpl = selector & 3;
  bool conforming = descriptor.Code() && descriptor.Conforming();
  bool valid =
      index == kCs
          ? descriptor.Code() && (conforming ? descriptor.Dpl() <= rpl : descriptor.Dpl() == rpl)
      : index == kSs ? descriptor.WritableData() && rpl == cpl && descriptor.Dpl() == cpl
                     : descriptor.CodeOrData() && descriptor.Readable() &&
                           (conforming || (rpl <= descriptor.Dpl() && cpl <= descriptor.Dpl()));
  if (!valid) return InvalidTss(selector, ext);
  if (!descriptor.Present()) {
    return Outcome::WithCode(index == kSs ? kStackFault : kSegmentNotPresent,
                             SelectorCode(selector) | ext);
  }
  ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, address, &descriptor));
  state.segment[index] = descriptor.ToSegment(selector);
  return {};
}

Outcome LoadTaskLdt(VcpuState& state, LinearMemory& memory, u16 selector, u32 ext) {
  state.segment[kLdtr] = Segment{.selector = selector};
  if (NullSelector(selector)) return {};
  if (selector & 4) return InvalidTss(selector, ext);
  Descriptor descriptor;
  LinearAddr address;
  ALIBI_RETURN_IF_FAULT(
      ReadDescriptor(state, memory, selector, kInvalidTss, ext, &descriptor, &address));
  if (descriptor.CodeOrData() || descriptor.Type() != kTypeLdt || !descriptor.Present()) {
    return InvalidTss(selector, ext);
  }
  state.segment[kLdtr] = descriptor.ToSegment(selector);
  return {};
}

// The registers of the new task, then its segments: from here on faults belong to the new task.
Outcome EnterTask(VcpuState& state, LinearMemory& memory, const Tss32& tss, bool wide, u32 ext) {
  state.rip = tss.eip;
  state.SetRflags(wide ? tss.eflags : (tss.eflags & 0xffff));
  for (int i = 0; i < 8; ++i) state.gpr[i] = tss.gpr[i];
  // The code size stays until CS is loaded: memory has views by it.
  const u16 code_size = state.segment[kCs].attributes & kAttrBig;
  for (int i = 0; i < 6; ++i) {
    state.segment[i] = Segment{.selector = static_cast<u16>(tss.segment[i])};
  }
  state.segment[kCs].attributes = code_size;
  // Until SS is good, a fault is delivered on the inner stack of the TSS, whatever level the task
  // is.
  state.cpl = 3;
  if (wide && state.Paging() && state.cr3 != tss.cr3) {
    if (UsesPdptes(state) && !memory.LoadPdptes(tss.cr3)) return GeneralProtection();
    state.cr3 = tss.cr3;
    memory.AddressSpaceLoaded();
  }
  state.cr0 |= kCr0Ts;
  state.dr[7] &= ~u64{0x155};  // the local breakpoint enables and LE
  ALIBI_RETURN_IF_FAULT(LoadTaskLdt(state, memory, static_cast<u16>(tss.ldt), ext));
  if (state.system_flags & kVm) {
    for (int i = 0; i < 6; ++i) {
      u16 selector = static_cast<u16>(tss.segment[i]);
      state.segment[i] = {
          .base = u32{selector} << 4, .limit = 0xffff, .selector = selector, .attributes = 0xf3};
    }
    return state.rip > 0xffff ? GeneralProtection(ext) : Outcome();
  }
  ALIBI_RETURN_IF_FAULT(LoadTaskSegment(state, memory, kSs, ext));
  state.cpl = static_cast<u8>(tss.segment[kCs] & 3);
  for (SegmentIndex index : {kCs, kEs, kDs, kFs, kGs}) {
    ALIBI_RETURN_IF_FAULT(LoadTaskSegment(state, memory, index, ext));
  }
  return state.rip > state.segment[kCs].limit ? GeneralProtection(ext) : Outcome();
}

}  // namespace

Outcome SwitchTask(VcpuState& state, LinearMemory& memory, const TaskSwitchRequest& request) {
  const bool returning = request.kind == TaskSwitchKind::kReturn;
  const bool nesting =
      request.kind == TaskSwitchKind::kCall || request.kind == TaskSwitchKind::kEvent;
  const Vector bad_selector = returning ? kInvalidTss : kGeneralProtection;
  const u32 code = SelectorCode(request.selector) | request.ext;

  if ((request.selector & 4) || NullSelector(request.selector)) {
    return Outcome::WithCode(bad_selector, code);
  }
  Descriptor descriptor;
  LinearAddr address;
  ALIBI_RETURN_IF_FAULT(ReadDescriptor(state, memory, request.selector, bad_selector, request.ext,
                                       &descriptor, &address));
  const unsigned available = descriptor.Type() & ~2u;
  const bool is_tss =
      !descriptor.CodeOrData() && (available == kTypeTss16 || available == kTypeTss);
  const bool busy = descriptor.Type() & 2;
  if (!is_tss || busy != returning) return Outcome::WithCode(bad_selector, code);
  if (!descriptor.Present()) return Outcome::WithCode(kSegmentNotPresent, code);
  const bool wide = Is32Bit(descriptor.Type());
  const u32 bytes = wide ? sizeof(Tss32) : sizeof(Tss16);
  if (descriptor.Limit() < bytes - 1) return InvalidTss(request.selector, request.ext);

  Tss32 tss{};
  GuestFault fault;
  LinearAddr base = Legacy(descriptor.Base());
  if (wide) {
    if (!memory.Read(base, &tss, bytes, Privilege::kSupervisor, &fault)) return fault;
  } else {
    Tss16 narrow;
    if (!memory.Read(base, &narrow, bytes, Privilege::kSupervisor, &fault)) return fault;
    tss = Widen(narrow);
  }
  const u16 old_selector = state.segment[kTr].selector;
  if (nesting) {
    // Probed here and written last, so that a fault leaves the new TSS alone.
    if (!memory.ProbeWrite(base, 2, Privilege::kSupervisor, &fault)) return fault;
    tss.eflags |= kNt;
  }
  if (!memory.ProbeWrite(address + 5, 1, Privilege::kSupervisor, &fault)) return fault;
  u32 saved_flags = static_cast<u32>(request.flags);
  if (returning) saved_flags &= ~static_cast<u32>(kNt);
  ALIBI_RETURN_IF_FAULT(SaveOldTask(state, memory, request, saved_flags));
  if (!nesting) ALIBI_RETURN_IF_FAULT(SetBusy(state, memory, old_selector, false));
  if (nesting && !memory.WriteValue(base, old_selector, Privilege::kSupervisor, &fault)) {
    return fault;
  }
  if (!returning) ALIBI_RETURN_IF_FAULT(SetBusy(state, memory, request.selector, true));

  state.segment[kTr] = descriptor.ToSegment(request.selector);
  state.segment[kTr].attributes |= 2;
  Outcome entered = EnterTask(state, memory, tss, wide, request.ext);
  memory.PrivilegeChanged();
  if (entered.faulted()) return entered;
  if (request.has_error_code) {
    FrameWords frame(wide ? 4 : 2);
    frame.Add(request.error_code);
    u32 pointer = static_cast<u32>(state.gpr[kRsp]);
    LegacyStack stack{state.segment[kSs], Privilege::kCpl, request.ext};
    ALIBI_RETURN_IF_FAULT(stack.Push(memory, &pointer, frame.data(), frame.size(), frame.word()));
    state.gpr[kRsp] = MergeStackPointer(state.segment[kSs], state.gpr[kRsp], pointer);
  }
  state.task_trap = wide && (tss.trap_and_io_base & 1);
  return {};
}

Outcome ReadInnerStack(const VcpuState& state, LinearMemory& memory, unsigned cpl, u32 ext,
                       Segment* stack, u64* pointer, Descriptor* descriptor, LinearAddr* address) {
  const Segment& tss = state.segment[kTr];
  GuestFault fault;
  u16 selector = 0;
  if (Is32Bit(tss.Type())) {
    u32 field = cpl * 8 + 4;
    u32 words[2] = {};
    if (field + 5 > tss.limit) return InvalidTss(tss.selector, ext);
    if (!memory.Read(Legacy(tss.base, field), words, 6, Privilege::kSupervisor, &fault)) {
      return fault;
    }
    *pointer = words[0];
    selector = static_cast<u16>(words[1]);
  } else {
    u32 field = cpl * 4 + 2;
    u16 words[2];
    if (field + 3 > tss.limit) return InvalidTss(tss.selector, ext);
    if (!memory.Read(Legacy(tss.base, field), words, 4, Privilege::kSupervisor, &fault)) {
      return fault;
    }
    *pointer = words[0];
    selector = words[1];
  }
  if (NullSelector(selector)) return Outcome::WithCode(kInvalidTss, ext);
  ALIBI_RETURN_IF_FAULT(
      ReadDescriptor(state, memory, selector, kInvalidTss, ext, descriptor, address));
  if ((selector & 3u) != cpl || descriptor->Dpl() != cpl || !descriptor->WritableData()) {
    return InvalidTss(selector, ext);
  }
  if (!descriptor->Present()) return StackFault(SelectorCode(selector) | ext);
  *stack = descriptor->ToSegment(selector);
  return {};
}

}  // namespace alibi::vcpu
