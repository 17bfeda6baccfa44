// SPDX-License-Identifier: Apache-2.0
// Runs sequences on both sides, compares, shrinks what differs and tells the whole story.
#ifndef ALIBI_TESTSUITE_ORACLE_HARNESS_H_
#define ALIBI_TESTSUITE_ORACLE_HARNESS_H_

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "testsuite/oracle/generator.h"
#include "testsuite/oracle/guest_machine.h"
#include "testsuite/oracle/native_runner.h"

namespace alibi::verifier {
class Observer;
}

namespace alibi::oracle {

// A difference that was found.
struct Find {
  GeneratedCase made;
  Kind kind;
  unsigned run = 0;            // 0: the first time the code ran, ...
  bool needs_history = false;  // a fresh machine does not show it
  std::vector<std::string> differences;
};

// How sequences of the kind `direct` ran.
struct WayCounts {
  u64 direct = 0, mixed = 0, translated = 0;
};

class Harness {
 public:
  Harness();
  ~Harness();

  // Whether the sequence means the same on both sides in this kind.
  static bool Applies(const Traits& traits, Kind kind);

  NativeRunner& native() { return native_; }
  // Each machine runs the sequence `runs` times: translating, then as translated, chained and
  // adapted as the first run left it.
  std::optional<Find> Check(const GeneratedCase& made, Kind kind, const Outcome& native,
                            unsigned runs = 3);
  // The same with the native side run here, for tests.
  std::optional<Find> Check(const GeneratedCase& made, Kind kind, unsigned runs = 3);
  // In every kind that applies.
  std::optional<Find> CheckAll(const GeneratedCase& made, unsigned runs = 3);

  // Replaces instructions by NOPs and registers by zero as long as something differs.
  Find Shrink(Find find);
  // Bytes, listing, initial state, differences, IR and CCFs.
  std::string Story(const Find& find);

  // Every translation is given to the verifier, too; its complaints count as differences.
  void set_verify(bool verify) { verify_ = verify; }
  u64 runs() const { return runs_; }
  const WayCounts& ways() const { return ways_; }
  std::string CounterSummary() const;

 private:
  std::optional<Find> CheckOn(GuestMachine& machine, const GeneratedCase& made,
                              const Outcome& native, unsigned runs);
  std::optional<Find> CheckFresh(const GeneratedCase& made, Kind kind, unsigned runs);
  GuestMachine& Machine(Kind kind);
  void Count(Way way);

  NativeRunner native_;
  std::array<std::unique_ptr<GuestMachine>, kKindCount> machines_;
  std::array<u64, kKindCount> uses_{};
  std::unique_ptr<verifier::Observer> observer_;
  std::unique_ptr<Outcome> guest_, native_outcome_;
  bool verify_ = false;
  u64 runs_ = 0;
  WayCounts ways_;
};

}  // namespace alibi::oracle

#endif  // ALIBI_TESTSUITE_ORACLE_HARNESS_H_
