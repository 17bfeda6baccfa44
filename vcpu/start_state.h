// SPDX-License-Identifier: Apache-2.0
// The state in which a paravirtual guest has another processor begin, instead of real mode: VMI's
// SetInitialAPState (docs/vmi.md).
#ifndef ALIBI_VCPU_START_STATE_H_
#define ALIBI_VCPU_START_STATE_H_

#include "base/types.h"
#include "vcpu/cpuid.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

// As words that come one by one, from a guest that may give any: those of the record of its kind,
// and then the descriptors of its segments, in the record's order. Null selectors have descriptors
// that are 0.
class StartState {
 public:
  // VMI's record, of 23 words of 32 bits, for 32-bit protected mode: CS, SS, DS, ES, FS, GS, LDTR,
  // of each descriptor the lower half first. The one for 64-bit mode (docs/vmi.md), of 31 words of
  // 64 bits: CS, SS, DS, ES, FS, GS, each descriptor a word.
  enum Kind : u8 { k32, k64, kKinds };
  static constexpr unsigned kRecordWords[kKinds] = {23, 31}, kSegments[kKinds] = {7, 6},
                            kWords[kKinds] = {23 + 2 * 7, 31 + 6};

  void Clear() { known_ = 0; }
  // Numbers that there are not are ignored. The first word of the other kind begins a new state.
  void Set(Kind kind, u64 number, u64 value) {
    if (number >= kWords[kind]) return;
    if (kind != kind_) Clear();
    kind_ = kind;
    words_[number] = kind == k32 ? static_cast<u32>(value) : value;
    known_ |= u64{1} << number;
  }
  bool complete() const { return known_ == (u64{1} << kWords[kind_]) - 1; }

  // What a startup IPI has started in real mode begins in this state. False, and nothing is
  // changed: it is not complete, or it is a state that instructions could not lead to, or not of
  // its kind's mode, in ring 0.
  bool ApplyTo(VcpuState* state, const CpuidPolicy& policy) const;

 private:
  u64 Field(unsigned offset, unsigned bytes) const;
  u64 Word(unsigned offset) const { return Field(offset, kind_ == k32 ? 4 : 8); }
  u64 DescriptorOf(unsigned segment) const;
  bool LoadControl32(VcpuState* state, const CpuidPolicy& policy) const;
  bool LoadControl64(VcpuState* state, const CpuidPolicy& policy) const;
  bool LoadSegments(VcpuState* state) const;
  bool LoadBases(VcpuState* state) const;

  static constexpr unsigned kMostWords = 37;
  static_assert(kWords[k32] <= kMostWords && kWords[k64] <= kMostWords);

  Kind kind_ = k32;
  u64 words_[kMostWords] = {};
  u64 known_ = 0;  // a bit for each
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_START_STATE_H_
