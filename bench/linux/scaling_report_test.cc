// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/scaling_report.h"

#include <catch2/catch.hpp>
#include <set>

#include "bench/linux/workloads.h"
#include "testsuite/golden.h"

namespace alibi::bench {
namespace {

const SystemId kTcg = {kQemuTcg, ""}, kHost = {kNative, ""}, kOurs = {kAlibi, "hysteresis"};

LinuxMeasurements Canned() {
  LinuxMeasurements measurements;
  Results& results = measurements.results;
  const auto add = [&](const char* name, double native, double own, double peer) {
    results.Add(kHost, "", {name, {native}, ""});
    results.Add(kOurs, "", {name, {own, own * 1.1, own * 0.9}, ""});
    if (peer != 0) results.Add(kTcg, "", {name, {peer}, ""});
  };
  add("processes/2", 1e-6, 6e-6, 40e-6);
  add("processes/44", 2e-6, 8e-6, 44e-6);
  add("processes/64", 2e-6, 160e-6, 44e-6);
  add("data-pages/16", 1e-9, 4e-9, 0);
  add("data-pages/1024", 5e-9, 12e-9, 0);
  results.AddMiss(kTcg, "sites/1024: killed by signal 11");
  return measurements;
}

TEST_CASE("The table of costs against sizes") {
  CHECK(testsuite::CompareWithGolden("bench/linux/golden/scaling.txt",
                                     ScalingTable(Canned(), false)) == "");
  // Twenty times as much, natively the same: a jump. Three times, natively five times: none.
  const std::string text = ScalingTable(Canned(), true);
  CHECK_THAT(text, Catch::Contains("\x1b[31m20.0"));
  CHECK_THAT(text, !Catch::Contains("\x1b[31m3.00"));
  CHECK_THAT(ScalingTable({}, false), !Catch::Contains("processes"));
}

TEST_CASE("The chart has a panel for each bound that was measured") {
  const std::string svg = ScalingSvg(Canned(), "a <host>");
  CHECK_THAT(svg, Catch::Contains("a &lt;host&gt;"));
  CHECK_THAT(svg, Catch::Contains("us per switch"));
  CHECK_THAT(svg, Catch::Contains("ns per load"));
  CHECK_THAT(svg, Catch::Contains("processes/64, Alibi: 160"));
  CHECK_THAT(svg, !Catch::Contains("per store"));
  CHECK_THAT(ScalingSvg({}, ""), Catch::Contains("</svg>"));
}

TEST_CASE("Each bound's sizes grow, and each row has its bound") {
  std::set<const ScalingBound*> seen;
  const LinuxWorkload* last = nullptr;
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    INFO(workload.name);
    CHECK((workload.suite == LinuxSuite::kScaling) == (workload.bound != nullptr));
    if (workload.bound == nullptr) continue;
    CHECK(FindLinuxWorkload(workload.name) == &workload);
    if (last != nullptr && last->bound == workload.bound) {
      CHECK(last->size < workload.size);
    } else {
      CHECK(seen.insert(workload.bound).second);
    }
    last = &workload;
  }
  CHECK(seen.size() == ScalingBounds().size());
}

}  // namespace
}  // namespace alibi::bench
