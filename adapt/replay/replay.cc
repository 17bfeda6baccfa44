// SPDX-License-Identifier: Apache-2.0
#include "adapt/replay/replay.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "adapt/log/reader.h"
#include "adapt/replay/costs.h"

namespace alibi::adapt::replay {
namespace {

using log::Record;
using log::RecordKind;

// A site's unseen clean accesses between two of its events are told to the policy one by one; more
// than so many in a row are only counted.
constexpr u64 kMaxToldInARow = 1 << 16;

// One site under the other policy.
struct SiteState {
  SiteRecord record;
  bool known = false;
  Kind recorded_kind = Kind::kDirect;  // under the log's policy
  u64 since = 0;                       // TSC of its last event
  double unseen = 0;                   // less than one clean access
};

class Rerun {
 public:
  Rerun(std::string spec, std::unique_ptr<Policy> policy, const Costs& costs,
        const log::HostPrices& prices)
      : spec_(std::move(spec)),
        policy_(std::move(policy)),
        needs_(policy_->needs()),
        costs_(costs),
        prices_(std::make_unique<Prices>()) {
    prices_->trap = static_cast<u32>(prices.trap);
    prices_->callout = static_cast<u32>(prices.callout);
    policy_->Watch(*prices_);
  }

  void Take(const Record& record) {
    switch (record.kind) {
      case RecordKind::kSite:
        AddSite(record);
        break;
      case RecordKind::kOccurrence:
      case RecordKind::kVerdict:
        if (record.site < sites_.size()) OnRecorded(sites_[record.site], record);
        break;
      case RecordKind::kForgottenPage:
        EndPage(record);
        break;
      case RecordKind::kFlush:
        if (record.flag) EndAll(record.tsc);
        break;
      case RecordKind::kTranslation:
        OnTranslation(record);
        break;
      default:
        break;
    }
  }

  Outcome Finish(u64 end_tsc) {
    EndAll(end_tsc);
    totals_.cycles = costs_.Total(events_, totals_.adaptations + totals_.reversions);
    Outcome outcome{spec_, totals_, ""};
    if (policy_->fault() != nullptr) outcome.fault = policy_->fault();
    return outcome;
  }

 private:
  void AddSite(const Record& record) {
    SiteState site;
    site.record.pc = record.pc;
    site.record.phys = record.physical;
    site.record.access = static_cast<Access>(record.extra);
    site.known = true;
    site.recorded_kind = record.before;
    site.since = record.tsc;
    in_page_[record.physical.InPage().number].push_back(static_cast<u32>(sites_.size()));
    sites_.push_back(site);
  }

  // As the engine keeps it.
  void OnTranslation(const Record& record) {
    if (record.why == log::Why::kRevived) return;
    ++translations_;
    translation_cycles_ += record.cycles;
    prices_->retranslate = static_cast<u32>(translation_cycles_ / translations_);
  }

  void EndPage(const Record& record) {
    if (const auto page = in_page_.find(record.physical.InPage().number); page != in_page_.end()) {
      for (const u32 site : page->second) End(site, record.tsc);
      in_page_.erase(page);
    }
    policy_->OnPageForgotten(record.physical.InPage());
  }

  void EndAll(u64 tsc) {
    for (u32 i = 0; i < sites_.size(); ++i) End(i, tsc);
    in_page_.clear();
  }

  // Nothing more will happen there: it is forgotten, and comes back with another number.
  void End(u32 index, u64 tsc) {
    if (!sites_[index].known) return;
    AddUnseen(index, tsc);
    sites_[index].known = false;
  }

  // The log does not show clean accesses of sites that its policy had in another kind.
  void AddUnseen(u32 index, u64 tsc) {
    SiteState& site = sites_[index];
    if (site.record.kind != Kind::kSimulate || site.recorded_kind == Kind::kSimulate) return;
    site.unseen += costs_.UnseenIn(index, tsc - site.since);
    u64 count = static_cast<u64>(site.unseen);
    site.unseen -= static_cast<double>(count);
    const u64 told = std::min(count, kMaxToldInARow);
    for (u64 i = 0; i < told && site.record.kind == Kind::kSimulate; ++i, --count) {
      ++totals_.estimated_callouts;
      Tell(site, {.event = Event::kCleanCallout, .trapped = false, .cycles = 0, .now = tsc});
    }
    if (site.record.kind != Kind::kSimulate) return;
    totals_.estimated_callouts += count;
    totals_.callouts += count;
    events_[static_cast<unsigned>(Kind::kSimulate)][static_cast<unsigned>(Event::kCleanCallout)]
           [false] += count;
  }

  void OnRecorded(SiteState& site, const Record& record) {
    const auto index = static_cast<u32>(&site - sites_.data());
    AddUnseen(index, record.tsc);
    site.recorded_kind = record.after;
    site.since = record.tsc;
    const Kind kind = site.record.kind;
    const bool seen_in_simulate_only =
        record.event == Event::kCleanCallout || record.event == Event::kPageCrossing;
    if (seen_in_simulate_only && kind != Kind::kSimulate) return;
    Occurrence what{record.event, record.flag, record.cycles, record.tsc};
    // A site that was checked or simulated would have trapped, and the other way round. What
    // trapped all the same would do so in any kind, and what did not in DIRECT was found by other
    // means.
    if (record.before == Kind::kDirect) {
      what.trapped = record.flag && kind == Kind::kDirect;
    } else {
      what.trapped = record.flag || kind == Kind::kDirect;
    }
    Tell(site, what);
  }

  // As EngineImpl::Charge.
  void Tell(SiteState& site, Occurrence what) {
    SiteRecord& record = site.record;
    const Kind before = record.kind;
    ++record.events[static_cast<unsigned>(what.event)];
    ++(what.trapped ? record.traps : record.callouts);
    ++(what.trapped ? totals_.traps : totals_.callouts);
    ++events_[static_cast<unsigned>(before)][static_cast<unsigned>(what.event)][what.trapped];
    if (before == Kind::kSimulate && what.event != Event::kCleanCallout && !what.trapped &&
        record.recent_clean == 0 && !needs_.every_event) {
      return;
    }
    record.kind = policy_->OnEvent(record, what);
    if (record.kind > before) {
      ++record.adaptations;
      ++totals_.adaptations;
    } else if (record.kind < before) {
      ++record.reversions;
      ++totals_.reversions;
    }
  }

  std::string spec_;
  std::unique_ptr<Policy> policy_;
  const Needs needs_;
  const Costs& costs_;
  std::unique_ptr<Prices> prices_;  // where the policy watches them
  std::vector<SiteState> sites_;
  std::unordered_map<u64, std::vector<u32>> in_page_;
  EventCounts events_ = {};
  u64 translations_ = 0, translation_cycles_ = 0;
  Totals totals_;
};

class FileRecords final : public RecordSource {
 public:
  FileRecords(std::unique_ptr<log::Reader> reader, std::string* incomplete)
      : reader_(std::move(reader)), incomplete_(incomplete) {}
  Result<bool> Next(Record* record) override {
    auto more = reader_->Next(record);
    if (more.ok() || !reader_->truncated()) return more;
    *incomplete_ = more.error().message;
    return false;
  }

 private:
  std::unique_ptr<log::Reader> reader_;
  std::string* incomplete_;
};

}  // namespace

OpenRecords RecordsOfFile(const std::string& path, std::string* incomplete) {
  return [path, incomplete]() -> Result<std::unique_ptr<RecordSource>> {
    auto opened = log::Reader::Open(path);
    if (!opened.ok()) return opened.error();
    return std::unique_ptr<RecordSource>(
        std::make_unique<FileRecords>(std::move(*opened), incomplete));
  };
}

Status ForEachRecord(const OpenRecords& open, const std::function<void(const Record&)>& take) {
  auto records = open();
  if (!records.ok()) return records.error();
  Record record;
  for (;;) {
    auto more = (*records)->Next(&record);
    if (!more.ok()) return more.error();
    if (!*more) return Ok{};
    take(record);
  }
}

Result<Report> Replay(const log::Header& header, const OpenRecords& open,
                      const std::vector<std::string>& policies) {
  Report report;
  report.header = header;
  Costs costs(header.prices);
  std::vector<Rerun> reruns;
  reruns.reserve(policies.size());
  for (const std::string& spec : policies) {
    auto policy = MakePolicy(spec);
    if (!policy.ok()) return policy.error();
    reruns.emplace_back(spec, std::move(*policy), costs, header.prices);
  }
  Status read = ForEachRecord(open, [&](const Record& record) { costs.Take(record); });
  if (!read.ok()) return read.error();
  read = ForEachRecord(open, [&](const Record& record) {
    for (Rerun& rerun : reruns) rerun.Take(record);
  });
  if (!read.ok()) return read.error();
  report.sites = costs.sites();
  report.lost_records = costs.lost();
  report.recorded = costs.Recorded();
  for (Rerun& rerun : reruns) report.outcomes.push_back(rerun.Finish(costs.end_tsc()));
  return report;
}

Result<Report> ReplayFile(const std::string& path, const std::vector<std::string>& policies) {
  auto reader = log::Reader::Open(path);
  if (!reader.ok()) return reader.error();
  std::string incomplete;
  auto report = Replay((*reader)->header(), RecordsOfFile(path, &incomplete), policies);
  if (report.ok()) report->incomplete = incomplete;
  return report;
}

}  // namespace alibi::adapt::replay
