// SPDX-License-Identifier: Apache-2.0
// A PC that stands still for a debugger: neither its TSC nor its timers go on, so that a stop of
// hours is nothing to the guest. What workers of devices had begun still arrives.
#include <x86intrin.h>

#include "pc/pc_machine.h"

namespace alibi::vmm {

void PcMachine::Freeze() {
  if (frozen_) return;
  frozen_ = true;
  EndWatch();
  clock_.Stop();
  frozen_tsc_ = __rdtsc();
}

void PcMachine::Thaw() {
  if (!frozen_) return;
  frozen_ = false;
  const u64 ticks = __rdtsc() - frozen_tsc_;
  MoveTsc(ticks, clock_.Resume());
}

void PcMachine::WaitStill() {
  FlushOutput();
  events_->Sleep(HostEvents::kNever);
  mailbox_.Drain();
  TakeInput();
  GiveAttention();
}

}  // namespace alibi::vmm
