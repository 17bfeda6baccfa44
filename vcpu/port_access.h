// SPDX-License-Identifier: Apache-2.0
// May the current privilege use a port? (SDM vol. 1, 19.5)
#ifndef ALIBI_VCPU_PORT_ACCESS_H_
#define ALIBI_VCPU_PORT_ACCESS_H_

#include "base/types.h"
#include "vcpu/descriptors.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

inline bool PortsNeedBitmap(const VcpuState& state) {
  return state.ProtectedMode() && (state.cpl > state.Iopl() || (state.system_flags & kVm));
}

// size: 1, 2 or 4.
inline Outcome CheckPortAccess(const VcpuState& state, LinearMemory& memory, u16 port,
                               unsigned size) {
  if (__builtin_expect(!PortsNeedBitmap(state), 1)) return {};
  const Segment& tss = state.segment[kTr];
  constexpr u32 kMapBaseField = 0x66;
  if (!tss.Present() || (tss.Type() & ~2u) != kTypeTss || tss.limit < kMapBaseField + 1) {
    return GeneralProtection();
  }
  GuestFault fault;
  u16 map = 0;
  if (!memory.ReadValue(LinearAddr(tss.base + kMapBaseField), &map, Privilege::kSupervisor,
                        &fault)) {
    return fault;
  }
  // Two bytes are always read: the bits of an access may lie in both.
  const u32 offset = map + port / 8u;
  if (offset + 1 > tss.limit) return GeneralProtection();
  u16 bits = 0;
  if (!memory.ReadValue(LinearAddr(tss.base + offset), &bits, Privilege::kSupervisor, &fault)) {
    return fault;
  }
  const u32 mask = ((1u << size) - 1) << (port & 7);
  return bits & mask ? GeneralProtection() : Outcome();
}

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_PORT_ACCESS_H_
