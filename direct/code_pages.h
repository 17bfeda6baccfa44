// SPDX-License-Identifier: Apache-2.0
// Which pages of guest RAM hold code that may run directly. Verdicts last as long as the page is
// under kDirectTrace: any store to it ends them.
#ifndef ALIBI_DIRECT_CODE_PAGES_H_
#define ALIBI_DIRECT_CODE_PAGES_H_

#include <x86intrin.h>

#include <optional>

#include "base/result.h"
#include "base/types.h"
#include "direct/code_judge.h"
#include "direct/counters.h"
#include "mmu/mmu.h"

namespace alibi::direct {

class CodePages {
 public:
  CodePages(mmu::Mmu& mmu, Counters& counters) : mmu_(mmu), counters_(counters) {}
  ~CodePages();
  CodePages(const CodePages&) = delete;
  CodePages& operator=(const CodePages&) = delete;
  Status Init();

  enum Verdict : u8 {
    kUnknown,
    kEligible,
    kIneligible,
    kNeedsNext  // its last instruction is cut by the page's end: FitsWithNext() says more
  };

  // May the page's code, which the running view executes at `linear` as code of so many bits (32 or
  // 64), run directly? Never kUnknown.
  // With a verdict the page is under kDirectTrace; code that is being written has none yet.
  Verdict Of(const CodeJudge& judge, unsigned code_bits, LinearAddr linear, PhysAddr page);
  // With what lies behind it now; not remembered.
  bool FitsWithNext(const CodeJudge& judge, unsigned code_bits, LinearAddr linear,
                    PhysAddr page) const;
  // Of a page that is kIneligible: where breakpoints make it eligible. None: they do not.
  HostVisiblePlaces PlacesIn(const CodeJudge& judge, unsigned code_bits, LinearAddr linear,
                             PhysAddr page) const;
  // A page under kDirectTrace has been written to, and is traced no more. For general registers
  // only.
  void Written(u64 arena_offset) {
    Record& record = RecordOf(arena_offset);
    if (record.period != PeriodNow()) record.rewrites = 0;
    record.period = PeriodNow();
    if (record.rewrites < kMostRewrites) record.rewrites = (record.rewrites + 1) & 3;
    record.verdict64 = record.verdict32 = kUnknown;
  }
  // What the guest may use has changed: all verdicts are void.
  void ForgetAll();

 private:
  // Code that is written again and again within a period stays translated for its rest.
  static constexpr unsigned kPeriodShift = 32;  // of the TSC
  static constexpr u8 kMostRewrites = 3;
  static u8 PeriodNow() { return __rdtsc() >> kPeriodShift & 15; }
  struct Record {
    u16 verdict64 : 2, verdict32 : 2;
    // It was refused without knowledge of what lies before the page.
    u16 alone64 : 1, alone32 : 1;
    u16 rewrites : 2;
    u16 period : 4;  // in which the rewrites were
  };
  static_assert(sizeof(Record) == 2);

  bool KnowsBefore(LinearAddr linear) const;
  std::optional<WhyNot> Judge(const CodeJudge& judge, unsigned code_bits, LinearAddr linear,
                              PhysAddr page, bool with_next) const;
  Record& RecordOf(u64 arena_offset) const { return records_[arena_offset / kPageSize]; }

  mmu::Mmu& mmu_;
  Counters& counters_;
  Record* records_ = nullptr;  // of each page of the arena
  u64 bytes_ = 0;
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_CODE_PAGES_H_
