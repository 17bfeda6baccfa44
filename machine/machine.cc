// SPDX-License-Identifier: Apache-2.0
#include "machine/machine.h"

#include <sys/mman.h>
#include <unistd.h>
#include <x86intrin.h>

#include <cerrno>
#include <cstring>

#include "abi/contract.h"
#include "base/check.h"
#include "base/host_clock.h"
#include "base/memory_file.h"
#include "hardware/hardware_engine.h"
#include "machine/debugger.h"
#include "machine/observer.h"
#include "vcpu/exceptions.h"
#include "vcpu/interrupts.h"
#include "vcpu/reset.h"

namespace alibi::vmm {

Result<std::unique_ptr<Machine>> Machine::Create(const MachineConfig& config,
                                                 const Surroundings& around) {
  std::unique_ptr<Machine> machine(new Machine(around));
  Status status = machine->Init(config);
  if (!status.ok()) return status.error();
  return machine;
}

Status Machine::Init(const MachineConfig& config) {
  ALIBI_CHECK(config.vcpus - 1 < vcpu::kMaxVcpus, "a machine has 1 to 16 VCPUs");
  auto engine_kind = runtime::EngineFor(config.engine, config.vcpus);
  if (!engine_kind.ok()) return engine_kind.error();
  engine_kind_ = *engine_kind;
  hypercalls_ = config.hypercalls;
  cpuid_ = config.cpuid != nullptr ? config.cpuid : &vcpu::CpuidPolicy::ForHost();
  std::unique_ptr<hardware::Kvm> kvm;
  if (config.engine == runtime::EngineKind::kHardware) {
    auto opened = hardware::Kvm::Open();
    if (!opened.ok()) return opened.error();
    kvm = std::move(*opened);
    limited_cpuid_ = *cpuid_;
    hardware::LimitCpuid(*kvm, &*limited_cpuid_);
    cpuid_ = &*limited_cpuid_;
  }
  auto policy = adapt::MakePolicy(config.policy);
  if (!policy.ok()) return policy.error();
  policy_ = std::move(*policy);
  policy_report_ = config.policy_report;
  auto engine_policy =
      runtime::EnginePolicyFor(engine_kind_, config.engine_policy, adapt::kDefaultEnginePolicy);
  if (!engine_policy.ok()) return engine_policy.error();
  if (!engine_policy->empty()) {
    auto made = adapt::MakeEnginePolicy(*engine_policy);
    if (!made.ok()) return made.error();
    engine_policy_ = std::move(*made);
  }

  auto memory = mmu::GuestMemory::Create(config.arena_bytes);
  if (!memory.ok()) return memory.error();
  memory_ = std::move(*memory);
  memory_->set_mmio_handler(this);

  // A file, because the block lies in front of every shadow view.
  vcpu_fd_ = CreateMemoryFile("alibi-vcpu", kVcpuBlockBytes);
  void* block = MAP_FAILED;
  if (vcpu_fd_ >= 0) {
    block = mmap(nullptr, kVcpuBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu_fd_, 0);
  }
  if (block == MAP_FAILED) {
    return Error{std::string("VCPU block: cannot be mapped: ") + std::strerror(errno) +
                 "; free host memory, or raise the limit on open files (ulimit -n)"};
  }
  state_ = static_cast<vcpu::VcpuState*>(block);
  state_->vcpus = static_cast<u8>(config.vcpus);
  vcpu::ResetToPowerUp(*state_, *cpuid_);
  // The guest's time begins now.
  state_->tsc_offset = -static_cast<i64>(__rdtsc());

  mmu::MmuOptions mmu_options;
  mmu_options.state = state_;
  mmu_options.memory = memory_.get();
  mmu_options.vcpu_fd = vcpu_fd_;
  // Under KVM stores to page tables come without traces.
  mmu_options.coherence = kvm != nullptr ? mmu::Coherence::kDropped : config.coherence;
  mmu_options.max_views = std::min(config.hosting.views, mmu::ViewPool::kMaxViews);
  mmu_options.max_chunks = static_cast<u32>(config.shadow_bytes / kShadowChunkBytes);
  auto mmu = mmu::Mmu::Create(mmu_options);
  if (!mmu.ok()) return mmu.error();
  mmu_ = std::move(*mmu);

  runtime::EngineOptions options;
  options.mmu = mmu_.get();
  options.memory = memory_.get();
  options.state = state_;
  options.ports = this;
  options.platform = this;
  options.cpuid = cpuid_;
  options.vcpus = config.vcpus;
  if (kvm == nullptr) {
    if (Status made = CreateTranslator(config, options); !made.ok()) return made;
    CreateParked(config.vcpus);
    return Ok{};
  }
  auto engine = hardware::CreateHardwareEngine(std::move(kvm), options);
  if (!engine.ok()) return engine.error();
  engine_ = std::move(*engine);
  CreateParked(config.vcpus);
  return Ok{};
}

Status Machine::CreateTranslator(const MachineConfig& config,
                                 const runtime::EngineOptions& common) {
  runtime::TranslatingEngineOptions options;
  static_cast<runtime::EngineOptions&>(options) = common;
  options.policy = policy_.get();
  options.tc_bytes = config.tc_bytes;
  options.store_folder = config.store_folder;
  options.executions = config.executions;
  options.engine_policy = engine_policy_.get();
  options.satellites = config.hosting.satellites;
  options.remaps_user_code = config.hosting.remaps;
  options.needs_direct_execution = config.engine == runtime::EngineKind::kDirect;
  auto engine = runtime::TranslatingEngine::Create(options);
  if (!engine.ok()) return engine.error();
  translator_ = engine->get();
  engine_ = std::move(*engine);
  return Ok{};
}

Machine::~Machine() {
  engine_.reset();
  mmu_.reset();
  memory_.reset();
  if (state_ != nullptr) munmap(state_, kVcpuBlockBytes);
  if (vcpu_fd_ >= 0) close(vcpu_fd_);
}

Stop Machine::Run() {
  stop_timer_.Enter(engine_.get());
  const Stop stop = Loop();
  ReturnAll();
  engine_->DrainEvents();
  ReportPolicy();
  stop_timer_.Leave();
  return stop;
}

Stop Machine::Loop() {
  // The end, too, is for the debugger to see; once.
  bool told = false;
  const auto tell = [&](DebugEvent event) {
    if (debugger_ == nullptr || told) return false;
    told = debugger_->Met(event);
    return told;
  };
  for (;;) {
    ++counters_.loop_turns;
    if (stop_.exchange(false, std::memory_order_acq_rel)) return Stop::kRequested;
    hooks_.Turn();
    if (debugger_ != nullptr) debugger_->Turn();
    if (stop_.load(std::memory_order_acquire)) continue;
    if (vcpus() > 1) ChooseVcpu();
    // Single steps are the interrupted program's, unless it waits for an interrupt.
    if (IsDetached(running_)) {
      // There are none, or it would not be.
    } else if (!engine_->steps_next()) {
      TakeInterrupts();
    } else if (state_->halted) {
      TakeInterrupts();
      if (!state_->halted) {
        engine_->StepNext(false);
        debugger_->Met(DebugEvent::kPoint);
        continue;
      }
    }
    if (state_->shutdown) {
      if (tell(DebugEvent::kShutdown)) continue;
      return Stop::kShutdown;
    }
    if (WaitForDetached()) continue;
    if (state_->halted || state_->waits_for_startup) {
      ++counters_.idle_sleeps;
      stop_timer_.Suspend();
      if (!Sleep() && !tell(DebugEvent::kHalted)) return Stop::kHalted;
      continue;
    }
    stop_timer_.Resume();
    CheckLatches();
    in_engine_ = true;
    const runtime::Exit exit = engine_->Run();
    in_engine_ = false;
    stop_timer_.Disarm();
    ReportPolicy();
    switch (exit) {
      case runtime::Exit::kStopped:
      case runtime::Exit::kHalted:
      case runtime::Exit::kInterruptWindow:
        break;
      case runtime::Exit::kDetached:
        detached_ns_[running_] = MonotonicNs();
        break;
      case runtime::Exit::kShutdown:
        break;  // the state says so
      case runtime::Exit::kFailed:
        return Stop::kFailed;
      case runtime::Exit::kDebug:
        if (debugger_ != nullptr) debugger_->Met(DebugEvent::kPoint);
        engine_->ForgetDebugStop();
        break;
    }
  }
}

void Machine::ReportPolicy() {
  const auto report = [this](const char* fault, bool* reported) {
    if (__builtin_expect(fault == nullptr, 1) || *reported) return;
    *reported = true;
    if (policy_report_) policy_report_(fault);
  };
  report(policy_->fault(), &policy_reported_);
  if (engine_policy_ != nullptr) report(engine_policy_->fault(), &engine_policy_reported_);
}

void Machine::TakeInterrupts() {
  InterruptsChanged();
  if (state_->nmi_pending && vcpu::CanTakeNmi(*state_)) {
    state_->nmi_pending = 0;
    ++counters_.nmis_taken;
    ++vcpu_counters_[running_].interrupts;
    if (observer_ != nullptr) {
      observer_->OnInterrupt(InterruptKind::kNmi, vcpu::kNmi, state_->rip);
    }
    state_->nmi_blocked = 1;
    vcpu::DeliverEvent(*state_, *mmu_, vcpu::Event::External(vcpu::kNmi), state_->rip);
  }
  if (state_->irq_pending && vcpu::CanTakeInterrupt(*state_)) {
    const u8 vector = interrupts_.Acknowledge();
    ++counters_.interrupts_taken;
    ++vcpu_counters_[running_].interrupts;
    if (observer_ != nullptr) {
      observer_->OnInterrupt(InterruptKind::kMaskable, vector, state_->rip);
    }
    engine_->InjectInterrupt(vector);
    InterruptsChanged();
  }
}

// It is to see every access from now on.
void Machine::set_observer(MachineObserver* observer) {
  observer_ = observer;
  for (vcpu::VcpuState::LatchedPort& known : state_->latched_port) known = {};
}

void Machine::StateChanged() {
  engine_->StateChanged();
  InterruptsChanged();
}

void Machine::InterruptsChanged() {
  const u8 cr8 = static_cast<u8>(state_->cr8);
  const bool pending = interrupts_.InterruptPending(cr8);
  state_->irq_pending = pending;
  state_->cr8_bias = !pending && interrupts_.HeldByPriority(cr8) ? 16 : 0;
  if (pending && in_engine_ && vcpu::CanTakeInterrupt(*state_)) engine_->RequestAttention();
}

void Machine::RequestTurn() {
  if (in_engine_) engine_->RequestAttention();
}

void Machine::RequestStop() {
  stop_.store(true, std::memory_order_release);
  RequestTurnFromOutside();
}

void Machine::RequestTurnFromOutside() {
  __atomic_fetch_add(&counters_.stop_requests, 1, __ATOMIC_RELAXED);
  engine_->RequestStop();
  stop_timer_.Arm();
}

}  // namespace alibi::vmm
