// SPDX-License-Identifier: Apache-2.0
#include "vcpu/segments.h"

#include <initializer_list>
#include <utility>

#include "vcpu/cpu_differences.h"
#include "vcpu/descriptors.h"

namespace alibi::vcpu {
namespace {

void LoadShifted(VcpuState& state, SegmentIndex index, u16 selector) {
  Segment& segment = state.segment[index];
  segment.selector = selector;
  segment.base = u32{selector} << 4;
  // Real mode keeps limit and attributes, which is how "unreal" mode works; virtual-8086 mode
  // has fixed ones.
  if (state.system_flags & kVm) {
    segment.limit = 0xffff;
    segment.attributes = 0xf3;
  }
}

Outcome LoadStackSegment(VcpuState& state, LinearMemory& memory, u16 selector) {
  unsigned rpl = selector & 3;
  if (NullSelector(selector)) {
    if (!state.In64BitCode() || state.cpl == 3 || rpl != state.cpl) return GeneralProtection();
    state.segment[kSs] = Segment{.selector = selector};
    return {};
  }
  Descriptor descriptor;
  LinearAddr address;
  ALIBI_RETURN_IF_FAULT(
      ReadDescriptor(state, memory, selector, kGeneralProtection, 0, &descriptor, &address));
  if (rpl != state.cpl || !descriptor.WritableData() || descriptor.Dpl() != state.cpl) {
    return GeneralProtection(SelectorCode(selector));
  }
  if (!descriptor.Present()) return StackFault(SelectorCode(selector));
  ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, address, &descriptor));
  state.segment[kSs] = descriptor.ToSegment(selector);
  return {};
}

Outcome LoadDataSegment(VcpuState& state, LinearMemory& memory, SegmentIndex index, u16 selector) {
  if (NullSelector(selector)) {
    state.segment[index] = Segment{.selector = selector};
    return {};
  }
  Descriptor descriptor;
  LinearAddr address;
  ALIBI_RETURN_IF_FAULT(
      ReadDescriptor(state, memory, selector, kGeneralProtection, 0, &descriptor, &address));
  unsigned rpl = selector & 3;
  bool conforming = descriptor.Code() && descriptor.Conforming();
  bool privileged = conforming || (rpl <= descriptor.Dpl() && state.cpl <= descriptor.Dpl());
  if (!descriptor.CodeOrData() || !descriptor.Readable() || !privileged) {
    return GeneralProtection(SelectorCode(selector));
  }
  if (!descriptor.Present()) return Outcome::WithCode(kSegmentNotPresent, SelectorCode(selector));
  ALIBI_RETURN_IF_FAULT(MarkAccessed(memory, address, &descriptor));
  state.segment[index] = descriptor.ToSegment(selector);
  return {};
}

// LLDT and LTR read 16 bytes in long mode; the upper 8 must have a zero type field.
Outcome ReadSystemDescriptor(const VcpuState& state, LinearMemory& memory, u16 selector,
                             Descriptor* descriptor, u64* base, LinearAddr* address) {
  bool wide = state.LongModeActive();
  if ((selector & 4) || !LocateDescriptor(state, selector, wide ? 16 : 8, address)) {
    return GeneralProtection(SelectorCode(selector));
  }
  if (!IsCanonical(address->value)) return GeneralProtection();
  u64 words[2] = {};
  GuestFault fault;
  if (!memory.Read(*address, words, wide ? 16 : 8, Privilege::kSupervisor, &fault)) return fault;
  descriptor->raw = words[0];
  *base = descriptor->Base() | (words[1] << 32);
  if ((words[1] >> 40) & 0x1f) return GeneralProtection(SelectorCode(selector));
  if (wide && !IsCanonical(*base)) return GeneralProtection(SelectorCode(selector));
  return {};
}

Outcome LoadTable(VcpuState& state, DescriptorTable* table, u16 limit, u64 base,
                  unsigned operand_bits) {
  if (state.In64BitCode()) {
    if (!IsCanonical(base)) return GeneralProtection();
    table->base = base;
  } else {
    table->base = operand_bits == 16 ? base & 0xffffff : static_cast<u32>(base);
  }
  table->limit = limit;
  return {};
}

// Types that LAR and LSL accept; the masks differ, and in long mode the 16-bit ones are gone
// (SDM vol. 2, tables of LAR and LSL).
constexpr u32 Types(std::initializer_list<unsigned> types) {
  u32 mask = 0;
  for (unsigned type : types) mask |= 1u << type;
  return mask;
}
constexpr u32 kLarLegacy = Types({kTypeTss16, kTypeLdt, kTypeTss16Busy, kTypeCallGate16,
                                  kTypeTaskGate, kTypeTss, kTypeTssBusy, kTypeCallGate});
constexpr u32 kLarLong = Types({kTypeLdt, kTypeTss, kTypeTssBusy, kTypeCallGate});
constexpr u32 kLslLegacy = Types({kTypeTss16, kTypeLdt, kTypeTss16Busy, kTypeTss, kTypeTssBusy});
constexpr u32 kLslLong = Types({kTypeLdt, kTypeTss, kTypeTssBusy});

// The common part of LAR and LSL: *visible says whether the descriptor may be looked at.
Outcome FindVisible(const VcpuState& state, LinearMemory& memory, u16 selector, u32 system_types,
                    Descriptor* descriptor, bool* visible) {
  *visible = false;
  LinearAddr address;
  if (NullSelector(selector) || !LocateDescriptor(state, selector, 8, &address)) return {};
  if (!IsCanonical(address.value)) return GeneralProtection();
  GuestFault fault;
  if (!memory.ReadValue(address, &descriptor->raw, Privilege::kSupervisor, &fault)) return fault;
  if (!descriptor->CodeOrData()) {
    if (!((system_types >> descriptor->Type()) & 1)) return {};
    // A system descriptor's second half must be inside the table as well.
    bool wide = state.LongModeActive() && descriptor->Type() != kTypeTaskGate;
    if (wide && !LocateDescriptor(state, selector, 16, &address)) return {};
  }
  bool conforming = descriptor->Code() && descriptor->Conforming();
  unsigned rpl = selector & 3;
  *visible = conforming || (state.cpl <= descriptor->Dpl() && rpl <= descriptor->Dpl());
  return {};
}

}  // namespace

bool InSegmentLimit(const Segment& segment, u32 offset, u32 size) {
  constexpr u64 kEnd = 0xffffffff;
  const u64 last = u64{offset} + size - 1;
  const bool expand_down = segment.CodeOrData() && !(segment.Type() & 8) && (segment.Type() & 4);
  if (!expand_down) {
    return last <= segment.limit || (segment.limit == kEnd && segment.base == 0 &&
                                     HostHasIntelsWay(HostDifference::kEndOf4Gb));
  }
  const u64 top = segment.Big() ? kEnd : 0xffff;
  return offset > segment.limit && last <= top;
}

Outcome LoadSegment(VcpuState& state, LinearMemory& memory, SegmentIndex index, u16 selector) {
  if (index == kCs || index > kGs) return InvalidOpcode();
  if (RealOrVirtual8086(state)) {
    LoadShifted(state, index, selector);
    return {};
  }
  return index == kSs ? LoadStackSegment(state, memory, selector)
                      : LoadDataSegment(state, memory, index, selector);
}

Outcome LoadGdtr(VcpuState& state, u16 limit, u64 base, unsigned operand_bits) {
  return LoadTable(state, &state.gdtr, limit, base, operand_bits);
}

Outcome LoadIdtr(VcpuState& state, u16 limit, u64 base, unsigned operand_bits) {
  return LoadTable(state, &state.idtr, limit, base, operand_bits);
}

Outcome LoadLdtr(VcpuState& state, LinearMemory& memory, u16 selector) {
  if (NullSelector(selector)) {
    state.segment[kLdtr] = Segment{.selector = selector};
    return {};
  }
  Descriptor descriptor;
  u64 base = 0;
  LinearAddr address;
  ALIBI_RETURN_IF_FAULT(
      ReadSystemDescriptor(state, memory, selector, &descriptor, &base, &address));
  if (descriptor.CodeOrData() || descriptor.Type() != kTypeLdt) {
    return GeneralProtection(SelectorCode(selector));
  }
  if (!descriptor.Present()) return Outcome::WithCode(kSegmentNotPresent, SelectorCode(selector));
  state.segment[kLdtr] = descriptor.ToSegment(selector);
  state.segment[kLdtr].base = base;
  return {};
}

Outcome LoadTaskRegister(VcpuState& state, LinearMemory& memory, u16 selector) {
  if (NullSelector(selector)) return GeneralProtection();
  Descriptor descriptor;
  u64 base = 0;
  LinearAddr address;
  ALIBI_RETURN_IF_FAULT(
      ReadSystemDescriptor(state, memory, selector, &descriptor, &base, &address));
  bool available =
      descriptor.Type() == kTypeTss || (descriptor.Type() == kTypeTss16 && !state.LongModeActive());
  if (descriptor.CodeOrData() || !available) return GeneralProtection(SelectorCode(selector));
  if (!descriptor.Present()) return Outcome::WithCode(kSegmentNotPresent, SelectorCode(selector));
  // Busy: the bit that tells the available from the busy types.
  descriptor.raw |= u64{2} << 40;
  GuestFault fault;
  u8 byte = static_cast<u8>(descriptor.raw >> 40);
  if (!memory.WriteValue(address + 5, byte, Privilege::kSupervisor, &fault)) return fault;
  state.segment[kTr] = descriptor.ToSegment(selector);
  state.segment[kTr].base = base;
  return {};
}

Outcome LoadAccessRights(const VcpuState& state, LinearMemory& memory, u16 selector,
                         DescriptorQuery* query) {
  Descriptor descriptor;
  u32 types = state.LongModeActive() ? kLarLong : kLarLegacy;
  ALIBI_RETURN_IF_FAULT(FindVisible(state, memory, selector, types, &descriptor, &query->ok));
  // Bits 19:16 are undefined to Intel; AMD's CPUs show the limit's there.
  query->value = static_cast<u32>(descriptor.raw >> 32) & 0x00ffff00;
  return {};
}

Outcome LoadSegmentLimit(const VcpuState& state, LinearMemory& memory, u16 selector,
                         DescriptorQuery* query) {
  Descriptor descriptor;
  u32 types = state.LongModeActive() ? kLslLong : kLslLegacy;
  ALIBI_RETURN_IF_FAULT(FindVisible(state, memory, selector, types, &descriptor, &query->ok));
  query->value = descriptor.Limit();
  return {};
}

Outcome VerifyAccess(const VcpuState& state, LinearMemory& memory, u16 selector, bool write,
                     DescriptorQuery* query) {
  Descriptor descriptor;
  ALIBI_RETURN_IF_FAULT(FindVisible(state, memory, selector, 0, &descriptor, &query->ok));
  query->ok = query->ok && (write ? descriptor.WritableData() : descriptor.Readable());
  return {};
}

DescriptorQuery AdjustRpl(u16 destination, u16 source) {
  const bool ok = (destination & 3) < (source & 3);
  return {.ok = ok, .value = ok ? (destination & 0xfffcu) | (source & 3u) : destination};
}

void UpdateFastLimit(VcpuState& state, unsigned index) {
  const bool typed = !RealOrVirtual8086(state);
  const Segment& segment = state.segment[index];
  const bool code = segment.Type() & 8, type_bit = segment.Type() & 2;
  const bool expand_down = !code && (segment.Type() & 4);
  const bool usable = !expand_down && (!typed || segment.Present());
  const i64 room = usable ? i64{segment.limit} + 1 : 0;
  state.segment_fast_limit[0][index] = !typed || !code || type_bit ? room : 0;
  state.segment_fast_limit[1][index] = !typed || (!code && type_bit) ? room : 0;
}

void UpdateFastLimits(VcpuState& state) {
  for (unsigned index = 0; index < 6; ++index) UpdateFastLimit(state, index);
}

Outcome SwapGs(VcpuState& state) {
  if (!state.In64BitCode()) return InvalidOpcode();
  std::swap(state.segment[kGs].base, state.kernel_gs_base);
  return {};
}

Outcome ReadSegmentBase(const VcpuState& state, SegmentIndex index, unsigned bits, u64* value) {
  if (!state.In64BitCode() || !(state.cr4 & kCr4Fsgsbase)) return InvalidOpcode();
  *value = bits == 64 ? state.segment[index].base : static_cast<u32>(state.segment[index].base);
  return {};
}

Outcome WriteSegmentBase(VcpuState& state, SegmentIndex index, unsigned bits, u64 value) {
  if (!state.In64BitCode() || !(state.cr4 & kCr4Fsgsbase)) return InvalidOpcode();
  if (bits != 64) value = static_cast<u32>(value);
  if (!IsCanonical(value)) return GeneralProtection();
  state.segment[index].base = value;
  return {};
}

}  // namespace alibi::vcpu
