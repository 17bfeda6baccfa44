// SPDX-License-Identifier: Apache-2.0
// Stored results of other hosts, and which rows are pointed out.
#include "bench/linux/reference.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "bench/linux/workloads.h"

namespace alibi::bench {
namespace {

constexpr const char* kKernel = "cloud-amd64";

LinuxMeasurements Measured(double own, double native, double tcg) {
  LinuxMeasurements measurements;
  if (native > 0) measurements.results.Add({kNative, ""}, "", {"forkexec", {native}, ""});
  measurements.results.Add({kAlibi, "hysteresis"}, "", {"forkexec", {own, own * 1.5, own / 2}, ""});
  if (tcg > 0) measurements.results.Add({kQemuTcg, ""}, "", {"forkexec", {tcg}, ""});
  return measurements;
}

std::vector<ReferenceHost> Hosts() {
  auto hosts = ParseReference(R"([
    {"host": "slow", "date": "2026-01-01", "kernel": "cloud-amd64",
     "ratios": {"forkexec": {"alibi/native": 8, "tcg/alibi": 1}}},
    {"host": "fast", "date": "2026-01-02", "kernel": "cloud-amd64",
     "ratios": {"forkexec": {"alibi/native": 4, "tcg/alibi": 2}, "boot": {"tcg/alibi": 3}}},
    {"host": "other", "date": "2026-01-03", "kernel": "686",
     "ratios": {"forkexec": {"alibi/native": 0.1, "tcg/alibi": 100}}}])");
  REQUIRE(hosts.ok());
  return *hosts;
}

TEST_CASE("A row that is three times worse than elsewhere is pointed out, with the host") {
  const std::string text = MuchWorseThanElsewhere(Measured(40, 1, 20), Hosts(), kKernel);
  CHECK(text ==
        "MUCH WORSE  forkexec: 4.0 times worse than on fast (2026-01-02; alibi/native 40.00, there "
        "4.00; tcg/alibi 0.50, there 2.00)\n");
  CHECK(MuchWorseThanElsewhere(Measured(4, 1, 8), Hosts(), kKernel).empty());
  // Not natively, or not beside TCG: then it is that which differs.
  CHECK(MuchWorseThanElsewhere(Measured(40, 1, 80), Hosts(), kKernel).empty());
  CHECK(MuchWorseThanElsewhere(Measured(4, 1, 0.8), Hosts(), kKernel).empty());
  // One of the two is enough where there is no other.
  CHECK_FALSE(MuchWorseThanElsewhere(Measured(13, 1, 0), Hosts(), kKernel).empty());
  CHECK_FALSE(MuchWorseThanElsewhere(Measured(13, 0, 8), Hosts(), kKernel).empty());
  CHECK(MuchWorseThanElsewhere(Measured(11, 1, 0), Hosts(), kKernel).empty());
  // Another kernel is another guest.
  CHECK(MuchWorseThanElsewhere(Measured(40, 1, 20), Hosts(), "amd64").empty());
  CHECK(MuchWorseThanElsewhere({}, Hosts(), kKernel).empty());
  CHECK(MuchWorseThanElsewhere(Measured(40, 1, 20), {}, kKernel).empty());
}

TEST_CASE("A report's ratios can be stored") {
  const auto ratios = RatiosOf(Measured(40, 1, 20));
  const nlohmann::ordered_json json = RatiosJson(ratios);
  CHECK(json.dump() == R"({"forkexec":{"alibi/native":40.0,"tcg/alibi":0.5}})");
  const nlohmann::json host = {
      {{"host", "here"}, {"date", "today"}, {"kernel", kKernel}, {"ratios", json}}};
  const auto again = ParseReference(host.dump());
  REQUIRE(again.ok());
  CHECK(again.value()[0].ratios.at("forkexec").alibi_to_native == 40);
  CHECK(again.value()[0].ratios.at("forkexec").tcg_to_alibi == 0.5);
  CHECK(MuchWorseThanElsewhere(Measured(40, 1, 20), again.value(), kKernel).empty());
}

TEST_CASE("Broken records are refused") {
  for (const char* text :
       {"", "[", "[1]", "[{}]", R"([{"host":"x","date":"y","kernel":"z"}])",
        R"([{"host":"x","date":"y","kernel":"z","ratios":{"getpid":{}}}])",
        R"([{"host":"x","date":"y","kernel":"z","ratios":{"boot":{"tcg/alibi":0}}}])",
        R"([{"host":"x","date":"y","kernel":"z","ratios":{"boot":{"tcg/alibi":"1"}}}])"}) {
    INFO(text);
    CHECK_FALSE(ParseReference(text).ok());
  }
}

TEST_CASE("The stored hosts are complete") {
  std::ifstream file("bench/linux/hosts.json");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto hosts = ParseReference(text);
  REQUIRE(hosts.ok());
  CHECK_FALSE(hosts.value().empty());
  for (const LinuxWorkload& workload : LinuxWorkloads()) {
    if (workload.bound != nullptr || workload.suite == LinuxSuite::kEntries) continue;
    INFO(workload.name);
    // A new one is stored for the hosts that have been met since.
    unsigned stored = 0;
    for (const ReferenceHost& host : hosts.value()) {
      INFO(host.name);
      CHECK(host.date.size() == 10);
      const auto ratios = host.ratios.find(workload.name);
      if (ratios == host.ratios.end()) continue;
      ++stored;
      CHECK(ratios->second.tcg_to_alibi.has_value());
      const bool has_native = !workload.is_boot && workload.how != LinuxHow::kGuests;
      CHECK(ratios->second.alibi_to_native.has_value() == has_native);
    }
    CHECK(stored >= 1);
  }
}

}  // namespace
}  // namespace alibi::bench
