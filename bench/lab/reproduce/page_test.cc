// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/reproduce/page.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "bench/lab/reproduce/claims.h"
#include "bench/lab/reproduce/measure.h"
#include "testsuite/golden.h"

namespace alibi::bench::lab {
namespace {

std::string ReadFile(const char* variable) {
  std::ifstream file(std::getenv(variable));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Figures Small() {
  auto figures = Figures::FromJson(ReadFile("FIGURES"));
  REQUIRE(figures.ok());
  return *figures;
}

const Claim& ClaimOf(const std::string& id) {
  for (const Claim& claim : Claims()) {
    if (claim.id == id) return claim;
  }
  FAIL("no claim " << id);
  return Claims().front();
}

TEST_CASE("A page of few figures, as a golden file") {
  CHECK(testsuite::CompareWithGolden("bench/lab/reproduce/golden/page.md",
                                     ReproductionPage(Small())) == "");
}

TEST_CASE("docs/reproduction.md is the page of docs/reproduction.json") {
  auto figures = Figures::FromJson(ReadFile("PAGE_FIGURES"));
  REQUIRE(figures.ok());
  // If this fails: alibi lab reproduce --from docs/reproduction.json --out docs
  CHECK(ReproductionPage(*figures) == ReadFile("PAGE"));
  CHECK_FALSE(figures->settings.value("quick", true));
}

TEST_CASE("Every claim has its own name, a section, and a command or a reason") {
  std::set<std::string> ids;
  for (const Claim& claim : Claims()) {
    INFO(claim.id);
    CHECK(ids.insert(claim.id).second);
    CHECK(claim.section[0] >= '3');
    CHECK(claim.section[0] <= '7');
    if (*claim.command == 0) CHECK(Judge(claim, Figures()).why != "");
  }
}

TEST_CASE("What was not measured is not judged") {
  for (const Claim& claim : Claims()) {
    INFO(claim.id);
    CHECK(Judge(claim, Figures()).verdict == Verdict::kNotChecked);
  }
}

TEST_CASE("Verdicts follow the figures") {
  Figures figures = Small();
  const auto verdict = [&](const char* id) { return Judge(ClaimOf(id), figures).verdict; };
  CHECK(verdict("NanoCallRet") == Verdict::kBetter);
  figures.Set("nano.callret.alibi", figures.values["nano.callret.native"] + 41);
  CHECK(verdict("NanoCallRet") == Verdict::kDoesNotHold);
  CHECK(verdict("NeverInPlace") == Verdict::kHolds);
  figures.Set("maps.guest_executable", 1);
  CHECK(verdict("NeverInPlace") == Verdict::kDoesNotHold);
  figures.Set("maps.guest_executable", 0);
  figures.Set("maps.guest", 0);  // looked at the wrong process
  CHECK(verdict("NeverInPlace") == Verdict::kDoesNotHold);
  CHECK(verdict("Compute") == Verdict::kDoesNotHold);
  figures.Set("compute.mean", 1.04);
  CHECK(verdict("Compute") == Verdict::kHolds);
  CHECK(verdict("ThreeWays") == Verdict::kHolds);
  figures.Set("nano.ptemod_unchanged.alibi", 10);
  CHECK(verdict("ThreeWays") == Verdict::kDoesNotHold);
}

TEST_CASE("Figures survive their file, and damaged files are refused") {
  const Figures figures = Small();
  auto again = Figures::FromJson(figures.ToJson());
  REQUIRE(again.ok());
  CHECK(again->values == figures.values);
  CHECK(again->failures == figures.failures);
  CHECK_THAT(Figures::FromJson("{}").error().message, Catch::Contains("no measurements"));
  CHECK_THAT(Figures::FromJson("{\"format\":").error().message, Catch::Contains("no measurements"));
  CHECK_THAT(Figures::FromJson(R"({"format":"alibi-reproduction","version":9})").error().message,
             Catch::Contains("version 9"));
  CHECK_THAT(Figures::FromJson(R"({"format":"alibi-reproduction","version":1})").error().message,
             Catch::Contains("damaged"));
}

TEST_CASE("The paper's example is read from the dump's text") {
  Figures figures;
  ReadExample(ReadFile("EXAMPLE"), &figures);
  CHECK(figures.failures.empty());
  for (const char* id : {"ExampleUnits", "ExampleExits", "ExampleUnexecuted", "ForwardingJump"}) {
    INFO(id);
    CHECK(Judge(ClaimOf(id), figures).verdict == Verdict::kHolds);
  }
  Figures none;
  ReadExample("alibi: no such thing", &none);
  CHECK(none.values.empty());
  CHECK(none.failures.size() == 1);
}

TEST_CASE("Numbers of a document, by name") {
  Figures figures;
  figures.AddNumbers("a", nlohmann::ordered_json::parse(
                              R"({"b": 1, "c": {"d": 2.5}, "e": [3, {"f": 4}], "g": "text"})"));
  CHECK(figures.values ==
        std::map<std::string, double>{{"a.b", 1}, {"a.c.d", 2.5}, {"a.e.0", 3}, {"a.e.1.f", 4}});
}

}  // namespace
}  // namespace alibi::bench::lab
