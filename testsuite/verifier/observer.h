// SPDX-License-Identifier: Apache-2.0
// Verifies every translation of an engine as it is made.
#ifndef ALIBI_TESTSUITE_VERIFIER_OBSERVER_H_
#define ALIBI_TESTSUITE_VERIFIER_OBSERVER_H_

#include <string>
#include <utility>
#include <vector>

#include "runtime/translating_engine.h"
#include "testsuite/verifier/verifier.h"

namespace alibi::verifier {

class Observer final : public runtime::TranslationObserver {
 public:
  // Until the engine is told of another observer.
  void Watch(runtime::TranslatingEngine& engine) {
    stubs_ = &engine.stub_table();
    engine.set_translation_observer(this);
  }
  void OnTranslation(const translator::Ccf& ccf) override {
    ++translations_;
    Check(ccf);
    // Those that run into it, now that their last jump has been left out.
    for (const translator::ExitDesc* exit = ccf.incoming; exit != nullptr;
         exit = exit->next_incoming) {
      if (exit->elided) Check(*exit->ccf);
    }
  }
  void OnAdaptation(const translator::Ccf&, const translator::Ccf&) override {}

  u64 translations() const { return translations_; }
  std::vector<std::string> Take() { return std::exchange(complaints_, {}); }

 private:
  void Check(const translator::Ccf& ccf) {
    if (!complaints_.empty()) return;  // the first is what counts
    complaints_ = Verify(ccf, *stubs_);
  }

  const StubTable* stubs_ = nullptr;
  u64 translations_ = 0;
  std::vector<std::string> complaints_;
};

}  // namespace alibi::verifier

#endif  // ALIBI_TESTSUITE_VERIFIER_OBSERVER_H_
