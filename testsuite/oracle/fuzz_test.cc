// A short fuzz. Long ones: bazel run -c opt //testsuite:fuzz -- --seed S --count N
#include <catch2/catch.hpp>

#include "testsuite/oracle/harness.h"

namespace alibi::oracle {
namespace {

void Fuzz(u64 seed, u64 count, bool all_kinds, bool verify) {
  Harness harness;
  harness.set_verify(verify);
  std::vector<GeneratedCase> made(NativeRunner::kBatch);
  std::vector<TestCase> tests(NativeRunner::kBatch);
  std::vector<Outcome> outcomes(NativeRunner::kBatch);
  u64 ended = 0;
  for (u64 begin = 0; begin < count; begin += NativeRunner::kBatch) {
    for (u64 i = 0; i < NativeRunner::kBatch; ++i) {
      made[i] = Generator(SeedOf(seed, begin + i)).Make();
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
  CHECK(ended > count / 3);
}

TEST_CASE("Random sequences, the kinds in turn", "[oracle]") {
  Fuzz(0xa11b1, 60'000, false, false);
}

TEST_CASE("Random sequences, all kinds, every emitted byte verified", "[oracle]") {
  Fuzz(0xa11b2, 1'500, true, true);
}

TEST_CASE("Random sequences under asynchronous stops", "[oracle]") {
  SetStopInterval(200);
  Fuzz(0xa11b3, 5'000, false, false);
  SetStopInterval(0);
}

}  // namespace
}  // namespace alibi::oracle
