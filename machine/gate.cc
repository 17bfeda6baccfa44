// SPDX-License-Identifier: Apache-2.0
// VCPUs beside each other: who has the machine. Compiled for general registers only, because the
// guest's vector state is live where guest code is left.
#include <sched.h>
#include <x86intrin.h>

#include "machine/machine.h"

namespace alibi::vmm {
namespace {

// How long a VCPU is watched for leaving guest code before it is signalled again: the signal may
// have found a place from which nothing can be said (machine/stop_timer.h).
constexpr u64 kStopCycles = 100'000;
// Up to here its thread runs, presumably; then it may want this one's CPU.
constexpr u64 kWatchCycles = 20'000;
// So many PAUSEs take longer than the host's sched_yield() with nobody else to run.
constexpr unsigned kPausesPerYield = 32;

}  // namespace

// Who is to be stopped, or has other news, waits for the machine on the way.
void VcpuCore::EnterGuest() {
  if (!has_machine && IsWanted()) TakeMachine();
  if (!has_machine) return core_lock.Unlock();
  in_guest.store(true, std::memory_order_seq_cst);
  machine.Give(*this);
}

void VcpuCore::LeaveGuest() {
  if (has_machine) return;
  core_lock.Lock();
  mmu->HearNews();
  if (IsWanted() || mmu->HasMuchToSettle()) TakeMachine();
}

// Whoever has the machine may do to the core what it likes, so it is held no more.
bool VcpuCore::TakeMachine() {
  if (has_machine) return false;
  const bool at_once = machine.TryTake(*this);
  in_guest.store(false, std::memory_order_seq_cst);
  core_lock.Unlock();
  if (!at_once) machine.Take(*this);
  return !at_once;
}

// Who is waited for may want this thread's CPU, and may want its core meanwhile.
void VcpuCore::Pausing() {
  if (has_machine || ++pauses % kPausesPerYield != 0) return;
  core_lock.Unlock();
  sched_yield();
  LeaveGuest();
}

void Machine::Give(VcpuCore& core) {
  core.has_machine = false;
  lock_.Unlock();
}

bool Machine::TryTake(VcpuCore& core) {
  if (!lock_.TryLock()) return false;
  NoteTaken(core);
  return true;
}

void Machine::Take(VcpuCore& core) {
  if (!lock_.TryLock()) {
    const u64 begin = __rdtsc();
    lock_.Lock();
    ++counters_.machine_waits;
    counters_.machine_wait_cycles += __rdtsc() - begin;
  }
  NoteTaken(core);
}

void Machine::NoteTaken(VcpuCore& core) {
  core.has_machine = true;
  ++counters_.machine_takes;
  if (core_ != &core) {
    ++counters_.vcpu_switches;
    Use(core);
    hooks_.VcpuRuns(core.number);
  }
  core.mmu->HearNews();
  core.mmu->SettleTraces();
}

void Machine::Use(VcpuCore& core) {
  core_ = &core;
  running_ = core.number;
  state_ = core.state;
  mmu_ = core.mmu.get();
  engine_ = core.engine.get();
  translator_ = core.translator;
  policy_ = core.policy.get();
  engine_policy_ = core.engine_policy.get();
}

// Whoever is neither in guest code nor alone outside it has the machine, or waits for who has.
bool Machine::HasMachine(unsigned vcpu) {
  return !cores_[vcpu]->in_guest.load(std::memory_order_relaxed);
}

bool Machine::TakeMachine(unsigned vcpu) { return cores_[vcpu]->TakeMachine(); }

void Machine::HoldBeside(unsigned vcpu) { cores_[vcpu]->core_lock.Lock(); }

void Machine::EndHoldBeside(unsigned vcpu) { cores_[vcpu]->core_lock.Unlock(); }

void Machine::StopBeside(unsigned vcpu) {
  VcpuCore& core = *cores_[vcpu];
  if (!core.in_guest.load(std::memory_order_seq_cst)) return;
  ++counters_.vcpu_stops;
  const u64 begin = __rdtsc();
  // Outside guest code it looks before it goes back there.
  core.engine->RequestAttention();
  core.core_lock.Lock();
  core.core_lock.Unlock();
  while (core.in_guest.load(std::memory_order_seq_cst)) {
    core.engine->RequestStop();
    for (const u64 sent = __rdtsc(); __rdtsc() - sent < kStopCycles;) {
      if (!core.in_guest.load(std::memory_order_seq_cst)) break;
      if (__rdtsc() - begin < kWatchCycles) {
        __builtin_ia32_pause();
      } else {
        sched_yield();
      }
    }
  }
  counters_.vcpu_stop_cycles += __rdtsc() - begin;
}

void Machine::AttendBeside(unsigned vcpu) { cores_[vcpu]->engine->RequestAttention(); }

}  // namespace alibi::vmm
