// SPDX-License-Identifier: Apache-2.0
// The machine: memory, VCPUs with their shadow and engine, and the loop that runs them. What hangs
// on the buses is around it.
//
// Several VCPUs take turns on one thread (vcpus.cc). The one that runs has its state in the VCPU
// block, where translated code finds it; the others' are parked. A VCPU changes only between two
// instructions, so that each instruction is atomic to the others, and its turn ends when it halts,
// executes PAUSE over and over, or has had a millisecond while another one could run. One that has
// interrupted another and then executes PAUSE waits for an answer, which is there soon: it looks
// again after a short turn of the others, and after longer ones while it finds none. User code that
// an engine runs without the thread needs no turn (runtime::DetachedCode): it goes on, several at
// once, until it wants its kernel.
//
// Or they run beside each other (beside.cc): each has a thread and a core of its own, with an Mmu
// that is that VCPU's TLB and an engine with translations of its own. Everything outside guest code
// is done by whoever has the machine, one at a time. These threads are the machine's, all in one
// Run(), or they are its callers', for VCPUs that come and go by themselves (callers.cc).
#ifndef ALIBI_MACHINE_MACHINE_H_
#define ALIBI_MACHINE_MACHINE_H_

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "adapt/policy.h"
#include "base/result.h"
#include "base/simd_guard.h"
#include "base/turn_lock.h"
#include "base/types.h"
#include "machine/hosting.h"
#include "machine/surroundings.h"
#include "machine/vcpu_core.h"
#include "mmu/guest_memory.h"
#include "mmu/mmu.h"
#include "runtime/engine_kind.h"
#include "runtime/translating_engine.h"
#include "vcpu/cpuid.h"
#include "vcpu/memory.h"
#include "vcpu/platform.h"
#include "vcpu/state.h"

namespace alibi::hardware {
class Kvm;
}

namespace alibi::vmm {

class Debugger;
class MachineObserver;
enum class AccessKind : u8;

struct Counters {
#define ALIBI_VMM_COUNTER(name, what) u64 name = 0;
#include "machine/counters.inc"
#undef ALIBI_VMM_COUNTER
};

// Of one of several VCPUs.
struct VcpuCounters {
#define ALIBI_VCPU_COUNTER(name, what) u64 name = 0;
#include "machine/vcpu_counters.inc"
#undef ALIBI_VCPU_COUNTER
};

// A crossing from the guest's world to the devices', counted with its cycles while it lives.
class Crossing {
 public:
  Crossing(Counters* counters, u64 Counters::*count, u64 Counters::*cycles)
      : cycles_(&(counters->*cycles)), begin_(__builtin_ia32_rdtsc()) {
    ++(counters->*count);
  }
  ~Crossing() { *cycles_ += __builtin_ia32_rdtsc() - begin_; }
  Crossing(const Crossing&) = delete;
  Crossing& operator=(const Crossing&) = delete;

 private:
  u64* cycles_;
  u64 begin_;
};

// Of shadow tables; see mmu::ViewPool::kMaxChunks.
inline constexpr u64 kShadowChunkBytes = mmu::View::kChunkEntries * sizeof(u64);
inline constexpr u64 kMaxShadowBytes = mmu::ViewPool::kMaxChunks * kShadowChunkBytes;

struct MachineConfig {
  runtime::EngineKind engine = runtime::EngineKind::kTranslate;
  unsigned vcpus = 1;  // to vcpu::kMaxVcpus; several: not for EngineKind::kHardware
  // Several execute guest code beside each other. Not with observers, event logs, debuggers or
  // hypercalls, whose order there is none, and with Coherence::kEager alone.
  bool beside = false;
  bool callers_threads = false;  // ... each in its own RunVcpu(), instead of all in Run()
  mmu::Coherence coherence = mmu::Coherence::kEager;
  std::string policy = adapt::kDefaultPolicy;  // see adapt::MakePolicy
  // Which user code runs directly: see adapt::MakeEnginePolicy. "": the engine's own. Another one
  // is for EngineKind::kAuto alone.
  std::string engine_policy;
  // Told once of each, on the VCPU's thread between instructions, when a plug-in has misbehaved:
  // one line.
  std::function<void(const std::string&)> policy_report;
  u64 tc_bytes = u64{64} << 20;
  std::string store_folder;  // see runtime::TranslatingEngineOptions
  Hosting hosting;
  // VMCALL at CPL 0 asks the machine for what vcpu/hypercalls.inc lists. For engines that
  // translate.
  bool hypercalls = false;
  u64 shadow_bytes = kMaxShadowBytes;
  u64 arena_bytes = mmu::kDefaultArenaBytes;  // most guest memory there can be
  // What the guest is told of its CPU; it outlives the machine. Null: the host's model.
  const vcpu::CpuidPolicy* cpuid = nullptr;
  // See runtime::TranslatingEngineOptions; it outlives the machine. Null: nothing is counted.
  runtime::ExecutionSink* executions = nullptr;
};

enum class Stop : u8 {
  kRequested,  // RequestStop()
  kHalted,     // HLT, and the hooks do not wait
  kShutdown,   // triple fault
  kFailed,     // the engine cannot go on: runtime::Engine::failure()
};

class Machine final : private vcpu::PortIo,
                      private mmu::MmioHandler,
                      private vcpu::Platform,
                      private mmu::BesideVcpus {
 public:
  // What is `around` outlives the machine. The VCPU is in its power-up state, without memory.
  static Result<std::unique_ptr<Machine>> Create(const MachineConfig& config,
                                                 const Surroundings& around);
  ~Machine() override;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  mmu::GuestMemory& memory() { return *core_->memory; }
  mmu::Mmu& mmu() { return *mmu_; }
  runtime::Engine& engine() { return *engine_; }
  runtime::EngineKind engine_kind() const { return engine_kind_; }
  // The same one, for those who ask what only translating knows; null: another engine runs.
  runtime::TranslatingEngine* translator() { return translator_; }
  // Of the VCPU that runs; beside others: that has the machine.
  vcpu::VcpuState& state() { return *state_; }
  unsigned vcpus() const { return vcpus_; }
  unsigned running() const { return running_; }
  // See MachineConfig.
  bool beside() const { return beside_; }
  vcpu::VcpuState& state(unsigned vcpu) {
    if (vcpu == running_) return *state_;
    return beside_ ? *cores_[vcpu]->state : *parked_[vcpu];
  }
  // One, or one for each VCPU beside others. For those who add up what they have counted.
  const std::vector<std::unique_ptr<VcpuCore>>& cores() const { return cores_; }
  const vcpu::CpuidPolicy& cpuid() const { return *cpuid_; }
  const adapt::Policy& policy() const { return *policy_; }
  // Null: the engine has none.
  const adapt::EnginePolicy* engine_policy() const { return engine_policy_; }
  const Counters& counters() const { return counters_; }
  // Where there are several.
  VcpuCounters counters_of(unsigned vcpu) const;
  Crossing Cross(u64 Counters::*count, u64 Counters::*cycles) {
    return Crossing(&counters_, count, cycles);
  }
  // What devices count: `all` calls back with each counter. For those who show them.
  using CounterReport = std::function<void(const char* name, const char* what, u64 value)>;
  using DeviceCounters = std::function<void(const CounterReport&)>;
  void set_device_counters(DeviceCounters all) { device_counters_ = std::move(all); }
  void ForEachDeviceCounter(const CounterReport& report) const {
    if (device_counters_) device_counters_(report);
  }
  void NoteHiddenTime(u64 us) { counters_.hidden_us += us; }
  // Both outlive the machine's runs.
  void set_observer(MachineObserver* observer);
  void set_debugger(Debugger* debugger) { debugger_ = debugger; }

  // --- On the VCPU's thread ---
  Stop Run();
  // The VCPU's registers were changed from outside, between runs.
  void StateChanged();
  // What the interrupt controllers would answer has changed.
  void InterruptsChanged();
  // A reset, between runs: what hypercalls have announced is forgotten.
  void ForgetHypercalls() { mmu_->EndDeferral(); }
  void InterruptsChangedFor(unsigned vcpu);
  void RaiseNmi(unsigned vcpu);
  // A message to another VCPU than number 0, or to itself: see vcpu/reset.h.
  void InitVcpu(unsigned vcpu);
  void StartVcpu(unsigned vcpu, u8 vector);
  // Between runs: all VCPUs are as after power-up, with the time of `tsc_offset`, and number 0
  // runs.
  void ResetVcpus(i64 tsc_offset);
  // For a debugger, in Debugger::Turn(): the VCPU has its turn next, if it can run, and is the one
  // of state(), mmu() and the engine.
  void Select(unsigned vcpu);
  // A Turn() is due at this time (CLOCK_MONOTONIC, ns).
  static constexpr u64 kNoDeadline = StopTimer::kNever;
  void SetDeadline(u64 monotonic_ns) {
    deadline_ns_ = monotonic_ns;
    if (contended_) monotonic_ns = std::min(monotonic_ns, turn_end_ns_);
    timer().SetDeadline(std::min(monotonic_ns, room_ns_));
  }
  // From inside an access: Run() goes on with a Turn() at the next instruction boundary.
  void RequestTurn();
  // IGNNE#: see runtime::Engine.
  void IgnoreNumericError() { engine_->IgnoreNumericError(); }

  // Around a sleep in RunHooks::Idle(): other VCPUs may have the machine meanwhile.
  template <class F>
  void WithoutMachine(F sleep) {
    VcpuCore& core = *core_;
    if (beside_) Give(core);
    sleep();
    if (beside_) Take(core);
  }

  // --- callers.cc: VCPUs beside each other on their callers' threads ---
  // Runs this one up to a reason that it has itself. With one VCPU it is Run().
  Stop RunVcpu(unsigned vcpu);
  // On its thread, around what leaves an access in the middle: others may have the machine.
  void LeaveAccess(const std::function<void()>& leave);
  // During f() all is about this VCPU, which is not in RunVcpu() but inside LeaveAccess(), maybe.
  // The machine is taken, unless the caller has it for another one, inside an access.
  void AsVcpu(unsigned vcpu, bool inside_access, const std::function<void()>& f);
  // From any thread or signal handler: as RequestStop() and RequestTurnFromOutside(), of one.
  void RequestStopOf(unsigned vcpu);
  void RequestTurnOf(unsigned vcpu);

  // --- From any thread or signal handler ---
  // Run() returns kRequested; if it is not running, the next one does.
  void RequestStop();
  // Run() makes a Turn() soon. RunHooks::Idle() must be woken by its own means.
  void RequestTurnFromOutside();
  bool stop_requested() const { return stop_.load(std::memory_order_acquire); }

 private:
  explicit Machine(const Surroundings& around)
      : io_(around.io), interrupts_(around.interrupts), hooks_(around.hooks) {}
  friend class VcpuCore;

  Status Init(const MachineConfig& config);
  Status CreateCore(const MachineConfig& config, std::unique_ptr<hardware::Kvm> kvm);
  Status CreateTranslator(const MachineConfig& config, const runtime::EngineOptions& common,
                          VcpuCore* core);
  // Whose thread's signals tell of deadlines.
  StopTimer& timer() { return cores_[0]->stop_timer; }
  void Use(VcpuCore& core);
  Stop Loop();
  void TakeInterrupts();
  void ReportPolicy();

  // --- vcpus.cc: whose turn it is ---
  void CreateParked(unsigned vcpus);
  void ChooseVcpu();
  void TakeInit();
  bool Waits(unsigned vcpu);
  unsigned NextRunnable();
  void SwitchTo(unsigned vcpu);
  void NoticeWork(unsigned vcpu);
  bool Sleep();
  bool WaitForDetached();
  void ReturnDetached();
  void ReturnAll();
  void MakeRoom();
  bool IsDetached(unsigned vcpu) {
    return engine_->detached() != nullptr && engine_->detached()->Is(vcpu);
  }
  void DropDetached(unsigned vcpu) {
    if (IsDetached(vcpu)) engine_->detached()->Drop(vcpu);
  }
  void NoteQuestion(unsigned vcpu);
  u64 TurnNs(unsigned from, unsigned to, u64 now);

  // --- beside.cc: VCPUs on threads of their own ---
  Status StartThreads();
  void EndThreads();
  void GiveToVcpus();
  void TakeFromVcpus();
  Stop RunBeside();
  void RunCore(VcpuCore& core);
  std::optional<Stop> StepCore(VcpuCore& core);
  std::optional<Stop> RunEngine(VcpuCore& core);
  void SleepUntilKicked(VcpuCore& core);
  std::optional<Stop> SleepServing(VcpuCore& core);
  void EndBeside(Stop stop);
  void InterruptBeside(unsigned vcpu);
  void InitBeside(unsigned vcpu);
  void StartBeside(unsigned vcpu, u8 vector);
  void Kick(unsigned vcpu);

  // --- callers.cc ---
  Stop LoopOfCaller(VcpuCore& core);

  // --- gate.cc: who has the machine. Called with the guest's vector state live ---
  void Take(VcpuCore& core);
  bool TryTake(VcpuCore& core);
  void NoteTaken(VcpuCore& core);
  void Give(VcpuCore& core);
  bool HasMachine(unsigned vcpu) override;
  bool TakeMachine(unsigned vcpu) override;
  void StopBeside(unsigned vcpu) override;
  void HoldBeside(unsigned vcpu) override;
  void EndHoldBeside(unsigned vcpu) override;
  void AttendBeside(unsigned vcpu) override;

  // --- access.cc: called with the guest's vector state live ---
  void Observe(AccessKind kind, u64 address, unsigned size, u64 value);
  u32 In(u16 port, unsigned size) override;
  void Out(u16 port, unsigned size, u32 value) override;
  bool KeepsLatches() const { return observer_ == nullptr && !beside_; }
  PortLatch FixedLatch(u16 port, unsigned size) override;
  void KeepLatch(u16 port, unsigned size);
  void CheckLatches();
  u64 MmioRead(PhysAddr address, unsigned size) override;
  void MmioWrite(PhysAddr address, unsigned size, u64 value) override;
  void ApicBaseWritten() override;
  void TaskPriorityWritten() override;
  void TscWritten() override;
  void TscReading(u64 host_tsc) override;
  void Pausing() override;
  void UserCodeStopped() override { RequestTurnFromOutside(); }
  bool NumericError() override;
  bool ReadApicMsr(u32 index, u64* value) override;
  bool WriteApicMsr(u32 index, u64 value) override;
  bool OffersHypercalls() const override { return hypercalls_; }
  void Hypercall(const vcpu::HypercallArguments& arguments, u64* result) override;
  bool PeekLocalApic(u64 offset, u64* value);

  IoSpace& io_;
  Interrupts& interrupts_;
  RunHooks& hooks_;
  SimdState simd_;
  Counters counters_;
  DeviceCounters device_counters_;
  MachineObserver* observer_ = nullptr;
  Debugger* debugger_ = nullptr;
  unsigned vcpus_ = 0;
  bool beside_ = false;
  bool callers_threads_ = false;
  // One, or one for each VCPU beside others; the one that is used now, and what it has.
  mmu::MmuGroup group_;
  std::vector<std::unique_ptr<VcpuCore>> cores_;
  VcpuCore* core_ = nullptr;
  vcpu::VcpuState* state_ = nullptr;
  mmu::Mmu* mmu_ = nullptr;
  runtime::Engine* engine_ = nullptr;
  runtime::TranslatingEngine* translator_ = nullptr;
  adapt::Policy* policy_ = nullptr;
  adapt::EnginePolicy* engine_policy_ = nullptr;
  TurnLock lock_;            // of the machine, where VCPUs run beside each other
  std::optional<Stop> end_;  // of all of them
  // Of all but the first one. A run begins when `runs_` changes.
  std::vector<std::thread> threads_;
  std::atomic<u32> runs_ = 0, threads_in_run_ = 0;
  bool quits_ = false;
  bool real_time_ = false;  // they run under such a policy
  const vcpu::CpuidPolicy* cpuid_ = nullptr;
  std::optional<vcpu::CpuidPolicy> limited_cpuid_;  // what the engine can run of the configured one
  std::function<void(const std::string&)> policy_report_;
  bool policy_reported_ = false, engine_policy_reported_ = false;
  runtime::EngineKind engine_kind_ = runtime::EngineKind::kTranslate;
  u64 deadline_ns_ = kNoDeadline;
  // By number; the running one's is out of date.
  std::vector<std::unique_ptr<vcpu::VcpuState>> parked_;
  unsigned running_ = 0;
  bool contended_ = false;  // another VCPU could run, too
  bool yields_ = false;     // the running one has nothing better to do
  unsigned pauses_ = 0;     // in its turn
  u64 turn_begin_ns_ = 0, turn_end_ns_ = 0;
  std::vector<u64> detached_ns_;  // when its user code was detached
  // When detached code that takes the thread's CPU shall go elsewhere.
  u64 room_ns_ = kNoDeadline;
  // Of a VCPU that has interrupted another one, up to the end of a turn that it does not yield.
  struct Question {
    bool asked = false;
    u8 looks = 0;  // turns since then that it has yielded
  };
  std::vector<Question> questions_;
  static constexpr unsigned kNobody = ~0u;
  unsigned waiter_ = kNobody;  // has yielded, and others' turns are short until it runs again
  u64 short_turn_ns_ = 0;
  u64 look_ns_ = 0;  // what a turn costs that only finds that there is no answer yet
  std::vector<VcpuCounters> vcpu_counters_;  // turn_us: without the turn that it has now
  bool hypercalls_ = false;
  std::atomic<bool> stop_ = false;
};

}  // namespace alibi::vmm

#endif  // ALIBI_MACHINE_MACHINE_H_
