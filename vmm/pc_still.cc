// A PC that stands still for a debugger: neither its TSC nor its timers go on, so that a stop of
// hours is nothing to the guest. What workers of devices had begun still arrives.
#include <x86intrin.h>

#include "vmm/pc_machine.h"

namespace alibi::vmm {

void PcMachine::Freeze() {
  if (clock_.stopped()) return;
  clock_.Stop();
  frozen_tsc_ = __rdtsc();
}

void PcMachine::Thaw() {
  if (!clock_.stopped()) return;
  const u64 ticks = __rdtsc() - frozen_tsc_;
  time_base_.origin_tsc += ticks;
  machine_->state().tsc_offset -= static_cast<i64>(ticks);
  tsc_->SetOffset(static_cast<u64>(machine_->state().tsc_offset));
  clock_start_ns_ += clock_.Resume();
  pc_->lapic().OnTscChanged();
  machine_->SetDeadline(HostDeadline());
}

void PcMachine::WaitStill() {
  FlushOutput();
  events_->Sleep(HostEvents::kNever);
  mailbox_.Drain();
  TakeInput();
  GiveAttention();
}

}  // namespace alibi::vmm
