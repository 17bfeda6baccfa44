// SPDX-License-Identifier: Apache-2.0
// Replay against a small live model: a guest whose sites make accesses, some of them guilty, an
// engine that charges them as the real one does, and its log. A log recorded under `always` must
// predict every other policy's run exactly.
#include "adapt/replay/replay.h"

#include <catch2/catch.hpp>
#include <random>

namespace alibi::adapt::replay {
namespace {

using log::Record;
using log::RecordKind;

constexpr log::HostPrices kPrices{.trap = 6000, .callout = 50};
constexpr u64 kHandlerCycles = 700, kCalloutCycles = 80, kTranslationCycles = 9000;

struct Access {
  u32 site;
  bool guilty;
  u64 tsc;
};

struct LiveRun {
  std::vector<Record> records;
  Totals totals;
};

// One event class per site, so that what they cost is the same everywhere.
Event EventOf(u32 site) { return site % 3 == 0 ? Event::kTruePageFault : Event::kTraceFault; }

LiveRun RunLive(const std::string& spec, const std::vector<Access>& accesses, u32 sites) {
  LiveRun run;
  auto policy = std::move(*MakePolicy(spec));
  const Needs needs = policy->needs();
  Prices prices{
      .trap = kPrices.trap, .callout = kPrices.callout, .retranslate = kTranslationCycles};
  policy->Watch(prices);
  Record translation;
  translation.kind = RecordKind::kTranslation;
  translation.cycles = kTranslationCycles;
  run.records.push_back(translation);
  struct State {
    SiteRecord record;
    u32 number = log::kNoSite;
  };
  std::vector<State> states(sites);
  u32 known = 0;
  for (const Access& access : accesses) {
    State& state = states[access.site];
    SiteRecord& site = state.record;
    const Kind before = site.kind;
    const Event event = access.guilty ? EventOf(access.site) : Event::kCleanCallout;
    if (!access.guilty && before != Kind::kSimulate) continue;
    const bool trapped = access.guilty && before == Kind::kDirect;
    if (state.number == log::kNoSite) {
      state.number = known++;
      site.phys = PhysAddr(u64{0x1000} * access.site);
      site.pc = LinearAddr(site.phys.value);
      Record record;
      record.kind = RecordKind::kSite;
      record.tsc = access.tsc;
      record.pc = site.pc;
      record.physical = site.phys;
      run.records.push_back(record);
    }
    const u64 cycles = trapped ? kHandlerCycles : kCalloutCycles;
    ++(trapped ? run.totals.traps : run.totals.callouts);
    run.totals.cycles += cycles + (trapped ? kPrices.trap : kPrices.callout);
    if (before != Kind::kSimulate || event == Event::kCleanCallout || site.recent_clean != 0 ||
        needs.every_event) {
      site.kind = policy->OnEvent(site, {.event = event,
                                         .trapped = trapped,
                                         .cycles = static_cast<u32>(cycles),
                                         .now = access.tsc});
    }
    Record record;
    record.kind = site.kind == before ? RecordKind::kOccurrence : RecordKind::kVerdict;
    record.site = state.number;
    record.tsc = access.tsc;
    record.event = event;
    record.flag = trapped;
    record.before = before;
    record.after = site.kind;
    record.cycles = static_cast<u32>(cycles);
    run.records.push_back(record);
    if (site.kind != before) {
      ++(site.kind > before ? run.totals.adaptations : run.totals.reversions);
      run.totals.cycles += kTranslationCycles;
      translation.tsc = access.tsc;
      translation.why = log::Why::kVerdict;
      run.records.push_back(translation);
    }
  }
  Record end;
  end.kind = RecordKind::kEnd;
  end.tsc = accesses.back().tsc;
  run.records.push_back(end);
  return run;
}

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

Report ReplayRecords(const std::vector<Record>& records, const std::vector<std::string>& policies) {
  log::Header header;
  header.prices = kPrices;
  auto report = Replay(
      header,
      [&]() -> Result<std::unique_ptr<RecordSource>> {
        return std::unique_ptr<RecordSource>(std::make_unique<Records>(records));
      },
      policies);
  REQUIRE(report.ok());
  return *report;
}

// Sites that are guilty always, never after a while, in phases, and now and then.
std::vector<Access> SomeAccesses(u32 sites, u32 count, u32 seed) {
  std::mt19937 random(seed);
  std::vector<Access> accesses;
  for (u64 i = 0; i < count; ++i) {
    const u32 site = random() % sites;
    bool guilty = true;
    if (site % 4 == 1) guilty = i < count / 4;
    if (site % 4 == 2) guilty = i / 4096 % 2 == 0;
    if (site % 4 == 3) guilty = random() % 64 == 0;
    accesses.push_back({site, guilty, i * 1000});
  }
  return accesses;
}

const std::vector<std::string> kPolicies = {"never",
                                            "always",
                                            "threshold",
                                            "threshold(5)",
                                            "hysteresis",
                                            "hysteresis(2,16)",
                                            "hysteresis(3,16,200)",
                                            "cost-model",
                                            "two-level(3,16,1)"};

TEST_CASE("A log under `always` predicts the runs of all policies exactly") {
  constexpr u32 kSites = 16;
  const std::vector<Access> accesses = SomeAccesses(kSites, 60000, 1);
  const LiveRun always = RunLive("always", accesses, kSites);
  const Report report = ReplayRecords(always.records, kPolicies);
  REQUIRE(report.outcomes.size() == kPolicies.size());
  CHECK(report.recorded.cycles == always.totals.cycles);
  CHECK(report.sites == kSites);
  for (const Outcome& outcome : report.outcomes) {
    INFO(outcome.policy);
    const Totals live = RunLive(outcome.policy, accesses, kSites).totals;
    CHECK(outcome.totals.traps == live.traps);
    CHECK(outcome.totals.callouts == live.callouts);
    CHECK(outcome.totals.adaptations == live.adaptations);
    CHECK(outcome.totals.reversions == live.reversions);
    CHECK(outcome.totals.cycles == live.cycles);
    CHECK(outcome.totals.estimated_callouts == 0);
  }
}

TEST_CASE("A policy's own log predicts itself") {
  constexpr u32 kSites = 16;
  const std::vector<Access> accesses = SomeAccesses(kSites, 30000, 2);
  for (const std::string& policy : kPolicies) {
    INFO(policy);
    const LiveRun live = RunLive(policy, accesses, kSites);
    const Report report = ReplayRecords(live.records, {policy});
    const Totals& totals = report.outcomes[0].totals;
    CHECK(totals.traps == live.totals.traps);
    CHECK(totals.callouts == live.totals.callouts);
    CHECK(totals.adaptations == live.totals.adaptations);
    CHECK(totals.reversions == live.totals.reversions);
    CHECK(report.recorded.traps == live.totals.traps);
    CHECK(report.recorded.cycles == live.totals.cycles);
  }
}

TEST_CASE("Accesses that a log does not show are estimated on the low side, and counted") {
  // Steady use: one access in 64 is guilty. 16 of the 63 clean ones in between are seen, then none
  // until the site is convicted again, 2 guilty ones later.
  std::vector<Access> accesses;
  for (u64 i = 0; i < 40000; ++i) accesses.push_back({1, i % 64 == 0, i * 1000});
  const LiveRun live = RunLive("always", accesses, 2);
  const LiveRun recorded = RunLive("hysteresis(2,16)", accesses, 2);
  const Totals totals = ReplayRecords(recorded.records, {"always"}).outcomes[0].totals;
  CHECK(totals.traps == 1);
  CHECK(totals.callouts < live.totals.callouts);
  CHECK(totals.callouts - totals.estimated_callouts ==
        recorded.totals.callouts + recorded.totals.traps - 1);
  // As much again for each of the two gaps as was seen in a phase.
  CHECK(static_cast<double>(totals.estimated_callouts) ==
        Approx(2.0 * 16 * 40000 / 128).epsilon(0.05));
}

TEST_CASE("A log under `never` knows nothing of clean accesses") {
  constexpr u32 kSites = 4;
  const std::vector<Access> accesses = SomeAccesses(kSites, 10000, 3);
  const LiveRun never = RunLive("never", accesses, kSites);
  const Totals totals = ReplayRecords(never.records, {"always"}).outcomes[0].totals;
  CHECK(totals.traps == kSites);
  CHECK(totals.callouts == never.totals.traps - kSites);
  CHECK(totals.estimated_callouts == 0);
}

TEST_CASE("Forgotten pages end their sites; lost records are reported") {
  const std::vector<Access> accesses = {{1, true, 1000}, {1, true, 2000}, {1, true, 3000}};
  LiveRun live = RunLive("always", accesses, 2);
  Record lost;
  lost.kind = RecordKind::kLost;
  lost.value = 7;
  live.records.insert(live.records.begin(), lost);
  Record forgotten;
  forgotten.kind = RecordKind::kForgottenPage;
  forgotten.tsc = 4000;
  forgotten.physical = PhysAddr(0x1000);
  std::vector<Record> twice = live.records;
  twice.push_back(forgotten);
  for (Record record : live.records) {
    // The same site again, with another number.
    record.tsc += 5000;
    if (record.kind == RecordKind::kOccurrence || record.kind == RecordKind::kVerdict) {
      record.site = 1;
    }
    if (record.kind != RecordKind::kLost) twice.push_back(record);
  }
  const Report report = ReplayRecords(twice, {"threshold(3)", "two-level(3,9,1)"});
  CHECK(report.lost_records == 7);
  CHECK(report.sites == 2);
  for (const Outcome& outcome : report.outcomes) {
    CHECK(outcome.totals.traps == 6);
    CHECK(outcome.totals.adaptations == 2);
  }
}

TEST_CASE("What traps in any kind does so in every replay") {
  // A quotient that is too large is no zero divisor: CHECKED does not find it.
  std::vector<Record> records = RunLive("always", {{0, true, 1000}}, 1).records;
  Record record;
  record.kind = RecordKind::kOccurrence;
  record.site = 0;
  record.event = Event::kArithmetic;
  record.flag = true;
  record.before = record.after = Kind::kChecked;
  for (int i = 0; i < 10; ++i) records.push_back(record);
  CHECK(ReplayRecords(records, {"always"}).outcomes[0].totals.traps == 11);
}

TEST_CASE("An unknown policy and a missing log are refused with their reasons") {
  auto policy = ReplayFile("adapt/replay/BUILD", {"always"});
  REQUIRE_FALSE(policy.ok());
  auto missing = ReplayFile("/nonexistent/log", {"always"});
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().message.find("/nonexistent/log") != std::string::npos);
}

}  // namespace
}  // namespace alibi::adapt::replay
