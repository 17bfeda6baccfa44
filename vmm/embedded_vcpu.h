// SPDX-License-Identifier: Apache-2.0
// A VCPU as embedders have it. Accesses that no handler answers leave Run() in the middle of the
// instruction: the machine's loop is on a stack of its own.
#ifndef ALIBI_VMM_EMBEDDED_VCPU_H_
#define ALIBI_VMM_EMBEDDED_VCPU_H_

#include <atomic>
#include <memory>
#include <mutex>

#include "alibi/vcpu.h"
#include "base/types.h"
#include "machine/fiber.h"
#include "machine/machine.h"

namespace alibi::vmm {

// Vectors that wait for the VCPU; any thread sets, the VCPU's takes.
class PendingVectors {
 public:
  void Set(u8 vector) { words_[vector >> 6].fetch_or(u64{1} << (vector & 63)); }
  // -1: none.
  int Highest() const {
    for (int word = 3; word >= 0; --word) {
      if (const u64 bits = words_[word].load()) return word * 64 + 63 - __builtin_clzll(bits);
    }
    return -1;
  }
  void Clear(u8 vector) { words_[vector >> 6].fetch_and(~(u64{1} << (vector & 63))); }

 private:
  std::atomic<u64> words_[4] = {};
};

class EmbeddedVcpu final : public Vcpu {
 public:
  explicit EmbeddedVcpu(unsigned number) : number_(number) {}
  Status Init(Machine* machine);
  // An instruction that waits for data ends, so that nothing of the engine stays on the fiber.
  void Finish();

  // --- Vcpu ---
  Exit& Run() override;
  Registers GetRegisters() const override;
  Status SetRegisters(const Registers& registers) override;
  SpecialRegisters GetSpecialRegisters() const override;
  Status SetSpecialRegisters(const SpecialRegisters& r) override;
  Result<std::uint64_t> GetMsr(std::uint32_t index) const override;
  Status SetMsr(std::uint32_t index, std::uint64_t value) override;
  Status GetXsave(void* area) const override;
  Status SetXsave(const void* area) override;
  std::string Failure() const override { return core().engine->failure(); }
  void InjectInterrupt(std::uint8_t vector) override {
    pending_.Set(vector);
    machine_->RequestTurnOf(number_);
  }
  void InjectNmi() override {
    nmi_.store(true);
    machine_->RequestTurnOf(number_);
  }
  void RequestExit() override { machine_->RequestStopOf(number_); }

  // --- For the board, on the VCPU's thread ---
  u32 LeaveForPort(bool out, u16 port, unsigned size, u32 value);
  u64 LeaveForMmio(bool write, u64 address, unsigned size, u64 value);
  PendingVectors& pending() { return pending_; }
  bool TakeNmi() { return nmi_.exchange(false); }

  // --- For the machine's other calls ---
  // Where this thread is: in a handler of a VCPU's; where a VCPU has left Run() inside an
  // instruction. Null: nowhere, or with another machine.
  static EmbeddedVcpu* InHandlerOf(const Machine& machine);
  static EmbeddedVcpu* SuspendedHereOf(const Machine& machine);
  // Calls f() with the machine, for this VCPU. False: it runs, or (where it must not) is inside an
  // instruction.
  template <class F>
  bool TryAs(bool may_be_inside, F f) {
    if (machine_->vcpus() == 1) {
      f();
      return true;
    }
    const EmbeddedVcpu* const in_handler = InHandlerOf(*machine_);
    if (in_handler == this) return false;
    const std::unique_lock<std::mutex> used(use_, std::try_to_lock);
    if (!used || (inside_ && !may_be_inside)) return false;
    machine_->AsVcpu(number_, in_handler != nullptr, f);
    return true;
  }

 private:
  [[noreturn]] void Body();
  void LeaveInsideInstruction();
  Status NotInsideInstruction() const;
  // Calls f(), which changes the VCPU and may refuse to.
  template <class F>
  Status Change(F f);
  VcpuCore& core() const { return *machine_->cores()[number_]; }
  vcpu::VcpuState& state() const { return *core().state; }

  const unsigned number_;
  Machine* machine_ = nullptr;
  std::unique_ptr<Fiber> fiber_;
  PendingVectors pending_;
  std::atomic<bool> nmi_ = false;
  Exit exit_;
  // With several VCPUs: held by whoever runs this one, or looks after it between runs.
  std::mutex use_;
  bool inside_ = false;
  bool finishing_ = false;
};

}  // namespace alibi::vmm

#endif  // ALIBI_VMM_EMBEDDED_VCPU_H_
