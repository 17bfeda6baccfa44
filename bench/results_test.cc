// SPDX-License-Identifier: Apache-2.0
#include "bench/results.h"

#include <catch2/catch.hpp>

#include "bench/report.h"
#include "bench/statistics.h"
#include "bench/svg_chart.h"
#include "testsuite/golden.h"

namespace alibi::bench {
namespace {

const SystemId kTcg = {kQemuTcg, ""}, kHost = {kNative, ""}, kOurs = {kAlibi, "hysteresis"},
               kNever = {kAlibi, "never"};

Results Canned() {
  Results results;
  results.Add(kHost, "", {"syscall", {300, 290, 310}, ""});
  results.Add(kHost, "", {"callret", {2}, ""});
  results.Add(kHost, kComputePrefix, {"sort", {2.5e6}, ""});
  results.Add(kHost, kComputePrefix, {"fib", {2e6}, ""});
  results.Add(kHost, kCompute32Prefix, {"fib", {2e6}, ""});
  results.Add(kNever, "", {"syscall", {215.25}, ""});
  results.Add(kNever, "", {"pgfault", {8400}, ""});
  results.Add(kOurs, "", {"pgfault", {}, "cr2 does not hold the faulting address"});
  results.Add(kOurs, "", {"syscall", {79, 81, 75}, ""});
  results.Add(kOurs, "", {"callret", {12.04, 13, 14}, ""});
  results.Add(kOurs, "", {"newcomer", {1234567}, ""});
  results.Add(kOurs, kComputePrefix, {"sort", {5e6}, ""});
  results.Add(kOurs, kComputePrefix, {"fib", {3e6}, ""});
  results.Add(kOurs, kCompute32Prefix, {"fib", {5e6}, ""});
  results.AddTranslation(kOurs, {100, 500, 2000, 13000, 450000});
  results.AddMiss(kNever, "compute: killed by signal 11 (Segmentation fault)");
  results.Add(kTcg, "", {"syscall", {105}, ""});
  results.Add(kTcg, "", {"callret", {10}, ""});
  results.Add(kTcg, "", {"ptemod_unchanged", {0.5}, ""});
  results.Add(kTcg, "", {"pgfault", {880}, ""});
  results.Add(kTcg, kComputePrefix, {"sort", {2e7}, ""});
  return results;
}

ReportStyle Plain() {
  ReportStyle style;
  style.default_policy = "hysteresis";
  style.width = 80;
  return style;
}

TEST_CASE("Quantiles interpolate and ignore the order of samples") {
  const Summary one = Summarize({7});
  CHECK(one.median == 7);
  CHECK(one.p10 == 7);
  CHECK(one.p90 == 7);
  const Summary eleven = Summarize({10, 0, 9, 1, 8, 2, 7, 3, 6, 4, 5});
  CHECK(eleven.median == 5);
  CHECK(eleven.p10 == 1);
  CHECK(eleven.p90 == 9);
  CHECK(eleven.count == 11);
  CHECK(Summarize({1, 2}).median == 1.5);
  CHECK(Summarize({}).count == 0);
}

TEST_CASE("The geometric mean leaves out what was not measured") {
  CHECK(GeometricMean({2, 8}) == Approx(4));
  CHECK(GeometricMean({2, 0, 8}) == Approx(4));
  CHECK(GeometricMean({}) == 0);
}

TEST_CASE("Program output: samples, errors, noise, an unfinished line") {
  const ProgramOutput output = ParseProgramOutput(
      "SeaBIOS\r\n"
      "{\"name\":\"syscall\",\"samples\":[1.5,2],\"iterations\":3}\r\n"
      "\x1b[0m{\"name\":\"in\",\"error\":\"in left al unchanged\"}\n"
      "{\"name\":\"empty\",\"samples\":[]}\n"
      "{\"name\":7}\n[1]\n"
      "{\"name\":\"cr8wr\",\"samples\":[1.2,");
  CHECK_FALSE(output.done);
  REQUIRE(output.measurements.size() == 3);
  CHECK(output.measurements[0].samples == std::vector<double>{1.5, 2});
  CHECK(output.measurements[1].error == "in left al unchanged");
  CHECK(output.measurements[2].error == "no samples");
  CHECK(ParseProgramOutput("{\"done\":true}\n").done);
  CHECK_FALSE(ParseProgramOutput("{\"done\":\"no\"}").done);
  CHECK(ParseProgramOutput("").measurements.empty());
}

TEST_CASE("Statistics of a run: counters, or what is missing") {
  auto cost = ParseStats(
      R"({"runtime":{"translations":2,"translated_instructions":10,"translated_guest_bytes":40,
          "emitted_bytes":200,"translation_cycles":9000}})");
  REQUIRE(cost.ok());
  CHECK(cost->cycles == 9000);
  CHECK(cost->instructions == 10);
  CHECK_FALSE(ParseStats("").ok());
  CHECK_FALSE(ParseStats("{}").ok());
  CHECK_THAT(ParseStats(R"({"runtime":{}})").error().message, Catch::Contains("translations"));
}

TEST_CASE("JSON has the documented shape, rows in order") {
  const auto json = Canned().ToJson({{"cpu", "x"}});
  REQUIRE(json.size() == 2);
  CHECK(json["host"]["cpu"] == "x");
  REQUIRE(json["benchmarks"].is_array());
  for (const auto& row : json["benchmarks"]) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : row.items()) keys.push_back(key);
    CHECK(keys == std::vector<std::string>{"name", "system", "policy", "median_cycles", "p10",
                                           "p90", "samples"});
    CHECK_FALSE(row["samples"].empty());
  }
  const auto& first = json["benchmarks"][0];
  CHECK(first["name"] == "syscall");
  CHECK(first["system"] == "native");
  CHECK(first["policy"] == "");
  CHECK(first["median_cycles"] == 300);
  CHECK(first["p10"] == 292);
  CHECK(first["p90"] == 308);
  CHECK(json["benchmarks"].back()["name"] == "compute32_fib");
}

TEST_CASE("A miss is said once, and an Alibi miss is known as one") {
  Results results;
  results.AddMiss(kTcg, "nanobench: exit status 9");
  results.AddMiss(kTcg, "nanobench: exit status 9");
  CHECK(results.Misses().size() == 1);
  CHECK_FALSE(results.Failed(kAlibi));
  results.Add(kOurs, "", {"in", {}, "in left al unchanged"});
  CHECK(results.Failed(kAlibi));
  CHECK(results.Samples("in", kOurs).empty());
}

TEST_CASE("A KVM that emulates ring 0 is known by its calls, and the table says so") {
  const SystemId hardware = {kHardware, ""};
  Results results;
  CHECK_FALSE(results.HardwareIsEmulated());
  results.Add(hardware, "", {"callret", {12}, ""});
  CHECK_FALSE(results.HardwareIsEmulated());
  CHECK(NanobenchTable(results, Plain()).find("emulator") == std::string::npos);
  results.Add(hardware, "", {"callret", {3000, 5000}, ""});
  CHECK(results.HardwareIsEmulated());
  CHECK(NanobenchTable(results, Plain()).find("call+ret 3,000 cycles") != std::string::npos);
}

TEST_CASE("Cycles are shown with the digits they deserve") {
  CHECK(FormatCycles(0) == "0.00");
  CHECK(FormatCycles(0.286) == "0.29");
  CHECK(FormatCycles(4.25) == "4.2");
  CHECK(FormatCycles(99.96) == "100");
  CHECK(FormatCycles(999.6) == "1,000");
  CHECK(FormatCycles(1234567) == "1,234,567");
}

TEST_CASE("The report of canned results") {
  CHECK(testsuite::CompareWithGolden("bench/golden/report.txt", FullReport(Canned(), Plain())) ==
        "");
}

TEST_CASE("Colours change nothing but escapes") {
  ReportStyle colored = Plain();
  colored.colors = true;
  std::string text = FullReport(Canned(), colored), stripped;
  CHECK_THAT(text, Catch::Contains("\x1b["));
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
      continue;
    }
    stripped += text[i];
  }
  CHECK(stripped == FullReport(Canned(), Plain()));
}

TEST_CASE("A report of nothing is empty") { CHECK(FullReport(Results(), Plain()) == ""); }

TEST_CASE("The SVG is self-contained, and what it is told is escaped") {
  const std::string svg = SvgChart(Canned(), "hysteresis", {{"cpu", "A<B> & \"C\""}});
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK_THAT(svg, Catch::Contains("A&lt;B&gt; &amp; &quot;C&quot;"));
  CHECK_THAT(svg, Catch::Contains("prefers-color-scheme: dark"));
  CHECK_THAT(svg, !Catch::Contains("href") && !Catch::Contains("url(") && !Catch::Contains("nan") &&
                      !Catch::Contains("inf"));
  CHECK(SvgChart(Results(), "hysteresis", nlohmann::ordered_json::object()).ends_with("</svg>\n"));
}

}  // namespace
}  // namespace alibi::bench
