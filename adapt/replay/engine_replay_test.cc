// SPDX-License-Identifier: Apache-2.0
// Replay against a small live model: address spaces that compute, each with its own rate of stops,
// an engine that asks the policy as the real one does, and its log.
#include "adapt/replay/engine_replay.h"

#include <catch2/catch.hpp>
#include <map>

namespace alibi::adapt::replay {
namespace {

using log::EngineOccurrence;
using log::Record;
using Kind = EngineEvent::Kind;

constexpr EnginePrices kPrices{.stop = 20'000, .call = 8'000};
constexpr u64 kTick = 10'000'000;

// User code between two visits to its kernel; without any: its program ends.
struct Burst {
  u32 space;
  u64 native;
  u32 stops;
};

struct LiveRun {
  std::vector<Record> records;
  EngineTotals totals;
};

class Live {
 public:
  explicit Live(const std::string& spec) : policy_(std::move(*MakeEnginePolicy(spec))) {}

  LiveRun Run(const std::vector<Burst>& bursts) {
    for (const Burst& burst : bursts) Run(burst);
    run_.totals.cycles = run_.totals.translated + run_.totals.direct;
    return std::move(run_);
  }

 private:
  struct Space {
    EngineRecord record;
    u64 translated = 0;
  };

  void Run(const Burst& burst) {
    Space& space = spaces_[burst.space];
    if (space.record.number == 0) {
      space.record.number = burst.space;
      Tell(space, {.kind = Kind::kFirst});
    }
    if (burst.native == 0) {
      Tell(space, {.kind = Kind::kEmptied});
      return;
    }
    if (space.record.engine == UserEngine::kDirect) {
      const u64 cycles = burst.native + burst.stops * kPrices.stop;
      now_ += cycles;
      ++run_.totals.runs;
      run_.totals.stops += burst.stops;
      run_.totals.direct += cycles;
      Tell(space, {.kind = Kind::kRan, .cycles = cycles, .stops = burst.stops});
      return;
    }
    const u64 cycles = 2 * burst.native;
    now_ += cycles;
    for (space.translated += cycles; space.translated >= kTick; space.translated -= kTick) {
      run_.totals.translated += kTick;
      Tell(space, {.kind = Kind::kSample, .cycles = kTick});
    }
  }

  void Tell(Space& space, EngineEvent event) {
    event.now = now_;
    const UserEngine before = space.record.engine;
    space.record.engine = policy_->OnEvent(space.record, event, kPrices);
    run_.totals.switches += space.record.engine != before;
    run_.records.push_back(
        RecordOf(EngineOccurrence{space.record.number, before, space.record.engine, event}));
  }

  std::unique_ptr<EnginePolicy> policy_;
  std::map<u32, Space> spaces_;
  u64 now_ = 1'000'000'000;
  LiveRun run_;
};

class Records final : public RecordSource {
 public:
  explicit Records(const std::vector<Record>& records) : records_(records) {}
  Result<bool> Next(Record* record) override {
    if (next_ == records_.size()) return false;
    *record = records_[next_++];
    return true;
  }

 private:
  const std::vector<Record>& records_;
  std::size_t next_ = 0;
};

EngineReport ReplayRecords(const std::vector<Record>& records,
                           const std::vector<std::string>& policies,
                           double slowdown = kDefaultSlowdown) {
  log::Header header;
  header.tsc_hz = kTick * 250;
  header.prices.stop = kPrices.stop;
  header.prices.call = kPrices.call;
  auto report = ReplayEngines(
      header,
      [&]() -> Result<std::unique_ptr<RecordSource>> {
        return std::unique_ptr<RecordSource>(std::make_unique<Records>(records));
      },
      policies, slowdown);
  REQUIRE(report.ok());
  return std::move(*report);
}

// One address space with two programs that compute, and one that enters its kernel all the time.
std::vector<Burst> Mixed() {
  std::vector<Burst> bursts;
  for (unsigned i = 0; i < 2000; ++i) {
    if (i == 1000) bursts.push_back({1, 0, 0});
    bursts.push_back({1, 1'000'000, 1});
    for (unsigned k = 0; k < 100; ++k) bursts.push_back({2, 3000, 1});
  }
  return bursts;
}

void CheckNear(u64 predicted, u64 real, double share) {
  INFO(predicted << " instead of " << real);
  CHECK(static_cast<double>(predicted) == Approx(static_cast<double>(real)).epsilon(share));
}

TEST_CASE("The recorded policy, replayed, does what the log says") {
  for (const std::string policy : {"never", "always", "cost-model"}) {
    INFO(policy);
    const LiveRun live = Live(policy).Run(Mixed());
    const EngineReport report = ReplayRecords(live.records, {policy});
    CHECK(report.spaces == 2);
    CHECK(report.ran_directly == (policy != "never"));
    for (const EngineTotals& totals : {report.recorded, report.outcomes[0].totals}) {
      CHECK(totals.runs == live.totals.runs);
      CHECK(totals.stops == live.totals.stops);
      CHECK(totals.switches == live.totals.switches);
      CHECK(totals.translated == live.totals.translated);
      CHECK(totals.direct == live.totals.direct);
      CHECK(totals.cycles == live.totals.cycles);
      CHECK(totals.estimated == 0);
    }
  }
}

TEST_CASE("From a log of always, every policy is predicted") {
  const LiveRun always = Live("always").Run(Mixed());
  const std::vector<std::string> policies = {"never", "cost-model"};
  const EngineReport report = ReplayRecords(always.records, policies);
  for (std::size_t i = 0; i < policies.size(); ++i) {
    INFO(policies[i]);
    const LiveRun live = Live(policies[i]).Run(Mixed());
    const EngineTotals& totals = report.outcomes[i].totals;
    CHECK(report.outcomes[i].policy == policies[i]);
    CheckNear(totals.translated, live.totals.translated, 0.1);
    CheckNear(totals.direct, live.totals.direct, 0.1);
    CheckNear(totals.cycles, live.totals.cycles, 0.1);
    CHECK(totals.estimated >= totals.translated);
  }
  // It is right about both address spaces.
  CHECK(report.outcomes[1].totals.cycles < report.outcomes[0].totals.cycles);
  CHECK(report.outcomes[1].totals.cycles < report.recorded.cycles);
}

TEST_CASE("From a log of cost-model, what it translated is estimated from what it tried") {
  const LiveRun live = Live("cost-model").Run(Mixed());
  const LiveRun always = Live("always").Run(Mixed());
  const EngineTotals totals = ReplayRecords(live.records, {"always"}).outcomes[0].totals;
  CheckNear(totals.stops, always.totals.stops, 0.1);
  CheckNear(totals.direct, always.totals.direct, 0.1);
  CHECK(totals.estimated > 0);
}

TEST_CASE("From a log without direct runs nothing is known of stops") {
  const LiveRun live = Live("never").Run(Mixed());
  const EngineReport report = ReplayRecords(live.records, {"always"});
  CHECK_FALSE(report.ran_directly);
  CHECK(report.outcomes[0].totals.stops == 0);
  CHECK(report.outcomes[0].totals.estimated == report.outcomes[0].totals.cycles);
}

TEST_CASE("What translation costs is taken for granted, and can be said") {
  const LiveRun live = Live("always").Run({{1, 6'000'000, 1}, {1, 6'000'000, 1}});
  CHECK(ReplayRecords(live.records, {"never"}).outcomes[0].totals.cycles == 24'000'000);
  CHECK(ReplayRecords(live.records, {"never"}, 3).outcomes[0].totals.cycles == 36'000'000);
}

TEST_CASE("A policy that is unknown is an error") {
  const auto report = ReplayEngines(
      {}, [] { return Result<std::unique_ptr<RecordSource>>(Error{"not asked"}); }, {"sometimes"});
  REQUIRE_FALSE(report.ok());
  CHECK(report.error().message.find("'sometimes'") != std::string::npos);
}

}  // namespace
}  // namespace alibi::adapt::replay
