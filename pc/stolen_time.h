// SPDX-License-Identifier: Apache-2.0
// How much of the time that passes is not the guest's: the host ran somebody else, or the VMM was
// busy with itself.
#ifndef ALIBI_PC_STOLEN_TIME_H_
#define ALIBI_PC_STOLEN_TIME_H_

#include <algorithm>
#include <functional>
#include <utility>

#include "base/types.h"

namespace alibi::vmm {

// Times are ticks of the host's TSC.
class StolenTime {
 public:
  // Shorter pauses are not looked into: asking for the CPU time is a system call.
  static constexpr u64 kShortestNs = 5'000;
  // What the host charges a thread for, at most, when it takes the CPU away and gives it back:
  // interrupts, the switch, cold caches. 20 to 100 us were seen.
  static constexpr u64 kSwitchNs = 100'000;

  // `work_ns`: the CPU time of the thread that all calls come from. `own_ticks`: how much time it
  // has spent on work that is not the guest's.
  StolenTime(u64 tsc_hz, std::function<u64()> work_ns, std::function<u64()> own_ticks)
      : hz_(tsc_hz), work_ns_(std::move(work_ns)), own_ticks_(std::move(own_ticks)) {}

  // Starts anew: what was before, or was spent asleep of one's own will, is not stolen.
  void Begin(u64 now) {
    last_ = asked_ = now;
    worked_ns_ = work_ns_();
    owned_ = own_ticks_();
  }

  // What was stolen between the last call, or Begin(), and now. Never more than has passed.
  u64 Note(u64 now) {
    const u64 pause = now - last_;
    last_ = now;
    if (pause < Ticks(kShortestNs)) return 0;
    const u64 worked_ns = work_ns_(), owned = own_ticks_();
    const u64 passed = now - asked_, worked = Ticks(worked_ns - worked_ns_);
    u64 stolen = owned - owned_;
    if (passed >= worked + Ticks(kShortestNs)) stolen += passed - worked + Ticks(kSwitchNs);
    asked_ = now;
    worked_ns_ = worked_ns;
    owned_ = owned;
    return std::min(stolen, pause);
  }

 private:
  u64 Ticks(u64 ns) const {
    return static_cast<u64>(static_cast<unsigned __int128>(ns) * hz_ / 1'000'000'000);
  }

  u64 hz_;
  std::function<u64()> work_ns_, own_ticks_;
  u64 last_ = 0;
  u64 asked_ = 0, worked_ns_ = 0, owned_ = 0;  // when the two were asked, and the answers
};

}  // namespace alibi::vmm

#endif  // ALIBI_PC_STOLEN_TIME_H_
