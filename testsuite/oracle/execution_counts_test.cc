// SPDX-License-Identifier: Apache-2.0
// Execution counts, kept by translations, against an independent count: the engine's single steps.
#include <catch2/catch.hpp>
#include <memory>

#include "testsuite/oracle/generator.h"
#include "testsuite/oracle/guest_machine.h"
#include "testsuite/oracle/listing.h"
#include "translator/ccf.h"

namespace alibi::oracle {
namespace {

class Sum final : public runtime::ExecutionSink {
 public:
  void OnExecutions(const translator::Ccf& ccf,
                    const translator::ExecutionCounts& counts) override {
    u64 executed = counts.entered;
    for (std::size_t i = 0; i < ccf.instrs().size(); ++i) {
      executed -= counts.left_before[i];
      instructions += executed;
      unexecuted += counts.left_before[i];
    }
  }
  u64 instructions = 0, unexecuted = 0;
};

TEST_CASE("Instructions are counted exactly, whatever interrupts their translations", "[oracle]") {
  u64 compared = 0, unexecuted = 0;
  GuestMachine stepper(Kind::kThreshold);
  for (const Kind kind : {Kind::kThreshold, Kind::kAlways, Kind::kHysteresis, Kind::kSimulate,
                          Kind::kMixed, Kind::kTable}) {
    Sum sum;
    GuestMachine machine(kind, &sum);
    auto outcome = std::make_unique<Outcome>();
    for (u64 i = 0; i < 150; ++i) {
      const GeneratedCase made = Generator(SeedOf(0xc0, i)).Make();
      const u64 before = sum.instructions;
      machine.Run(made.test, {.cold = i % 4 == 0, .limit_ms = 200}, outcome.get());
      machine.engine().CollectExecutions();
      if (outcome->end != End::kException) continue;
      const u64 counted = sum.instructions - before;
      const u64 stepped = stepper.RunInSteps(made.test, {.limit_ms = 2000}, outcome.get());
      if (outcome->end != End::kException) continue;
      INFO(KindName(kind) << ", case " << i << "\n"
                          << ListGuest(made.test.Bytes(), made.test.initial.rip));
      CHECK(counted == stepped);
      ++compared;
    }
    unexecuted += sum.unexecuted;
  }
  CHECK(compared > 600);
  CHECK(unexecuted > 600);  // or there was nothing to get wrong
}

}  // namespace
}  // namespace alibi::oracle
