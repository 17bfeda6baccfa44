// SPDX-License-Identifier: Apache-2.0
// What `alibi run --smp N` says of its VCPUs, and that one does not wait for another's whole turn
// where that one owes it an answer.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "adapt/log/reader.h"
#include "testsuite/command.h"

namespace alibi {
namespace {

constexpr int kGuestPassed = 1;

std::string TempFile(const char* name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
}

// All that it prints. The guest must succeed.
std::string Run(const std::string& options, const char* kernel) {
  const std::string command = std::string("timeout -k 5 120 ") + std::getenv("ALIBI") +
                              " run --no-reboot --ram 128M --vcpu-threads one " + options + " " +
                              std::getenv(kernel) + " </dev/null 2>&1";
  const testsuite::Ended ended = testsuite::RunCommand(command);
  INFO(ended.output);
  REQUIRE(ended.status == kGuestPassed);
  return ended.output;
}

nlohmann::json Stats(const std::string& options, const char* kernel) {
  const std::string file = TempFile("stats.json");
  Run(options + " --stats-json " + file, kernel);
  std::ifstream stream(file);
  return nlohmann::json::parse(stream);
}

TEST_CASE("an event log says which VCPU each record is of") {
  const std::string file = TempFile("smp.log");
  Run("--smp 4 --log " + file, "START");
  auto reader = adapt::log::Reader::Open(file);
  REQUIRE(reader.ok());
  std::set<unsigned> seen;
  adapt::log::Record record;
  for (;;) {
    auto more = (*reader)->Next(&record);
    REQUIRE(more.ok());
    if (!*more) break;
    REQUIRE((*reader)->vcpu());
    seen.insert(*(*reader)->vcpu());
    if (record.kind == adapt::log::RecordKind::kVcpu) CHECK(*(*reader)->vcpu() == record.number);
  }
  CHECK(seen == std::set<unsigned>{0, 1, 2, 3});
}

TEST_CASE("counters are kept of each VCPU") {
  const nlohmann::json stats = Stats("--smp 4", "START");
  REQUIRE(stats["vcpus"].size() == 4);
  u64 turns = 0;
  for (const nlohmann::json& vcpu : stats["vcpus"]) {
    turns += vcpu["turns"].get<u64>();
    CHECK(vcpu["turn_us"].get<u64>() > 0);
    CHECK(vcpu["interrupts"].get<u64>() > 0);
  }
  CHECK(turns == stats["vmm"]["vcpu_switches"].get<u64>() + 1);
  const nlohmann::json one = Stats("", "HELLO");
  CHECK_FALSE(one.contains("vcpus"));
}

TEST_CASE("a trace says which VCPU each line is of") {
  const std::string several = Run("--smp 4 --trace=irq,msr", "START");
  for (const char* line : {"[irq, VCPU 0] ", "[irq, VCPU 3] ", "[msr, VCPU 2] write 0xc0000080 "}) {
    INFO(line);
    CHECK(several.find(line) != std::string::npos);
  }
  CHECK(Run("--trace=io", "HELLO").find("[io] ") != std::string::npos);
}

// The other one computes; without its interrupt's answer the first does nothing.
TEST_CASE("a VCPU that waits for another's answer cuts turns short") {
  const nlohmann::json stats =
      Stats("--smp 2 --append 'cpus=2 only=ipi_busy samples=100'", "BENCH");
  CHECK(stats["vmm"]["vcpu_short_turns"].get<u64>() >= 50);
  // One that is woken halts again by itself: no timer is set for it.
  const nlohmann::json halted =
      Stats("--smp 2 --append 'cpus=2 only=ipi_halted samples=100'", "BENCH");
  CHECK(halted["vmm"]["vcpu_short_turns"].get<u64>() < stats["vmm"]["vcpu_short_turns"].get<u64>());
}

}  // namespace
}  // namespace alibi
