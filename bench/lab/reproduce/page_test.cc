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

Reproduction Read(const char* variable) {
  auto read = Reproduction::FromJson(ReadFile(variable));
  INFO((read.ok() ? "" : read.error().message));
  REQUIRE(read.ok());
  return std::move(*read);
}

Figures Small() { return Read("FIGURES").hosts.begin()->second.at("translation"); }

std::vector<Claim> Claims() {
  std::vector<Claim> all;
  for (const Chapter& chapter : Chapters()) {
    all.insert(all.end(), chapter.claims.begin(), chapter.claims.end());
  }
  return all;
}

Claim ClaimOf(const std::string& id) {
  for (const Claim& claim : Claims()) {
    if (claim.id == id) return claim;
  }
  FAIL("no claim " << id);
  return Claims().front();
}

TEST_CASE("A page of few figures, as a golden file") {
  CHECK(testsuite::CompareWithGolden("bench/lab/reproduce/golden/page.md",
                                     ReproductionPage(Read("FIGURES"))) == "");
}

TEST_CASE("Two vendors' hosts stand side by side, in every chapter that they measured") {
  CHECK(testsuite::CompareWithGolden("bench/lab/reproduce/golden/two_hosts.md",
                                     ReproductionPage(Read("TWO_HOSTS"))) == "");
}

TEST_CASE("docs/reproduction.md is the page of docs/reproduction.json") {
  // If this fails: alibi lab reproduce --from docs/reproduction.json --out docs
  CHECK(ReproductionPage(Read("PAGE_FIGURES")) == ReadFile("PAGE"));
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

TEST_CASE("Verdicts about hosted I/O and VMI follow the figures") {
  const Reproduction two = Read("TWO_HOSTS");
  Figures io = two.hosts.at("AMD").at("hosted-io");
  const auto verdict = [](const char* id, const Figures& figures) {
    return Judge(ClaimOf(id), figures).verdict;
  };
  CHECK(verdict("TransmitPath", io) == Verdict::kBetter);
  CHECK(verdict("PortsBeside", io) == Verdict::kDoesNotHold);
  io.Set("access.ports.csr0", io.values["access.none.csr0"] / 11);
  CHECK(verdict("PortsBeside", io) == Verdict::kHolds);
  CHECK(verdict("IdleGuest", io) == Verdict::kHolds);
  io.Set("lance-100M.all.send-4096.idle", 0.1);
  CHECK(verdict("IdleGuest", io) == Verdict::kDoesNotHold);
  // A host that keeps samples from users.
  io.values.erase("lance.none.datagrams-1472.sampled.program");
  CHECK(verdict("TimeInVmm", io) == Verdict::kNotChecked);
  Figures vmi = two.hosts.at("AMD").at("vmi");
  CHECK(verdict("PteBatch", vmi) == Verdict::kHolds);
  vmi.Set("vmi.ptemap.paravirtual", vmi.values["vmi.ptemap.unmodified"]);
  CHECK(verdict("PteBatch", vmi) == Verdict::kDoesNotHold);
  CHECK(verdict("InterruptFlag", vmi) == Verdict::kDoesNotHold);
  CHECK(verdict("Macrobenchmarks", vmi) == Verdict::kNotChecked);
}

TEST_CASE("Measurements survive their file, and damaged files are refused") {
  for (const char* variable : {"FIGURES", "TWO_HOSTS"}) {
    const Reproduction read = Read(variable);
    auto again = Reproduction::FromJson(read.ToJson());
    REQUIRE(again.ok());
    CHECK(again->ToJson() == read.ToJson());
    CHECK(ReproductionPage(*again) == ReproductionPage(read));
    for (const auto& [vendor, chapters] : read.hosts) {
      for (const auto& [chapter, figures] : chapters) {
        CHECK(again->hosts.at(vendor).at(chapter).values == figures.values);
        CHECK(again->hosts.at(vendor).at(chapter).failures == figures.failures);
      }
    }
  }
  const auto message = [](const char* text) {
    return Reproduction::FromJson(text).error().message;
  };
  CHECK_THAT(message("{}"), Catch::Contains("no measurements"));
  CHECK_THAT(message("{\"format\":"), Catch::Contains("no measurements"));
  CHECK_THAT(message(R"({"format":7})"), Catch::Contains("damaged"));
  CHECK_THAT(message(R"({"format":"alibi-reproduction","version":9})"),
             Catch::Contains("version 9"));
  for (const char* text :
       {R"({"format":"alibi-reproduction","version":1})",
        R"({"format":"alibi-reproduction","version":2})",
        R"({"format":"alibi-reproduction","version":2,"hosts":{"AMD":{"vmi":7}}})"}) {
    CHECK_THAT(message(text), Catch::Contains("damaged"));
  }
}

TEST_CASE("A host's vendor is its CPU's") {
  const auto vendor = [](const char* cpu) {
    return VendorOf(nlohmann::ordered_json{{"cpu", cpu}});
  };
  CHECK(vendor("AMD EPYC") == "AMD");
  CHECK(vendor("Intel(R) Xeon(R) Processor @ 2.10GHz") == "Intel");
  CHECK(vendor("Zhaoxin") == "Zhaoxin");
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
