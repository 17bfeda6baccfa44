// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/log_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace alibi::bench::lab {
namespace {

using adapt::Kind;
using adapt::log::Reader;
using adapt::log::Record;
using adapt::log::RecordKind;
using adapt::log::Site;
using nlohmann::ordered_json;

// Sums over time whose end is not known yet: intervals double when there are too many.
class Timeline {
 public:
  explicit Timeline(u64 first_width) : width_(first_width) {}
  Interval& At(u64 ticks) {
    while (ticks / width_ >= kMaxIntervals) Halve();
    if (ticks / width_ >= intervals_.size()) intervals_.resize(ticks / width_ + 1);
    return intervals_[ticks / width_];
  }
  u64 width() const { return width_; }
  std::vector<Interval> Take() { return std::move(intervals_); }

 private:
  void Halve() {
    std::vector<Interval> wider((intervals_.size() + 1) / 2);
    for (std::size_t i = 0; i < intervals_.size(); ++i) {
      Interval& sum = wider[i / 2];
      sum.traps += intervals_[i].traps;
      sum.callouts += intervals_[i].callouts;
      sum.adaptations += intervals_[i].adaptations;
      sum.reversions += intervals_[i].reversions;
    }
    intervals_ = std::move(wider);
    width_ *= 2;
  }

  u64 width_;
  std::vector<Interval> intervals_;
};

// A site that was forgotten and came back is the same instruction.
struct SiteHistory {
  u32 index = 0;  // in the reader's list
  Kind kind = Kind::kDirect;
  u64 traps = 0, callouts = 0, cycles = 0, adaptations = 0, reversions = 0;
};

class Digester {
 public:
  explicit Digester(Reader& reader)
      : reader_(reader), timeline_(std::max<u64>(reader.header().tsc_hz / 1000, 1)) {}

  LogDigest Run(const Disassembler& disassemble) {
    digest_.policy = reader_.header().policy;
    Record record;
    while (true) {
      const auto more = reader_.Next(&record);
      if (!more.ok()) {
        digest_.damage = more.error().message;
        break;
      }
      Take(record);
      if (!more.value()) break;
    }
    const double hz = static_cast<double>(std::max<u64>(reader_.header().tsc_hz, 1));
    digest_.seconds = static_cast<double>(last_) / hz;
    digest_.interval_seconds = static_cast<double>(timeline_.width()) / hz;
    timeline_.At(last_);
    digest_.intervals = timeline_.Take();
    TakeSites(disassemble);
    return std::move(digest_);
  }

 private:
  void Take(const Record& record) {
    const u64 start = reader_.header().start_tsc;
    last_ = std::max(last_, record.tsc > start ? record.tsc - start : 0);
    switch (record.kind) {
      case RecordKind::kOccurrence:
      case RecordKind::kVerdict:
        TakeOccurrence(record);
        break;
      case RecordKind::kSite: {
        const u32 index = static_cast<u32>(reader_.sites().size()) - 1;
        if (index >= history_of_.size()) history_of_.resize(index + 1, nullptr);
        SiteHistory& history = histories_[{record.pc, record.physical}];
        history.index = index;
        history.kind = record.before;
        history_of_[index] = &history;
        break;
      }
      case RecordKind::kTranslation: {
        TranslationTally& tally = digest_.translations[adapt::log::WhyName(record.why)];
        ++tally.count;
        tally.instructions += record.number;
        tally.guest_bytes += record.value;
        tally.emitted_bytes += record.more;
        tally.cycles += record.cycles;
        break;
      }
      case RecordKind::kLost:
        digest_.lost += record.value;
        break;
      case RecordKind::kEnd:
        digest_.lost = record.value + record.more;
        break;
      default:
        break;
    }
  }

  void TakeOccurrence(const Record& record) {
    const bool trapped = record.flag;
    const adapt::log::HostPrices& prices = reader_.header().prices;
    const u64 cycles = record.cycles + (trapped ? prices.trap : prices.callout);
    (trapped ? digest_.traps : digest_.callouts)[adapt::EventName(record.event)].Add(cycles);
    Interval& now = timeline_.At(last_);
    ++(trapped ? now.traps : now.callouts);
    const bool convicted = record.after > record.before, acquitted = record.after < record.before;
    now.adaptations += convicted;
    now.reversions += acquitted;
    SiteHistory* history = record.site < history_of_.size() ? history_of_[record.site] : nullptr;
    if (history == nullptr) return;
    ++(trapped ? history->traps : history->callouts);
    history->cycles += cycles;
    history->adaptations += convicted;
    history->reversions += acquitted;
    history->kind = record.after;
  }

  void TakeSites(const Disassembler& disassemble) {
    std::vector<const SiteHistory*> all;
    for (const auto& [key, history] : histories_) {
      ++digest_.sites[adapt::KindName(history.kind)];
      all.push_back(&history);
    }
    std::stable_sort(all.begin(), all.end(), [](const SiteHistory* a, const SiteHistory* b) {
      return a->cycles > b->cycles;
    });
    if (all.size() > kGuiltiest) all.resize(kGuiltiest);
    for (const SiteHistory* history : all) {
      const Site& site = reader_.sites()[history->index];
      GuiltySite guilty;
      guilty.pc = site.pc;
      guilty.physical = site.physical;
      guilty.kind = adapt::KindName(history->kind);
      for (unsigned i = 0; i < site.length; ++i)
        guilty.bytes += fmt::format("{:02x}", site.bytes[i]);
      if (site.length != 0 && disassemble) guilty.instruction = disassemble(site);
      guilty.traps = history->traps;
      guilty.callouts = history->callouts;
      guilty.cycles = history->cycles;
      guilty.adaptations = history->adaptations;
      guilty.reversions = history->reversions;
      digest_.guiltiest.push_back(std::move(guilty));
    }
  }

  Reader& reader_;
  Timeline timeline_;
  u64 last_ = 0;  // TSC cycles since the start
  std::map<std::pair<LinearAddr, PhysAddr>, SiteHistory> histories_;
  std::vector<SiteHistory*> history_of_;  // by the reader's numbers
  LogDigest digest_;
};

ordered_json ToJson(const std::map<std::string, Tally>& tallies) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, tally] : tallies) json[name] = {tally.count, tally.cycles};
  return json;
}

void FromJson(const ordered_json& json, std::map<std::string, Tally>* tallies) {
  for (const auto& [name, tally] : json.items()) (*tallies)[name] = {tally.at(0), tally.at(1)};
}

}  // namespace

Result<LogDigest> DigestLog(const std::string& path, const Disassembler& disassemble) {
  auto reader = Reader::Open(path);
  if (!reader.ok()) return reader.error();
  return Digester(**reader).Run(disassemble);
}

std::string DigestToJson(const LogDigest& digest) {
  ordered_json json = {{"policy", digest.policy},
                       {"seconds", digest.seconds},
                       {"interval_seconds", digest.interval_seconds},
                       {"traps", ToJson(digest.traps)},
                       {"callouts", ToJson(digest.callouts)},
                       {"sites", digest.sites},
                       {"lost", digest.lost},
                       {"damage", digest.damage}};
  ordered_json& translations = json["translations"] = ordered_json::object();
  for (const auto& [why, t] : digest.translations) {
    translations[why] = {t.count, t.instructions, t.guest_bytes, t.emitted_bytes, t.cycles};
  }
  ordered_json& guiltiest = json["guiltiest"] = ordered_json::array();
  for (const GuiltySite& site : digest.guiltiest) {
    guiltiest.push_back({{"pc", site.pc.value},
                         {"physical", site.physical.value},
                         {"kind", site.kind},
                         {"instruction", site.instruction},
                         {"bytes", site.bytes},
                         {"traps", site.traps},
                         {"callouts", site.callouts},
                         {"cycles", site.cycles},
                         {"adaptations", site.adaptations},
                         {"reversions", site.reversions}});
  }
  ordered_json& intervals = json["intervals"] = ordered_json::array();
  for (const Interval& i : digest.intervals) {
    intervals.push_back({i.traps, i.callouts, i.adaptations, i.reversions});
  }
  return json.dump() + "\n";
}

Result<LogDigest> DigestFromJson(const std::string& text) {
  const auto json = ordered_json::parse(text, nullptr, false);
  LogDigest digest;
  try {
    digest.policy = json.at("policy");
    digest.seconds = json.at("seconds");
    digest.interval_seconds = json.at("interval_seconds");
    FromJson(json.at("traps"), &digest.traps);
    FromJson(json.at("callouts"), &digest.callouts);
    digest.sites = json.at("sites").get<std::map<std::string, u64>>();
    digest.lost = json.at("lost");
    digest.damage = json.at("damage");
    for (const auto& [why, t] : json.at("translations").items()) {
      digest.translations[why] = {t.at(0), t.at(1), t.at(2), t.at(3), t.at(4)};
    }
    for (const auto& site : json.at("guiltiest")) {
      digest.guiltiest.push_back(
          {LinearAddr(site.at("pc").get<u64>()), PhysAddr(site.at("physical").get<u64>()),
           site.at("kind"), site.at("instruction"), site.at("bytes"), site.at("traps"),
           site.at("callouts"), site.at("cycles"), site.at("adaptations"), site.at("reversions")});
    }
    for (const auto& i : json.at("intervals")) {
      digest.intervals.push_back({i.at(0), i.at(1), i.at(2), i.at(3)});
    }
  } catch (const nlohmann::json::exception&) {
    return Error{"this is no digest of an event log, or not all of one"};
  }
  return digest;
}

}  // namespace alibi::bench::lab
