// SPDX-License-Identifier: Apache-2.0
// The first reading of a log: what its events cost, and how often its sites are used.
#ifndef ALIBI_ADAPT_REPLAY_COSTS_H_
#define ALIBI_ADAPT_REPLAY_COSTS_H_

#include <array>
#include <vector>

#include "adapt/log/format.h"
#include "adapt/log/record.h"
#include "adapt/policy.h"
#include "adapt/replay/replay.h"

namespace alibi::adapt::replay {

// What a class of events costs. The dearest hundredth is left out of the mean: that is the host,
// which ran something else or had to find memory.
class Distribution {
 public:
  void Add(u64 cycles);
  u64 count() const { return count_; }
  double Mean() const;

 private:
  static constexpr unsigned kSubBuckets = 8, kBuckets = 32 * kSubBuckets;
  static unsigned BucketOf(u64 cycles);

  u64 count_ = 0;
  struct Bucket {
    u64 count = 0, sum = 0;
  };
  std::array<Bucket, kBuckets> buckets_{};
};

// How one site was seen to be used while all its accesses were.
struct Use {
  u64 clean = 0;
  u64 watched = 0;  // TSC cycles in SIMULATE
  u64 phases = 0;   // times that it became so
  Kind kind = Kind::kDirect;
  u64 since = 0;  // TSC of its last event
};

// Events by kind of their site, event, and whether they trapped.
using EventCounts = u64[kKindCount][kEventCount][2];

class Costs {
 public:
  explicit Costs(const log::HostPrices& prices) : prices_(prices) {}
  void Take(const log::Record& record);

  // Cycles of one event at a site of this kind: as measured in the log; for what it does not have,
  // as the nearest class it has.
  double Event(Kind kind, adapt::Event event, bool trapped) const;
  u64 Total(const EventCounts& counts, u64 verdicts) const;
  double Verdict() const;  // of the retranslations that one verdict causes
  // Clean accesses of the site in `cycles` during which it was not watched: at the rate that was
  // seen, for no longer than it was watched on the mean. Use comes in bursts, and a site is
  // acquitted in the middle of one. 0 if it was never watched.
  double UnseenIn(u32 site, u64 cycles) const;
  // What the log itself says, by the same prices.
  Totals Recorded() const;
  u64 sites() const { return uses_.size(); }
  u64 lost() const { return lost_; }
  u64 end_tsc() const { return end_tsc_; }

 private:
  void TakeOccurrence(const log::Record& record);

  log::HostPrices prices_;
  Distribution classes_[kKindCount][kEventCount][2];
  Distribution events_[kEventCount][2];
  Distribution trapped_[2];
  Distribution translations_, retranslations_;
  u64 retired_ = 0;  // translations, by verdicts and by changes of the look-up
  EventCounts counts_ = {};
  std::vector<Use> uses_;
  Totals recorded_;
  u64 lost_ = 0, end_tsc_ = 0;
};

}  // namespace alibi::adapt::replay

#endif  // ALIBI_ADAPT_REPLAY_COSTS_H_
