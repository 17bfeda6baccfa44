// SPDX-License-Identifier: Apache-2.0
// The section about engines, and what it reckons with.
#include <catch2/catch.hpp>
#include <cmath>

#include "bench/lab/crossover.h"
#include "bench/lab/curves.h"
#include "bench/lab/report.h"
#include "testsuite/golden.h"

namespace alibi::bench::lab {
namespace {

TEST_CASE("Where prices say that engines are equal, they are") {
  // 2.5 times native against 8 us for each entry.
  const auto rate = PredictedCrossover(2.5, 8e-6);
  REQUIRE(rate);
  CHECK(*rate == Approx(187500));
  CHECK(PredictedDirect(*rate, 8e-6) == Approx(2.5));
  CHECK_FALSE(PredictedCrossover(1, 8e-6));
  CHECK_FALSE(PredictedCrossover(2.5, 0));
  CHECK_FALSE(PredictedCrossover(std::nan(""), 8e-6));
}

TEST_CASE("Measured curves cross between the points around it") {
  // Points as prices would have them: the crossover found is the one predicted.
  const double stop = 8e-6, slowdown = 2.5;
  std::vector<EntryPoint> points;
  for (double rate = 1e7; rate > 100; rate /= 1.5) {
    points.push_back({rate, slowdown, PredictedDirect(rate, stop)});
  }
  const auto rate = MeasuredCrossover(points);
  REQUIRE(rate);
  CHECK(*rate == Approx(187500).epsilon(0.05));

  CHECK(*MeasuredCrossover({{100, 2, 1}, {10000, 1, 2}}) == Approx(1000));
  CHECK_FALSE(MeasuredCrossover({{100, 2, 1}, {10000, 2, 1.5}}));  // direct wins everywhere
  CHECK_FALSE(MeasuredCrossover({{100, 1, 2}, {10000, 1, 9}}));    // it loses everywhere
  CHECK_FALSE(MeasuredCrossover({}));
  // Noise where little is entered.
  CHECK(*MeasuredCrossover({{1, 1, 0.9}, {2, 1, 1.1}, {100, 2, 1}, {10000, 1, 2}}) == Approx(1000));
}

TEST_CASE("Ticks of a logarithmic axis hold what is shown") {
  using Ticks = std::vector<double>;
  CHECK(LogTicksAround(30, 4000, false) == Ticks{10, 100, 1000, 10000});
  CHECK(LogTicksAround(100, 1000, false) == Ticks{100, 1000});
  CHECK(LogTicksAround(0.9, 7, true) == Ticks{0.5, 1, 2, 5, 10});
  CHECK(LogTicksAround(1, 1, true).size() == 2);
}

TidyRow RowOf(const std::string& workload, const std::string& engine, const std::string& metric,
              double value, const std::string& unit) {
  const SystemId system = engine.empty() ? SystemId{kNative, ""} : SystemId{kAlibi, "hysteresis"};
  std::vector<Setting> settings;
  if (!engine.empty()) settings.emplace_back("engine", engine);
  return {"r", workload, system, settings, 1, {metric, value, unit}};
}

LabData Canned() {
  std::vector<TidyRow> rows;
  const auto add = [&](const char* workload, const char* metric, double native, double translate,
                       double automatic, double direct) {
    rows.push_back(RowOf(workload, "", metric, native, "s/round"));
    rows.push_back(RowOf(workload, "translate", metric, translate, "s/round"));
    rows.push_back(RowOf(workload, "auto", metric, automatic, "s/round"));
    rows.push_back(RowOf(workload, "direct", metric, direct, "s/round"));
  };
  add("rates", "entries/100", 0.5e-6, 1.3e-6, 1.3e-6, 9e-6);
  add("rates", "entries/1000", 5e-6, 13e-6, 13e-6, 14e-6);
  add("rates", "entries/10000", 50e-6, 130e-6, 62e-6, 60e-6);
  add("rates", "entries/1000000", 5e-3, 13e-3, 5.2e-3, 5.1e-3);
  add("gzip", "gzip", 30e-3, 66e-3, 33e-3, 31e-3);
  add("fork", "forkwait", 70e-6, 250e-6, 250e-6, 900e-6);
  const auto direct = [&](const char* workload, const char* metric, double value) {
    rows.push_back(RowOf(workload, "direct", metric, value, "count"));
  };
  direct("rates", "prices.direct_stop_cycles", 20000);
  direct("gzip", "prices.direct_stop_cycles", 20000);
  direct("gzip", "direct.direct_stops", 1500);
  direct("gzip", "direct.direct_system_calls", 900);
  direct("gzip", "direct.direct_instructions", 200);
  direct("boot", "direct.direct_stops", 100);
  direct("boot", "direct.direct_system_calls", 30);
  direct("boot", "direct.direct_instructions", 20);
  rows.push_back(RowOf("gzip", "", "wall", 0.5, "s"));
  // Near gzip's rate: their names must not lie over each other.
  direct("fork", "direct.direct_stops", 4000);
  direct("fork", "direct.direct_system_calls", 1500);
  direct("fork", "direct.direct_instructions", 900);
  rows.push_back(RowOf("fork", "", "wall", 1, "s"));
  nlohmann::ordered_json experiment = {{"host", {{"tsc_hz", 2.5e9}}},
                                       {"notes", {"hardware: an emulator"}},
                                       {"workloads",
                                        {{{"name", "rates"}, {"program", "linux"}},
                                         {{"name", "gzip"}, {"program", "linux"}},
                                         {{"name", "fork"}, {"program", "linux"}},
                                         {{"name", "boot"}, {"program", "boot"}}}}};
  return {std::move(experiment), std::move(rows)};
}

TEST_CASE("Engines beside each other, by kernel entries") {
  const std::string html = EnginesSection(Canned());
  // The whole page, for report_browser_test to look at.
  CHECK(testsuite::CompareWithGolden("bench/lab/golden/engines.html", MakeReport(Canned())) == "");
  // 20,000 cycles of 2.5 GHz and 2.6 times native.
  CHECK_THAT(html, Catch::Contains("equal at 200k kernel entries per second"));
  CHECK_THAT(html, Catch::Contains("an emulator"));
  // 900 + 200 - 30 - 20 entries and 1500 - 100 stops in half a second.
  CHECK_THAT(html, Catch::Contains("<td class=\"left\">gzip</td><td class=\"left\">gzip</td>"
                                   "<td>2,100</td><td>2,800</td>"));
  CHECK_THAT(html, Catch::Contains("gzip, direct: 1"));
}

TEST_CASE("One engine alone has no section") {
  const LabData one({}, {RowOf("gzip", "translate", "gzip", 1, "s/MB")});
  CHECK_THAT(EnginesSection(one), Catch::Contains("does not vary the parameter engine"));
}

}  // namespace
}  // namespace alibi::bench::lab
