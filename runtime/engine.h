// SPDX-License-Identifier: Apache-2.0
// The engine runs one VCPU in translated code: dispatch, chaining, callouts, host faults,
// adaptation, invalidation. Everything above it sees only Run() and its exits.
#ifndef ALIBI_RUNTIME_ENGINE_H_
#define ALIBI_RUNTIME_ENGINE_H_

#include <functional>
#include <memory>
#include <string>

#include "adapt/policy.h"
#include "adapt/site_table.h"
#include "base/result.h"
#include "mmu/mmu.h"
#include "runtime/debug_points.h"
#include "runtime/recorder.h"
#include "vcpu/cpuid.h"
#include "vcpu/memory.h"
#include "vcpu/platform.h"
#include "vcpu/state.h"

namespace alibi {
struct StubTable;
}  // namespace alibi

namespace alibi::translator {
struct Ccf;
struct ExecutionCounts;
struct Instr;
struct SitePlan;
}  // namespace alibi::translator

namespace alibi::runtime {

// Plain counters of this engine; see counters.inc for what each means.
struct Counters {
#define ALIBI_COUNTER(name, what) u64 name = 0;
#include "runtime/counters.inc"
#undef ALIBI_COUNTER
};

enum class Exit : u8 {
  kStopped,          // RequestStop(), or a device asked for attention
  kHalted,           // HLT: wait for an interrupt
  kShutdown,         // triple fault
  kInterruptWindow,  // irq_pending is set and the VCPU can take an interrupt now
  kDebug,            // a debugger's point was met: see debug_points().stop()
};

// For tests and experiments: how sites are translated, over what the site table says.
class PlanOverride {
 public:
  virtual ~PlanOverride() = default;
  virtual void Override(const translator::Instr& instr, translator::SitePlan* plan) = 0;
  // At most this many instructions per TU.
  virtual unsigned MaxInstructions() const = 0;
};

// Takes what translations have counted: each one before it is thrown away, and all of them when
// they are asked for (Engine::CollectExecutions). Nothing is told twice.
class ExecutionSink {
 public:
  virtual ~ExecutionSink() = default;
  virtual void OnExecutions(const translator::Ccf& ccf,
                            const translator::ExecutionCounts& counts) = 0;
};

struct EngineOptions {
  mmu::Mmu* mmu = nullptr;
  mmu::GuestMemory* memory = nullptr;
  vcpu::VcpuState* state = nullptr;
  vcpu::PortIo* ports = nullptr;
  vcpu::Platform* platform = nullptr;
  const vcpu::CpuidPolicy* cpuid = nullptr;
  adapt::Policy* policy = nullptr;
  PlanOverride* plan_override = nullptr;
  ExecutionSink* executions = nullptr;  // not null: translations count how often they run
  u64 tc_bytes = u64{64} << 20;         // of translations; at least 1 MB
};

// What the guest can make grow; now, at most so far, at most ever.
struct MemoryUse {
  u64 tc_bytes, tc_bytes_peak, tc_bytes_bound;
  u64 ccfs, ccfs_peak, ccfs_bound;
};

// What a dump of one translation needs (see `alibi dump`).
class TranslationObserver {
 public:
  virtual ~TranslationObserver() = default;
  virtual void OnTranslation(const translator::Ccf& ccf) = 0;
  virtual void OnAdaptation(const translator::Ccf& from, const translator::Ccf& to) = 0;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  virtual ~Engine() = default;

  // Runs until one of the exits. The state is precise and at an instruction boundary on return.
  // One thread at a time; host signal handlers are installed on the first call.
  virtual Exit Run() = 0;

  // From any thread or signal handler: Run() returns kStopped within a bounded time (the running
  // CCF's exits are unlinked). A handler on the VCPU's own thread must block all signals (sa_mask),
  // so that the engine's own one finds translated code interrupted, not the handler.
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

  // Takes an external interrupt between runs (the caller has acknowledged it and knows that
  // vcpu::CanTakeInterrupt holds).
  virtual void InjectInterrupt(u8 vector) = 0;

  // --- A debugger outside the guest (see runtime/debug_points.h), between runs ---
  virtual const DebugPoints& debug_points() const = 0;
  // False: there is no room for more, or nothing like it to remove.
  virtual bool SetBreakpoint(u64 pc, bool set) = 0;
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
  virtual const adapt::SiteTable& sites() const = 0;
  virtual const adapt::Prices& prices() const = 0;
  virtual void set_translation_observer(TranslationObserver* observer) = 0;
  // Between runs: tells EngineOptions::executions what was counted since it was told last.
  virtual void CollectExecutions() = 0;
  virtual u64 tc_bytes_used() const = 0;
  virtual MemoryUse memory_use() const = 0;
  // Where a host address in the TC came from, for crash reports.
  virtual std::string DescribeHostPc(u64 host_pc) const = 0;
  // Where emitted code may jump to, for those who verify it.
  virtual const StubTable& stub_table() const = 0;
  // The translation that runs at `pc` now (null: none), for dumps and tests.
  virtual const translator::Ccf* FindCcf(u64 pc) const = 0;
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_ENGINE_H_
