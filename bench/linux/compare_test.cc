// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/compare.h"

#include <catch2/catch.hpp>

#include "bench/linux/linux_report.h"
#include "testsuite/golden.h"

namespace alibi::bench {
namespace {

const SystemId kTcg = {kQemuTcg, ""}, kHost = {kNative, ""}, kOurs = {kAlibi, "hysteresis"};

const nlohmann::ordered_json kHere = {{"cpu", "x"}, {"kernel", "Linux 6"}, {"cores", 2}};
const nlohmann::ordered_json kSettings = {{"kernel", "vmlinuz"}, {"runs", 2}, {"quick", false}};

struct Row {
  const char* name;
  std::vector<double> native, own, peer;
};

LinuxMeasurements Measured(const std::vector<Row>& rows) {
  LinuxMeasurements measurements;
  for (const Row& row : rows) {
    if (!row.native.empty()) measurements.results.Add(kHost, "", {row.name, row.native, ""});
    if (!row.own.empty()) measurements.results.Add(kOurs, "", {row.name, row.own, ""});
    if (!row.peer.empty()) measurements.results.Add(kTcg, "", {row.name, row.peer, ""});
  }
  return measurements;
}

std::string Written(const LinuxMeasurements& measurements) {
  return LinuxJson(measurements, kHere, kSettings).dump();
}

// As it was and as it is, with nothing else that differs.
std::string Compared(const Row& was, const Row& now) {
  const auto old = ParseReport(Written(Measured({was})), LinuxSuite::kDebian);
  REQUIRE(old.ok());
  return CompareTable(old.value(), Measured({now}), kHere, kSettings, false);
}

bool IsWorse(const Row& was, const Row& now) {
  return Compared(was, now).find("WORSE") != std::string::npos;
}
bool IsBetter(const Row& was, const Row& now) {
  return Compared(was, now).find("better\n") != std::string::npos;
}

TEST_CASE("Old and new stand side by side") {
  const auto old = ParseReport(Written(Measured({{"login", {}, {20}, {35}},
                                                 {"true", {1e-3}, {50e-3, 52e-3}, {34e-3}},
                                                 {"gcc-lua", {0.43, 0.43}, {7.2, 7.2}, {7.4, 7.4}},
                                                 {"gdb", {0.15}, {2.7}, {}},
                                                 {"xz", {0.5}, {1.3}, {2}}})),
                               LinuxSuite::kDebian);
  REQUIRE(old.ok());
  const LinuxMeasurements now = Measured({{"login", {}, {8}, {34}},
                                          {"true", {1e-3}, {4e-3, 4.1e-3}, {33e-3}},
                                          {"gcc-lua", {0.45, 0.45}, {9.4, 9.4}, {7.7, 7.7}},
                                          {"gdb", {0.15}, {2.7}, {2.9}},
                                          {"python", {0.4}, {1.3}, {}}});
  nlohmann::ordered_json host = kHere, settings = kSettings;
  host["cores"] = 4;
  settings["runs"] = 1;
  settings["quick"] = true;
  settings["cpu_time"] = true;
  CHECK(testsuite::CompareWithGolden("bench/linux/golden/compare.txt",
                                     CompareTable(old.value(), now, host, settings, false)) == "");
}

TEST_CASE("What got slower beside native and TCG is worse") {
  CHECK(IsWorse({"xz", {1, 1}, {2, 2}, {4, 4}}, {"xz", {1, 1}, {2.3, 2.3}, {4, 4}}));
  CHECK(IsBetter({"xz", {1, 1}, {2, 2}, {4, 4}}, {"xz", {1, 1}, {1.7, 1.7}, {4, 4}}));
  CHECK_FALSE(IsWorse({"xz", {1, 1}, {2, 2}, {4, 4}}, {"xz", {1, 1}, {2.1, 2.1}, {4, 4}}));
  CHECK_FALSE(IsBetter({"xz", {1, 1}, {2, 2}, {4, 4}}, {"xz", {1, 1}, {1.9, 1.9}, {4, 4}}));
  // A host that is slower altogether, or at one of the two.
  CHECK_FALSE(IsWorse({"xz", {1, 1}, {2, 2}, {4, 4}}, {"xz", {2, 2}, {4, 4}, {8, 8}}));
  CHECK_FALSE(IsWorse({"xz", {1, 1}, {2, 2}, {4, 4}}, {"xz", {1, 1}, {4, 4}, {8, 8}}));
  CHECK_FALSE(IsBetter({"xz", {1, 1}, {2, 2}, {4, 4}}, {"xz", {2, 2}, {2, 2}, {4, 4}}));
  // Faster by one and slower by the other is neither.
  const std::string both =
      Compared({"xz", {1, 1}, {2, 2}, {4, 4}}, {"xz", {0.5, 0.5}, {2, 2}, {8, 8}});
  CHECK_THAT(both, Catch::Contains("1.00"));
  CHECK_THAT(both, Catch::Contains("0 worse, 0 better"));
}

TEST_CASE("Without one of them the other is enough; without both, the clock") {
  CHECK(IsWorse({"xz", {1, 1}, {2, 2}, {}}, {"xz", {1, 1}, {3, 3}, {4, 4}}));
  CHECK(IsWorse({"xz", {}, {2, 2}, {4, 4}}, {"xz", {1, 1}, {3, 3}, {4, 4}}));
  CHECK(IsWorse({"login", {}, {20, 20}, {}}, {"login", {}, {30, 30}, {}}));
  CHECK(IsBetter({"login", {}, {20, 20}, {}}, {"login", {}, {8, 8}, {}}));
}

TEST_CASE("Samples that differ by so much are noise") {
  CHECK_FALSE(IsWorse({"xz", {1, 1}, {2, 3, 4}, {4, 4}}, {"xz", {1, 1}, {3.9, 3.9}, {4, 4}}));
  CHECK_FALSE(IsWorse({"xz", {1, 1}, {2, 2}, {3, 4, 5}}, {"xz", {1, 1}, {2.4, 2.4}, {4, 4}}));
  CHECK(IsWorse({"xz", {1, 1}, {2, 3, 4}, {4, 4}}, {"xz", {1, 1}, {6, 6}, {4, 4}}));
  // Of more samples the median is known better.
  CHECK(IsWorse({"xz", {1, 1}, {2, 2, 2, 3, 3, 3, 4, 4, 4}, {4, 4}},
                {"xz", {1, 1}, {3.9, 3.9}, {4, 4}}));
  // One sample tells no spread.
  CHECK_FALSE(IsWorse({"xz", {1}, {2}, {4}}, {"xz", {1}, {2.5}, {4}}));
  CHECK_FALSE(IsWorse({"xz", {1, 1}, {2, 2}, {4, 4}}, {"xz", {1, 1}, {2.5}, {4, 4}}));
  CHECK(IsWorse({"xz", {1}, {2}, {4}}, {"xz", {1}, {2.7}, {4}}));
}

TEST_CASE("What is no report of this command is refused") {
  const auto parse = [](const std::string& text) { return ParseReport(text, LinuxSuite::kDebian); };
  for (const char* text :
       {"", "[]", "7", "{}", R"({"host":{},"benchmarks":[]})",
        R"({"host":{},"linux":[],"benchmarks":[]})", R"({"host":{},"linux":{},"benchmarks":[]})",
        R"({"host":{},"linux":{},"benchmarks":[{"name":"xz","system":"alibi"}]})",
        // That of `alibi bench`.
        R"({"host":{},"linux":{},"benchmarks":[{"name":"xz","system":"alibi","median_cycles":1}]})",
        R"({"host":{},"linux":{},"benchmarks":[{"name":"xz","system":"alibi","median_seconds":0,
            "p10":0,"p90":0,"samples":[0]}]})"}) {
    INFO(text);
    CHECK_FALSE(parse(text).ok());
  }
  const std::string debian = Written(Measured({{"xz", {1}, {2}, {4}}}));
  CHECK(parse(debian).ok());
  CHECK(ParseReport(debian, LinuxSuite::kLinux).error().message ==
        "no row in it is of this command");
  CHECK_FALSE(parse(Written(Measured({{"gzip", {1}, {2}, {4}}}))).ok());
  // A row that there is no more is passed over.
  std::string renamed = Written(Measured({{"xz", {1}, {2}, {4}}, {"gdb", {1}, {2}, {4}}}));
  for (auto at = renamed.find("\"gdb\""); at != std::string::npos; at = renamed.find("\"gdb\"")) {
    renamed.replace(at, 5, "\"dbx\"");
  }
  CHECK(parse(renamed).ok());
}

TEST_CASE(
    "Another engine than the old report's is said; one that names none is older than engines") {
  const LinuxMeasurements measured = Measured({{"true", {1}, {2}, {3}}});
  const auto compared = [&](const char* was, const char* is) {
    auto settings = kSettings;
    if (*was != 0) settings["engine"] = was;
    const auto old = ParseReport(LinuxJson(measured, kHere, settings).dump(), LinuxSuite::kDebian);
    REQUIRE(old.ok());
    settings["engine"] = is;
    return CompareTable(old.value(), measured, kHere, settings, false);
  };
  CHECK_THAT(compared("", "auto"),
             Catch::Contains("DIFFERS  engine: was \"translate\", is \"auto\""));
  CHECK_THAT(compared("auto", "translate"), Catch::Contains("DIFFERS  engine: was \"auto\""));
  CHECK_THAT(compared("", "translate"), !Catch::Contains("engine"));
}

}  // namespace
}  // namespace alibi::bench
