// SPDX-License-Identifier: Apache-2.0
// Descriptors as they lie in memory, and the address checks that system semantics share.
#ifndef ALIBI_VCPU_DESCRIPTORS_H_
#define ALIBI_VCPU_DESCRIPTORS_H_

#include "base/types.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

// Attribute words (see Segment) of the segments that SYSCALL and its kin make up.
inline constexpr u16 kAttrAccessed = 0x1, kAttrWritable = 0x2, kAttrConforming = 0x4,
                     kAttrCode = 0x8, kAttrCodeOrData = 0x10, kAttrPresent = 0x80,
                     kAttrLong = 0x2000, kAttrBig = 0x4000, kAttrGranular = 0x8000;
inline constexpr u16 kFlatCode64 = 0xa09b, kFlatCode32 = 0xc09b, kFlatData = 0xc093;
constexpr u16 WithDpl(u16 attributes, unsigned dpl) {
  return static_cast<u16>(attributes | (dpl << 5));
}

// System descriptor types (SDM vol. 3, table 3-2).
inline constexpr unsigned kTypeTss16 = 1, kTypeLdt = 2, kTypeTss16Busy = 3, kTypeCallGate16 = 4,
                          kTypeTaskGate = 5, kTypeInterruptGate16 = 6, kTypeTrapGate16 = 7,
                          kTypeTss = 9, kTypeTssBusy = 11, kTypeCallGate = 12,
                          kTypeInterruptGate = 14, kTypeTrapGate = 15;

// Real-address or virtual-8086 mode: segment registers are just shifted.
inline bool RealOrVirtual8086(const VcpuState& state) {
  return !state.ProtectedMode() || (state.system_flags & kVm);
}

// The first 8 bytes of a descriptor; a gate has other fields, its attributes are in place though.
struct Descriptor {
  u64 raw = 0;

  constexpr u16 Attributes() const { return static_cast<u16>((raw >> 40) & 0xf0ff); }
  constexpr u32 Base() const {
    return static_cast<u32>(((raw >> 16) & 0xffffff) | ((raw >> 32) & 0xff000000));
  }
  constexpr u32 Limit() const {
    u32 limit = static_cast<u32>((raw & 0xffff) | ((raw >> 32) & 0xf0000));
    return (raw >> 55) & 1 ? (limit << 12) | 0xfff : limit;
  }
  constexpr unsigned Type() const { return (raw >> 40) & 0xf; }
  constexpr bool CodeOrData() const { return (raw >> 44) & 1; }
  constexpr unsigned Dpl() const { return (raw >> 45) & 3; }
  constexpr bool Present() const { return (raw >> 47) & 1; }
  constexpr bool Long() const { return (raw >> 53) & 1; }
  constexpr bool Big() const { return (raw >> 54) & 1; }
  constexpr bool Code() const { return CodeOrData() && (Type() & 8); }
  constexpr bool Data() const { return CodeOrData() && !(Type() & 8); }
  constexpr bool Conforming() const { return Type() & 4; }  // of code
  constexpr bool Readable() const { return Data() || (Type() & 2); }
  constexpr bool WritableData() const { return Data() && (Type() & 2); }

  // Call, interrupt and trap gates.
  constexpr u16 GateSelector() const { return static_cast<u16>(raw >> 16); }
  constexpr u32 GateOffset32() const {
    return static_cast<u32>((raw & 0xffff) | ((raw >> 32) & 0xffff0000));
  }

  constexpr Segment ToSegment(u16 selector) const {
    return {.base = Base(), .limit = Limit(), .selector = selector, .attributes = Attributes()};
  }
};

constexpr u32 SelectorCode(u16 selector) { return selector & 0xfffcu; }
constexpr bool NullSelector(u16 selector) { return (selector & 0xfffc) == 0; }

// Where a selector's descriptor lies. False: outside its table (or no LDT).
inline bool LocateDescriptor(const VcpuState& state, u16 selector, unsigned bytes,
                             LinearAddr* address) {
  u64 base = state.gdtr.base;
  u32 limit = state.gdtr.limit;
  if (selector & 4) {
    const Segment& ldt = state.segment[kLdtr];
    if (!ldt.Present()) return false;
    base = ldt.base;
    limit = ldt.limit;
  }
  u32 offset = selector & 0xfff8u;
  if (offset + bytes - 1 > limit) return false;
  u64 linear = base + offset;
  *address = LinearAddr(state.LongModeActive() ? linear : static_cast<u32>(linear));
  return true;
}

// Reads a selector's descriptor (8 bytes). Outside the table it is `vector`(selector | extra).
// The selector is not null; extra is the EXT bit of an event in delivery.
inline Outcome ReadDescriptor(const VcpuState& state, LinearMemory& memory, u16 selector,
                              Vector vector, u32 extra, Descriptor* descriptor,
                              LinearAddr* address) {
  if (!LocateDescriptor(state, selector, 8, address)) {
    return Outcome::WithCode(vector, SelectorCode(selector) | extra);
  }
  // A table at the end of canonical space can reach out of it.
  if (!IsCanonical(address->value)) return GeneralProtection(extra);
  GuestFault fault;
  if (!memory.ReadValue(*address, &descriptor->raw, Privilege::kSupervisor, &fault)) return fault;
  return {};
}

// Sets the accessed bit of a code or data descriptor that is about to be loaded.
inline Outcome MarkAccessed(LinearMemory& memory, LinearAddr address, Descriptor* descriptor) {
  if (descriptor->Type() & kAttrAccessed) return {};
  GuestFault fault;
  u8 byte = static_cast<u8>(descriptor->raw >> 40) | kAttrAccessed;
  if (!memory.WriteValue(address + 5, byte, Privilege::kSupervisor, &fault)) return fault;
  descriptor->raw |= u64{kAttrAccessed} << 40;
  return {};
}

// Is [offset, offset + size) inside a segment outside 64-bit mode? (SDM vol. 3, 5.3) The end of 4
// GB is one where the host's CPU has one.
bool InSegmentLimit(const Segment& segment, u32 offset, u32 size);

// The stack pointer bits that pushes and pops of this stack segment use, outside 64-bit mode.
inline u32 StackMask(const Segment& stack) { return stack.Big() ? 0xffffffff : 0xffff; }

// Loads CS and the CPL, and tells the memory when either means another view of it: the CPL or the
// code size differs. Last of all state changes, because the memory reads the state.
inline void EnterCode(VcpuState& state, LinearMemory& memory, const Segment& code, unsigned cpl) {
  const unsigned old_attributes = state.segment[kCs].attributes;
  const bool changed =
      state.cpl != cpl || ((old_attributes ^ code.attributes) & (kAttrLong | kAttrBig)) != 0;
  state.segment[kCs] = code;
  state.cpl = static_cast<u8>(cpl);
  if (changed) memory.PrivilegeChanged();
}

// Which privilege the accesses to a stack of level `cpl` have: event frames and far transfers
// write to it before (or read from it after) the CPL is in the state. Without a change of CPL they
// are explicit accesses, which EFLAGS.AC opens under SMAP (SDM vol. 3, 4.6.1).
constexpr Privilege StackPrivilege(unsigned cpl, unsigned current_cpl) {
  if (cpl == current_cpl) return Privilege::kCpl;
  return cpl == 3 ? Privilege::kUser : Privilege::kSupervisor;
}

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_DESCRIPTORS_H_
