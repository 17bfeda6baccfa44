// SPDX-License-Identifier: Apache-2.0
// What executes guest code: a VCPU block, an Mmu over memory, an engine. A machine whose VCPUs take
// turns has one; where they run beside each other, each has its own.
#ifndef ALIBI_MACHINE_VCPU_CORE_H_
#define ALIBI_MACHINE_VCPU_CORE_H_

#include <atomic>
#include <memory>
#include <optional>

#include "adapt/policy.h"
#include "base/turn_lock.h"
#include "base/types.h"
#include "machine/stop_timer.h"
#include "mmu/guest_memory.h"
#include "mmu/mmu.h"
#include "runtime/translating_engine.h"
#include "vcpu/guest_gate.h"
#include "vcpu/memory.h"
#include "vcpu/platform.h"
#include "vcpu/state.h"

namespace alibi::vmm {

class Machine;

// Where its VCPU is beside others: in guest code; outside it, with what is its own (the core, which
// it then holds); or there with the machine, or waiting for that.
class VcpuCore final : public vcpu::GuestGate,
                       public vcpu::PortIo,
                       public mmu::MmioHandler,
                       public vcpu::Platform {
 public:
  VcpuCore(Machine& owner, unsigned vcpu) : machine(owner), number(vcpu) {}
  ~VcpuCore() override;
  VcpuCore(const VcpuCore&) = delete;
  VcpuCore& operator=(const VcpuCore&) = delete;
  // The block, empty. An error says in a line what the host lacks.
  Status CreateBlock();

  // --- vcpu::GuestGate (gate.cc) ---
  void EnterGuest() override;
  void LeaveGuest() override;
  // The thread holds the core. See mmu::BesideVcpus.
  bool TakeMachine();
  Machine& Shared() {
    TakeMachine();
    return machine;
  }
  // Something waits for an instruction boundary.
  bool IsWanted() const { return __atomic_load_n(&state->stop_requested, __ATOMIC_SEQ_CST) != 0; }

  // --- core_access.cc: the machine's, once the VCPU has that ---
  u32 In(u16 port, unsigned size) override;
  void Out(u16 port, unsigned size, u32 value) override;
  u64 MmioRead(PhysAddr address, unsigned size) override;
  void MmioWrite(PhysAddr address, unsigned size, u64 value) override;
  void ApicBaseWritten() override;
  void TaskPriorityWritten() override;
  void TscWritten() override;
  void TscReading(u64 host_tsc) override;
  void UserCodeStopped() override;
  void Pausing() override;
  bool NumericError() override;
  bool ReadApicMsr(u32 index, u64* value) override;
  bool WriteApicMsr(u32 index, u64 value) override;

  Machine& machine;
  const unsigned number;
  int vcpu_fd = -1;
  vcpu::VcpuState* state = nullptr;
  std::unique_ptr<mmu::GuestMemory> memory;
  std::unique_ptr<adapt::Policy> policy;
  std::unique_ptr<adapt::EnginePolicy> engine_policy;  // null: the engine has none
  std::unique_ptr<mmu::Mmu> mmu;
  std::unique_ptr<runtime::Engine> engine;
  runtime::TranslatingEngine* translator = nullptr;  // the engine, if it is one
  StopTimer stop_timer;

  bool in_engine = false;     // Engine::Run() is on the thread's stack
  bool init = false;          // an INIT has come, for the next instruction boundary
  std::optional<u8> startup;  // and a startup IPI behind it
  // Beside others: what the VCPU has outside guest code. Another thread, which has the machine,
  // holds it for moments.
  TurnLock core_lock;
  // It executes guest code, or holds its core; it neither has the machine nor waits for it.
  std::atomic<bool> in_guest = false;
  bool has_machine = false;  // of its thread
  unsigned pauses = 0;
  std::atomic<bool> stop = false;  // its caller's Machine::RunVcpu() is to return
  // It sleeps while `wakes` stays the same.
  bool sleeps = false;
  std::atomic<u32> wakes = 0;
  bool looks_before_sleep = false;
};

}  // namespace alibi::vmm

#endif  // ALIBI_MACHINE_VCPU_CORE_H_
