// SPDX-License-Identifier: Apache-2.0
// Segments as the KVM API shows them, and ours, which has the same shape: an attribute to a member.
#ifndef ALIBI_VCPU_SEGMENT_FIELDS_H_
#define ALIBI_VCPU_SEGMENT_FIELDS_H_

#include "base/types.h"
#include "vcpu/state.h"

namespace alibi::vcpu {

template <class Fields>
Fields FieldsOf(const Segment& segment) {
  Fields r = {};
  const unsigned a = segment.attributes;
  r.base = segment.base;
  r.limit = segment.limit;
  r.selector = segment.selector;
  r.type = a & 0xf;
  r.s = (a >> 4) & 1;
  r.dpl = (a >> 5) & 3;
  r.present = (a >> 7) & 1;
  r.avl = (a >> 12) & 1;
  r.l = (a >> 13) & 1;
  r.db = (a >> 14) & 1;
  r.g = (a >> 15) & 1;
  r.unusable = !r.present;
  return r;
}

// Whatever `unusable` says.
template <class Fields>
Segment SegmentFromFields(const Fields& r) {
  const unsigned a = (r.type & 0xfu) | (r.s & 1u) << 4 | (r.dpl & 3u) << 5 | (r.present & 1u) << 7 |
                     (r.avl & 1u) << 12 | (r.l & 1u) << 13 | (r.db & 1u) << 14 | (r.g & 1u) << 15;
  return {
      .base = r.base, .limit = r.limit, .selector = r.selector, .attributes = static_cast<u16>(a)};
}

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_SEGMENT_FIELDS_H_
