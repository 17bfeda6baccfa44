// SPDX-License-Identifier: Apache-2.0
// The stolen time that a paravirtual guest may ask for: how long its VCPU could have run while the
// host ran somebody else, or served the VMM's page faults. Not to be confused with StolenTime,
// which is what a guest that measures its clocks is not shown.
#ifndef ALIBI_PC_STOLEN_COUNTER_H_
#define ALIBI_PC_STOLEN_COUNTER_H_

#include "base/types.h"

namespace alibi::vmm {

// Times are ticks of the guest's TSC; `worked` is the CPU time of the VCPU's thread in the same
// unit, since whenever.
class StolenCounter {
 public:
  void Reset() { stolen_ = 0; }
  // What has passed so far is not looked into: the VCPU was halted, did not exist, or a clock was
  // set.
  void Begin(u64 now, u64 worked) {
    now_ = now;
    worked_ = worked;
    ahead_ = 0;
  }
  // A sleep ended so much later than it should have.
  void Overslept(u64 ticks) { stolen_ += ticks; }
  // The counter's value. It never decreases, and grows by no more than has passed.
  u64 Note(u64 now, u64 worked) {
    const u64 passed = now - now_, worked_now = worked - worked_ + ahead_;
    now_ = now;
    worked_ = worked;
    // The two clocks are not read at one time: a little more work than time is a debt.
    ahead_ = worked_now > passed ? worked_now - passed : 0;
    if (passed > worked_now) stolen_ += passed - worked_now;
    return stolen_;
  }

 private:
  u64 stolen_ = 0;
  u64 now_ = 0, worked_ = 0, ahead_ = 0;
};

}  // namespace alibi::vmm

#endif  // ALIBI_PC_STOLEN_COUNTER_H_
