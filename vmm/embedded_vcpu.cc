// SPDX-License-Identifier: Apache-2.0
#include "vmm/embedded_vcpu.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "vcpu/control_registers.h"
#include "vcpu/msr.h"
#include "vcpu/segment_fields.h"
#include "vmm/register_checks.h"

namespace alibi::vmm {
namespace {

using vcpu::VcpuState;

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

// No board of an embedder reacts to the platform's registers.
class NoPlatform final : public vcpu::Platform {
 public:
  void ApicBaseWritten() override {}
  void TaskPriorityWritten() override {}
};

// Where a thread stands that runs VCPUs.
struct ThisThread {
  EmbeddedVcpu* running = nullptr;    // its Run() is on the stack
  EmbeddedVcpu* suspended = nullptr;  // left in the middle of an instruction: see vcpu.h
};
ThisThread& OfThisThread() {
  static thread_local ThisThread state;
  return state;
}

}  // namespace

Status EmbeddedVcpu::Init(Machine* machine) {
  machine_ = machine;
  auto fiber = Fiber::Create([this] { Body(); });
  if (!fiber.ok()) return fiber.error();
  fiber_ = std::move(*fiber);
  // An embedder starts it, nobody else could.
  state().waits_for_startup = 0;
  return Ok{};
}

void EmbeddedVcpu::Finish() {
  if (!inside_ || OfThisThread().suspended != this) return;
  finishing_ = true;
  RequestExit();
  Run();
}

void EmbeddedVcpu::Body() {
  for (;;) {
    switch (machine_->RunVcpu(number_)) {
      case Stop::kRequested:
        exit_.reason = ExitReason::kInterrupted;
        break;
      case Stop::kHalted:
        exit_.reason = ExitReason::kHalt;
        break;
      case Stop::kShutdown:
        exit_.reason = ExitReason::kShutdown;
        break;
      case Stop::kFailed:
        exit_.reason = ExitReason::kFailed;
        break;
    }
    fiber_->Yield();
  }
}

Exit& EmbeddedVcpu::Run() {
  ThisThread& thread = OfThisThread();
  ALIBI_CHECK(thread.suspended == (inside_ ? this : nullptr),
              "a VCPU that left Run() inside an instruction goes on first, on the same thread");
  ALIBI_CHECK(thread.running == nullptr, "handlers do not run VCPUs");
  std::unique_lock<std::mutex> used(use_, std::defer_lock);
  if (machine_->vcpus() > 1) used.lock();
  inside_ = false;
  thread = {.running = this};
  fiber_->Resume();
  thread.running = nullptr;
  return exit_;
}

void EmbeddedVcpu::LeaveInsideInstruction() {
  if (finishing_) return;
  core().engine->CompleteState();
  inside_ = true;
  OfThisThread().suspended = this;
  machine_->LeaveAccess([this] { fiber_->Yield(); });
}

u32 EmbeddedVcpu::LeaveForPort(bool out, u16 port, unsigned size, u32 value) {
  exit_.reason = ExitReason::kIo;
  exit_.io = {.out = out, .size = static_cast<u8>(size), .port = port, .data = value};
  LeaveInsideInstruction();
  return exit_.io.data;
}

u64 EmbeddedVcpu::LeaveForMmio(bool write, u64 address, unsigned size, u64 value) {
  exit_.reason = ExitReason::kMmio;
  exit_.mmio = {.write = write, .size = static_cast<u8>(size), .address = address, .data = value};
  LeaveInsideInstruction();
  return exit_.mmio.data;
}

EmbeddedVcpu* EmbeddedVcpu::InHandlerOf(const Machine& machine) {
  EmbeddedVcpu* const running = OfThisThread().running;
  return running != nullptr && running->machine_ == &machine ? running : nullptr;
}

EmbeddedVcpu* EmbeddedVcpu::SuspendedHereOf(const Machine& machine) {
  EmbeddedVcpu* const suspended = OfThisThread().suspended;
  return suspended != nullptr && suspended->machine_ == &machine ? suspended : nullptr;
}

Status EmbeddedVcpu::NotInsideInstruction() const {
  if (!inside_) return Ok{};
  return Error{
      "the VCPU is inside an instruction; let it complete: RequestExit(), then Run() until "
      "kInterrupted"};
}

template <class F>
Status EmbeddedVcpu::Change(F f) {
  Status status = Error{"the VCPU runs; RequestExit(), and wait until its Run() has returned"};
  TryAs(/*may_be_inside=*/true, [&] {
    status = NotInsideInstruction();
    if (status.ok()) status = f();
  });
  return status;
}

Registers EmbeddedVcpu::GetRegisters() const {
  Registers r;
  for (unsigned i = 0; i < 16; ++i) r.*kGprs[i] = state().gpr[i];
  r.rip = state().rip;
  r.rflags = state().Rflags();
  return r;
}

Status EmbeddedVcpu::SetRegisters(const Registers& registers) {
  return Change([&]() -> Status {
    for (unsigned i = 0; i < 16; ++i) state().gpr[i] = registers.*kGprs[i];
    state().rip = registers.rip;
    state().SetRflags(registers.rflags);
    state().halted = 0;
    machine_->StateChanged();
    return Ok{};
  });
}

SpecialRegisters EmbeddedVcpu::GetSpecialRegisters() const {
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

Status EmbeddedVcpu::SetSpecialRegisters(const SpecialRegisters& r) {
  return Change([&]() -> Status {
    VcpuState& s = state();
    const bool virtual_8086 = s.system_flags & vcpu::kVm;
    if (Status status = CheckSpecialRegisters(r, machine_->cpuid(), virtual_8086); !status.ok()) {
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
  });
}

Result<std::uint64_t> EmbeddedVcpu::GetMsr(std::uint32_t index) const {
  u64 value = 0;
  NoPlatform platform;
  if (vcpu::ReadMsr(state(), machine_->cpuid(), platform, index, &value).faulted()) {
    return Error{fmt::format("MSR {:#x} ({}): this CPU has none", index, vcpu::MsrName(index))};
  }
  return std::uint64_t{value};
}

Status EmbeddedVcpu::SetMsr(std::uint32_t index, std::uint64_t value) {
  return Change([&]() -> Status {
    NoPlatform platform;
    if (vcpu::WriteMsr(state(), *core().mmu, machine_->cpuid(), platform, index, value).faulted()) {
      return Error{fmt::format("MSR {:#x} ({}): this CPU has none, or {:#x} sets reserved bits",
                               index, vcpu::MsrName(index), value)};
    }
    machine_->StateChanged();
    return Ok{};
  });
}

Status EmbeddedVcpu::GetXsave(void* area) const {
  if (Status status = NotInsideInstruction(); !status.ok()) return status;
  static_assert(kXsaveBytes == vcpu::kXsaveAreaSize);
  std::memcpy(area, state().xsave_area, kXsaveBytes);
  return Ok{};
}

Status EmbeddedVcpu::SetXsave(const void* area) {
  return Change([&]() -> Status {
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
  });
}

}  // namespace alibi::vmm
