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

struct Step {
  Event event;
  bool trapped;
  Kind verdict;
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
  SiteRecord site;
  for (std::size_t i = 0; i < c.steps.size(); ++i) {
    INFO(c.policy << ": " << c.what << ", step " << i);
    const Step& step = c.steps[i];
    site.kind = (*policy)->OnEvent(site, step.event, step.trapped);
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
  };
  for (const Case& c : cases) Check(c);
}

TEST_CASE("Hysteresis acquits after 256 clean callouts by default") {
  auto policy = MakePolicy("hysteresis");
  REQUIRE(policy.ok());
  SiteRecord site;
  for (int i = 0; i < 2; ++i) site.kind = (*policy)->OnEvent(site, kDevice, true);
  CHECK(site.kind == kS);
  for (int i = 1; i < 256; ++i) site.kind = (*policy)->OnEvent(site, kClean, false);
  CHECK(site.kind == kS);
  CHECK((*policy)->OnEvent(site, kClean, false) == kD);
}

TEST_CASE("The record of an overfull table is never convicted") {
  for (const char* spec : {"never", "always", "threshold(1)", "hysteresis(1,1)"}) {
    auto policy = MakePolicy(spec);
    REQUIRE(policy.ok());
    SiteRecord site;
    site.phys = kSharedSite;
    for (unsigned event = 0; event < kEventCount; ++event) {
      CHECK((*policy)->OnEvent(site, static_cast<Event>(event), true) == kD);
    }
  }
}

TEST_CASE("A policy keeps to the fields that are its own") {
  auto policy = MakePolicy("hysteresis(2,2)");
  REQUIRE(policy.ok());
  SiteRecord site;
  site.pc = 1, site.phys = 2, site.traps = 3, site.callouts = 4, site.adaptations = 5;
  for (unsigned i = 0; i < 60; ++i) {
    (*policy)->OnEvent(site, static_cast<Event>(i % kEventCount), i & 1);
  }
  CHECK((site.pc == 1 && site.phys == 2 && site.traps == 3 && site.callouts == 4));
  CHECK((site.adaptations == 5 && site.reversions == 0 && site.kind == kD));
}

TEST_CASE("Policy names") {
  for (const char* spec : {"never", "always", "threshold", "threshold(7)", "hysteresis",
                           "hysteresis(3)", "hysteresis(3,100)"}) {
    INFO(spec);
    auto policy = MakePolicy(spec);
    REQUIRE(policy.ok());
    CHECK(std::string(spec).substr(0, std::string(spec).find('(')) == (*policy)->name());
  }
  for (const char* spec :
       {"", "sometimes", "threshold(", "threshold()", "threshold(0)", "threshold(-1)",
        "threshold(1,2)", "threshold(x)", "threshold(1)x", "threshold 1", "never(1)",
        "hysteresis(1,0)", "hysteresis(1,2,3)", "hysteresis(1,)", "threshold(99999999999)"}) {
    INFO(spec);
    auto policy = MakePolicy(spec);
    REQUIRE_FALSE(policy.ok());
    CHECK(policy.error().message.find("never always threshold(N) hysteresis(N,M)") !=
          std::string::npos);
    CHECK(policy.error().message.find('\n') == std::string::npos);
  }
}

}  // namespace
}  // namespace alibi::adapt
