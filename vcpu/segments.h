// SPDX-License-Identifier: Apache-2.0
// Segment and descriptor-table registers (SDM vol. 3, chapters 3, 5 and 8).
//
// A null data segment is one whose attributes are zero (not present), base and limit zero.
// Checks of the current mode that raise #UD or #GP(0) before the operand is read are part of these
// functions; a caller that has to read a memory operand first asks the Check... function.
#ifndef ALIBI_VCPU_SEGMENTS_H_
#define ALIBI_VCPU_SEGMENTS_H_

#include "base/types.h"
#include "vcpu/memory.h"
#include "vcpu/outcome.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

// MOV/POP to ES, SS, DS, FS, GS, and the LDS family. CS gives #UD. The interrupt shadow of MOV SS
// is the caller's, since LSS has none.
Outcome LoadSegment(VcpuState& state, LinearMemory& memory, SegmentIndex index, u16 selector);

// LGDT, LIDT, LLDT, LTR: who may execute them is a trait of their operations (isa/op.h).
// base is the operand's 4 or 8 bytes; with a 16-bit operand only 24 bits count.
Outcome LoadGdtr(VcpuState& state, u16 limit, u64 base, unsigned operand_bits);
Outcome LoadIdtr(VcpuState& state, u16 limit, u64 base, unsigned operand_bits);
Outcome LoadLdtr(VcpuState& state, LinearMemory& memory, u16 selector);
Outcome LoadTaskRegister(VcpuState& state, LinearMemory& memory, u16 selector);

// LAR and LSL: ok is the new ZF; value is the destination when ok.
struct DescriptorQuery {
  bool ok = false;
  u32 value = 0;
};
Outcome LoadAccessRights(const VcpuState& state, LinearMemory& memory, u16 selector,
                         DescriptorQuery* query);
Outcome LoadSegmentLimit(const VcpuState& state, LinearMemory& memory, u16 selector,
                         DescriptorQuery* query);
// VERR, VERW: query->ok is the new ZF.
Outcome VerifyAccess(const VcpuState& state, LinearMemory& memory, u16 selector, bool write,
                     DescriptorQuery* query);
// ARPL: ok is the new ZF, value the new destination.
DescriptorQuery AdjustRpl(u16 destination, u16 source);

// Computes VcpuState::segment_fast_limit from the segments, for code that is not 64-bit.
void UpdateFastLimits(VcpuState& state);
// Of one: its register was loaded.
void UpdateFastLimit(VcpuState& state, unsigned index);

Outcome SwapGs(VcpuState& state);
// RDFSBASE and relatives; index is kFs or kGs, bits 32 or 64.
Outcome ReadSegmentBase(const VcpuState& state, SegmentIndex index, unsigned bits, u64* value);
Outcome WriteSegmentBase(VcpuState& state, SegmentIndex index, unsigned bits, u64 value);

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_SEGMENTS_H_
