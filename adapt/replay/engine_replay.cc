// SPDX-License-Identifier: Apache-2.0
#include "adapt/replay/engine_replay.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "adapt/log/reader.h"

namespace alibi::adapt::replay {
namespace {

using log::EngineOccurrence;
using log::Record;
using log::RecordKind;
using Kind = EngineEvent::Kind;

// Without samples in the log: those of a guest whose timer ticks so often.
constexpr u64 kTicksPerSecond = 250;

// Of what has run directly, an event or a sum of events, without its stops and calls.
template <class Ran>
u64 NativeCycles(const Ran& ran, const EnginePrices& prices) {
  const u64 overhead = ran.stops * prices.stop + ran.calls * prices.call;
  return ran.cycles > overhead ? ran.cycles - overhead : 0;
}

// How often user code stops that runs directly.
struct Rates {
  u64 cycles = 0, stops = 0, faults = 0, calls = 0;
  void Add(const EngineEvent& ran) {
    cycles += ran.cycles;
    stops += ran.stops;
    faults += ran.faults;
    calls += ran.calls;
  }
};

// The first reading.
class EngineCosts {
 public:
  EngineCosts(const log::Header& header, double slowdown)
      : prices_{.stop = header.prices.stop, .call = header.prices.call},
        slowdown_(slowdown),
        tick_(header.tsc_hz / kTicksPerSecond) {}

  void Take(const Record& record) {
    if (record.kind == RecordKind::kLost) lost_ += record.value;
    if (record.kind != RecordKind::kEngine) return;
    const EngineOccurrence what = EngineOccurrenceOf(record);
    const EngineEvent& event = what.event;
    Rates& rates = spaces_[what.space];
    recorded_.switches += what.before != what.after;
    if (event.kind == Kind::kSample || event.kind == Kind::kKernelSample) {
      ++samples_;
      sampled_ += event.cycles;
    }
    if (event.kind == Kind::kSample) recorded_.translated += event.cycles;
    if (event.kind == Kind::kRefused) recorded_.direct += event.cycles;
    if (event.kind != Kind::kRan) return;
    recorded_.direct += event.cycles;
    ++recorded_.runs;
    recorded_.stops += event.stops;
    recorded_.calls += event.calls;
    rates.Add(event);
    all_.Add(event);
  }

  // Of an address space that has never run directly, those of all that have.
  const Rates& RatesOf(u32 space) const {
    const auto found = spaces_.find(space);
    return found != spaces_.end() && NativeCycles(found->second, prices_) != 0 ? found->second
                                                                               : all_;
  }
  const EnginePrices& prices() const { return prices_; }
  double slowdown() const { return slowdown_; }
  // Between two samples.
  u64 tick() const { return std::max<u64>(samples_ != 0 ? sampled_ / samples_ : tick_, 1); }
  EngineTotals Recorded() const {
    EngineTotals totals = recorded_;
    totals.cycles = totals.translated + totals.direct;
    return totals;
  }
  u64 spaces() const { return spaces_.size(); }
  u64 lost() const { return lost_; }

 private:
  const EnginePrices prices_;
  const double slowdown_;
  const u64 tick_;
  std::unordered_map<u32, Rates> spaces_;
  Rates all_;
  u64 samples_ = 0, sampled_ = 0;
  EngineTotals recorded_;
  u64 lost_ = 0;
};

// Whole events of a rate: what is left over counts next time.
u32 TakeWhole(double* account, u64 count, double share) {
  *account += static_cast<double>(count) * share;
  const u32 whole = static_cast<u32>(*account);
  *account -= whole;
  return whole;
}

class EngineRerun {
 public:
  EngineRerun(std::string spec, std::unique_ptr<EnginePolicy> policy, const EngineCosts& costs)
      : spec_(std::move(spec)), policy_(std::move(policy)), costs_(costs) {}

  void Take(const Record& record) {
    if (record.kind != RecordKind::kEngine) return;
    const EngineOccurrence what = EngineOccurrenceOf(record);
    const EngineEvent& event = what.event;
    Space& space = spaces_[what.space];
    space.record.number = what.space;
    switch (event.kind) {
      case Kind::kFirst:
        Tell(space, event);
        break;
      case Kind::kSample:
        if (!RunsDirectly(space)) {
          totals_.translated += event.cycles;
          Tell(space, event);
        } else {
          RunDirectly(space, static_cast<double>(event.cycles) / costs_.slowdown(), event.now);
        }
        break;
      case Kind::kKernelSample:
        // Of what runs directly there are no samples.
        if (!RunsDirectly(space)) Tell(space, event);
        break;
      case Kind::kRan:
        if (RunsDirectly(space)) {
          Count(event);
          Tell(space, event);
        } else {
          const u64 begin = event.now - std::min(event.cycles, event.now);
          RunKernel(space, begin > last_ ? begin - last_ : 0, event.now);
          RunTranslated(space, NativeCycles(event, costs_.prices()), event.now);
        }
        break;
      case Kind::kRefused:
        if (!RunsDirectly(space)) break;
        totals_.direct += event.cycles;
        Tell(space, event);
        break;
      case Kind::kUnfit:
        if (RunsDirectly(space)) Tell(space, event);
        break;
      case Kind::kEmptied:
        Tell(space, event);
        break;
    }
    last_ = event.now;
  }

  EngineOutcome Finish() {
    totals_.cycles = totals_.translated + totals_.direct;
    EngineOutcome outcome{spec_, totals_, ""};
    if (policy_->fault() != nullptr) outcome.fault = policy_->fault();
    return outcome;
  }

 private:
  // One address space under the other policy.
  struct Space {
    EngineRecord record;
    u64 translated = 0, kernel = 0;           // cycles since its last sample
    double stops = 0, faults = 0, calls = 0;  // less than one
  };

  static bool RunsDirectly(const Space& space) {
    return space.record.engine == UserEngine::kDirect;
  }

  // As EngineImpl::TellEnginePolicy.
  void Tell(Space& space, const EngineEvent& event) {
    space.record.seen = true;
    const UserEngine before = space.record.engine;
    space.record.engine = policy_->OnEvent(space.record, event, costs_.prices());
    totals_.switches += space.record.engine != before;
  }

  void Count(const EngineEvent& ran) {
    totals_.direct += ran.cycles;
    ++totals_.runs;
    totals_.stops += ran.stops;
    totals_.calls += ran.calls;
  }

  // What the log has as translated runs directly.
  void RunDirectly(Space& space, double native, u64 now) {
    const Rates& rates = costs_.RatesOf(space.record.number);
    const u64 known = NativeCycles(rates, costs_.prices());
    const double share = known != 0 ? native / static_cast<double>(known) : 0;
    EngineEvent ran;
    ran.kind = Kind::kRan;
    ran.now = now;
    ran.stops = TakeWhole(&space.stops, rates.stops, share);
    ran.faults = std::min(TakeWhole(&space.faults, rates.faults, share), ran.stops);
    ran.calls = TakeWhole(&space.calls, rates.calls, share);
    ran.cycles = static_cast<u64>(native) + ran.stops * costs_.prices().stop +
                 ran.calls * costs_.prices().call;
    totals_.estimated += ran.cycles;
    Count(ran);
    Tell(space, ran);
  }

  // What the log has as run directly is translated, and sampled.
  void RunTranslated(Space& space, u64 native, u64 now) {
    u64 rest = static_cast<u64>(static_cast<double>(native) * costs_.slowdown());
    while (rest != 0 && !RunsDirectly(space)) {
      const u64 part = std::min(rest, costs_.tick() - space.translated);
      rest -= part;
      totals_.translated += part;
      totals_.estimated += part;
      space.translated += part;
      if (space.translated < costs_.tick()) return;
      space.translated = 0;
      Tell(space, {.kind = Kind::kSample, .now = now, .cycles = costs_.tick()});
    }
    if (rest != 0) RunDirectly(space, static_cast<double>(rest) / costs_.slowdown(), now);
  }

  // What lies between two direct runs is its kernel's, or nobody's.
  void RunKernel(Space& space, u64 cycles, u64 now) {
    space.kernel += cycles;
    for (; space.kernel >= costs_.tick() && !RunsDirectly(space); space.kernel -= costs_.tick()) {
      Tell(space, {.kind = Kind::kKernelSample, .now = now, .cycles = costs_.tick()});
    }
  }

  std::string spec_;
  std::unique_ptr<EnginePolicy> policy_;
  const EngineCosts& costs_;
  std::unordered_map<u32, Space> spaces_;
  u64 last_ = ~u64{0};  // TSC of the last event, of any address space
  EngineTotals totals_;
};

}  // namespace

Result<EngineReport> ReplayEngines(const log::Header& header, const OpenRecords& open,
                                   const std::vector<std::string>& policies, double slowdown) {
  EngineReport report;
  report.header = header;
  EngineCosts costs(header, slowdown);
  std::vector<EngineRerun> reruns;
  reruns.reserve(policies.size());
  for (const std::string& spec : policies) {
    auto policy = MakeEnginePolicy(spec);
    if (!policy.ok()) return policy.error();
    reruns.emplace_back(spec, std::move(*policy), costs);
  }
  Status read = ForEachRecord(open, [&](const Record& record) { costs.Take(record); });
  if (!read.ok()) return read.error();
  read = ForEachRecord(open, [&](const Record& record) {
    for (EngineRerun& rerun : reruns) rerun.Take(record);
  });
  if (!read.ok()) return read.error();
  report.spaces = costs.spaces();
  report.lost_records = costs.lost();
  report.recorded = costs.Recorded();
  report.ran_directly = report.recorded.runs != 0;
  for (EngineRerun& rerun : reruns) report.outcomes.push_back(rerun.Finish());
  return report;
}

Result<EngineReport> ReplayEnginesFile(const std::string& path,
                                       const std::vector<std::string>& policies, double slowdown) {
  auto reader = log::Reader::Open(path);
  if (!reader.ok()) return reader.error();
  std::string incomplete;
  auto report =
      ReplayEngines((*reader)->header(), RecordsOfFile(path, &incomplete), policies, slowdown);
  if (report.ok()) report->incomplete = incomplete;
  return report;
}

}  // namespace alibi::adapt::replay
