// SPDX-License-Identifier: Apache-2.0
// The state in which a paravirtual guest has another processor begin, instead of real mode: VMI's
// SetInitialAPState (docs/vmi.md).
#ifndef ALIBI_VCPU_START_STATE_H_
#define ALIBI_VCPU_START_STATE_H_

#include "base/types.h"
#include "vcpu/cpuid.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

// As words that come one by one, from a guest that may give any: those of VMI's record, and then
// the descriptors of its segments, each with the lower half first, in the record's order: CS, SS,
// DS, ES, FS, GS, LDTR. Null selectors have descriptors that are 0.
class StartState {
 public:
  static constexpr unsigned kRecordWords = 23, kSegments = 7, kWords = kRecordWords + 2 * kSegments;

  void Clear() { known_ = 0; }
  // Numbers that there are not are ignored.
  void Set(u32 number, u32 value) {
    if (number >= kWords) return;
    words_[number] = value;
    known_ |= u64{1} << number;
  }
  bool complete() const { return known_ == (u64{1} << kWords) - 1; }

  // What a startup IPI has started in real mode begins in this state. False, and nothing is
  // changed: it is not complete, or it is a state that instructions could not lead to, or not of
  // 32-bit protected mode in ring 0.
  bool ApplyTo(VcpuState* state, const CpuidPolicy& policy) const;

 private:
  u16 Half(unsigned offset) const {
    return static_cast<u16>(words_[offset / 4] >> (8 * (offset & 2)));
  }
  bool LoadControl(VcpuState* state, const CpuidPolicy& policy) const;
  bool LoadSegments(VcpuState* state) const;

  u32 words_[kWords] = {};
  u64 known_ = 0;  // a bit for each
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_START_STATE_H_
