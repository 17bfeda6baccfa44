// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/report.h"

#include <catch2/catch.hpp>

#include "bench/lab/chart.h"
#include "bench/lab/html.h"
#include "testsuite/golden.h"

namespace alibi::bench::lab {
namespace {

TEST_CASE("The report of a recorded experiment") {
  const auto data = LabData::Load("bench/lab/testdata/small", nullptr);
  INFO((data.ok() ? "" : data.error().message));
  REQUIRE(data.ok());
  CHECK(testsuite::CompareWithGolden("bench/lab/golden/report.html", MakeReport(data.value())) ==
        "");
}

TEST_CASE("Every section of an experiment without results says what is missing") {
  const LabData empty(nlohmann::ordered_json::object(), {});
  for (const auto section : {NanobenchSection, OverheadSection, CountsSection, ConvergenceSection,
                             CoherenceSection, EnginesSection, MacroSection, TranslationSection,
                             SitesSection, GuiltiestSection, ProgramsSection, VmiSection}) {
    CHECK_THAT(section(empty), Catch::StartsWith("<p class=\"missing\">"));
  }
  CHECK_THAT(MakeReport(empty), Catch::EndsWith("</html>\n"));
}

TEST_CASE("A configuration is called by what tells it from the others") {
  const auto row = [](const char* system, const char* policy, std::vector<Setting> parameters) {
    return TidyRow{"r", "w", {system, policy}, std::move(parameters), 1, {"m", 1, "s"}};
  };
  const auto labels = [](const LabData& data) {
    std::string text;
    for (const Configuration& c : data.configurations()) {
      text += data.Label(c) + "/" + data.Css(c) + " ";
    }
    return text;
  };
  const LabData one(
      {}, {row(kQemuTcg, "", {}), row(kAlibi, "never", {{"ram", "1G"}}), row(kNative, "", {})});
  CHECK(labels(one) == "native/native Alibi/s0 QEMU TCG/tcg ");
  const LabData two(
      {}, {row(kAlibi, "never", {{"ram", "1G"}}), row(kAlibi, "always", {{"ram", "1G"}})});
  CHECK(labels(two) == "never/s0 always/s1 ");
  const LabData coherence({}, {row(kAlibi, "never", {{"coherence", "eager"}, {"ram", "1G"}}),
                               row(kAlibi, "never", {{"coherence", "dropped"}, {"ram", "1G"}})});
  CHECK(labels(coherence) == "eager/s0 dropped/s1 ");
  const LabData both(
      {}, {row(kAlibi, "never", {{"ram", "1G"}}), row(kAlibi, "always", {{"ram", "2G"}})});
  CHECK(labels(both) == "never, ram 1G/s0 always, ram 2G/s1 ");
}

TEST_CASE("Observed runs are not among the figures") {
  const auto row = [](unsigned repeat, double value) {
    return TidyRow{"r", "w", {kAlibi, "never"}, {}, repeat, {"m", value, "s"}};
  };
  const LabData data({}, {row(1, 3), row(2, 5), row(3, 4), row(kObserved, 100)});
  const auto summary = data.Of("w", {{kAlibi, "never"}, {}}, "m");
  REQUIRE(summary.has_value());
  CHECK(summary->count == 3);
  CHECK(summary->median == 4);
  CHECK_FALSE(data.Of("w", {{kAlibi, "never"}, {}}, "n").has_value());
}

TEST_CASE("Axes end at round numbers") {
  CHECK(LinearTicks(10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(LinearTicks(11, 5) == std::vector<double>{0, 5, 10, 15});
  CHECK(LinearTicks(1, 3) == std::vector<double>{0, 0.5, 1});
  const struct {
    double value;
    const char* text;
  } rows[] = {{0, "0"},         {0.02, "0.02"},  {1, "1"},          {12.34, "12.3"},
              {999, "999"},     {1234, "1,234"}, {9999, "9,999"},   {10000, "10k"},
              {25300, "25.3k"}, {1e6, "1M"},     {1234567, "1.2M"}, {2.5e9, "2.5G"}};
  for (const auto& r : rows) CHECK(ShortNumber(r.value) == r.text);
  CHECK(FormatCount(0) == "0");
  CHECK(FormatCount(1234567) == "1,234,567");
}

TEST_CASE("Tables escape what they show") {
  HtmlTable table({"a<b"});
  table.Row({"\"x\" & y"});
  CHECK_THAT(table.Render(), Catch::Contains("a&lt;b") && Catch::Contains("&quot;x&quot; &amp; y"));
}

TEST_CASE("A digest is read back as it was written; what is none is refused") {
  LogDigest digest;
  digest.policy = "hysteresis(2,256)";
  digest.seconds = 1.25;
  digest.interval_seconds = 0.01;
  digest.intervals = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  digest.traps["trace-fault"] = {3, 20000};
  digest.callouts["clean"] = {9, 900};
  digest.translations["first"] = {1, 12, 40, 320, 20000};
  digest.sites["SIMULATE"] = 7;
  digest.guiltiest = {{LinearAddr(0xffffffff81000000), PhysAddr(0x1000000), "SIMULATE", "MOV",
                       "488907", 1, 2, 3, 4, 5}};
  digest.lost = 6;
  digest.damage = "truncated";
  const auto read = DigestFromJson(DigestToJson(digest));
  REQUIRE(read.ok());
  CHECK(read.value() == digest);
  for (const char* wrong : {"", "{}", "[1,2]", "{\"policy\": 3}"}) {
    CHECK_FALSE(DigestFromJson(wrong).ok());
  }
}

}  // namespace
}  // namespace alibi::bench::lab
