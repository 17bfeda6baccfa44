// SPDX-License-Identifier: Apache-2.0
// A PC whose guest measures clocks against each other.
//
// Systems find out how fast the TSC is by reading it around a countdown of the 8254's channel 2,
// and believe the result only if no two readings are far apart. On a busy host the VCPU's thread
// loses the CPU for milliseconds at any moment, so that they give up, or are wrong. While such a
// countdown runs, what the thread lost is hidden from all of the guest's clocks alike, and so is
// the time that translating the loop takes: none of the clocks moves.
//
// For that, every look at a clock comes by here, RDTSC's included (VcpuState::tsc_watched), and all
// clocks show what the host's TSC was at the latest look: whatever is hidden later lies behind what
// the guest has seen, and no clock ever goes backwards.
#include <time.h>
#include <x86intrin.h>

#include <algorithm>

#include "pc/pc_machine.h"
#include "vcpu/msr.h"

namespace alibi::vmm {
namespace {

// The end of the countdown is noticed, and the TSC read for the last time.
constexpr u64 kGraceNs = 1'000'000;
// From one reset to the next: the guest's clocks stay behind the host's by this.
constexpr u64 kMaxHiddenNs = 1'000'000'000;

}  // namespace

u64 PcMachine::ThreadWorkNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<u64>(now.tv_sec) * 1'000'000'000 + static_cast<u64>(now.tv_nsec);
}

void PcMachine::WatchTsc(u64 end_ns) {
  // An RDTSC that the host's CPU executes comes by nobody.
  if (machine_->translator() == nullptr) return;
  if (hidden_ticks_ >= tsc_->TicksOf(kMaxHiddenNs)) return;
  pc_->timers().Arm(watch_timer_, end_ns + kGraceNs);
  if (machine_->state().tsc_watched) return;
  SetTscWatched(true);
  watch_begin_ = devices::HostTsc::ReadBoth();
  watch_hidden_ticks_ = 0;
  stolen_->Begin(watch_begin_.tsc);
  clock_.Hold(watch_begin_.ns);
}

void PcMachine::SetTscWatched(bool watched) {
  for (unsigned cpu = 0; cpu < machine_->vcpus(); ++cpu) {
    machine_->state(cpu).tsc_watched = watched;
    vcpu::UpdateRdtsc(machine_->state(cpu));
  }
}

void PcMachine::EndWatch() {
  if (!machine_->state().tsc_watched) return;
  pc_->timers().Cancel(watch_timer_);
  SetTscWatched(false);
  const devices::HostTsc::Moment now = devices::HostTsc::ReadBoth();
  clock_.Release(WatchedNs(now.tsc), now.ns);
  SetClockStart();
}

// The host's clock, without what is hidden.
u64 PcMachine::WatchedNs(u64 host_tsc) const {
  return watch_begin_.ns + tsc_->NsOf(host_tsc - watch_begin_.tsc - watch_hidden_ticks_);
}

void PcMachine::HideStolenTime(u64 host_tsc) {
  const u64 ticks = std::min(stolen_->Note(host_tsc), tsc_->TicksOf(kMaxHiddenNs) - hidden_ticks_);
  hidden_ticks_ += ticks;
  watch_hidden_ticks_ += ticks;
  clock_.Hold(WatchedNs(host_tsc));
  if (ticks == 0) return;
  machine_->NoteHiddenTime(tsc_->NsOf(ticks) / 1000);
  MoveTsc(ticks, tsc_->NsOf(ticks));
}

void PcMachine::LookAtClocks() {
  if (machine_->state().tsc_watched) HideStolenTime(__rdtsc());
}

// The clock has fallen behind by `ns`, and so do the TSCs.
void PcMachine::MoveTsc(u64 ticks, u64 ns) {
  time_base_.origin_tsc += ticks;
  for (unsigned cpu = 0; cpu < machine_->vcpus(); ++cpu) {
    i64& offset = machine_->state(cpu).tsc_offset;
    offset -= static_cast<i64>(ticks);
    tscs_[cpu].SetOffset(static_cast<u64>(offset));
  }
  clock_start_ns_ += ns;
  TellTscMoved();
  machine_->SetDeadline(HostDeadline());
}

// In this order, the sum errs towards a timer that comes a little late: an early one would find
// nothing to do.
void PcMachine::SetClockStart() {
  const u64 now = clock_.NowNs();
  clock_start_ns_ = devices::MonotonicClock::HostNs() - now;
}

// At a reset, when nobody compares a clock with what it showed before.
void PcMachine::CatchUp() {
  EndWatch();
  clock_.CatchUp(tsc_->NsOf(hidden_ticks_));
  hidden_ticks_ = 0;
  SetClockStart();
}

}  // namespace alibi::vmm
