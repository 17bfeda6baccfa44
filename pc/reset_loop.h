// SPDX-License-Identifier: Apache-2.0
// Is a guest that resets itself getting anywhere?
#ifndef ALIBI_PC_RESET_LOOP_H_
#define ALIBI_PC_RESET_LOOP_H_

#include "base/types.h"

namespace alibi::vmm {

// A loop is kMax resets one after the other, before each of which the VCPU's thread worked for
// less than kShortRunNs. Sleep does not count as work: it is a guest that cannot even get started
// that is looked for, and it needs the same work each time however busy the host is.
class ResetLoop {
 public:
  static constexpr unsigned kMax = 10;
  static constexpr u64 kShortRunNs = 250'000'000;

  // The guest resets the machine; `worked_ns` is the thread's CPU time (any origin) by now.
  // True: it is going round in circles.
  bool Note(u64 worked_ns) {
    const bool short_run = worked_ns - last_ns_ < kShortRunNs;
    last_ns_ = worked_ns;
    count_ = short_run ? count_ + 1 : 1;
    return count_ >= kMax;
  }
  void Begin(u64 worked_ns) { last_ns_ = worked_ns; }
  unsigned count() const { return count_; }

 private:
  u64 last_ns_ = 0;
  unsigned count_ = 0;
};

}  // namespace alibi::vmm

#endif  // ALIBI_PC_RESET_LOOP_H_
