// SPDX-License-Identifier: Apache-2.0
#include "adapt/replay/costs.h"

#include <algorithm>
#include <bit>

namespace alibi::adapt::replay {

using log::Record;
using log::RecordKind;

// Eight buckets to the power of two.
unsigned Distribution::BucketOf(u64 cycles) {
  if (cycles < kSubBuckets) return static_cast<unsigned>(cycles);
  const unsigned power = static_cast<unsigned>(std::bit_width(cycles)) - 1;
  const auto sub = static_cast<unsigned>(cycles >> (power - 3)) % kSubBuckets;
  return std::min((power - 2) * kSubBuckets + sub, kBuckets - 1);
}

void Distribution::Add(u64 cycles) {
  ++count_;
  Bucket& bucket = buckets_[BucketOf(cycles)];
  ++bucket.count;
  bucket.sum += cycles;
}

double Distribution::Mean() const {
  const u64 kept = count_ - count_ / 100;
  double sum = 0;
  u64 count = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.count == 0) continue;
    const u64 take = std::min(bucket.count, kept - count);
    sum += static_cast<double>(bucket.sum) / static_cast<double>(bucket.count) *
           static_cast<double>(take);
    count += take;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

void Costs::Take(const Record& record) {
  end_tsc_ = record.tsc;
  switch (record.kind) {
    case RecordKind::kOccurrence:
    case RecordKind::kVerdict:
      TakeOccurrence(record);
      break;
    case RecordKind::kSite:
      uses_.push_back({.kind = record.before, .since = record.tsc});
      break;
    case RecordKind::kTranslation:
      if (record.why == log::Why::kVerdict) retranslations_.Add(record.cycles);
      if (record.why != log::Why::kRevived) translations_.Add(record.cycles);
      break;
    case RecordKind::kRelookup:
    case RecordKind::kUngroup:
      ++retired_;
      break;
    case RecordKind::kLost:
      lost_ += record.value;
      break;
    default:
      break;
  }
}

void Costs::TakeOccurrence(const Record& record) {
  const auto kind = static_cast<unsigned>(record.before);
  const auto event = static_cast<unsigned>(record.event);
  classes_[kind][event][record.flag].Add(record.cycles);
  events_[event][record.flag].Add(record.cycles);
  trapped_[record.flag].Add(record.cycles);
  ++counts_[kind][event][record.flag];
  ++(record.flag ? recorded_.traps : recorded_.callouts);
  if (record.after > record.before) ++recorded_.adaptations, ++retired_;
  if (record.after < record.before) ++recorded_.reversions, ++retired_;
  if (record.site >= uses_.size()) return;
  Use& use = uses_[record.site];
  if (use.kind == Kind::kSimulate) use.watched += record.tsc - use.since;
  if (record.event == adapt::Event::kCleanCallout) ++use.clean;
  if (record.after == Kind::kSimulate && use.kind != Kind::kSimulate) ++use.phases;
  use.kind = record.after;
  use.since = record.tsc;
}

double Costs::Event(Kind kind, adapt::Event event, bool trapped) const {
  const auto e = static_cast<unsigned>(event);
  const auto entry = static_cast<double>(trapped ? prices_.trap : prices_.callout);
  for (const Distribution* seen : {&classes_[static_cast<unsigned>(kind)][e][trapped],
                                   &events_[e][trapped], &trapped_[trapped]}) {
    if (seen->count() != 0) return entry + seen->Mean();
  }
  return entry;
}

double Costs::Verdict() const {
  // A site may lie in several translations, or in none that runs again.
  constexpr u64 kEnough = 64;
  const Distribution& seen = retranslations_.count() < kEnough ? translations_ : retranslations_;
  if (retired_ < kEnough) return seen.Mean();
  return seen.Mean() * static_cast<double>(retranslations_.count()) / static_cast<double>(retired_);
}

u64 Costs::Total(const EventCounts& counts, u64 verdicts) const {
  double cycles = Verdict() * static_cast<double>(verdicts);
  for (unsigned kind = 0; kind < kKindCount; ++kind) {
    for (unsigned event = 0; event < kEventCount; ++event) {
      for (const bool trapped : {false, true}) {
        const u64 count = counts[kind][event][trapped];
        if (count == 0) continue;
        cycles += static_cast<double>(count) *
                  Event(static_cast<Kind>(kind), static_cast<adapt::Event>(event), trapped);
      }
    }
  }
  return static_cast<u64>(cycles + 0.5);
}

Totals Costs::Recorded() const {
  Totals totals = recorded_;
  totals.cycles = Total(counts_, totals.adaptations + totals.reversions);
  return totals;
}

double Costs::UnseenIn(u32 site, u64 cycles) const {
  if (site >= uses_.size()) return 0;  // a log that still grows
  const Use& use = uses_[site];
  if (use.watched == 0) return 0;
  const double phase =
      static_cast<double>(use.watched) / static_cast<double>(std::max<u64>(use.phases, 1));
  return static_cast<double>(use.clean) * std::min(static_cast<double>(cycles), phase) /
         static_cast<double>(use.watched);
}

}  // namespace alibi::adapt::replay
