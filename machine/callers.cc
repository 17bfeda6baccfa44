// SPDX-License-Identifier: Apache-2.0
// VCPUs beside each other, each on a thread that its caller has: all end their runs by themselves,
// and between runs nobody has the machine.
#include "machine/machine.h"

namespace alibi::vmm {

Stop Machine::RunVcpu(unsigned vcpu) {
  if (!callers_threads_) return Run();
  VcpuCore& core = *cores_[vcpu];
  core.stop_timer.Enter(core.engine.get());
  Take(core);
  const Stop stop = LoopOfCaller(core);
  core.engine->DrainEvents();
  Give(core);
  core.stop_timer.Leave();
  return stop;
}

Stop Machine::LoopOfCaller(VcpuCore& core) {
  for (;;) {
    ++counters_.loop_turns;
    if (core.stop.exchange(false, std::memory_order_acq_rel)) return Stop::kRequested;
    hooks_.Turn();
    TakeInterrupts();
    if (state_->shutdown) return Stop::kShutdown;
    if (state_->halted) {
      ++vcpu_counters_[core.number].halts;
      return Stop::kHalted;
    }
    if (const std::optional<Stop> stop = RunEngine(core)) return *stop;
  }
}

void Machine::LeaveAccess(const std::function<void()>& leave) {
  if (!callers_threads_) return leave();
  // The guards of others' accesses use the same area.
  const SimdState guests = simd_;
  simd_ = SimdState();
  WithoutMachine(leave);
  simd_ = guests;
}

void Machine::AsVcpu(unsigned vcpu, bool inside_access, const std::function<void()>& f) {
  VcpuCore& core = *cores_[vcpu];
  if (!inside_access) {
    Take(core);
    f();
    Give(core);
    return;
  }
  VcpuCore& before = *core_;
  Use(core);
  core.mmu->HearNews();
  f();
  Use(before);
}

void Machine::RequestStopOf(unsigned vcpu) {
  if (!callers_threads_) return RequestStop();
  cores_[vcpu]->stop.store(true, std::memory_order_release);
  RequestTurnOf(vcpu);
}

void Machine::RequestTurnOf(unsigned vcpu) {
  __atomic_fetch_add(&counters_.stop_requests, 1, __ATOMIC_RELAXED);
  cores_[vcpu]->engine->RequestStop();
  cores_[vcpu]->stop_timer.Arm();
}

}  // namespace alibi::vmm
