// SPDX-License-Identifier: Apache-2.0
// An engine runs one VCPU at a time: given its architectural state and its memory, it runs until an
// exit, and leaves precise state at an instruction boundary. All that the machine, debuggers and
// logs need to know of it stands here, whichever way it executes the guest. The engine that
// translates is runtime/translating_engine.h.
#ifndef ALIBI_RUNTIME_ENGINE_H_
#define ALIBI_RUNTIME_ENGINE_H_

#include <string>

#include "adapt/log/ring.h"
#include "base/types.h"
#include "mmu/mmu.h"
#include "runtime/counters.h"
#include "runtime/debug_points.h"
#include "runtime/recorder.h"
#include "vcpu/cpuid.h"
#include "vcpu/guest_gate.h"
#include "vcpu/memory.h"
#include "vcpu/platform.h"
#include "vcpu/state.h"

namespace alibi::runtime {

enum class Exit : u8 {
  kStopped,          // RequestStop(), or a device asked for attention
  kHalted,           // HLT: wait for an interrupt
  kShutdown,         // triple fault
  kInterruptWindow,  // irq_pending is set and the VCPU can take an interrupt now
  kDebug,            // a debugger's point was met: see debug_points().stop()
  kFailed,           // this engine cannot go on: see failure()
  kDetached,         // user code goes on without this thread: see Engine::detached()
};

// What any engine works on. All of it outlives the engine.
struct EngineOptions {
  mmu::Mmu* mmu = nullptr;
  mmu::GuestMemory* memory = nullptr;
  vcpu::VcpuState* state = nullptr;
  vcpu::PortIo* ports = nullptr;
  vcpu::Platform* platform = nullptr;
  const vcpu::CpuidPolicy* cpuid = nullptr;
  // VCPUs that take turns in `state`; several: only where Engine::VcpuSwitched() is served.
  unsigned vcpus = 1;
  // Not null: other VCPUs execute guest code beside this one, with engines of their own. Whoever
  // calls the engine has the machine. (Only the translating engine.)
  vcpu::GuestGate* gate = nullptr;
};

// User code of VCPUs that goes on by itself, beside whatever the machine's thread runs: nothing of
// its VCPU is current but that it is at CPL 3 with interrupts enabled. By VcpuState::number, on the
// thread, between runs.
class DetachedCode {
 public:
  virtual ~DetachedCode() = default;
  virtual bool Any() const = 0;
  virtual bool Is(unsigned vcpu) const = 0;
  // Has it stopped, because it wants its kernel or was made to? Of one that Is().
  virtual bool HasStopped(unsigned vcpu) = 0;
  // The VCPU in VcpuState, which Is(), is no more; its state is precise. Interrupts what runs.
  virtual void Return() = 0;
  // It is no more, and what its registers were is lost.
  virtual void Drop(unsigned vcpu) = 0;
  // Until one has stopped, or a stop was requested.
  virtual void Wait() = 0;
  // Do others wait for the thread, so that code which computes should be detached? With `never`
  // none is, whoever waits.
  virtual void Offer(bool others_wait, bool never) = 0;
  // Does it take the CPU on which the thread could run? Then it can be sent elsewhere, at the price
  // of an interruption.
  virtual bool IsCrowded() const = 0;
  virtual void MakeRoom() = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  // Runs until one of the exits. The state is precise and at an instruction boundary on return.
  // One thread at a time; host signal handlers are installed on the first call.
  virtual Exit Run() = 0;

  // Why Run() returned kFailed: one line for a person.
  virtual std::string failure() const { return {}; }

  // From a port or MMIO handler: makes VcpuState, of which only the general registers, RIP, the
  // flags and CR8 need be current in there, whole. It may be read then, not written.
  virtual void CompleteState() {}

  // From any thread or signal handler: Run() returns kStopped within a bounded time. A handler on
  // the VCPU's own thread must block all signals (sa_mask), so that the engine's own one finds
  // guest code interrupted, not the handler.
  virtual void RequestStop() = 0;
  // The same from a handler on the VCPU's own thread, which blocks all signals and has what it
  // interrupted in `context` (a ucontext_t): no further signal is needed.
  virtual void StopInHandler(void* context) = 0;
  // On the VCPU's own thread, from a port or MMIO handler or between runs: leave at the next
  // instruction boundary.
  virtual void RequestAttention() = 0;

  // IGNNE# is asserted, for as long as an x87 exception is pending: waiting instructions do not
  // wait for it. From a port or MMIO handler or between runs.
  virtual void IgnoreNumericError() = 0;

  // After the caller changed VcpuState (registers, segments, control registers) between runs.
  virtual void StateChanged() = 0;

  // Between runs: VCPU `to` has come into VcpuState in the place of `from`, whose state the caller
  // keeps. What the engine knows of each beside that follows. (Only the translating engine.)
  virtual void VcpuSwitched([[maybe_unused]] unsigned from, [[maybe_unused]] unsigned to) {}

  // Takes an external interrupt between runs (the caller has acknowledged it and knows that
  // vcpu::CanTakeInterrupt holds).
  virtual void InjectInterrupt(u8 vector) = 0;

  // --- A debugger outside the guest (see runtime/debug_points.h), between runs ---
  virtual const DebugPoints& debug_points() const = 0;
  // False: there is no room for more, or nothing like it to remove.
  virtual bool SetBreakpoint(LinearAddr pc, bool set) = 0;
  virtual bool SetWatch(const Watch& watch, bool set) = 0;
  // The next Run() executes one instruction, without taking interrupts, and returns kDebug.
  virtual void StepNext(bool step) = 0;
  virtual bool steps_next() const = 0;
  // The debugger has seen why Run() returned kDebug.
  virtual void ForgetDebugStop() = 0;

  // --- Events for logs and traces (see runtime/recorder.h), between runs ---
  virtual void set_event_observer(EventObserver* observer, u32 kinds) = 0;
  // All events go there too, until it is null again. Once in an engine's life.
  virtual void set_event_log(adapt::log::Ring* log) = 0;
  // On the VCPU's thread with the vector registers free: tells the observer what waits.
  virtual void DrainEvents() = 0;

  virtual const Counters& counters() const = 0;

  // Null: there never is any.
  virtual DetachedCode* detached() { return nullptr; }
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_ENGINE_H_
