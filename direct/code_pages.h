// SPDX-License-Identifier: Apache-2.0
// Which pages of guest RAM hold code that may run directly. Verdicts last as long as the page is
// under kDirectTrace: any store to it ends them.
#ifndef ALIBI_DIRECT_CODE_PAGES_H_
#define ALIBI_DIRECT_CODE_PAGES_H_

#include <x86intrin.h>

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "direct/code_judge.h"
#include "direct/counters.h"
#include "mmu/mmu.h"

namespace alibi::direct {

class CodePages {
 public:
  // Offsets in the page at which instructions of the running code's mode are known to begin, in any
  // order. `linear`, `page`: of the page, where the running view executes it.
  using KnownStarts = std::function<std::vector<u16>(LinearAddr linear, PhysAddr page)>;

  CodePages(mmu::Mmu& mmu, Counters& counters, KnownStarts known_starts)
      : mmu_(mmu), counters_(counters), known_starts_(std::move(known_starts)) {}
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
  // Has Of() said so, of code as it is now?
  bool IsKnownToFit(unsigned code_bits, u64 arena_offset) const {
    const unsigned verdict = RecordOf(arena_offset).verdict(code_bits);
    return verdict == kEligible || verdict == kNeedsNext;
  }
  // The same of a page that is kIneligible, once more: more of its instructions may be known now.
  Verdict Again(const CodeJudge& judge, unsigned code_bits, LinearAddr linear, PhysAddr page);
  // Is the page's last instruction cut by its end? Of every one that is kNeedsNext, and of some
  // that are kIneligible.
  bool NeedsNext(const CodeJudge& judge, unsigned code_bits, LinearAddr linear, PhysAddr page);
  // Of such a page: may the code run that begins in it and ends in `next`, which the view executes
  // behind it? Not while either is being written.
  bool FitsWithNext(const CodeJudge& judge, unsigned code_bits, LinearAddr linear, PhysAddr page,
                    PhysAddr next);
  // Of a page that is kIneligible: where breakpoints make it eligible. None: they do not.
  HostVisiblePlaces PlacesIn(const CodeJudge& judge, unsigned code_bits, LinearAddr linear,
                             PhysAddr page);
  // A page under kDirectTrace has been written to, and is traced no more. For general registers
  // only.
  void Written(u64 arena_offset) {
    Record& record = RecordOf(arena_offset);
    if (record.period != PeriodNow()) record.rewrites = 0;
    record.period = PeriodNow();
    if (record.rewrites < kMostRewrites) record.rewrites = (record.rewrites + 1) & 3;
    record.verdict64 = record.verdict32 = kUnknown;
    ++record.version;
  }
  // What the guest may use has changed: all verdicts are void.
  void ForgetAll();

 private:
  // Code that is written again and again within a period stays translated for its rest.
  static constexpr unsigned kPeriodShift = 32;  // of the TSC
  static constexpr u8 kMostRewrites = 3;
  static u8 PeriodNow() { return __rdtsc() >> kPeriodShift & 15; }
  struct Record {
    u64 verdict64 : 2, verdict32 : 2;
    // It was refused without knowledge of what lies before the page.
    u64 alone64 : 1, alone32 : 1;
    u64 rewrites : 2;
    u64 period : 4;    // in which the rewrites were
    u64 version : 52;  // how often it was written under kDirectTrace

    unsigned verdict(unsigned code_bits) const { return code_bits == 64 ? verdict64 : verdict32; }
  };
  static_assert(sizeof(Record) == 8);

  // Why pages are not eligible, alone or with the one behind: a verdict has no room for it, and
  // finding it takes as long as three stops. Kept as long as both stay as they are.
  struct Judged {
    const Record* page = nullptr;
    const Record* next = nullptr;  // nullptr: alone
    u64 page_version = 0, next_version = 0;
    unsigned code_bits = 0;
    bool operator==(const Judged&) const = default;
  };
  struct Remembered {
    Judged judged;
    std::optional<WhyNot> why;
  };
  static constexpr unsigned kRemembered = 1024;  // by their pages, alone or not

  static Judged Now(const Record& page, const Record* next, unsigned code_bits);
  bool KnowsBefore(LinearAddr linear) const;
  std::optional<WhyNot> Judge(const CodeJudge& judge, unsigned code_bits, LinearAddr linear,
                              PhysAddr page, std::span<const u8> behind) const;
  Verdict Decide(const CodeJudge& judge, unsigned code_bits, LinearAddr linear, PhysAddr page);
  Remembered& RememberedOf(const Judged& judged) {
    const auto number = static_cast<std::size_t>(judged.page - records_);
    return remembered_[(2 * number + (judged.next != nullptr)) % kRemembered];
  }
  const std::optional<WhyNot>& WhyOf(const CodeJudge& judge, unsigned code_bits, LinearAddr linear,
                                     PhysAddr page);
  Record& RecordOf(PhysAddr page) const { return RecordOf(mmu_.memory().ArenaOffset(page)); }
  Record& RecordOf(u64 arena_offset) const { return records_[arena_offset / kPageSize]; }

  mmu::Mmu& mmu_;
  Counters& counters_;
  const KnownStarts known_starts_;
  Record* records_ = nullptr;  // of each page of the arena
  u64 bytes_ = 0;
  std::vector<Remembered> remembered_;
};

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_CODE_PAGES_H_
