// SPDX-License-Identifier: Apache-2.0
// Engine policies from shared objects: those that are refused, and those that misbehave later.
#include "adapt/engine_plugin.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "adapt/plugin_file.h"

namespace alibi::adapt {
namespace {

using Kind = EngineEvent::Kind;
constexpr EnginePrices kPrices{.stop = 20'000, .call = 8'000};

std::string File(const std::string& name) { return "adapt/testdata/" + name + ".so"; }

std::unique_ptr<EnginePolicy> Load(const std::string& spec) {
  auto policy = MakeEnginePolicy(spec);
  INFO((policy.ok() ? "" : policy.error().message));
  REQUIRE(policy.ok());
  return std::move(*policy);
}

EngineRecord NewSpace() {
  EngineRecord record;
  record.number = 1;
  return record;
}

UserEngine Tell(EnginePolicy& policy, EngineRecord& record, EngineEvent event) {
  if (event.now == 0) event.now = 1'000'000'000;
  return record.engine = policy.OnEvent(record, event, kPrices);
}

TEST_CASE("Engine policies that cannot be used are refused with one line") {
  const struct {
    std::string spec;
    std::string message;
  } kCases[] = {
      {"./missing.so", "engine policy plug-in './missing.so' cannot be read: No such file"},
      {File("table_fine"), "has no function alibi_engine_policy(): it is no engine policy"},
      {File("engine_table_version"),
       "was built for interface version 2, this program has 1: build it again with this one's "
       "include/alibi/engine_policy.h"},
      {File("engine_throws_at_birth"), "threw an exception when it was made"},
      {File("engine_computes") + "(two)", "refuses its parameters 'two': not a number"},
  };
  for (const auto& c : kCases) {
    INFO(c.spec);
    auto policy = MakeEnginePolicy(c.spec);
    REQUIRE_FALSE(policy.ok());
    INFO(policy.error().message);
    CHECK(policy.error().message.find(c.message) != std::string::npos);
    CHECK(policy.error().message.find('\n') == std::string::npos);
  }
}

TEST_CASE("An engine policy of a shared object decides, per address space") {
  auto policy = Load(File("engine_computes") + "(2)");
  CHECK(std::string(policy->name()) == "engines");
  EngineRecord first = NewSpace(), second = NewSpace();
  second.number = 2;
  CHECK(Tell(*policy, first, {.kind = Kind::kFirst}) == UserEngine::kTranslate);
  CHECK(Tell(*policy, first, {.kind = Kind::kSample, .cycles = 5}) == UserEngine::kTranslate);
  CHECK(Tell(*policy, first, {.kind = Kind::kSample, .cycles = 5}) == UserEngine::kDirect);
  CHECK(Tell(*policy, second, {.kind = Kind::kSample, .cycles = 5}) == UserEngine::kTranslate);
  CHECK(first.data[0] == 2);
  CHECK(policy->fault() == nullptr);
  CHECK(RunningPlugin() == nullptr);
}

TEST_CASE("One that throws or talks nonsense hands over to cost-model") {
  const struct {
    std::string spec;
    std::string fault;
  } kCases[] = {
      {File("engine_throws"), "threw an exception on sample"},
      {File("engine_nonsense") + "(2)", "gave 2 as its verdict on sample, which is no engine"},
  };
  for (const auto& c : kCases) {
    INFO(c.spec);
    auto policy = Load(c.spec);
    EngineRecord record = NewSpace();
    record.data[3] = 17;
    const EngineEvent sample = {.kind = Kind::kSample, .cycles = 10'000'000};
    CHECK(Tell(*policy, record, sample) == UserEngine::kTranslate);
    REQUIRE(policy->fault() != nullptr);
    const std::string fault = policy->fault();
    INFO(fault);
    CHECK(fault.find("engine policy plug-in '") == 0);
    CHECK(fault.find(c.fault + "; cost-model decides from now on") != std::string::npos);
    CHECK(record.data[3] == 0);
    CHECK(record.data[7] == 0);
    // As cost-model: computing for long enough.
    CHECK(Tell(*policy, record, sample) == UserEngine::kDirect);
    CHECK(policy->fault() == fault);
  }
}

TEST_CASE("One that works for a while is replaced when it throws, in each address space") {
  auto policy = Load(File("engine_throws") + "(2)");
  EngineRecord first = NewSpace(), second = NewSpace();
  Tell(*policy, first, {.kind = Kind::kFirst});
  Tell(*policy, second, {.kind = Kind::kFirst});
  CHECK(policy->fault() == nullptr);
  CHECK(second.data[7] != 0);
  Tell(*policy, first, {.kind = Kind::kSample, .cycles = 5});
  CHECK(policy->fault() != nullptr);
  Tell(*policy, second, {.kind = Kind::kSample, .cycles = 5});
  CHECK(second.data[7] == 0);
}

}  // namespace
}  // namespace alibi::adapt
