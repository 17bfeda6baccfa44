// SPDX-License-Identifier: Apache-2.0
#include "vcpu/breakpoints.h"

namespace alibi::vcpu {
namespace {

bool Answers(const VcpuState& state, BreakpointAccess kind, BreakpointAccess access) {
  switch (kind) {
    case BreakpointAccess::kPort:
      return access == kind && (state.cr4 & kCr4De);
    case BreakpointAccess::kRead:
      return access == BreakpointAccess::kRead || access == BreakpointAccess::kWrite;
    default:
      return access == kind;
  }
}

}  // namespace

Breakpoint BreakpointOf(const VcpuState& state, unsigned i) {
  constexpr u64 kSpan[4] = {1, 2, 8, 4};  // DR7.LEN
  if (((state.dr[7] >> (2 * i)) & 3) == 0) return {};
  const u64 control = state.dr[7] >> (16 + 4 * i);
  const u64 span = kSpan[(control >> 2) & 3];
  return {static_cast<BreakpointAccess>(control & 3), state.dr[i] & ~(span - 1), span};
}

u64 MatchBreakpoints(const VcpuState& state, BreakpointAccess access, u64 address, unsigned size) {
  u64 hits = 0;
  for (unsigned i = 0; i < kBreakpoints; ++i) {
    const Breakpoint breakpoint = BreakpointOf(state, i);
    if (breakpoint.size == 0 || !Answers(state, breakpoint.kind, access)) continue;
    if (address - breakpoint.first < breakpoint.size || breakpoint.first - address < size) {
      hits |= u64{1} << i;
    }
  }
  return hits;
}

}  // namespace alibi::vcpu
