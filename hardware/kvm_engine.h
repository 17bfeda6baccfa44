// SPDX-License-Identifier: Apache-2.0
#ifndef ALIBI_HARDWARE_KVM_ENGINE_H_
#define ALIBI_HARDWARE_KVM_ENGINE_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "hardware/debug_registers.h"
#include "hardware/hardware_engine.h"
#include "hardware/kvm.h"
#include "hardware/kvm_memory.h"
#include "hardware/kvm_state.h"
#include "runtime/engine.h"
#include "simulator/simulator.h"

namespace alibi::hardware {

// What KVM holds of the VCPU, as it was read or written last: only what differs is written.
struct KvmImage {
  bool valid = false;
  kvm_regs regs;
  kvm_sregs sregs;
  kvm_debugregs debug;
  kvm_xcrs xcrs;
  kvm_xsave xsave;
  kvm_vcpu_events events;
  u64 msrs[std::size(kSharedMsrs)];
  i64 tsc_offset;
};

class KvmEngine final : public runtime::Engine, private mmu::TraceListener {
 public:
  KvmEngine(std::unique_ptr<Kvm> kvm, const runtime::EngineOptions& options);
  ~KvmEngine() override;
  Status Init();

  // --- runtime::Engine ---
  runtime::Exit Run() override;
  std::string failure() const override { return failure_; }
  void CompleteState() override;
  void RequestStop() override;
  void StopInHandler(void* context) override;
  void RequestAttention() override;
  // KVM raises #MF, whatever CR0.NE says: nothing ever waits for IGNNE#.
  void IgnoreNumericError() override {}
  void StateChanged() override;
  void InjectInterrupt(u8 vector) override;
  const runtime::DebugPoints& debug_points() const override { return points_; }
  bool SetBreakpoint(LinearAddr pc, bool set) override;
  bool SetWatch(const runtime::Watch& watch, bool set) override;
  void StepNext(bool step) override { step_next_ = step; }
  bool steps_next() const override { return step_next_; }
  void ForgetDebugStop() override { points_.Forget(); }
  // What happens inside the guest stays there: there are no events.
  void set_event_observer(runtime::EventObserver*, u32) override {}
  void set_event_log(adapt::log::Ring*) override {}
  void DrainEvents() override {}
  const runtime::Counters& counters() const override { return counters_; }

 private:
  // Go on in the guest, or leave Run() with that.
  using Next = std::optional<runtime::Exit>;

  void CodeWritten(PhysAddr, u64) override {}  // nothing is ever under a code trace
  void MemoryMapChanged() override { memory_map_changed_ = true; }

  Status FilterMsrs();
  Next Before();
  runtime::Exit Enter();
  Next RunOnce();
  Next OnExit();
  Next OnIo();
  Next OnMmio();
  Next OnReadMsr();
  Next OnWriteMsr();
  Next OnHalt();
  Next OnDebug();
  Next OnEmulationFailure();
  runtime::Exit Fail(const std::string& what);

  bool PutState();
  void TakeState();
  void TakeHotState();
  bool PutMsrs();
  void TakeMsrs();
  bool PutTscOffset();
  bool PutGuestDebug();
  void DeliverLeftovers();
  void DeliverInjected();
  void FollowState();
  bool Put(unsigned long request, void* argument, const char* what);
  void Take(unsigned long request, void* argument, const char* what);

  runtime::EngineOptions options_;
  vcpu::VcpuState& state_;
  mmu::Mmu& mmu_;
  std::unique_ptr<Kvm> kvm_;
  kvm_run& run_;
  KvmMemory memory_;
  simulator::SimulatorContext simulator_;
  bool memory_map_changed_ = true;
  KvmImage image_;
  std::string failure_;
  std::optional<u8> injected_;  // acknowledged, and not delivered yet
  std::atomic<bool> running_ = false;
  int thread_id_ = 0;
  runtime::DebugPoints points_;
  DebugRegisters debug_registers_;
  bool step_next_ = false;
  bool debug_dirty_ = false;  // KVM knows of points or steps
  runtime::Counters counters_;
};

}  // namespace alibi::hardware

#endif  // ALIBI_HARDWARE_KVM_ENGINE_H_
