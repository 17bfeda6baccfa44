// SPDX-License-Identifier: Apache-2.0
// The embedding API over the machine: its board answers accesses by the embedder's handlers, or by
// leaving Run() in the middle of the instruction.
#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "alibi/machine.h"
#include "alibi/vcpu.h"
#include "inspect/add_words.h"
#include "machine/cpu_model.h"
#include "machine/host_check.h"
#include "machine/machine.h"
#include "mmu/counters.h"
#include "runtime/engine_kind.h"
#include "vcpu/control_registers.h"
#include "vmm/embedded_vcpu.h"
#include "vmm/handler_ranges.h"

namespace alibi {
namespace {

SegmentRegister FlatSegment(u16 selector, u8 type) {
  SegmentRegister r;
  r.limit = 0xffffffff;
  r.selector = selector;
  r.type = type;
  r.present = r.db = r.s = r.g = 1;
  return r;
}

Result<vcpu::CpuidPolicy> CpuidOfEmbedders(const std::string& cpu) {
  auto chosen = vmm::ChooseCpu(cpu);
  if (!chosen.ok()) return chosen.error();
  if (chosen->enforce && !chosen->lacking.empty()) return Error{chosen->lacking};
  chosen->policy.HideApicMsrs();
  return std::move(chosen->policy);
}

// What surrounds the VCPUs: all calls are about the one that has the machine.
class Board final : public vmm::IoSpace, public vmm::Interrupts, public vmm::RunHooks {
 public:
  explicit Board(unsigned vcpus) {
    for (unsigned i = 0; i < vcpus; ++i) vcpus_.push_back(std::make_unique<vmm::EmbeddedVcpu>(i));
  }
  Status Attach(vmm::Machine* machine) {
    machine_ = machine;
    for (auto& vcpu : vcpus_) {
      if (Status made = vcpu->Init(machine); !made.ok()) return made;
    }
    return Ok{};
  }
  vmm::EmbeddedVcpu& vcpu(unsigned number) { return *vcpus_[number]; }
  unsigned vcpus() const { return static_cast<unsigned>(vcpus_.size()); }
  vmm::EmbeddedVcpu& Current() { return *vcpus_[machine_ != nullptr ? machine_->running() : 0]; }

  Status HandlePorts(u16 first, u32 count, PortHandler& handler) {
    return ports_.Add("ports", first, count, 0x10000, handler);
  }
  Status HandleMmio(u64 base, u64 size, MmioHandler& handler) {
    return mmio_.Add("device memory", base, size, mmu::kPhysLimit, handler);
  }

  // --- IoSpace ---
  u32 PortRead(u16 port, unsigned size) override {
    if (PortHandler* handler = ports_.Find(port)) return handler->In(port, size);
    return Current().LeaveForPort(/*out=*/false, port, size, ~u32{0});
  }
  void PortWrite(u16 port, unsigned size, u32 value) override {
    if (PortHandler* handler = ports_.Find(port)) return handler->Out(port, size, value);
    Current().LeaveForPort(/*out=*/true, port, size, value);
  }
  u64 MmioRead(PhysAddr address, unsigned size) override {
    if (MmioHandler* handler = mmio_.Find(address.value)) return handler->Read(address.value, size);
    return Current().LeaveForMmio(/*write=*/false, address.value, size, ~u64{0});
  }
  void MmioWrite(PhysAddr address, unsigned size, u64 value) override {
    if (MmioHandler* handler = mmio_.Find(address.value)) {
      return handler->Write(address.value, size, value);
    }
    Current().LeaveForMmio(/*write=*/true, address.value, size, value);
  }

  // --- Interrupts ---
  bool InterruptPending(u8 cr8) override { return Current().pending().Highest() >> 4 > cr8; }
  u8 Acknowledge() override {
    const u8 vector = static_cast<u8>(Current().pending().Highest());
    Current().pending().Clear(vector);
    return vector;
  }
  bool HeldByPriority(u8 cr8) override {
    const int highest = Current().pending().Highest();
    return highest >= 0 && highest >> 4 <= cr8;
  }

  // --- RunHooks ---
  void Turn() override {
    if (Current().TakeNmi()) machine_->state().nmi_pending = 1;
  }
  bool Idle() override { return false; }

 private:
  vmm::Machine* machine_ = nullptr;
  vmm::HandlerRanges<PortHandler> ports_;
  vmm::HandlerRanges<MmioHandler> mmio_;
  std::vector<std::unique_ptr<vmm::EmbeddedVcpu>> vcpus_;
};

class MachineImpl final : public Machine {
 public:
  ~MachineImpl() override {
    if (board_ == nullptr || machine_ == nullptr) return;
    for (unsigned i = 0; i < board_->vcpus(); ++i) board_->vcpu(i).Finish();
  }
  Status Init(const MachineOptions& options);

  Result<void*> AddMemory(std::uint64_t guest_physical, std::uint64_t size,
                          std::uint32_t flags) override;
  Status RemoveMemory(std::uint64_t guest_physical) override;
  bool ReadMemory(std::uint64_t guest_physical, void* to, std::uint64_t size) const override;
  bool WriteMemory(std::uint64_t guest_physical, const void* from, std::uint64_t size) override;
  Status HandlePorts(std::uint16_t first, std::uint32_t count, PortHandler& handler) override {
    return Change([&] { return board_->HandlePorts(first, count, handler); });
  }
  Status HandleMmio(std::uint64_t base, std::uint64_t size, MmioHandler& handler) override {
    return Change([&] { return board_->HandleMmio(base, size, handler); });
  }
  Result<Vcpu*> CreateVcpu() override;
  Vcpu* CurrentVcpu() override { return vmm::EmbeddedVcpu::InHandlerOf(*machine_); }
  std::vector<CounterValue> Counters() const override;

 private:
  template <class F>
  bool WithMachine(F f) const;
  template <class F>
  Status Change(F f);

  vcpu::CpuidPolicy cpuid_;
  std::unique_ptr<Board> board_;  // outlives the machine that calls it
  std::unique_ptr<vmm::Machine> machine_;
  unsigned created_ = 0;
};

Status MachineImpl::Init(const MachineOptions& options) {
  if (Status host = vmm::CheckHost(vmm::ReadHostFeatures()); !host.ok()) return host;
  constexpr u64 kMin = u64{1} << 20, kMax = u64{1} << 30;
  if (options.translation_cache_bytes < kMin || options.translation_cache_bytes > kMax) {
    return Error{"translation_cache_bytes: give 1 MB to 1 GB"};
  }
  if (options.vcpus - 1 >= vcpu::kMaxVcpus) {
    return Error{fmt::format("vcpus: give 1 to {}", unsigned{vcpu::kMaxVcpus})};
  }
  auto cpuid = CpuidOfEmbedders(options.cpu);
  if (!cpuid.ok()) return cpuid.error();
  cpuid_ = std::move(*cpuid);
  vmm::MachineConfig config;
  auto engine = runtime::ParseEngineKind(options.engine);
  if (!engine.ok()) return engine.error();
  config.engine = *engine;
  auto coherence = mmu::ParseCoherence(options.coherence);
  if (!coherence.ok()) return coherence.error();
  if (options.vcpus > 1 && *coherence != mmu::Coherence::kEager) {
    return Error{"coherence: with several VCPUs there is eager alone"};
  }
  config.vcpus = options.vcpus;
  config.beside = config.callers_threads = true;
  config.policy = options.policy;
  config.engine_policy = options.engine_policy;
  config.coherence = *coherence;
  config.cpuid = &cpuid_;
  config.tc_bytes = options.translation_cache_bytes & ~kPageMask;
  config.arena_bytes = options.most_memory_bytes;
  config.store_folder = options.translation_store;
  board_ = std::make_unique<Board>(options.vcpus);
  auto machine = vmm::Machine::Create(config, {*board_, *board_, *board_});
  if (!machine.ok()) return machine.error();
  machine_ = std::move(*machine);
  return board_->Attach(machine_.get());
}

// Calls f() with the machine, which a thread may have already. Else some VCPU takes it that nobody
// uses. False: there is none.
template <class F>
bool MachineImpl::WithMachine(F f) const {
  if (vmm::EmbeddedVcpu::InHandlerOf(*machine_) != nullptr) {
    f();
    return true;
  }
  if (vmm::EmbeddedVcpu* here = vmm::EmbeddedVcpu::SuspendedHereOf(*machine_)) {
    return here->TryAs(/*may_be_inside=*/true, f);
  }
  for (unsigned i = 0; i < board_->vcpus(); ++i) {
    if (board_->vcpu(i).TryAs(/*may_be_inside=*/false, f)) return true;
  }
  return false;
}

// f() changes what all VCPUs have.
template <class F>
Status MachineImpl::Change(F f) {
  Status status = Error{"all VCPUs run; do it from a handler, or when one has left Run()"};
  WithMachine([&] { status = f(); });
  return status;
}

Result<void*> MachineImpl::AddMemory(std::uint64_t guest_physical, std::uint64_t size,
                                     std::uint32_t flags) {
  Status added = Change([&] {
    return machine_->memory().AddSlot(PhysAddr(guest_physical), size,
                                      (flags & kMemoryReadOnly) != 0);
  });
  if (!added.ok()) return added.error();
  return static_cast<void*>(machine_->memory().HostRw(PhysAddr(guest_physical)));
}

Status MachineImpl::RemoveMemory(std::uint64_t guest_physical) {
  return Change([&] { return machine_->memory().RemoveSlot(PhysAddr(guest_physical)); });
}

bool MachineImpl::ReadMemory(std::uint64_t guest_physical, void* to, std::uint64_t size) const {
  bool read = false;
  WithMachine([&] {
    read = machine_->memory().IsBacked(PhysAddr(guest_physical), size);
    if (read) machine_->memory().ReadPhys(PhysAddr(guest_physical), to, size);
  });
  return read;
}

bool MachineImpl::WriteMemory(std::uint64_t guest_physical, const void* from, std::uint64_t size) {
  bool written = false;
  WithMachine([&] { written = machine_->memory().LoadPhys(PhysAddr(guest_physical), from, size); });
  return written;
}

Result<Vcpu*> MachineImpl::CreateVcpu() {
  if (created_ == board_->vcpus()) {
    return Error{fmt::format("all VCPUs exist already: MachineOptions::vcpus is {}", created_)};
  }
  return static_cast<Vcpu*>(&board_->vcpu(created_++));
}

std::vector<CounterValue> MachineImpl::Counters() const {
  std::vector<CounterValue> all;
  auto add = [&all](const char* name, const char* meaning, u64 value) {
    all.push_back({name, meaning, value});
  };
  runtime::Counters engine{};
  mmu::Counters mmu{};
  for (const auto& core : machine_->cores()) {
    vmm::AddWords(core->engine->counters(), &engine);
    vmm::AddWords(core->mmu->counters(), &mmu);
  }
#define ALIBI_COUNTER(name, what) add(#name, what, engine.name);
#include "runtime/counters.inc"
#undef ALIBI_COUNTER
  mmu::ForEachCounter(mmu, add);
#define ALIBI_VMM_COUNTER(name, what) add(#name, what, machine_->counters().name);
#include "machine/counters.inc"
#undef ALIBI_VMM_COUNTER
  return all;
}

}  // namespace

SpecialRegisters SpecialRegisters::FlatProtectedMode() {
  constexpr u8 kCode = 0xb, kData = 0x3;  // accessed, readable or writable
  constexpr u8 kBusyTss = 0xb, kLdt = 0x2;
  SpecialRegisters r;
  r.cs = FlatSegment(0x08, kCode);
  r.ds = r.es = r.fs = r.gs = r.ss = FlatSegment(0x10, kData);
  r.tr.limit = r.ldt.limit = 0xffff;
  r.tr.type = kBusyTss;
  r.ldt.type = kLdt;
  r.tr.present = r.ldt.present = 1;
  r.cr0 = vcpu::kCr0Pe | vcpu::kCr0Et | vcpu::kCr0Ne;
  r.apic_base = 0xfee00900;
  return r;
}

Result<std::unique_ptr<Machine>> Machine::Create(const MachineOptions& options) {
  auto machine = std::make_unique<MachineImpl>();
  Status status = machine->Init(options);
  if (!status.ok()) return status.error();
  return std::unique_ptr<Machine>(std::move(machine));
}

}  // namespace alibi
