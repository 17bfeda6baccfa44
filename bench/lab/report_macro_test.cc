// SPDX-License-Identifier: Apache-2.0
// The section about whole programs.
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "bench/lab/experiment.h"
#include "bench/lab/report.h"
#include "testsuite/golden.h"

namespace alibi::bench::lab {
namespace {

TidyRow RowOf(const std::string& workload, const SystemId& system, const std::string& engine,
              const std::string& metric, double value) {
  std::vector<Setting> settings;
  if (!engine.empty()) settings.emplace_back("engine", engine);
  return {"r", workload, system, settings, 1, {metric, value, "s/MB"}};
}

LabData Canned() {
  std::vector<TidyRow> rows;
  const auto add = [&](const char* workload, const char* metric, double native, double tcg,
                       double translate, double automatic) {
    const SystemId ours = {kAlibi, "hysteresis"};
    rows.push_back(RowOf(workload, {kNative, ""}, "", metric, native));
    rows.push_back(RowOf(workload, {kQemuTcg, ""}, "", metric, tcg));
    rows.push_back(RowOf(workload, ours, "translate", metric, translate));
    // 0: it failed.
    if (automatic > 0) rows.push_back(RowOf(workload, ours, "auto", metric, automatic));
  };
  add("figure-2", "bzip2", 0.25, 2.5, 1, 0.3125);
  add("figure-2", "minisat", 1, 10, 4, 1.25);
  add("figure-3", "forkwait-40000", 1e-4, 8e-4, 4e-4, 5e-4);
  add("figure-3", "web-small", 2e-4, 1e-3, 4e-4, 0);
  rows.push_back(RowOf("figure-3", {kQemuTcg, ""}, "", "login", 25));
  return {{{"workloads",
            {{{"name", "figure-2"}, {"program", "debian"}},
             {{"name", "figure-3"}, {"program", "debian"}}}}},
          std::move(rows)};
}

TEST_CASE("Whole programs in percent of native, beside the paper's") {
  const std::string html = MacroSection(Canned());
  // The whole page, for report_browser_test to look at.
  CHECK(testsuite::CompareWithGolden("bench/lab/golden/macro.html", MakeReport(Canned())) == "");
  CHECK_THAT(html, Catch::Contains("<td class=\"left\">bzip2</td>"
                                   "<td class=\"left\">SPECint 2000, bzip2</td><td>92 %</td>"
                                   "<td>250 ms</td><td>25 %</td><td>80 %</td><td>10 %</td>"));
  CHECK_THAT(html, Catch::Contains("<td class=\"left\">forkwait-40000</td>"
                                   "<td class=\"left\">forkwait</td><td>16 %</td>"));
  CHECK_THAT(html, Catch::Contains("<td class=\"left\">geometric mean</td>"));
  // A boot has no native counterpart, and no mean is of fewer programs than the others'.
  CHECK_THAT(html, !Catch::Contains("login"));
  CHECK_THAT(html, Catch::Contains("<td>35 %</td><td>-</td><td>16 %</td></tr>"));
}

TEST_CASE("Each program of macro.toml stands in for one of the paper's") {
  std::ifstream in("bench/lab/experiments/macro.toml");
  std::stringstream text;
  text << in.rdbuf();
  const auto experiment = ParseExperiment(text.str(), "macro.toml");
  REQUIRE(experiment.ok());
  for (const Workload& workload : experiment.value().workloads) {
    REQUIRE_FALSE(workload.only.empty());
    for (const std::string& row : workload.only) {
      const LabData data({{"workloads", {{{"name", "w"}, {"program", "debian"}}}}},
                         {RowOf("w", {kNative, ""}, "", row, 1),
                          RowOf("w", {kAlibi, "hysteresis"}, "auto", row, 2)});
      INFO(row);
      CHECK_THAT(MacroSection(data), !Catch::Contains("<td class=\"left\"></td>"));
    }
  }
}

TEST_CASE("Without native figures there is no section") {
  const LabData data({{"workloads", {{{"name", "w"}, {"program", "debian"}}}}},
                     {RowOf("w", {kAlibi, "hysteresis"}, "auto", "perl", 2)});
  CHECK_THAT(MacroSection(data), Catch::Contains("no workload of program debian"));
}

}  // namespace
}  // namespace alibi::bench::lab
