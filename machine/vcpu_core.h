// SPDX-License-Identifier: Apache-2.0
// What executes guest code: a VCPU block, an Mmu over memory, an engine. A machine whose VCPUs take
// turns has one; where they run beside each other, each has its own.
#ifndef ALIBI_MACHINE_VCPU_CORE_H_
#define ALIBI_MACHINE_VCPU_CORE_H_

#include <atomic>
#include <memory>
#include <optional>

#include "adapt/policy.h"
#include "base/types.h"
#include "machine/stop_timer.h"
#include "mmu/guest_memory.h"
#include "mmu/mmu.h"
#include "runtime/translating_engine.h"
#include "vcpu/guest_gate.h"
#include "vcpu/state.h"

namespace alibi::vmm {

class Machine;

class VcpuCore final : public vcpu::GuestGate {
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
  // Beside others: executes guest code, or is about to; does not have the machine.
  std::atomic<bool> in_guest = false;
  bool has_machine = false;        // of its thread
  std::atomic<bool> stop = false;  // its caller's Machine::RunVcpu() is to return
  // It sleeps while `wakes` stays the same.
  bool sleeps = false;
  std::atomic<u32> wakes = 0;
};

}  // namespace alibi::vmm

#endif  // ALIBI_MACHINE_VCPU_CORE_H_
