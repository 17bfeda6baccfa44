// SPDX-License-Identifier: Apache-2.0
// The section about VMI, from a few canned figures.
#include <catch2/catch.hpp>

#include "bench/lab/report.h"
#include "testsuite/golden.h"

namespace alibi::bench::lab {
namespace {

TidyRow RowOf(const std::string& workload, const std::string& vmi, const std::string& metric,
              double value) {
  const SystemId system = vmi.empty() ? SystemId{kQemuTcg, ""} : SystemId{kAlibi, "hysteresis"};
  std::vector<Setting> settings;
  if (!vmi.empty()) settings.emplace_back("vmi", vmi);
  return {"r", workload, system, settings, 1, {metric, value, "cycles"}};
}

LabData Canned() {
  std::vector<TidyRow> rows;
  const char* const forms[] = {"none",        "transparent", "full",      "mmu",       "flags",
                               "flags,timer", "timer",       "mmu,timer", "flags,mmu", ""};
  const auto add = [&](const char* workload, const char* metric, std::vector<double> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      rows.push_back(RowOf(workload, forms[i], metric, values[i]));
    }
  };
  add("vmibench", "ptechange", {140, 150, 20, 20, 150, 150, 150, 20, 20, 10});
  add("vmibench", "clisti", {0, 15, 15, 15, 15, 15, 15, 15, 15, 56});
  add("vmibench64", "invlpg", {66, 72, 84, 84, 72, 72, 72, 84, 84, 322});
  add("linux", "forkexec", {9e6, 9.5e6, 6e6, 6.1e6, 9.4e6, 9.3e6, 9.5e6, 6.1e6, 6e6, 5e6});
  nlohmann::ordered_json experiment = {{"notes", {"vmi-linux: an old kernel", "another"}},
                                       {"workloads",
                                        {{{"name", "vmibench"}, {"program", "vmibench"}},
                                         {{"name", "vmibench64"}, {"program", "vmibench64"}},
                                         {{"name", "linux"}, {"program", "vmi-linux"}}}}};
  return {std::move(experiment), std::move(rows)};
}

TEST_CASE("VMI's forms beside each other, and its groups on and off") {
  const std::string html = VmiSection(Canned());
  // The whole page, for report_browser_test to look at.
  CHECK(testsuite::CompareWithGolden("bench/lab/golden/vmi.html", MakeReport(Canned())) == "");
  // Unmodified, transparent, paravirtual, gain, TCG.
  CHECK_THAT(html, Catch::Contains("<td class=\"left\">ptechange</td><td>140</td><td>150</td>"
                                   "<td>20.0</td><td>7.00</td><td>10.0</td>"));
  // flags: alone 150 to 150, with the others 20 to 20; mmu: 150 to 20 each; timer: nothing.
  CHECK_THAT(html, Catch::Contains("<td class=\"left\">ptechange</td><td>1.00</td><td>1.00</td>"
                                   "<td>7.50</td><td>7.50</td><td>1.00</td><td>1.00</td>"));
  // A kernel of 64 bits has a chart and tables of its own.
  CHECK_THAT(html, Catch::Contains("<td class=\"left\">invlpg</td><td>66.0</td><td>72.0</td>"
                                   "<td>84.0</td><td>0.79</td><td>322</td>"));
  CHECK_THAT(html, Catch::Contains("an old kernel") && !Catch::Contains("another"));
  // What costs nothing unmodified has no gain.
  CHECK_THAT(html, !Catch::Contains("inf") && !Catch::Contains("nan"));
}

TEST_CASE("One form alone has no section") {
  const LabData one({}, {RowOf("vmibench", "full", "clisti", 1)});
  CHECK_THAT(VmiSection(one), Catch::Contains("does not vary the parameter vmi"));
}

}  // namespace
}  // namespace alibi::bench::lab
