// SPDX-License-Identifier: Apache-2.0
// The embedding API over the machine: its board answers accesses by the embedder's handlers, or by
// leaving Run() in the middle of the instruction.
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>

#include "alibi/machine.h"
#include "alibi/vcpu.h"
#include "base/check.h"
#include "machine/cpu_model.h"
#include "machine/fiber.h"
#include "machine/host_check.h"
#include "machine/machine.h"
#include "mmu/counters.h"
#include "runtime/engine_kind.h"
#include "vcpu/control_registers.h"
#include "vcpu/descriptors.h"
#include "vcpu/msr.h"
#include "vcpu/segment_fields.h"
#include "vmm/register_checks.h"

namespace alibi {
namespace {

using vcpu::VcpuState;

// --- Register structures ---

// The order of the Gpr numbers.
constexpr std::uint64_t Registers::*kGprs[] = {
    &Registers::rax, &Registers::rcx, &Registers::rdx, &Registers::rbx,
    &Registers::rsp, &Registers::rbp, &Registers::rsi, &Registers::rdi,
    &Registers::r8,  &Registers::r9,  &Registers::r10, &Registers::r11,
    &Registers::r12, &Registers::r13, &Registers::r14, &Registers::r15};

// The order of the SegmentIndex numbers.
constexpr SegmentRegister SpecialRegisters::*kSegments[] = {
    &SpecialRegisters::es, &SpecialRegisters::cs, &SpecialRegisters::ss,  &SpecialRegisters::ds,
    &SpecialRegisters::fs, &SpecialRegisters::gs, &SpecialRegisters::ldt, &SpecialRegisters::tr};

vcpu::Segment ToState(const SegmentRegister& r) {
  if (r.unusable) return vcpu::Segment{.selector = r.selector};
  return vcpu::SegmentFromFields(r);
}

SegmentRegister FlatSegment(u16 selector, u8 type) {
  SegmentRegister r;
  r.limit = 0xffffffff;
  r.selector = selector;
  r.type = type;
  r.present = r.db = r.s = r.g = 1;
  return r;
}

// --- The board ---

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

template <class Handler>
class RangeMap {
 public:
  Handler* Find(u64 address) const {
    for (const Range& range : ranges_) {
      if (address - range.base < range.size) return range.handler;
    }
    return nullptr;
  }
  Status Add(const char* kind, u64 base, u64 size, u64 space, Handler& handler) {
    if (size == 0 || base >= space || size > space - base) {
      return Error{fmt::format("{} {:#x} to {:#x}: an empty range, or one that does not exist",
                               kind, base, base + size)};
    }
    for (const Range& range : ranges_) {
      if (base < range.base + range.size && range.base < base + size) {
        return Error{fmt::format("{} {:#x} to {:#x}: overlaps the handler at {:#x}", kind, base,
                                 base + size - 1, range.base)};
      }
    }
    ranges_.push_back({base, size, &handler});
    return Ok{};
  }

 private:
  struct Range {
    u64 base, size;
    Handler* handler;
  };
  std::vector<Range> ranges_;
};

// No board of an embedder reacts to the platform's registers.
class NoPlatform final : public vcpu::Platform {
 public:
  void ApicBaseWritten() override {}
  void TaskPriorityWritten() override {}
};

Result<vcpu::CpuidPolicy> CpuidOfEmbedders(const std::string& cpu) {
  auto chosen = vmm::ChooseCpu(cpu);
  if (!chosen.ok()) return chosen.error();
  if (chosen->enforce && !chosen->lacking.empty()) return Error{chosen->lacking};
  chosen->policy.HideApicMsrs();
  return std::move(chosen->policy);
}

// The VCPU a thread left in the middle of an instruction; see vcpu.h for the rule.
const void*& SuspendedOnThisThread() {
  static thread_local const void* suspended = nullptr;
  return suspended;
}

class VcpuImpl final : public Vcpu,
                       public vmm::IoSpace,
                       public vmm::Interrupts,
                       public vmm::RunHooks {
 public:
  void Attach(vmm::Machine* machine) { machine_ = machine; }
  Status Init() {
    auto fiber = vmm::Fiber::Create([this] { Body(); });
    if (!fiber.ok()) return fiber.error();
    fiber_ = std::move(*fiber);
    return Ok{};
  }
  // An instruction that waits for data ends, so that nothing of the engine stays on the fiber.
  void Finish() {
    if (!inside_ || SuspendedOnThisThread() != this) return;
    finishing_ = true;
    RequestExit();
    Run();
  }

  Status HandlePorts(u16 first, u32 count, PortHandler& handler) {
    return ports_.Add("ports", first, count, 0x10000, handler);
  }
  Status HandleMmio(u64 base, u64 size, MmioHandler& handler) {
    return mmio_.Add("device memory", base, size, mmu::kPhysLimit, handler);
  }

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
  std::string Failure() const override { return machine_->engine().failure(); }
  void InjectInterrupt(std::uint8_t vector) override {
    pending_.Set(vector);
    machine_->RequestTurnFromOutside();
  }
  void InjectNmi() override {
    nmi_.store(true);
    machine_->RequestTurnFromOutside();
  }
  void RequestExit() override { machine_->RequestStop(); }

  // --- IoSpace ---
  u32 PortRead(u16 port, unsigned size) override;
  void PortWrite(u16 port, unsigned size, u32 value) override;
  u64 MmioRead(PhysAddr address, unsigned size) override;
  void MmioWrite(PhysAddr address, unsigned size, u64 value) override;

  // --- Interrupts ---
  bool InterruptPending(u8 cr8) override { return pending_.Highest() >> 4 > cr8; }
  u8 Acknowledge() override {
    const u8 vector = static_cast<u8>(pending_.Highest());
    pending_.Clear(vector);
    return vector;
  }
  bool HeldByPriority(u8 cr8) override {
    const int highest = pending_.Highest();
    return highest >= 0 && highest >> 4 <= cr8;
  }

  // --- RunHooks ---
  void Turn() override {
    if (nmi_.exchange(false)) machine_->RaiseNmi(machine_->running());
  }
  bool Idle() override { return false; }

 private:
  [[noreturn]] void Body();
  void LeaveInsideInstruction();
  Status NotInsideInstruction() const {
    if (!inside_) return Ok{};
    return Error{
        "the VCPU is inside an instruction; let it complete: RequestExit(), then Run() until "
        "kInterrupted"};
  }
  VcpuState& state() const { return machine_->state(); }

  vmm::Machine* machine_ = nullptr;
  std::unique_ptr<vmm::Fiber> fiber_;
  RangeMap<PortHandler> ports_;
  RangeMap<MmioHandler> mmio_;
  PendingVectors pending_;
  std::atomic<bool> nmi_ = false;
  Exit exit_;
  bool inside_ = false;
  bool finishing_ = false;
};

void VcpuImpl::Body() {
  for (;;) {
    switch (machine_->Run()) {
      case vmm::Stop::kRequested:
        exit_.reason = ExitReason::kInterrupted;
        break;
      case vmm::Stop::kHalted:
        exit_.reason = ExitReason::kHalt;
        break;
      case vmm::Stop::kShutdown:
        exit_.reason = ExitReason::kShutdown;
        break;
      case vmm::Stop::kFailed:
        exit_.reason = ExitReason::kFailed;
        break;
    }
    fiber_->Yield();
  }
}

Exit& VcpuImpl::Run() {
  ALIBI_CHECK(SuspendedOnThisThread() == (inside_ ? this : nullptr),
              "a VCPU that left Run() inside an instruction goes on first, on the same thread");
  inside_ = false;
  SuspendedOnThisThread() = nullptr;
  fiber_->Resume();
  return exit_;
}

void VcpuImpl::LeaveInsideInstruction() {
  if (finishing_) return;
  machine_->engine().CompleteState();
  inside_ = true;
  SuspendedOnThisThread() = this;
  fiber_->Yield();
}

u32 VcpuImpl::PortRead(u16 port, unsigned size) {
  if (PortHandler* handler = ports_.Find(port)) return handler->In(port, size);
  exit_.reason = ExitReason::kIo;
  exit_.io = {.out = false, .size = static_cast<u8>(size), .port = port, .data = ~u32{0}};
  LeaveInsideInstruction();
  return exit_.io.data;
}

void VcpuImpl::PortWrite(u16 port, unsigned size, u32 value) {
  if (PortHandler* handler = ports_.Find(port)) return handler->Out(port, size, value);
  exit_.reason = ExitReason::kIo;
  exit_.io = {.out = true, .size = static_cast<u8>(size), .port = port, .data = value};
  LeaveInsideInstruction();
}

u64 VcpuImpl::MmioRead(PhysAddr address, unsigned size) {
  if (MmioHandler* handler = mmio_.Find(address.value)) return handler->Read(address.value, size);
  exit_.reason = ExitReason::kMmio;
  exit_.mmio = {
      .write = false, .size = static_cast<u8>(size), .address = address.value, .data = ~u64{0}};
  LeaveInsideInstruction();
  return exit_.mmio.data;
}

void VcpuImpl::MmioWrite(PhysAddr address, unsigned size, u64 value) {
  if (MmioHandler* handler = mmio_.Find(address.value)) {
    return handler->Write(address.value, size, value);
  }
  exit_.reason = ExitReason::kMmio;
  exit_.mmio = {
      .write = true, .size = static_cast<u8>(size), .address = address.value, .data = value};
  LeaveInsideInstruction();
}

Registers VcpuImpl::GetRegisters() const {
  Registers r;
  for (unsigned i = 0; i < 16; ++i) r.*kGprs[i] = state().gpr[i];
  r.rip = state().rip;
  r.rflags = state().Rflags();
  return r;
}

Status VcpuImpl::SetRegisters(const Registers& registers) {
  if (Status status = NotInsideInstruction(); !status.ok()) return status;
  for (unsigned i = 0; i < 16; ++i) state().gpr[i] = registers.*kGprs[i];
  state().rip = registers.rip;
  state().SetRflags(registers.rflags);
  state().halted = 0;
  machine_->StateChanged();
  return Ok{};
}

SpecialRegisters VcpuImpl::GetSpecialRegisters() const {
  const VcpuState& s = state();
  SpecialRegisters r;
  for (unsigned i = 0; i < vcpu::kSegmentCount; ++i) {
    r.*kSegments[i] = vcpu::FieldsOf<SegmentRegister>(s.segment[i]);
  }
  r.ss.dpl = s.cpl;  // also where SS is null, or AMD's SYSRET has loaded its selector alone
  r.gdt = {s.gdtr.base, s.gdtr.limit};
  r.idt = {s.idtr.base, s.idtr.limit};
  r.cr0 = s.cr0;
  r.cr2 = s.cr2;
  r.cr3 = s.cr3;
  r.cr4 = s.cr4;
  r.cr8 = s.cr8;
  r.efer = s.efer;
  r.apic_base = s.apic_base;
  return r;
}

Status VcpuImpl::SetSpecialRegisters(const SpecialRegisters& r) {
  if (Status status = NotInsideInstruction(); !status.ok()) return status;
  VcpuState& s = state();
  const bool virtual_8086 = s.system_flags & vcpu::kVm;
  if (Status status = vmm::CheckSpecialRegisters(r, machine_->cpuid(), virtual_8086);
      !status.ok()) {
    return status;
  }
  for (unsigned i = 0; i < vcpu::kSegmentCount; ++i) s.segment[i] = ToState(r.*kSegments[i]);
  s.gdtr = {.base = r.gdt.base, .limit = r.gdt.limit};
  s.idtr = {.base = r.idt.base, .limit = r.idt.limit};
  s.cr0 = r.cr0 | vcpu::kCr0Et;
  s.cr2 = r.cr2;
  s.cr3 = r.cr3;
  s.cr4 = r.cr4;
  s.cr8 = r.cr8;
  s.efer = r.efer;
  s.apic_base = r.apic_base;
  s.cpl = !s.ProtectedMode() ? 0 : virtual_8086 ? 3 : r.ss.dpl & 3;
  machine_->StateChanged();
  return Ok{};
}

Result<std::uint64_t> VcpuImpl::GetMsr(std::uint32_t index) const {
  u64 value = 0;
  NoPlatform platform;
  if (vcpu::ReadMsr(state(), machine_->cpuid(), platform, index, &value).faulted()) {
    return Error{fmt::format("MSR {:#x} ({}): this CPU has none", index, vcpu::MsrName(index))};
  }
  return std::uint64_t{value};
}

Status VcpuImpl::SetMsr(std::uint32_t index, std::uint64_t value) {
  if (Status status = NotInsideInstruction(); !status.ok()) return status;
  NoPlatform platform;
  if (vcpu::WriteMsr(state(), machine_->mmu(), machine_->cpuid(), platform, index, value)
          .faulted()) {
    return Error{fmt::format("MSR {:#x} ({}): this CPU has none, or {:#x} sets reserved bits",
                             index, vcpu::MsrName(index), value)};
  }
  machine_->StateChanged();
  return Ok{};
}

Status VcpuImpl::GetXsave(void* area) const {
  if (Status status = NotInsideInstruction(); !status.ok()) return status;
  static_assert(kXsaveBytes == vcpu::kXsaveAreaSize);
  std::memcpy(area, state().xsave_area, kXsaveBytes);
  return Ok{};
}

Status VcpuImpl::SetXsave(const void* area) {
  if (Status status = NotInsideInstruction(); !status.ok()) return status;
  // What XRSTOR would fault on must not reach it: reserved MXCSR bits and header fields.
  constexpr std::size_t kMxcsr = 24, kHeader = 512, kHeaderBytes = 64;
  u8 copy[kXsaveBytes];
  std::memcpy(copy, area, kXsaveBytes);
  u32 mxcsr, mxcsr_mask;
  std::memcpy(&mxcsr, copy + kMxcsr, 4);
  std::memcpy(&mxcsr_mask, state().xsave_area + kMxcsr + 4, 4);
  u64 header[kHeaderBytes / 8];
  std::memcpy(header, copy + kHeader, kHeaderBytes);
  bool reserved = (mxcsr & ~(mxcsr_mask != 0 ? mxcsr_mask : 0xffbfu)) != 0;
  reserved = reserved || (header[0] & ~machine_->cpuid().xcr0_valid()) != 0;
  for (unsigned i = 1; i < kHeaderBytes / 8; ++i) reserved = reserved || header[i] != 0;
  if (reserved) {
    return Error{"XSAVE area: reserved bits of MXCSR or of the header are set; clear them"};
  }
  std::memcpy(state().xsave_area, copy, kXsaveBytes);
  return Ok{};
}

// --- The machine ---

class MachineImpl final : public Machine {
 public:
  ~MachineImpl() override { vcpu_.Finish(); }
  Status Init(const MachineOptions& options) {
    if (Status host = vmm::CheckHost(vmm::ReadHostFeatures()); !host.ok()) return host;
    constexpr u64 kMin = u64{1} << 20, kMax = u64{1} << 30;
    if (options.translation_cache_bytes < kMin || options.translation_cache_bytes > kMax) {
      return Error{"translation_cache_bytes: give 1 MB to 1 GB"};
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
    config.policy = options.policy;
    config.engine_policy = options.engine_policy;
    config.coherence = *coherence;
    config.cpuid = &cpuid_;
    config.tc_bytes = options.translation_cache_bytes & ~kPageMask;
    config.arena_bytes = options.most_memory_bytes;
    config.store_folder = options.translation_store;
    auto machine = vmm::Machine::Create(config, {vcpu_, vcpu_, vcpu_});
    if (!machine.ok()) return machine.error();
    machine_ = std::move(*machine);
    vcpu_.Attach(machine_.get());
    return vcpu_.Init();
  }

  Result<void*> AddMemory(std::uint64_t guest_physical, std::uint64_t size,
                          std::uint32_t flags) override {
    Status added =
        machine_->memory().AddSlot(PhysAddr(guest_physical), size, (flags & kMemoryReadOnly) != 0);
    if (!added.ok()) return added.error();
    return static_cast<void*>(machine_->memory().HostRw(PhysAddr(guest_physical)));
  }
  Status RemoveMemory(std::uint64_t guest_physical) override {
    return machine_->memory().RemoveSlot(PhysAddr(guest_physical));
  }
  bool ReadMemory(std::uint64_t guest_physical, void* to, std::uint64_t size) const override {
    if (!machine_->memory().IsBacked(PhysAddr(guest_physical), size)) return false;
    machine_->memory().ReadPhys(PhysAddr(guest_physical), to, size);
    return true;
  }
  bool WriteMemory(std::uint64_t guest_physical, const void* from, std::uint64_t size) override {
    return machine_->memory().LoadPhys(PhysAddr(guest_physical), from, size);
  }
  Status HandlePorts(std::uint16_t first, std::uint32_t count, PortHandler& handler) override {
    return vcpu_.HandlePorts(first, count, handler);
  }
  Status HandleMmio(std::uint64_t base, std::uint64_t size, MmioHandler& handler) override {
    return vcpu_.HandleMmio(base, size, handler);
  }
  Result<Vcpu*> CreateVcpu() override {
    if (std::exchange(created_, true)) {
      return Error{"this version has one VCPU per machine, and it exists already"};
    }
    return static_cast<Vcpu*>(&vcpu_);
  }
  std::vector<CounterValue> Counters() const override {
    std::vector<CounterValue> all;
    auto add = [&all](const char* name, const char* meaning, u64 value) {
      all.push_back({name, meaning, value});
    };
#define ALIBI_COUNTER(name, what) add(#name, what, machine_->engine().counters().name);
#include "runtime/counters.inc"
#undef ALIBI_COUNTER
    mmu::ForEachCounter(machine_->mmu().counters(), add);
#define ALIBI_VMM_COUNTER(name, what) add(#name, what, machine_->counters().name);
#include "machine/counters.inc"
#undef ALIBI_VMM_COUNTER
    return all;
  }

 private:
  VcpuImpl vcpu_;  // outlives the machine that calls it
  vcpu::CpuidPolicy cpuid_;
  std::unique_ptr<vmm::Machine> machine_;
  bool created_ = false;
};

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
