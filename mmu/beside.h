// SPDX-License-Identifier: Apache-2.0
// Several Mmus over one memory, each with a VCPU that executes guest code beside the others': each
// is that VCPU's TLB. What belongs to an Mmu is changed by its VCPU alone, outside guest code, or
// by another one while it is stopped there.
//
// - A page that one of them traces is read-only for all (kTracedElsewhere); whoever could store to
//   it directly is stopped first.
// - A store to a page that another one shadows as a leaf table becomes news: that Mmu hears it when
//   its VCPU is outside guest code next. Until then the shadow is a TLB that has not been flushed:
//   whatever flushes one is outside guest code, or is made to be (View::CutRootPeer). Stores that
//   change what lies above leaves, and stores to code, stop the other VCPU first. Of code it hears
//   at an instruction boundary.
//
// All calls come from whoever has the machine (BesideVcpus), so nothing here is locked.
#ifndef ALIBI_MMU_BESIDE_H_
#define ALIBI_MMU_BESIDE_H_

#include "base/types.h"

namespace alibi::mmu {

class Mmu;

// The VCPUs, of which one at a time has the machine: it is outside guest code.
class BesideVcpus {
 public:
  virtual ~BesideVcpus() = default;
  // Returns when the VCPU is outside guest code; it stays there as long as the caller has the
  // machine. Vector registers stay as they are.
  virtual void StopBeside(unsigned vcpu) = 0;
  // It shall leave guest code soon.
  virtual void AttendBeside(unsigned vcpu) = 0;
};

// What is new to an Mmu: an aligned unit of a page table has changed.
struct TableNews {
  u64 arena_offset, old_value, new_value;
};
// Bytes of a page that code was made from.
struct CodeNews {
  PhysAddr address;
  u64 size;
};

// At most so many wait; with more the VCPU is stopped, or its whole code is new.
inline constexpr unsigned kMaxTableNews = 256, kMaxCodeNews = 32;
struct News {
  unsigned tables = 0, codes = 0;
  TableNews table[kMaxTableNews];
  CodeNews code[kMaxCodeNews];
};

// The Mmus by their VCPUs' numbers.
struct MmuGroup {
  BesideVcpus* vcpus = nullptr;
  unsigned count = 0;
  Mmu* mmu[16] = {};
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_BESIDE_H_
