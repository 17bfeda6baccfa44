// SPDX-License-Identifier: Apache-2.0
// What a paravirtual guest's hypercalls (vcpu/hypercalls.inc) ask of the PC: its local APIC, and
// time.
#include <x86intrin.h>

#include "pc/pc_machine.h"

namespace alibi::vmm {

using vcpu::HypercallArguments;

void PcMachine::CreateVmiCpus() {
  for (unsigned cpu = 0; cpu < pc_->cpus(); ++cpu) {
    vmi_cpus_.push_back(std::make_unique<VmiCpu>());
    VmiCpu& vmi = *vmi_cpus_.back();
    vmi.waited = cpu != 0;
    vmi.timer.emplace(
        clock_, tscs_[cpu], pc_->timers(), [this, cpu](u64 now) { return StolenTicks(cpu, now); },
        [this, cpu](bool local) { FireAlarm(cpu, local); });
  }
}

void PcMachine::ForgetHypercalls() {
  if (vmi_cpus_.empty()) return;
  for (const auto& vmi : vmi_cpus_) {
    vmi->timer->CancelAlarm();
    vmi->stolen.Reset();
    vmi->start.Clear();
    vmi->waited = vmi != vmi_cpus_.front();
  }
  machine_->ForgetHypercalls();
}

// --- Stolen time ---
// VCPUs take turns on one thread. One that had something to do when its turn ended could have gone
// on, so that what passes until the next is stolen from it; of others nobody knows since when they
// have waited for their turn.

u64 PcMachine::WorkTicks(unsigned cpu) const {
  u64 work_ns = vmi_cpus_[cpu]->work_ns;
  if (cpu == machine_->running()) work_ns += ThreadWorkNs() - turn_begin_ns_;
  return tsc_->TicksOf(work_ns);
}

u64 PcMachine::StolenTicks(unsigned cpu, u64 now) {
  VmiCpu& vmi = *vmi_cpus_[cpu];
  const u64 work = WorkTicks(cpu);
  if (vmi.waited && cpu != machine_->running()) vmi.stolen.Begin(now, work);
  return vmi.stolen.Note(now, work);
}

void PcMachine::BeginStolenTime(unsigned cpu) {
  vmi_cpus_[cpu]->stolen.Begin(tscs_[cpu].NowTsc(), WorkTicks(cpu));
}

// A run begins, perhaps on another thread than the last one.
void PcMachine::BeginTurns(u64 thread_work_ns) {
  turn_begin_ns_ = thread_work_ns;
  for (unsigned cpu = 0; cpu < vmi_cpus_.size(); ++cpu) BeginStolenTime(cpu);
}

void PcMachine::EndTurn() {
  if (vmi_cpus_.empty()) return;
  const vcpu::VcpuState& state = machine_->state();
  VmiCpu& vmi = RunningVmiCpu();
  vmi.work_ns += ThreadWorkNs() - turn_begin_ns_;
  vmi.waited = state.halted != 0 || state.waits_for_startup != 0;
}

void PcMachine::BeginTurn(unsigned cpu) {
  if (vmi_cpus_.empty()) return;
  turn_begin_ns_ = ThreadWorkNs();
  if (vmi_cpus_[cpu]->waited) BeginStolenTime(cpu);
}

void PcMachine::TellTscMoved() {
  for (unsigned cpu = 0; cpu < pc_->cpus(); ++cpu) pc_->lapic(cpu).OnTscChanged();
  for (unsigned cpu = 0; cpu < vmi_cpus_.size(); ++cpu) {
    BeginStolenTime(cpu);
    vmi_cpus_[cpu]->timer->OnTscChanged();
  }
}

void PcMachine::BeginIdle() {
  const unsigned cpu = machine_->running();
  if (!vmi_cpus_.empty()) StolenTicks(cpu, tscs_[cpu].NowTsc());
}

// The VCPU was halted; whether it went on when it should have, the deadline says.
void PcMachine::EndIdle(u64 deadline_ns) {
  if (vmi_cpus_.empty()) return;
  const u64 now_ns = devices::MonotonicClock::HostNs();
  if (now_ns > deadline_ns) {
    RunningVmiCpu().stolen.Overslept(tsc_->TicksOf(now_ns - deadline_ns));
  }
  BeginStolenTime(machine_->running());
}

// --- Interrupts, and other processors ---

void PcMachine::FireAlarm(unsigned cpu, bool local) {
  if (local) {
    pc_->lapic(cpu).FireTimer();
    return;
  }
  // An edge, at whichever level the 8254 has left the line.
  devices::IrqLine& line = pc_->Irq(0);
  line.Set(false);
  line.Set(true);
}

// In the state that the guest has given, if it has, and it is one; else in real mode.
void PcMachine::StartCpu(unsigned cpu, u8 vector) {
  const bool waits = machine_->state(cpu).waits_for_startup != 0;
  if (waits && cpu != machine_->running() && !vmi_cpus_.empty()) {
    vcpu::VcpuState& state = machine_->state(cpu);
    vcpu::StartState& start = vmi_cpus_[cpu]->start;
    if (start.complete() && start.ApplyTo(&state, machine_->cpuid())) {
      state.waits_for_startup = 0;
      machine_->mmu().VcpuStarts(cpu);
    }
    start.Clear();
  }
  machine_->StartVcpu(cpu, vector);
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
      {vcpu::Hypercall::kSetStartState, &PcMachine::SetStartState},
      {vcpu::Hypercall::kSetStartState64, &PcMachine::SetStartState64},
  };
  LookAtClocks();
  for (const Row& row : kRows) {
    if (row.number == arguments.number) *result = (this->*row.serve)(arguments);
  }
}

// As by MOV, so that the register decides whether that is allowed; outside the page there is none.
u64 PcMachine::ReadLocalApic(const HypercallArguments& arguments) {
  if (arguments.rax >= devices::Lapic::kSize || !pc_->lapic().enabled()) return 0;
  return MmioRead(pc_->lapic().base() + (arguments.rax & ~u64{3}), 4);
}

u64 PcMachine::WriteLocalApic(const HypercallArguments& arguments) {
  if (arguments.rax >= devices::Lapic::kSize || !pc_->lapic().enabled()) return 0;
  MmioWrite(pc_->lapic().base() + (arguments.rax & ~u64{3}), 4, static_cast<u32>(arguments.rdx));
  return 0;
}

u64 PcMachine::CycleFrequency(const HypercallArguments&) { return tsc_->frequency_hz(); }

u64 PcMachine::CycleCounter(const HypercallArguments& arguments) {
  if (arguments.rax >= devices::VmiTimer::kCounters) return 0;
  return RunningVmiCpu().timer->Read(static_cast<u32>(arguments.rax));
}

u64 PcMachine::SetAlarm(const HypercallArguments& arguments) {
  RunningVmiCpu().timer->SetAlarm(static_cast<u32>(arguments.rax), arguments.rdx, arguments.rcx);
  return 0;
}

u64 PcMachine::CancelAlarm(const HypercallArguments&) {
  RunningVmiCpu().timer->CancelAlarm();
  return 0;
}

void PcMachine::SetStartWord(vcpu::StartState::Kind kind, const HypercallArguments& arguments) {
  if (arguments.rax >= vmi_cpus_.size()) return;
  vmi_cpus_[arguments.rax]->start.Set(kind, arguments.rdx, arguments.rcx);
}

u64 PcMachine::SetStartState(const HypercallArguments& arguments) {
  SetStartWord(vcpu::StartState::k32, arguments);
  return 0;
}

u64 PcMachine::SetStartState64(const HypercallArguments& arguments) {
  SetStartWord(vcpu::StartState::k64, arguments);
  return 0;
}

u64 PcMachine::WallclockTime(const HypercallArguments&) {
  return static_cast<u64>(utc_start_ns_) + clock_.NowNs();
}

}  // namespace alibi::vmm
