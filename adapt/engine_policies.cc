// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "adapt/engine_plugin.h"
#include "adapt/engine_policy.h"
#include "adapt/plugin_file.h"

namespace alibi::adapt {
namespace {

using Kind = EngineEvent::Kind;

class Never final : public EnginePolicy {
 public:
  const char* name() const override { return "never"; }
  UserEngine OnEvent(EngineRecord&, const EngineEvent&, const EnginePrices&) override {
    return UserEngine::kTranslate;
  }
};

// Whatever can run directly does.
class Always final : public EnginePolicy {
 public:
  const char* name() const override { return "always"; }
  UserEngine OnEvent(EngineRecord&, const EngineEvent& what, const EnginePrices&) override {
    return what.kind == Kind::kUnfit ? UserEngine::kTranslate : UserEngine::kDirect;
  }
};

// Two accounts in cycles. What user code gains by running directly is a multiple of the time that
// it runs natively; what it loses are the stops. Stops for mappings, which it needs once, are paid
// from a budget of their own, which begins with the time that the program has been seen computing
// (as one buys what one has rented for long enough); all other stops come again and again, and must
// be earned. Who does not earn them goes back to translation, for twice as long each time.
//
// How long a program is watched before its first trial is learnt from the others: a guest that
// compiles starts programs which last, one that runs shell scripts does not.
class CostModel final : public EnginePolicy {
 public:
  const char* name() const override { return "cost-model"; }

  UserEngine OnEvent(EngineRecord& record, const EngineEvent& what,
                     const EnginePrices& prices) override {
    switch (what.kind) {
      case Kind::kFirst:
        return UserEngine::kTranslate;
      case Kind::kSample:
        return OnSample(record, what, prices);
      case Kind::kKernelSample:
        record.data[kScore] -= std::min(record.data[kScore], Capped(what.cycles));
        return record.engine;
      case Kind::kRan:
        return OnRan(record, what, prices);
      case Kind::kRefused:
        return Settle(record, what.now, -static_cast<i64>(what.cycles), 0, prices);
      case Kind::kUnfit:
        GoBack(record, what.now);
        return UserEngine::kTranslate;
      case Kind::kEmptied:
        if (record.engine == UserEngine::kDirect) EndTrial(record, false);
        std::ranges::fill(record.data, 0);
        return UserEngine::kTranslate;
    }
    return UserEngine::kTranslate;
  }

 private:
  // Names of EngineRecord::data.
  enum Datum : unsigned {
    kLastSample,  // when
    kScore,       // cycles of its own less those of its kernel, lately
    kBalance,     // earned less spent, signed
    kBudget,      // for mappings, signed
    kNotBefore,   // no other trial before then
    kPause,       // the latest
    kComputed,    // cycles that it was seen computing, translated
    kTold         // how its first trial ended has been learnt from
  };

  // Samples further apart than this are of different phases: the slowest timers tick at 100 Hz.
  static constexpr u64 kPhase = 100'000'000;
  // A sample stands for no more than this.
  static constexpr u64 kMostPerSample = 12'000'000;
  static u64 Capped(u64 cycles) { return std::min(cycles, kMostPerSample); }

  // A translated program takes 2 to 10 times as long as natively, most some four times
  // (docs/performance.md): three cycles are won for each native one.
  static constexpr u64 kGainPerCycle = 3;
  static constexpr i64 kCreditInStops = 32, kMostBalanceInStops = 1024;
  static constexpr u64 kFirstPause = 50'000'000, kLongestPause = 5'000'000'000;
  static constexpr u64 kLeastWait = 5'000'000, kFirstWait = 20'000'000, kMostWait = 40'000'000;

  UserEngine OnSample(EngineRecord& record, const EngineEvent& what,
                      const EnginePrices& prices) const {
    u64* const data = record.data;
    const bool same_phase = what.now - data[kLastSample] < kPhase;
    data[kLastSample] = what.now;
    data[kScore] = (same_phase ? data[kScore] : 0) + Capped(what.cycles);
    data[kComputed] += Capped(what.cycles);
    if (data[kScore] < wait_ || what.now < data[kNotBefore]) return UserEngine::kTranslate;
    data[kBalance] = static_cast<u64>(kCreditInStops) * prices.stop;
    data[kBudget] = data[kComputed] + static_cast<u64>(kCreditInStops) * prices.stop;
    return UserEngine::kDirect;
  }

  UserEngine OnRan(EngineRecord& record, const EngineEvent& what, const EnginePrices& prices) {
    const i64 stops = static_cast<i64>(what.stops * prices.stop);
    const i64 calls = static_cast<i64>(what.calls * prices.call);
    const i64 faults = static_cast<i64>(what.faults * prices.stop);
    const i64 other_stops = stops - faults;
    // A stop drives the program out of the host's caches: for as long again it seems to compute.
    const i64 refilling = other_stops;
    const i64 native = std::max<i64>(static_cast<i64>(what.cycles) - stops - calls - refilling, 0);
    const i64 gain = native * static_cast<i64>(kGainPerCycle);
    return Settle(record, what.now, gain - other_stops, gain - faults - calls, prices);
  }

  // Enters into both accounts, and looks at them.
  UserEngine Settle(EngineRecord& record, u64 now, i64 earned, i64 for_mappings,
                    const EnginePrices& prices) {
    u64* const data = record.data;
    const i64 most = kMostBalanceInStops * static_cast<i64>(prices.stop);
    const i64 balance = std::min(static_cast<i64>(data[kBalance]) + earned, most);
    const i64 budget = static_cast<i64>(data[kBudget]) + for_mappings;
    data[kBalance] = static_cast<u64>(balance);
    data[kBudget] = static_cast<u64>(budget);
    if (balance < 0 || budget < 0) {
      GoBack(record, now);
      return UserEngine::kTranslate;
    }
    if (balance == most) {
      // It pays: the next trial, if there must be one, need not wait so long.
      data[kPause] = 0;
      EndTrial(record, true);
    }
    return UserEngine::kDirect;
  }

  void GoBack(EngineRecord& record, u64 now) {
    u64* const data = record.data;
    EndTrial(record, false);
    data[kPause] = std::min(std::max(2 * data[kPause], kFirstPause), kLongestPause);
    data[kNotBefore] = now + data[kPause];
    data[kScore] = 0;
    data[kLastSample] = 0;
  }

  // Of each program its first trial counts.
  void EndTrial(EngineRecord& record, bool paid) {
    if (std::exchange(record.data[kTold], 1) != 0) return;
    wait_ = paid ? std::max(wait_ / 2, kLeastWait) : std::min(wait_ + wait_ / 4, kMostWait);
  }

  u64 wait_ = kFirstWait;  // cycles that a program is seen computing before its first trial
};

template <class P>
std::unique_ptr<EnginePolicy> Make() {
  return std::make_unique<P>();
}
constexpr std::unique_ptr<EnginePolicy> (*kMakers[])() = {Make<Never>, Make<Always>,
                                                          Make<CostModel>};

constexpr const char* kEngineNames[] = {"translate", "direct"};
constexpr const char* kEventNames[] = {"first",   "sample", "kernel-sample", "ran",
                                       "refused", "unfit",  "emptied"};
static_assert(sizeof(kEventNames) / sizeof(*kEventNames) == kEngineEventCount);

}  // namespace

const char* UserEngineName(UserEngine engine) {
  return kEngineNames[static_cast<unsigned>(engine)];
}
const char* EngineEventName(Kind kind) { return kEventNames[static_cast<unsigned>(kind)]; }

Result<std::unique_ptr<EnginePolicy>> MakeEnginePolicy(const std::string& spec) {
  if (IsPluginSpec(spec)) return LoadEnginePlugin(spec);
  for (const auto make : kMakers) {
    std::unique_ptr<EnginePolicy> policy = make();
    if (spec == policy->name()) return policy;
  }
  std::string message = "there is no engine policy '" + spec + "'; there are ";
  for (const std::string& name : EnginePolicyNames()) message += name + ", ";
  return Error{message + "or a plug-in's file: ./NAME.so"};
}

std::vector<std::string> EnginePolicyNames() {
  std::vector<std::string> names;
  for (const auto make : kMakers) names.push_back(make()->name());
  return names;
}

}  // namespace alibi::adapt
