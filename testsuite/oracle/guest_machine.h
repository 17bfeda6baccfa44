// SPDX-License-Identifier: Apache-2.0
// The other side: a machine whose guest is nothing but the sequence.
//
// A minimal long-mode environment, built in guest memory: page tables, GDT, TSS and an IDT whose
// handlers are one HLT each, all on one IST stack. The sequence runs at CPL 3; whatever ends it
// leads to a HLT, and the state at the exception is read back from the registers and the frame.
//
// Of the kind `direct` user code runs in a satellite (direct/direct_execution.h) as far as it may:
// descriptors, selectors and control registers are Linux's. Each sequence lies in fresh pages
// there, because code that is rewritten again and again stays translated.
#ifndef ALIBI_TESTSUITE_ORACLE_GUEST_MACHINE_H_
#define ALIBI_TESTSUITE_ORACLE_GUEST_MACHINE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/translating_engine.h"
#include "testsuite/oracle/test_case.h"

namespace alibi::oracle {

enum class Kind : u8 {
#define ALIBI_KIND(constant, name, what) constant,
#include "testsuite/oracle/kinds.inc"
  kCount
};
inline constexpr unsigned kKindCount = static_cast<unsigned>(Kind::kCount);
const char* KindName(Kind kind);
const char* KindMeaning(Kind kind);
Kind KindOf(const std::string& name);  // kCount: no such kind
// A handler of the guest's interrupts the sequence, and goes on with it.
constexpr bool IsInterrupted(Kind kind) { return kind == Kind::kStepped || kind == Kind::kWatched; }

// What runs of one sequence do to the machine before they begin.
struct RunOptions {
  bool cold = false;     // the shadow starts empty
  bool new_code = true;  // write the code, even when it is there already
  unsigned limit_ms = 2000;
};

class GuestMachine {
 public:
  // `executions` (may be null) outlives the machine; see runtime::TranslatingEngineOptions. So does
  // `engine_policy`, for Kind::kDirect (null: whatever can run directly does).
  explicit GuestMachine(Kind kind, runtime::ExecutionSink* executions = nullptr,
                        adapt::EnginePolicy* engine_policy = nullptr);
  ~GuestMachine();
  GuestMachine(const GuestMachine&) = delete;
  GuestMachine& operator=(const GuestMachine&) = delete;

  // Returns how often the clock of SetStopInterval stopped it on the way.
  unsigned Run(const TestCase& test, const RunOptions& options, Outcome* outcome);
  // The same, a step of the engine's (Engine::StepNext) at a time. Returns how many instructions
  // were executed.
  u64 RunInSteps(const TestCase& test, const RunOptions& options, Outcome* outcome);

  Kind kind() const { return kind_; }
  // Kind::kDirect alone needs a host that can do it.
  bool works() const;
  runtime::TranslatingEngine& engine();
  // Called for every translation, of whatever guest code.
  void set_observer(runtime::TranslationObserver* observer);

 private:
  class Impl;
  Kind kind_;
  std::unique_ptr<Impl> impl_;
};

// Stops the running machine every `microseconds` (0: only a slow tick, for sequences that hang).
void SetStopInterval(unsigned microseconds);

}  // namespace alibi::oracle

#endif  // ALIBI_TESTSUITE_ORACLE_GUEST_MACHINE_H_
