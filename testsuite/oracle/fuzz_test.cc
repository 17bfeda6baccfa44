// SPDX-License-Identifier: Apache-2.0
// A short fuzz. Long ones: ./alibi fuzz --seed S --count N
#include <catch2/catch.hpp>

#include "testsuite/oracle/harness.h"

namespace alibi::oracle {
namespace {

void Fuzz(u64 seed, u64 count, unsigned code_bits, bool all_kinds, bool verify) {
  Harness harness;
  harness.set_verify(verify);
  std::vector<GeneratedCase> made(NativeRunner::kBatch);
  std::vector<TestCase> tests(NativeRunner::kBatch);
  std::vector<Outcome> outcomes(NativeRunner::kBatch);
  u64 ended = 0;
  for (u64 begin = 0; begin < count; begin += NativeRunner::kBatch) {
    for (u64 i = 0; i < NativeRunner::kBatch; ++i) {
      made[i] = Generator(SeedOf(seed, begin + i)).Make(code_bits);
      tests[i] = made[i].test;
    }
    harness.native().Run(tests, outcomes);
    for (u64 i = 0; i < NativeRunner::kBatch; ++i) {
      ended += outcomes[i].end == End::kException && outcomes[i].vector == 3;
      for (unsigned k = 0; k < kKindCount; ++k) {
        // The default kind always, the others in turn.
        if (!all_kinds && k != 0 && k != 1 + (begin + i) % (kKindCount - 1)) continue;
        if (auto find = harness.Check(made[i], static_cast<Kind>(k), outcomes[i])) {
          FAIL(harness.Story(harness.Shrink(*find)));
        }
      }
    }
  }
  // Where that is possible, of each three runs of the kind `direct` at least two are: the rest
  // shows the host, or has stopped on its way.
  if (code_bits == 64 && GuestMachine(Kind::kDirect).works()) {
    CHECK(harness.ways().direct > count / kKindCount * 2);
  }
  // Of 32-bit sequences two fifths are flat.
  if (code_bits == 32 && GuestMachine(Kind::kDirect).works()) {
    CHECK(harness.ways().direct > count / kKindCount / 2);
  }
  // Of sequences with odd segments few reach their end.
  CHECK(ended > (code_bits == 16 ? count / 10 : count / 6));
}

TEST_CASE("Random sequences of 64-bit code, the kinds in turn", "[oracle]") {
  Fuzz(0xa11b1, 30'000, 64, false, false);
}

TEST_CASE("Random sequences of 32-bit code, flat and segmented, the kinds in turn", "[oracle]") {
  Fuzz(0xa11b4, 15'000, 32, false, false);
}

TEST_CASE("Random sequences of 16-bit code, the kinds in turn", "[oracle]") {
  if (!HostAllowsSegments()) {
    WARN("this host's kernel allows no local descriptors");
    return;
  }
  Fuzz(0xa11b5, 15'000, 16, false, false);
}

TEST_CASE("Random sequences, all kinds, every emitted byte verified", "[oracle]") {
  Fuzz(0xa11b2, 1'500, 0, true, true);
}

TEST_CASE("Random sequences under asynchronous stops", "[oracle]") {
  SetStopInterval(200);
  Fuzz(0xa11b3, 5'000, 0, false, false);
  SetStopInterval(0);
}

}  // namespace
}  // namespace alibi::oracle
