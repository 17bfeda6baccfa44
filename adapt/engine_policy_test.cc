// SPDX-License-Identifier: Apache-2.0
#include "adapt/engine_policy.h"

#include <catch2/catch.hpp>
#include <utility>

using namespace alibi;
using namespace alibi::adapt;

namespace {

using Kind = EngineEvent::Kind;
constexpr EnginePrices kPrices{.stop = 20'000, .call = 8'000};
constexpr u64 kTick = 10'000'000;

struct Space {
  explicit Space(const char* policy) : policy(std::move(*MakeEnginePolicy(policy))) {}

  UserEngine Tell(EngineEvent event) {
    event.now = now;
    return record.engine = policy->OnEvent(record, event, kPrices);
  }
  UserEngine Sample() {
    now += kTick;
    return Tell({.kind = Kind::kSample, .cycles = kTick});
  }
  // A run of so many native cycles, with a stop at its end and some for mappings.
  UserEngine Run(u64 native, u32 faults = 0) {
    const u64 cycles = native + (faults + 1) * kPrices.stop + faults * kPrices.call;
    now += cycles;
    return Tell({.kind = Kind::kRan,
                 .cycles = cycles,
                 .stops = faults + 1,
                 .faults = faults,
                 .calls = faults});
  }

  std::unique_ptr<EnginePolicy> policy;
  EngineRecord record;
  u64 now = 1'000'000'000;
};

}  // namespace

TEST_CASE("never and always") {
  Space never("never"), always("always");
  for (const Kind kind : {Kind::kFirst, Kind::kSample, Kind::kRan}) {
    CHECK(never.Tell({.kind = kind}) == UserEngine::kTranslate);
    CHECK(always.Tell({.kind = kind}) == UserEngine::kDirect);
  }
  CHECK(always.Tell({.kind = Kind::kUnfit}) == UserEngine::kTranslate);
}

TEST_CASE("an unknown name") {
  auto made = MakeEnginePolicy("sometimes");
  REQUIRE_FALSE(made.ok());
  CHECK(
      made.error().message ==
      "there is no engine policy 'sometimes'; there are never, always, cost-model, or a plug-in's "
      "file: ./NAME.so");
}

TEST_CASE("cost model: who computes runs directly") {
  Space space("cost-model");
  CHECK(space.Tell({.kind = Kind::kFirst}) == UserEngine::kTranslate);
  CHECK(space.Sample() == UserEngine::kTranslate);
  CHECK(space.Sample() == UserEngine::kDirect);
  // A burst of mappings at the beginning is an investment.
  CHECK(space.Run(100'000, 200) == UserEngine::kDirect);
  for (int i = 0; i < 1000; ++i) REQUIRE(space.Run(200'000) == UserEngine::kDirect);
}

TEST_CASE("cost model: who hops between pages that must be translated goes back") {
  Space space("cost-model");
  space.Sample();
  REQUIRE(space.Sample() == UserEngine::kDirect);
  unsigned refusals = 0;
  while (space.Tell({.kind = Kind::kRefused, .cycles = 3000}) == UserEngine::kDirect) ++refusals;
  CHECK(refusals > 100);
  CHECK(refusals < 1000);
}

TEST_CASE("cost model: who enters the kernel all the time does not") {
  Space space("cost-model");
  space.Sample();
  REQUIRE(space.Sample() == UserEngine::kDirect);
  unsigned runs = 0;
  while (space.Run(500) == UserEngine::kDirect) ++runs;
  CHECK(runs < 100);
  // The pauses grow.
  u64 last = 0;
  for (unsigned trial = 0; trial < 6; ++trial) {
    const u64 begin = space.now;
    while (space.Sample() == UserEngine::kTranslate) {
    }
    CHECK(space.now - begin >= last);
    last = space.now - begin;
    while (space.Run(500) == UserEngine::kDirect) {
    }
  }
  CHECK(last > 10 * kTick);
}

// git, which did, lost a quarter of its time by running directly.
TEST_CASE("cost model: who stops often seems to compute for longer than it does") {
  for (const auto& [native, stays] : {std::pair<u64, bool>{24'000, false}, {40'000, true}}) {
    Space space("cost-model");
    space.Sample();
    REQUIRE(space.Sample() == UserEngine::kDirect);
    unsigned runs = 0;
    while (space.Run(native) == UserEngine::kDirect && runs < 10'000) ++runs;
    CHECK((runs == 10'000) == stays);
  }
}

TEST_CASE("cost model: endless mappings are not an investment") {
  Space space("cost-model");
  space.Sample();
  REQUIRE(space.Sample() == UserEngine::kDirect);
  unsigned runs = 0;
  while (space.Run(20'000, 10) == UserEngine::kDirect && runs < 10'000) ++runs;
  CHECK(runs < 200);
}

TEST_CASE("cost model: who is met in the kernel as often does not compute") {
  Space space("cost-model");
  for (int i = 0; i < 100; ++i) {
    REQUIRE(space.Sample() == UserEngine::kTranslate);
    CHECK(space.Tell({.kind = Kind::kKernelSample, .cycles = kTick}) == UserEngine::kTranslate);
  }
}

TEST_CASE("cost model: a new program begins translated") {
  Space space("cost-model");
  space.Sample();
  REQUIRE(space.Sample() == UserEngine::kDirect);
  CHECK(space.Tell({.kind = Kind::kEmptied}) == UserEngine::kTranslate);
  CHECK(space.Sample() == UserEngine::kTranslate);
}

// Under a compiler's driver all programs of a few milliseconds had made trials that lost, so that
// the compiler, which got the same address space, was translated for seconds.
TEST_CASE("cost model: a program that has ended leaves no pause behind") {
  Space space("cost-model");
  for (int i = 0; i < 4; ++i) {
    while (space.Sample() == UserEngine::kTranslate) {
    }
    while (space.Run(500) == UserEngine::kDirect) {
    }
  }
  REQUIRE(space.Sample() == UserEngine::kTranslate);
  CHECK(space.Tell({.kind = Kind::kEmptied}) == UserEngine::kTranslate);
  unsigned samples = 1;
  while (space.Sample() == UserEngine::kTranslate) ++samples;
  CHECK(samples <= 4);
}

TEST_CASE("cost model: how long a program is watched is learnt from those before") {
  Space space("cost-model");
  const auto watched = [&] {
    unsigned samples = 1;
    while (space.Sample() == UserEngine::kTranslate) ++samples;
    return samples;
  };
  CHECK(watched() == 2);
  // Who lasts is followed by others.
  for (int i = 0; i < 3; ++i) {
    for (int run = 0; run < 100; ++run) REQUIRE(space.Run(1'000'000) == UserEngine::kDirect);
    space.Tell({.kind = Kind::kEmptied});
    CHECK(watched() == 1);
  }
  // So is who ends before it has paid.
  for (int i = 0; i < 20; ++i) {
    space.Tell({.kind = Kind::kEmptied});
    watched();
  }
  space.Tell({.kind = Kind::kEmptied});
  CHECK(watched() == 4);
  // Each counts once: this one pays, and is sent back ten times then.
  for (int run = 0; run < 100; ++run) REQUIRE(space.Run(1'000'000) == UserEngine::kDirect);
  for (int i = 0; i < 10; ++i) {
    while (space.Run(500) == UserEngine::kDirect) {
    }
    while (space.Sample() == UserEngine::kTranslate) {
    }
  }
  space.Tell({.kind = Kind::kEmptied});
  CHECK(watched() == 2);
}

TEST_CASE("cost model: samples far apart are of no phase") {
  Space space("cost-model");
  for (int i = 0; i < 100; ++i) {
    space.now += 1'000'000'000;
    REQUIRE(space.Sample() == UserEngine::kTranslate);
  }
}
