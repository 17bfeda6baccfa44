// SPDX-License-Identifier: Apache-2.0
// The oracle: a child process whose CPU runs the sequence itself, at the addresses the guest sees.
//
// The child lives in one signal handler. The trap that ends a sequence enters it, it notes the
// interrupted context, puts the next sequence's registers into the signal frame and returns: the
// host kernel's sigreturn loads every register, flags and vector state included. Sequences are
// handed over in batches through shared memory. A child that dies or hangs is replaced.
#ifndef ALIBI_TESTSUITE_ORACLE_NATIVE_RUNNER_H_
#define ALIBI_TESTSUITE_ORACLE_NATIVE_RUNNER_H_

#include <sys/types.h>

#include <memory>
#include <span>
#include <vector>

#include "testsuite/oracle/test_case.h"

namespace alibi::oracle {

struct NativeShared;

class NativeRunner {
 public:
  static constexpr unsigned kBatch = 64;

  NativeRunner();
  ~NativeRunner();
  NativeRunner(const NativeRunner&) = delete;
  NativeRunner& operator=(const NativeRunner&) = delete;

  // outcomes[i] is what became of tests[i].
  void Run(std::span<const TestCase> tests, std::span<Outcome> outcomes);
  Outcome Run(const TestCase& test) {
    auto outcome = std::make_unique<Outcome>();
    Run({&test, 1}, {outcome.get(), 1});
    return *outcome;
  }
  unsigned lost_children() const { return lost_; }

 private:
  void Start();
  void Stop();

  NativeShared* shared_ = nullptr;
  pid_t child_ = -1;
  unsigned lost_ = 0;
};

}  // namespace alibi::oracle

#endif  // ALIBI_TESTSUITE_ORACLE_NATIVE_RUNNER_H_
