// SPDX-License-Identifier: Apache-2.0
// Decision tables: a policy, a row of events, the verdict after each.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "adapt/policy.h"

namespace alibi::adapt {
namespace {

constexpr Event kPf = Event::kTruePageFault, kTrace = Event::kTraceFault,
                kDevice = Event::kDeviceAccess, kCross = Event::kPageCrossing,
                kDivide = Event::kArithmetic, kClean = Event::kCleanCallout;
constexpr Kind kD = Kind::kDirect, kC = Kind::kChecked, kS = Kind::kSimulate;

// What a host of round numbers charges: three and a half traps pay for a retranslation.
constexpr Prices kPrices{.trap = 1000, .callout = 100, .retranslate = 3000};

struct Step {
  Event event;
  bool trapped;
  Kind verdict;
  u64 now = 0;  // TSC, for the policies that ask
};

struct Case {
  const char* policy;
  const char* what;
  std::vector<Step> steps;
};

// Runs the steps as the engine does: the site's kind becomes the verdict.
void Check(const Case& c) {
  auto policy = MakePolicy(c.policy);
  REQUIRE(policy.ok());
  (*policy)->Watch(kPrices);
  SiteRecord site;
  for (std::size_t i = 0; i < c.steps.size(); ++i) {
    INFO(c.policy << ": " << c.what << ", step " << i);
    const Step& step = c.steps[i];
    site.kind =
        (*policy)->OnEvent(site, {.event = step.event, .trapped = step.trapped, .now = step.now});
    CHECK(std::string(KindName(site.kind)) == KindName(step.verdict));
  }
}

TEST_CASE("Policies decide by their tables") {
  const std::vector<Case> cases = {
      {"never",
       "everything",
       {{kPf, true, kD},
        {kTrace, true, kD},
        {kDevice, true, kD},
        {kCross, true, kD},
        {kDivide, true, kD},
        {kClean, false, kD}}},
      {"always", "page fault", {{kPf, true, kC}}},
      {"always", "page fault by callout", {{kPf, false, kC}}},
      {"always", "arithmetic", {{kDivide, true, kC}}},
      {"always", "trace", {{kTrace, true, kS}}},
      {"always", "device", {{kDevice, true, kS}}},
      {"always", "crossing", {{kCross, true, kS}}},
      {"always", "crossing by callout", {{kCross, false, kS}}},
      {"always", "never acquits", {{kTrace, true, kS}, {kClean, false, kS}, {kClean, false, kS}}},
      {"always", "general stays general", {{kTrace, true, kS}, {kPf, false, kS}}},
      {"threshold", "default of 2", {{kPf, true, kD}, {kPf, true, kC}, {kPf, false, kC}}},
      {"threshold(1)", "at once", {{kDevice, true, kS}}},
      {"threshold(3)", "three", {{kTrace, true, kD}, {kTrace, true, kD}, {kTrace, true, kS}}},
      {"threshold",
       "checked, then worse",
       {{kPf, true, kD},
        {kPf, true, kC},
        {kTrace, false, kC},
        {kPf, false, kC},
        {kTrace, false, kS}}},
      {"threshold",
       "crossings found by callout",
       {{kCross, false, kD},
        {kCross, false, kD},
        {kCross, false, kD},
        {kCross, true, kD},
        {kCross, true, kS}}},
      {"threshold", "never acquits", {{kTrace, true, kD}, {kTrace, true, kS}, {kClean, false, kS}}},
      {"threshold(2)",
       "clean events change nothing",
       {{kPf, true, kD}, {kClean, false, kD}, {kPf, true, kC}}},
      {"hysteresis(1,3)",
       "acquits",
       {{kTrace, true, kS}, {kClean, false, kS}, {kClean, false, kS}, {kClean, false, kD}}},
      {"hysteresis(1,3)",
       "in a row",
       {{kTrace, true, kS},
        {kClean, false, kS},
        {kClean, false, kS},
        {kTrace, false, kS},
        {kClean, false, kS},
        {kClean, false, kS},
        {kClean, false, kD}}},
      {"hysteresis(1,3)",
       "a crossing that cost no trap is no end of the row",
       {{kTrace, true, kS},
        {kClean, false, kS},
        {kClean, false, kS},
        {kCross, false, kS},
        {kClean, false, kD}}},
      {"hysteresis(2,1)",
       "convicts again",
       {{kPf, true, kD}, {kPf, true, kC}, {kClean, false, kD}, {kPf, true, kD}, {kPf, true, kC}}},
      {"hysteresis(2)", "M by default", {{kPf, true, kD}, {kPf, true, kC}, {kClean, false, kC}}},
      {"hysteresis(2,9)",
       "without a window events never grow old",
       {{kPf, true, kD, 1}, {kPf, true, kC, ~u64{0}}}},
      {"hysteresis(2,9,5)",
       "two within 5,000 cycles",
       {{kPf, true, kD, 100'000}, {kPf, true, kC, 105'000}}},
      {"hysteresis(2,9,5)",
       "a later one begins anew",
       {{kPf, true, kD, 100'000}, {kPf, true, kD, 105'001}, {kPf, true, kC, 110'001}}},
      {"hysteresis(3,9,5)",
       "the window begins with the first",
       {{kPf, true, kD, 100'000},
        {kPf, true, kD, 104'000},
        {kPf, true, kD, 106'000},
        {kPf, true, kD, 107'000},
        {kPf, true, kC, 108'000}}},
      {"hysteresis(1,2,5)",
       "acquittals have no window",
       {{kTrace, true, kS, 0}, {kClean, false, kS, 1}, {kClean, false, kD, 99'000'000}}},
      // A trap instead of a callout wastes 900 cycles; a retranslation costs 3,000.
      {"cost-model",
       "convicts when traps have wasted a retranslation",
       {{kPf, true, kD}, {kPf, true, kD}, {kPf, true, kD}, {kPf, true, kC}}},
      {"cost-model",
       "what no kind would spare is no reason",
       {{kCross, false, kD},
        {kCross, false, kD},
        {kCross, false, kD},
        {kCross, false, kD},
        {kCross, false, kD}}},
      {"cost-model",
       "clean callouts use up what the traps have cost",
       {{kTrace, true, kD},
        {kTrace, true, kD},
        {kTrace, true, kD},
        {kTrace, true, kS},   // 3,600 in the account
        {kTrace, false, kS},  // 4,500: each callout is a trap saved
        {kTrace, false, kS},  // 5,400
        {kTrace, false, kS},  // 6,000: full
        {kTrace, false, kS}}},
      {"cost-model",
       "CHECKED that keeps calling the simulator",
       // 3,600 of page faults; 100 for each callout that SIMULATE would spare.
       {{kPf, true, kD}, {kPf, true, kD}, {kPf, true, kD}, {kPf, true, kC}, {kTrace, false, kS}}},
      {"two-level(3,2,9)",
       "by itself, as hysteresis",
       {{kTrace, true, kD},
        {kTrace, true, kD},
        {kTrace, true, kS},
        {kClean, false, kS},
        {kClean, false, kD}}},
      {"two-level(3,2,1)",
       "its own page's conviction counts as well",
       {{kTrace, true, kD},
        {kTrace, true, kD},
        {kTrace, true, kS},
        {kClean, false, kS},
        {kClean, false, kD},
        {kTrace, true, kS}}},
  };
  for (const Case& c : cases) Check(c);
}

TEST_CASE("Hysteresis acquits after 256 clean callouts by default") {
  auto policy = MakePolicy("hysteresis");
  REQUIRE(policy.ok());
  SiteRecord site;
  for (int i = 0; i < 2; ++i) site.kind = (*policy)->OnEvent(site, {kDevice, true});
  CHECK(site.kind == kS);
  for (int i = 1; i < 256; ++i) site.kind = (*policy)->OnEvent(site, {kClean, false});
  CHECK(site.kind == kS);
  CHECK((*policy)->OnEvent(site, {kClean, false}) == kD);
}

TEST_CASE("cost-model acquits when clean callouts have wasted what the account holds") {
  auto policy = MakePolicy("cost-model");
  REQUIRE(policy.ok());
  (*policy)->Watch(kPrices);
  SiteRecord site;
  for (int i = 0; i < 4; ++i) site.kind = (*policy)->OnEvent(site, {kTrace, true});
  REQUIRE(site.kind == kS);
  // 3,600 cycles are 36 callouts, and one guilty access among them is worth nine more.
  for (int i = 1; i < 20; ++i) site.kind = (*policy)->OnEvent(site, {kClean, false});
  site.kind = (*policy)->OnEvent(site, {kTrace, false});
  for (int i = 20; i < 36 + 9; ++i) {
    INFO(i);
    site.kind = (*policy)->OnEvent(site, {kClean, false});
    REQUIRE(site.kind == kS);
  }
  CHECK((*policy)->OnEvent(site, {kClean, false}) == kD);
}

TEST_CASE("cost-model hears of clean callouts even when it need not hear of guilty ones") {
  auto policy = MakePolicy("cost-model");
  REQUIRE(policy.ok());
  (*policy)->Watch(kPrices);
  SiteRecord site;
  for (int i = 0; i < 40; ++i) site.kind = (*policy)->OnEvent(site, {kTrace, i < 4});
  CHECK(site.recent_clean == 0);  // the account is full
  site.kind = (*policy)->OnEvent(site, {kClean, false});
  CHECK(site.recent_clean != 0);
  site.kind = (*policy)->OnEvent(site, {kTrace, false});
  CHECK(site.recent_clean == 0);
}

TEST_CASE("cost-model follows the prices as they change") {
  Prices prices = kPrices;
  auto policy = MakePolicy("cost-model");
  REQUIRE(policy.ok());
  (*policy)->Watch(prices);
  SiteRecord site;
  prices.retranslate = 900;
  CHECK((*policy)->OnEvent(site, {kPf, true}) == kC);
}

TEST_CASE("two-level convicts a page's next site at its first event") {
  auto policy = MakePolicy("two-level(2,9,2)");
  REQUIRE(policy.ok());
  SiteRecord first, second, third, elsewhere;
  first.phys = PhysAddr(0x5000), second.phys = PhysAddr(0x5010), third.phys = PhysAddr(0x5ffe),
  elsewhere.phys = PhysAddr(0x6000);
  for (SiteRecord* site : {&first, &second}) {
    CHECK((*policy)->OnEvent(*site, {kPf, true}) == kD);
    CHECK((*policy)->OnEvent(*site, {kPf, true}) == kC);
  }
  CHECK((*policy)->OnEvent(third, {kTrace, true}) == kS);
  CHECK((*policy)->OnEvent(elsewhere, {kPf, true}) == kD);

  // New code, new page.
  (*policy)->OnPageForgotten(PhysPage(0x5));
  third = SiteRecord{};
  third.phys = PhysAddr(0x5ffe);
  CHECK((*policy)->OnEvent(third, {kPf, true}) == kD);
  // What shares its place in the table is another page.
  (*policy)->OnPageForgotten(PhysPage(0x6 + u64{4096}));
  CHECK((*policy)->OnEvent(elsewhere, {kPf, true}) == kC);
}

TEST_CASE("Only a policy with a window asks for the clock") {
  for (const std::string& name : PolicyNames()) {
    auto policy = MakePolicy(name.substr(0, name.find('(')));
    REQUIRE(policy.ok());
    INFO(name);
    CHECK_FALSE((*policy)->needs().clock);
    CHECK_FALSE((*policy)->needs().every_event);
  }
  CHECK((*MakePolicy("hysteresis(2,256,1000)"))->needs().clock);
}

TEST_CASE("The record of an overfull table is never convicted") {
  for (const char* spec :
       {"never", "always", "threshold(1)", "hysteresis(1,1)", "cost-model", "two-level(1,1,1)"}) {
    auto policy = MakePolicy(spec);
    REQUIRE(policy.ok());
    SiteRecord site;
    site.phys = kSharedSite;
    for (unsigned event = 0; event < kEventCount; ++event) {
      CHECK((*policy)->OnEvent(site, {static_cast<Event>(event), true}) == kD);
    }
  }
}

TEST_CASE("A policy keeps to the fields that are its own") {
  const char* spec =
      GENERATE("always", "hysteresis(2,2)", "hysteresis(2,2,3)", "cost-model", "two-level(2,2,1)");
  INFO(spec);
  auto policy = MakePolicy(spec);
  REQUIRE(policy.ok());
  (*policy)->Watch(kPrices);
  SiteRecord site;
  site.pc = LinearAddr(1), site.phys = PhysAddr(2), site.traps = 3, site.callouts = 4,
  site.adaptations = 5;
  for (unsigned i = 0; i < 60; ++i) {
    (*policy)->OnEvent(site, {static_cast<Event>(i % kEventCount), (i & 1) != 0});
  }
  CHECK((site.pc == LinearAddr(1) && site.phys == PhysAddr(2) && site.traps == 3 &&
         site.callouts == 4));
  CHECK((site.adaptations == 5 && site.reversions == 0 && site.kind == kD));
}

TEST_CASE("Policy names") {
  for (const char* spec : {"never", "always", "threshold", "threshold(7)", "hysteresis",
                           "hysteresis(3)", "hysteresis(3,100)", "hysteresis(3,100,5000)",
                           "cost-model", "two-level", "two-level(1)", "two-level(1,2,3)"}) {
    INFO(spec);
    auto policy = MakePolicy(spec);
    REQUIRE(policy.ok());
    CHECK(std::string(spec).substr(0, std::string(spec).find('(')) == (*policy)->name());
  }
  for (const char* spec :
       {"", "sometimes", "threshold(", "threshold()", "threshold(0)", "threshold(-1)",
        "threshold(1,2)", "threshold(x)", "threshold(1)x", "threshold 1", "never(1)",
        "hysteresis(1,0)", "hysteresis(1,2,3,4)", "hysteresis(1,2,0)", "hysteresis(1,)",
        "threshold(99999999999)", "cost-model(1)", "two-level(0)", "two-level(1,2,3,4)"}) {
    INFO(spec);
    auto policy = MakePolicy(spec);
    REQUIRE_FALSE(policy.ok());
    CHECK(policy.error().message.find("never always threshold(N) hysteresis(N,M,WINDOW) "
                                      "cost-model two-level(N,M,P)") != std::string::npos);
    CHECK(policy.error().message.find('\n') == std::string::npos);
  }
}

}  // namespace
}  // namespace alibi::adapt
