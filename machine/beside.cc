// SPDX-License-Identifier: Apache-2.0
// VCPUs beside each other: each one's loop, on its own thread. The first one's thread is the
// caller's, and serves the devices, too.
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <csignal>
#include <thread>
#include <utility>

#include "base/host_cpus.h"
#include "base/real_time.h"
#include "base/worker_thread.h"
#include "machine/machine.h"
#include "vcpu/interrupts.h"
#include "vcpu/reset.h"

namespace alibi::vmm {
namespace {

// Waking a thread on an idle CPU takes as long. A halted VCPU looks for its kick for so long before
// it sleeps, if the last one came as soon.
constexpr u64 kLookCycles = 100'000;
// How long a first VCPU sleeps that nothing wakes, where others still run.
constexpr useconds_t kDeadSleepUs = 1000;

// Faults, and what stops the VCPU, whose signals go to its thread alone.
void UnblockVcpuSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS}) sigaddset(&signals, signal);
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) sigaddset(&signals, signal);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

// One of those that the thread may use; -1: nobody says.
int AllowedCpu(unsigned number) {
  const cpu_set_t allowed = AllowedCpus();
  unsigned left = number % std::max(AllowedCpuCount(), 1u);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed) && left-- == 0) return cpu;
  }
  return -1;
}

}  // namespace

// The threads are made before a sandbox that allows no more of them.
Status Machine::StartThreads() {
  real_time_ = IsRealTime();
  for (unsigned vcpu = 1; vcpu < vcpus_; ++vcpu) {
    auto started = StartWorker([this, vcpu] {
      UnblockVcpuSignals();
      for (u32 runs = 0;; ++runs) {
        while (runs_.load(std::memory_order_acquire) == runs) FutexWait(runs_, runs);
        if (quits_) return;
        RunCore(*cores_[vcpu]);
        if (threads_in_run_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
          FutexWake(threads_in_run_);
        }
      }
    });
    if (!started.ok()) return Error{"a VCPU's thread: " + started.error().message};
    threads_.push_back(std::move(*started));
  }
  return Ok{};
}

void Machine::EndThreads() {
  quits_ = true;
  runs_.fetch_add(1, std::memory_order_release);
  FutexWake(runs_);
  for (std::thread& thread : threads_) thread.join();
}

// Between runs, and while it is made, the machine is its owner's; in them whoever needs it takes
// it.
void Machine::GiveToVcpus() {
  for (auto& core : cores_) core->has_machine = false;
  lock_.Unlock();
}

void Machine::TakeFromVcpus() {
  lock_.Lock();
  for (auto& core : cores_) core->has_machine = true;
}

Stop Machine::RunBeside() {
  end_.reset();
  GiveToVcpus();
  threads_in_run_.store(vcpus_ - 1, std::memory_order_relaxed);
  runs_.fetch_add(1, std::memory_order_release);
  FutexWake(runs_);
  RunCore(*cores_[0]);
  while (const u32 left = threads_in_run_.load(std::memory_order_acquire)) {
    FutexWait(threads_in_run_, left);
  }
  TakeFromVcpus();
  Use(*cores_[0]);
  hooks_.VcpuRuns(0);
  return *end_;
}

void Machine::RunCore(VcpuCore& core) {
  // Where user code runs directly the thread would stay where it is, which may be on another's CPU.
  if (real_time_ && core.translator->direct() != nullptr) StayOnCpu(AllowedCpu(core.number));
  core.stop_timer.Enter(core.engine.get());
  Take(core);
  while (!end_) {
    const std::optional<Stop> stop = StepCore(core);
    if (stop && !end_) EndBeside(*stop);
  }
  core.engine->DrainEvents();
  Give(core);
  core.stop_timer.Leave();
}

void Machine::EndBeside(Stop stop) {
  end_ = stop;
  for (unsigned vcpu = 0; vcpu < vcpus_; ++vcpu) {
    if (vcpu != running_) Kick(vcpu);
  }
}

// One turn of the VCPU's loop. Something: that is the end for all.
std::optional<Stop> Machine::StepCore(VcpuCore& core) {
  ++counters_.loop_turns;
  if (core.number == 0) {
    if (stop_.exchange(false, std::memory_order_acq_rel)) return Stop::kRequested;
    hooks_.Turn();
    if (stop_.load(std::memory_order_acquire)) return std::nullopt;
  }
  TakeInit();
  if (const std::optional<u8> vector = std::exchange(core.startup, std::nullopt)) {
    vcpu::StartUp(*core.state, *vector);
    core.engine->StateChanged();
  }
  TakeInterrupts();
  if (state_->shutdown) return Stop::kShutdown;
  if (state_->halted || state_->waits_for_startup) {
    ++counters_.idle_sleeps;
    ++vcpu_counters_[core.number].halts;
    if (core.number == 0) return SleepServing(core);
    SleepUntilKicked(core);
    return std::nullopt;
  }
  return RunEngine(core);
}

std::optional<Stop> Machine::RunEngine(VcpuCore& core) {
  core.stop_timer.Resume();
  core.in_engine = true;
  const runtime::Exit exit = core.engine->Run();
  core.TakeMachine();
  core.in_engine = false;
  core.stop_timer.Disarm();
  ReportPolicy();
  if (exit == runtime::Exit::kFailed) return Stop::kFailed;
  return std::nullopt;
}

void Machine::SleepUntilKicked(VcpuCore& core) {
  core.sleeps = true;
  const u32 seen = core.wakes.load(std::memory_order_relaxed);
  Give(core);
  const u64 begin = __rdtsc();
  while (core.looks_before_sleep && core.wakes.load(std::memory_order_relaxed) == seen &&
         __rdtsc() - begin < kLookCycles) {
    __builtin_ia32_pause();
  }
  FutexWait(core.wakes, seen);
  core.looks_before_sleep = __rdtsc() - begin < kLookCycles;
  Take(core);
  core.sleeps = false;
}

// The same for the one that devices wake.
std::optional<Stop> Machine::SleepServing(VcpuCore& core) {
  core.stop_timer.Suspend();
  core.sleeps = true;
  const bool woken = hooks_.Idle();
  core.sleeps = false;
  if (woken) return std::nullopt;
  for (unsigned vcpu = 1; vcpu < vcpus_; ++vcpu) {
    if (!cores_[vcpu]->sleeps) {
      WithoutMachine([] { usleep(kDeadSleepUs); });
      return std::nullopt;
    }
  }
  return Stop::kHalted;
}

// Something is new to the VCPU: it looks at the next instruction boundary.
void Machine::Kick(unsigned vcpu) {
  VcpuCore& core = *cores_[vcpu];
  // Outside guest code it looks before it goes back there.
  core.engine->RequestAttention();
  if (core.in_guest.load(std::memory_order_seq_cst) && !core.core_lock.IsHeld()) {
    core.engine->RequestStop();
    core.stop_timer.Arm();
  }
  if (!core.sleeps) return;
  if (vcpu == 0) {
    hooks_.Wake();
  } else {
    core.wakes.fetch_add(1, std::memory_order_relaxed);
    FutexWake(core.wakes);
  }
}

void Machine::InterruptBeside(unsigned vcpu) {
  if (!interrupts_.InterruptPendingFor(vcpu)) return;
  vcpu::VcpuState& state = *cores_[vcpu]->state;
  // Whoever enables interrupts sees it. Whether they are enabled just now nobody else can say.
  __atomic_store_n(&state.irq_pending, 1, __ATOMIC_SEQ_CST);
  Kick(vcpu);
}

// What a message does to a VCPU that executes something waits for the instruction's end.
void Machine::InitBeside(unsigned vcpu) {
  VcpuCore& core = *cores_[vcpu];
  if (core.in_engine) {
    core.init = true;
  } else {
    vcpu::ResetToInit(*core.state, *cpuid_);
    core.engine->StateChanged();
  }
  Kick(vcpu);
}

void Machine::StartBeside(unsigned vcpu, u8 vector) {
  VcpuCore& core = *cores_[vcpu];
  if (core.in_engine) {
    if (core.init) core.startup = vector;
    return;
  }
  vcpu::StartUp(*core.state, vector);
  core.engine->StateChanged();
  Kick(vcpu);
}

}  // namespace alibi::vmm
