// SPDX-License-Identifier: Apache-2.0
// Breakpoints of the debug registers (SDM vol. 3, 17.2 and 17.3).
#ifndef ALIBI_VCPU_BREAKPOINTS_H_
#define ALIBI_VCPU_BREAKPOINTS_H_

#include "base/types.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

// What is about to be touched, in the encoding of DR7.R/W (a read-write breakpoint answers to
// reads).
enum class BreakpointAccess : u8 { kExecute = 0, kWrite = 1, kPort = 2, kRead = 3 };

// Is any breakpoint enabled, locally or globally?
inline bool BreakpointsEnabled(const VcpuState& state) { return (state.dr[7] & 0xff) != 0; }

struct Breakpoint {
  BreakpointAccess kind = BreakpointAccess::kExecute;
  u64 first = 0;  // a linear address, or a port
  u64 size = 0;   // 1, 2, 4 or 8; 0: it is not enabled
};
constexpr unsigned kBreakpoints = 4;  // DR0 to DR3
Breakpoint BreakpointOf(const VcpuState& state, unsigned i);

// The enabled breakpoints that an access to [address, address + size), linear addresses or ports,
// hits: DR6 bits B0-B3.
u64 MatchBreakpoints(const VcpuState& state, BreakpointAccess access, u64 address, unsigned size);

// A #DB for these reasons: they join what DR6 holds, but B0-B3 are always those of the latest #DB
// (SDM vol. 3, 17.2.3: "may clear bits 0-3"; AMD's and Intel's processors do).
inline void ReportDebug(VcpuState& state, u64 dr6_bits) {
  constexpr u64 kHits = (u64{1} << kBreakpoints) - 1;
  state.dr[6] = (state.dr[6] & ~kHits) | dr6_bits;
}

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_BREAKPOINTS_H_
