// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/reproduce/overhead.h"

#include <catch2/catch.hpp>

namespace alibi::bench::lab {
namespace {

nlohmann::ordered_json Profile() {
  return nlohmann::ordered_json::parse(R"({
    "stats": {"mmu": {"true_faults": 10, "trace_writes": 30},
              "runtime": {"translation_cycles": 5000}},
    "profile": {"classes": {"syscall": 100, "in": 2, "out": 3, "cr8_write": 0, "ret": 1000}}})");
}

OperationCosts Costs() {
  return {{"syscall", {75, 280}},    {"in_device", {200, 0}},  {"cr8wr", {1, 0}},
          {"callret", {4.5, 2}},     {"pgfault", {300, 4900}}, {"ptemod_unchanged", {40, 0}},
          {"ptemod_p_np", {100, 0}}, {"ptemod_np_p", {130, 0}}};
}

TEST_CASE("Counts times what an operation costs more") {
  auto rows = DecomposeOverhead(Profile(), Costs(), 1e6);
  REQUIRE(rows.ok());
  std::map<std::string, OverheadRow> by_name;
  for (const OverheadRow& row : *rows) by_name[row.name] = row;
  REQUIRE(by_name.size() == rows->size());
  // A host's system call is not the instruction: the whole cost counts.
  CHECK(by_name["syscall"].seconds == Approx(100 * 75 / 1e6));
  CHECK(by_name["syscall"].upper_bound);
  CHECK(by_name["in_out"].count == 5);
  CHECK(by_name["cr8wr"].seconds == 0);
  CHECK(by_name["callret"].seconds == Approx(1000 * 2.5 / 1e6));
  CHECK_FALSE(by_name["callret"].upper_bound);
  CHECK(by_name["pgfault"].seconds == Approx(10 * 300 / 1e6));
  CHECK(by_name["ptemod"].here == Approx(90));
  CHECK(by_name["ptemod"].seconds == Approx(30 * 89 / 1e6));
  CHECK(by_name["translate"].seconds == Approx(5000 / 1e6));
}

TEST_CASE("What is missing is named") {
  auto profile = Profile();
  profile["profile"]["classes"].erase("ret");
  CHECK_THAT(DecomposeOverhead(profile, Costs(), 1e6).error().message,
             Catch::Contains("/profile/classes/ret"));
  auto costs = Costs();
  costs.erase("pgfault");
  CHECK_THAT(DecomposeOverhead(Profile(), costs, 1e6).error().message, Catch::Contains("pgfault"));
  costs = Costs();
  costs["callret"].native = 0;
  CHECK_THAT(DecomposeOverhead(Profile(), costs, 1e6).error().message, Catch::Contains("natively"));
}

TEST_CASE("Every benchmark that is needed can be asked for") {
  const auto names = OverheadBenchmarks();
  CHECK(names.size() == Costs().size());
  for (const std::string& name : names) CHECK(MeaningOf(name) != "");
}

}  // namespace
}  // namespace alibi::bench::lab
