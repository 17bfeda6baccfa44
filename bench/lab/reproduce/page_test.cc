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
  for (const auto& [system, seconds] : {std::pair{"native", 0.1}, {"alibi", 0.4}, {"auto", 0.12}}) {
    figures.Set(std::string("linux.lua.") + system, seconds);
  }
  CHECK(verdict("UserDirect") == Verdict::kDoesNotHold);
  figures.Set("linux.lua.auto", 0.104);
  CHECK(verdict("UserDirect") == Verdict::kHolds);
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

TEST_CASE(
    "Verdicts about whole programs follow the figures, and their table has what was measured") {
  const Reproduction two = Read("TWO_HOSTS");
  Figures macro = two.hosts.at("AMD").at("macro");
  const auto judge = [&](const char* id) { return Judge(ClaimOf(id), macro); };
  CHECK(judge("SpecInt").verdict == Verdict::kDoesNotHold);
  for (const char* row :
       {"tar-gzip", "bzip2", "xz", "python", "perl", "sqlite3", "gcc-lua", "minisat"}) {
    macro.Set(std::string("programs.auto.") + row,
              1.05 * macro.values.at(std::string("programs.native.") + row));
  }
  CHECK(judge("SpecInt").verdict == Verdict::kHolds);
  CHECK(judge("SpecInt").here.find("95.2 % to 95.2 % of native") == 0);
  CHECK(judge("CompileKinds").verdict == Verdict::kHolds);
  CHECK(judge("Apache").verdict == Verdict::kDoesNotHold);
  macro.Set("programs.auto.web-small", 2 * macro.values.at("programs.native.web-small"));
  macro.Set("programs.auto.web-large", 2 * macro.values.at("programs.native.web-large"));
  CHECK(judge("Apache").verdict == Verdict::kHolds);
  CHECK(judge("Forkwait40000").verdict == Verdict::kDoesNotHold);
  macro.Set("programs.auto.forkwait-40000", 6 * macro.values.at("programs.native.forkwait-40000"));
  CHECK(judge("Forkwait40000").verdict == Verdict::kBetter);
  // No native run has it: beside QEMU it is shown, and not judged.
  CHECK(judge("LargeRam").verdict == Verdict::kNotChecked);
  CHECK(judge("LargeRam").here == "50.0 us, QEMU TCG 150 us: 3.0x as fast");
  CHECK(judge("HardwareVmm").why == "not measured: programs.hardware.forkwait-40000");
  macro.Set("programs.hardware.forkwait-40000",
            1.1 * macro.values.at("programs.native.forkwait-40000"));
  CHECK(judge("HardwareVmm").verdict == Verdict::kDoesNotHold);
}

TEST_CASE("Claims about programs are judged of 32-bit guests, too, by those guests' figures") {
  Figures macro32 = Read("TWO_HOSTS").hosts.at("AMD").at("macro32");
  const auto judge = [&](const char* id) { return Judge(ClaimOf(id), macro32); };
  CHECK(judge("Forkwait4000032").verdict == Verdict::kBetter);
  macro32.Set("programs.auto.forkwait-40000",
              7 * macro32.values.at("programs.native.forkwait-40000"));
  CHECK(judge("Forkwait4000032").verdict == Verdict::kDoesNotHold);
  CHECK(judge("LargeCompile32").verdict == Verdict::kDoesNotHold);
  CHECK(judge("SpecJbb32").why == "not measured: programs.native.java");
  CHECK(ClaimOf("SpecJbb32").claim == ClaimOf("SpecJbb").claim);
}

TEST_CASE("Verdicts about cures follow the figures") {
  Figures cures = Read("TWO_HOSTS").hosts.at("AMD").at("type-ii-cures");
  const auto verdict = [&](const char* id) { return Judge(ClaimOf(id), cures).verdict; };
  CHECK(verdict("ProtectionSwitch") == Verdict::kDoesNotHold);
  cures.Set("cures.direct,remap.getppid", 5.1 * cures.values.at("cures.direct,all.getppid"));
  cures.Set("cures.direct,remap.ctxswitch", 5.1 * cures.values.at("cures.direct,all.ctxswitch"));
  CHECK(verdict("ProtectionSwitch") == Verdict::kHolds);
  CHECK(verdict("AddressSpaces") == Verdict::kDoesNotHold);
  cures.Set("cures.direct,satellites=1.ctxswitch",
            14 * cures.values.at("cures.direct,all.ctxswitch"));
  CHECK(verdict("AddressSpaces") == Verdict::kHolds);
  CHECK(verdict("OneProcess") == Verdict::kHolds);
  cures.Set("cures.direct,satellites=1.getppid", 2 * cures.values.at("cures.direct,all.getppid"));
  CHECK(verdict("OneProcess") == Verdict::kDoesNotHold);
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
