// SPDX-License-Identifier: Apache-2.0
// Several Mmus over one memory, each with a VCPU that executes guest code beside the others': each
// is that VCPU's TLB. What belongs to an Mmu is changed by its VCPU alone, outside guest code, or
// by another one while it is stopped there. What concerns several of them is done by whoever has
// the machine, and by nobody else at that time.
//
// - A page that one of them traces is read-only for all (kTracedElsewhere); whoever could store to
//   it directly is stopped first. Whoever stores to it has the machine, and so has the one that
//   traces it as soon as others store to it, too: its descriptor says so by the same flag.
// - A store to a page that another one shadows as a leaf table becomes news: that Mmu hears it when
//   its VCPU is outside guest code next. Until then the shadow is a TLB that has not been flushed:
//   whatever flushes one is outside guest code, or is made to be (View::CutRootPeer). Stores that
//   change what lies above leaves, and stores to code, stop the other VCPU first. Of code it hears
//   at an instruction boundary.
//
// A VCPU that waits for the machine may find its Mmu changed: who takes it in the middle of
// something begins again, where TakeMachine() says so.
#ifndef ALIBI_MMU_BESIDE_H_
#define ALIBI_MMU_BESIDE_H_

#include "base/types.h"

namespace alibi::mmu {

class Mmu;

// The VCPUs, of which one at a time has the machine. Vector registers stay as they are.
class BesideVcpus {
 public:
  virtual ~BesideVcpus() = default;
  // Asked about the calling VCPU, or one that it has stopped.
  virtual bool HasMachine(unsigned vcpu) = 0;
  // It has the machine from now on, and had it not. True: others may have had it meanwhile.
  virtual bool TakeMachine(unsigned vcpu) = 0;

  // --- Of another VCPU, by whoever has the machine ---
  // Returns when the VCPU neither executes guest code nor does anything else without the machine;
  // so it stays as long as the caller has that.
  virtual void StopBeside(unsigned vcpu) = 0;
  // Up to the end it may execute guest code, but does nothing else without the machine. For a
  // moment, in which it is not stopped.
  virtual void HoldBeside(unsigned vcpu) = 0;
  virtual void EndHoldBeside(unsigned vcpu) = 0;
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

// Pages that an Mmu has ceased to trace while it had not the machine; with more, all pages.
inline constexpr unsigned kMaxForgotten = 1024;
inline constexpr u32 kAllPages = ~u32{0};
struct Forgotten {
  unsigned pages = 0;  // kMaxForgotten + 1: there were more
  u32 page[kMaxForgotten];
};

// The Mmus by their VCPUs' numbers.
struct MmuGroup {
  BesideVcpus* vcpus = nullptr;
  unsigned count = 0;
  Mmu* mmu[16] = {};
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_BESIDE_H_
