// SPDX-License-Identifier: Apache-2.0
// The descriptors that both sides have: Linux's global table, as far as user programs can use or
// see it, and a local table of every kind of segment that modify_ldt(2) grants (accessed, DPL 3).
#ifndef ALIBI_TESTSUITE_ORACLE_SEGMENTS_H_
#define ALIBI_TESTSUITE_ORACLE_SEGMENTS_H_

#include <span>

#include "base/types.h"
#include "vcpu/descriptors.h"
#include "vcpu/state.h"

namespace alibi::oracle {

// Linux's selectors.
inline constexpr u16 kUserCs32 = 0x23, kUserDs = 0x2b, kUserCs64 = 0x33;
// Of Linux's global table: its bytes, less one.
inline constexpr u16 kGdtLimit = 0x7f;

// Raw descriptors; index 0 first. Zero: empty.
std::span<const u64> LocalDescriptors();
// Zero where Linux has nothing that a user program could load.
std::span<const u64> GlobalDescriptors();
// Gives this process the local table. False: its kernel does not allow that (modify_ldt).
bool InstallLocalDescriptors();
// Would that work in a child process? Without it there are no sequences of 16-bit code and none
// with segments that are not flat.
bool HostAllowsSegments();
constexpr u16 LocalSelector(unsigned index) { return static_cast<u16>(index << 3 | 7); }

// What a segment register holds after this selector was loaded; not present: null or unusable.
vcpu::Segment SegmentOf(u16 selector);
// 16, 32 or 64, of a code segment.
unsigned CodeBitsOf(u16 cs);
u64 LinearOf(u16 cs, u64 offset);
u64 OffsetOf(u16 cs, u64 linear);

// Data or readable code, stacks, code: what loads without a fault at CPL 3.
bool LoadsAsData(u16 selector);
bool LoadsAsStack(u16 selector);
bool LoadsAsCode(u16 selector);

}  // namespace alibi::oracle

#endif  // ALIBI_TESTSUITE_ORACLE_SEGMENTS_H_
