// SPDX-License-Identifier: Apache-2.0
// Pages of user code with few instructions of host_visible.inc, which run directly all the same:
// breakpoints of the CPU stand in front of these, and the translator executes them. So a page is
// not lost for the sake of a CPUID that its program executes once, nor for bytes that look like one
// and are a displacement: there a breakpoint never stops anything.
//
// A CPU has four breakpoints, and to set them costs as much as several stops: who is refused again
// and again gets them, as long as they last; who is stopped by them again and again loses them. Who
// is refused is translated meanwhile, so that more of its instructions are known.
//
// What a breakpoint does not stop (SDM vol. 3, 17.3.1.1): the first instruction behind an IRET that
// sets RF; and the one that the host's kernel had to bring the page back for, if it is entered
// there. Such a program would see the host once.
#ifndef ALIBI_DIRECT_GUARDS_H_
#define ALIBI_DIRECT_GUARDS_H_

#include <span>
#include <vector>

#include "base/types.h"
#include "direct/code_judge.h"

namespace alibi::direct {

// Of one satellite. Pages by their numbers (mmu::EntryIndex).
class Guards {
 public:
  static constexpr unsigned kBreakpoints = HostVisiblePlaces::kMost;
  // Refusals after which a page is judged again and may have free breakpoints, and another page's:
  // powers of two.
  static constexpr u32 kRefusals = 8, kToEvict = 128;
  static constexpr u32 kMostHits = 256;  // after which it must be translated

  // The page has been refused once more. True: a closer look would pay. That takes longer than a
  // refusal: who waits has one less and less often.
  bool Refused(u64 index);
  // It has breakpoints, and if it is refused, its mapping had gone.
  bool Has(u64 index) const;
  // It is to have breakpoints in front of these instructions, the addresses of which are given in
  // ascending order. Pages that lose theirs for it are appended to `evicted`. False: it waits.
  bool Guard(u64 index, std::span<const LinearAddr> places, std::vector<u64>* evicted);
  // What is mapped there now needs none.
  void Release(u64 index);
  // A breakpoint has stopped it. True: so often that it is banned now.
  bool Hit(u64 index);
  // Another program, about which nothing is known.
  void Forget();

  // The breakpoints that are wanted; whether these are others than when they were Set() last.
  std::span<const LinearAddr> places() const { return {places_, count_}; }
  bool changed() const { return changed_; }
  void Set() { changed_ = false; }

 private:
  struct Candidate {
    u64 index = 0;
    u32 refusals = 0, hits = 0;
    bool banned = false;
  };
  static constexpr unsigned kCandidates = 16;

  Candidate& CandidateOf(u64 index);

  Candidate candidates_[kCandidates];
  // Those that were given out first come first.
  LinearAddr places_[kBreakpoints];
  unsigned count_ = 0;
  bool changed_ = false;
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_GUARDS_H_
