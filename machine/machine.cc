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
namespace {

// Over all cores; see mmu::ViewPool::kMaxViews.
constexpr unsigned kMaxViewsOfAll = 200;

}  // namespace

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
  vcpus_ = config.vcpus;
  beside_ = config.beside && vcpus_ > 1;
  callers_threads_ = config.callers_threads && beside_;
  ALIBI_CHECK(!beside_ || (!hypercalls_ && config.coherence == mmu::Coherence::kEager),
              "see MachineConfig::beside");
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
  policy_report_ = config.policy_report;
  group_.vcpus = this;
  if (beside_) lock_.Lock();
  for (unsigned i = 0; i < (beside_ ? vcpus_ : 1); ++i) {
    if (Status made = CreateCore(config, std::move(kvm)); !made.ok()) return made;
  }
  Use(*cores_[0]);
  CreateParked(config.vcpus);
  if (callers_threads_) {
    GiveToVcpus();
    return Ok{};
  }
  return beside_ ? StartThreads() : Ok{};
}

Status Machine::CreateCore(const MachineConfig& config, std::unique_ptr<hardware::Kvm> kvm) {
  cores_.push_back(std::make_unique<VcpuCore>(*this, static_cast<unsigned>(cores_.size())));
  VcpuCore& core = *cores_.back();
  core.has_machine = true;
  auto policy = adapt::MakePolicy(config.policy);
  if (!policy.ok()) return policy.error();
  core.policy = std::move(*policy);
  auto engine_policy =
      runtime::EnginePolicyFor(engine_kind_, config.engine_policy, adapt::kDefaultEnginePolicy);
  if (!engine_policy.ok()) return engine_policy.error();
  if (!engine_policy->empty()) {
    auto made = adapt::MakeEnginePolicy(*engine_policy);
    if (!made.ok()) return made.error();
    core.engine_policy = std::move(*made);
  }

  auto memory =
      core.number == 0 ? mmu::GuestMemory::Create(config.arena_bytes) : cores_[0]->memory->Share();
  if (!memory.ok()) return memory.error();
  core.memory = std::move(*memory);
  core.memory->set_mmio_handler(beside_ ? static_cast<mmu::MmioHandler*>(&core) : this);

  if (Status made = core.CreateBlock(); !made.ok()) return made;
  core.state->number = static_cast<u8>(core.number);
  core.state->vcpus = static_cast<u8>(config.vcpus);
  vcpu::ResetToPowerUp(*core.state, *cpuid_);
  // The guest's time begins now.
  core.state->tsc_offset =
      core.number == 0 ? -static_cast<i64>(__rdtsc()) : cores_[0]->state->tsc_offset;

  mmu::MmuOptions mmu_options;
  mmu_options.state = core.state;
  mmu_options.memory = core.memory.get();
  mmu_options.vcpu_fd = core.vcpu_fd;
  // Under KVM stores to page tables come without traces.
  mmu_options.coherence = kvm != nullptr ? mmu::Coherence::kDropped : config.coherence;
  const unsigned cores = beside_ ? vcpus_ : 1;
  mmu_options.max_views = std::min(config.hosting.views, mmu::ViewPool::kMaxViews);
  mmu_options.max_chunks = static_cast<u32>(config.shadow_bytes / kShadowChunkBytes / cores);
  if (beside_) {
    mmu_options.group = &group_;
    mmu_options.max_views = std::min(mmu_options.max_views, kMaxViewsOfAll / cores);
  }
  auto mmu = mmu::Mmu::Create(mmu_options);
  if (!mmu.ok()) return mmu.error();
  core.mmu = std::move(*mmu);
  Use(core);  // an engine may ask while it is made
  group_.mmu[core.number] = core.mmu.get();
  group_.count = core.number + 1;

  runtime::EngineOptions options;
  options.mmu = core.mmu.get();
  options.memory = core.memory.get();
  options.state = core.state;
  options.ports = beside_ ? static_cast<vcpu::PortIo*>(&core) : this;
  options.platform = beside_ ? static_cast<vcpu::Platform*>(&core) : this;
  options.cpuid = cpuid_;
  options.vcpus = beside_ ? 1 : config.vcpus;
  options.gate = beside_ ? &core : nullptr;
  if (kvm == nullptr) {
    Status made = CreateTranslator(config, options, &core);
    core.TakeMachine();  // it has run stubs
    return made;
  }
  auto engine = hardware::CreateHardwareEngine(std::move(kvm), options);
  if (!engine.ok()) return engine.error();
  core.engine = std::move(*engine);
  return Ok{};
}

Status Machine::CreateTranslator(const MachineConfig& config, const runtime::EngineOptions& common,
                                 VcpuCore* core) {
  runtime::TranslatingEngineOptions options;
  static_cast<runtime::EngineOptions&>(options) = common;
  options.policy = core->policy.get();
  options.tc_bytes = config.tc_bytes;
  options.store_folder = config.store_folder;
  options.executions = config.executions;
  options.engine_policy = core->engine_policy.get();
  options.satellites = config.hosting.satellites;
  options.remaps_user_code = config.hosting.remaps;
  options.needs_direct_execution = config.engine == runtime::EngineKind::kDirect;
  auto engine = runtime::TranslatingEngine::Create(options);
  if (!engine.ok()) return engine.error();
  core->translator = engine->get();
  core->engine = std::move(*engine);
  return Ok{};
}

Machine::~Machine() {
  EndThreads();
  if (callers_threads_) TakeFromVcpus();
  group_.count = 0;
  // What the first one has is shared.
  while (!cores_.empty()) cores_.pop_back();
}

Status VcpuCore::CreateBlock() {
  // A file, because the block lies in front of every shadow view.
  vcpu_fd = CreateMemoryFile("alibi-vcpu", kVcpuBlockBytes);
  void* block = MAP_FAILED;
  if (vcpu_fd >= 0) {
    block = mmap(nullptr, kVcpuBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu_fd, 0);
  }
  if (block == MAP_FAILED) {
    return Error{std::string("VCPU block: cannot be mapped: ") + std::strerror(errno) +
                 "; free host memory, or raise the limit on open files (ulimit -n)"};
  }
  state = static_cast<vcpu::VcpuState*>(block);
  return Ok{};
}

VcpuCore::~VcpuCore() {
  engine.reset();
  mmu.reset();
  memory.reset();
  if (state != nullptr) munmap(state, kVcpuBlockBytes);
  if (vcpu_fd >= 0) close(vcpu_fd);
}

Stop Machine::Run() {
  if (beside_) return RunBeside();
  timer().Enter(engine_);
  const Stop stop = Loop();
  ReturnAll();
  engine_->DrainEvents();
  ReportPolicy();
  timer().Leave();
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
      timer().Suspend();
      if (!Sleep() && !tell(DebugEvent::kHalted)) return Stop::kHalted;
      continue;
    }
    timer().Resume();
    CheckLatches();
    core_->in_engine = true;
    const runtime::Exit exit = engine_->Run();
    core_->in_engine = false;
    timer().Disarm();
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
  if (pending && core_->in_engine && vcpu::CanTakeInterrupt(*state_)) engine_->RequestAttention();
}

void Machine::RequestTurn() {
  if (core_->in_engine) engine_->RequestAttention();
  if (beside_ && running_ != 0) Kick(0);
}

void Machine::RequestStop() {
  stop_.store(true, std::memory_order_release);
  RequestTurnFromOutside();
}

void Machine::RequestTurnFromOutside() {
  __atomic_fetch_add(&counters_.stop_requests, 1, __ATOMIC_RELAXED);
  // Devices are served by the first one's thread.
  cores_[0]->engine->RequestStop();
  timer().Arm();
}

}  // namespace alibi::vmm
