// SPDX-License-Identifier: Apache-2.0
// What a paravirtual guest's hypercalls (vcpu/hypercalls.inc) ask of the PC: its local APIC, and
// time.
#include <x86intrin.h>

#include "pc/pc_machine.h"

namespace alibi::vmm {

using vcpu::HypercallArguments;

void PcMachine::CreateVmiTimer() {
  vmi_timer_.emplace(
      clock_, *tsc_, pc_->timers(),
      [this](u64 now) { return stolen_counter_.Note(now, WorkTicks()); },
      [this](bool local) { FireAlarm(local); });
}

void PcMachine::ForgetHypercalls() {
  if (!vmi_timer_.has_value()) return;
  vmi_timer_->CancelAlarm();
  stolen_counter_.Reset();
  machine_->ForgetHypercalls();
}

void PcMachine::BeginStolenTime() {
  if (vmi_timer_.has_value()) stolen_counter_.Begin(tsc_->NowTsc(), WorkTicks());
}

void PcMachine::TellTscMoved() {
  for (unsigned cpu = 0; cpu < pc_->cpus(); ++cpu) pc_->lapic(cpu).OnTscChanged();
  if (!vmi_timer_.has_value()) return;
  BeginStolenTime();
  vmi_timer_->OnTscChanged();
}

// The VCPU was halted; whether it went on when it should have, the deadline says.
void PcMachine::EndIdle(u64 deadline_ns) {
  if (!vmi_timer_.has_value()) return;
  const u64 now_ns = devices::MonotonicClock::HostNs();
  if (now_ns > deadline_ns) stolen_counter_.Overslept(tsc_->TicksOf(now_ns - deadline_ns));
  BeginStolenTime();
}

void PcMachine::FireAlarm(bool local) {
  if (local) {
    pc_->lapic().FireTimer();
    return;
  }
  // An edge, at whichever level the 8254 has left the line.
  devices::IrqLine& line = pc_->Irq(0);
  line.Set(false);
  line.Set(true);
}

void PcMachine::Hypercall(const HypercallArguments& arguments, u64* result) {
  struct Row {
    vcpu::Hypercall number;
    u64 (PcMachine::*serve)(const HypercallArguments&);
  };
  static constexpr Row kRows[] = {
      {vcpu::Hypercall::kReadLocalApic, &PcMachine::ReadLocalApic},
      {vcpu::Hypercall::kWriteLocalApic, &PcMachine::WriteLocalApic},
      {vcpu::Hypercall::kCycleFrequency, &PcMachine::CycleFrequency},
      {vcpu::Hypercall::kCycleCounter, &PcMachine::CycleCounter},
      {vcpu::Hypercall::kSetAlarm, &PcMachine::SetAlarm},
      {vcpu::Hypercall::kCancelAlarm, &PcMachine::CancelAlarm},
      {vcpu::Hypercall::kWallclockTime, &PcMachine::WallclockTime},
  };
  LookAtClocks();
  for (const Row& row : kRows) {
    if (row.number == arguments.number) *result = (this->*row.serve)(arguments);
  }
}

// As by MOV, so that the register decides whether that is allowed; outside the page there is none.
u64 PcMachine::ReadLocalApic(const HypercallArguments& arguments) {
  if (arguments.eax >= devices::Lapic::kSize || !pc_->lapic().enabled()) return 0;
  return MmioRead(pc_->lapic().base() + (arguments.eax & ~u64{3}), 4);
}

u64 PcMachine::WriteLocalApic(const HypercallArguments& arguments) {
  if (arguments.eax >= devices::Lapic::kSize || !pc_->lapic().enabled()) return 0;
  MmioWrite(pc_->lapic().base() + (arguments.eax & ~u64{3}), 4, arguments.edx);
  return 0;
}

u64 PcMachine::CycleFrequency(const HypercallArguments&) { return tsc_->frequency_hz(); }

u64 PcMachine::CycleCounter(const HypercallArguments& arguments) {
  return vmi_timer_->Read(arguments.eax);
}

u64 PcMachine::SetAlarm(const HypercallArguments& arguments) {
  vmi_timer_->SetAlarm(arguments.eax, arguments.EcxEdx(), arguments.Stack());
  return 0;
}

u64 PcMachine::CancelAlarm(const HypercallArguments&) {
  vmi_timer_->CancelAlarm();
  return 0;
}

u64 PcMachine::WallclockTime(const HypercallArguments&) {
  return static_cast<u64>(utc_start_ns_) + clock_.NowNs();
}

}  // namespace alibi::vmm
