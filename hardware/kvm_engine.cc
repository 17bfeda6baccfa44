// SPDX-License-Identifier: Apache-2.0
// The run loop around KVM_RUN: what each exit means, and the way of the state in and out.
#include "hardware/kvm_engine.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "hardware/kvm_cpuid.h"
#include "isa/decoder.h"
#include "vcpu/control_registers.h"
#include "vcpu/exceptions.h"
#include "vcpu/interrupts.h"
#include "vcpu/msr.h"

namespace alibi::hardware {

using runtime::DebugCause;
using runtime::Exit;

namespace {

// Ends KVM_RUN; by itself it does nothing. (The two below are the translating engine's and the stop
// timer's.)
int KickSignal() { return SIGRTMIN + 5; }

void InstallKickHandler() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    sigfillset(&action.sa_mask);
    return sigaction(KickSignal(), &action, nullptr) == 0;
  }();
  (void)installed;
}

template <class T>
bool Same(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

struct MsrList {
  kvm_msrs header;
  kvm_msr_entry entries[std::size(kSharedMsrs)];
};

// The exception that KVM has found and not delivered yet. INT3 and INTO stand in front of their
// instructions, which will be executed again.
std::optional<vcpu::Event> LeftException(const kvm_vcpu_events& events, u64 cr2) {
  const auto& exception = events.exception;
  if (exception.injected == 0 && exception.pending == 0) return std::nullopt;
  if (exception.nr == vcpu::kBreakpoint || exception.nr == vcpu::kOverflow) return std::nullopt;
  if (exception.nr == vcpu::kDebug) return vcpu::Event::Trap(vcpu::kDebug);
  return vcpu::Event::Fault(
      {exception.nr, exception.has_error_code != 0, exception.error_code, cr2});
}

}  // namespace

void LimitCpuid(const Kvm& kvm, vcpu::CpuidPolicy* policy) {
  LimitCpuid(kvm.SupportedCpuid(), policy);
}

Result<std::unique_ptr<runtime::Engine>> CreateHardwareEngine(
    std::unique_ptr<Kvm> kvm, const runtime::EngineOptions& options) {
  auto engine = std::make_unique<KvmEngine>(std::move(kvm), options);
  if (Status status = engine->Init(); !status.ok()) return status.error();
  return std::unique_ptr<runtime::Engine>(std::move(engine));
}

KvmEngine::KvmEngine(std::unique_ptr<Kvm> kvm, const runtime::EngineOptions& options)
    : options_(options),
      state_(*options.state),
      mmu_(*options.mmu),
      kvm_(std::move(kvm)),
      run_(kvm_->run()),
      memory_(*kvm_, *options.memory),
      simulator_{*options.state, *options.mmu, *options.ports, *options.platform, *options.cpuid} {
  mmu_.set_listener(this);
}

KvmEngine::~KvmEngine() { mmu_.set_listener(nullptr); }

Status KvmEngine::Init() {
  InstallKickHandler();
  if (Status status = FilterMsrs(); !status.ok()) return status;
  // An instruction that KVM does not know comes to us, whoever executes it; older kernels do that
  // for the guest's kernel alone.
  kvm_enable_cap all_failures = {};
  all_failures.cap = KVM_CAP_EXIT_ON_EMULATION_FAILURE;
  all_failures.args[0] = 1;
  (void)kvm_->Vm(KVM_ENABLE_CAP, &all_failures);

  const std::vector<kvm_cpuid_entry2> entries = CpuidEntriesOf(*options_.cpuid);
  std::vector<u8> list(sizeof(kvm_cpuid2) + entries.size() * sizeof(kvm_cpuid_entry2));
  auto* header = reinterpret_cast<kvm_cpuid2*>(list.data());
  header->nent = static_cast<u32>(entries.size());
  std::memcpy(header->entries, entries.data(), entries.size() * sizeof(kvm_cpuid_entry2));
  if (const int error = kvm_->Vcpu(KVM_SET_CPUID2, header); error < 0) {
    return Error{fmt::format("KVM refuses the guest's CPUID: {}", std::strerror(-error))};
  }
  run_.kvm_valid_regs = KVM_SYNC_X86_REGS;
  return Ok{};
}

// Every MSR that is not KVM's is VcpuState's, and a guest's access to it an exit.
Status KvmEngine::FilterMsrs() {
  kvm_enable_cap exits = {};
  exits.cap = KVM_CAP_X86_USER_SPACE_MSR;
  exits.args[0] =
      KVM_MSR_EXIT_REASON_INVAL | KVM_MSR_EXIT_REASON_UNKNOWN | KVM_MSR_EXIT_REASON_FILTER;
  constexpr u32 kHighFirst = 0xc0000000;
  u8 low[0x100] = {}, high[0x40] = {};
  const auto allow = [&](u32 index) {
    u8* bitmap = index >= kHighFirst ? high : low;
    const u32 bit = index >= kHighFirst ? index - kHighFirst : index;
    bitmap[bit / 8] = static_cast<u8>(bitmap[bit / 8] | 1u << bit % 8);
  };
  for (const SharedMsr& msr : kSharedMsrs) {
    if (kvm_->KeepsMsr(msr.index)) allow(msr.index);
  }
  for (const u32 index : kUnsharedMsrs) allow(index);
  kvm_msr_filter filter = {};
  filter.flags = KVM_MSR_FILTER_DEFAULT_DENY;
  constexpr u32 kBoth = KVM_MSR_FILTER_READ | KVM_MSR_FILTER_WRITE;
  filter.ranges[0] = {.flags = kBoth, .nmsrs = sizeof(low) * 8, .base = 0, .bitmap = low};
  filter.ranges[1] = {
      .flags = kBoth, .nmsrs = sizeof(high) * 8, .base = kHighFirst, .bitmap = high};
  int error = kvm_->Vm(KVM_ENABLE_CAP, &exits);
  if (error >= 0) error = kvm_->Vm(KVM_X86_SET_MSR_FILTER, &filter);
  if (error < 0) {
    return Error{fmt::format("KVM refuses exits for MSRs: {}", std::strerror(-error))};
  }
  return Ok{};
}

Exit KvmEngine::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what + "; use --engine translate";
  return Exit::kFailed;
}

// --- Running ---

Exit KvmEngine::Run() {
  thread_id_ = static_cast<int>(syscall(SYS_gettid));
  running_ = true;
  const Next before = Before();
  const Exit exit = before.has_value() ? *before : Enter();
  running_ = false;
  // What was acknowledged must not wait: the caller may look at the state, or change it.
  DeliverInjected();
  return exit;
}

// What needs no guest code.
KvmEngine::Next KvmEngine::Before() {
  if (!failure_.empty()) return Exit::kFailed;
  if (points_.stopped()) return Exit::kDebug;
  if (state_.task_trap != 0) vcpu::DeliverTaskTrap(state_, mmu_);
  if (state_.shutdown) return Exit::kShutdown;
  if (__atomic_exchange_n(&state_.stop_requested, 0, __ATOMIC_SEQ_CST) != 0) return Exit::kStopped;
  if (!step_next_ && !injected_.has_value()) {
    if (state_.irq_pending && vcpu::CanTakeInterrupt(state_)) return Exit::kInterruptWindow;
    if (state_.nmi_pending && vcpu::CanTakeNmi(state_)) return Exit::kInterruptWindow;
  }
  if (state_.halted) return Exit::kHalted;
  if (!step_next_ && points_.IsDebuggersBreakpoint(state_.LinearPc())) {
    points_.Stop(DebugCause::kBreakpoint, state_.LinearPc());
    return Exit::kDebug;
  }
  return std::nullopt;
}

Exit KvmEngine::Enter() {
  if (!PutState() || !PutGuestDebug()) return Exit::kFailed;
  if (injected_.has_value()) {
    kvm_interrupt interrupt = {.irq = *injected_};
    if (!Put(KVM_INTERRUPT, &interrupt, "an interrupt")) return Exit::kFailed;
    injected_.reset();
  }
  for (;;) {
    if (const Next next = RunOnce()) return *next;
    if (!failure_.empty()) return Exit::kFailed;
  }
}

KvmEngine::Next KvmEngine::RunOnce() {
  if (std::exchange(memory_map_changed_, false)) {
    if (const Status status = memory_.Follow(); !status.ok()) return Fail(status.error().message);
  }
  if (image_.tsc_offset != state_.tsc_offset && !PutTscOffset()) return Exit::kFailed;
  run_.cr8 = state_.cr8;
  run_.request_interrupt_window = state_.irq_pending != 0 && !step_next_;
  // In this order: a stop that is requested from now on sets it again.
  __atomic_store_n(&run_.immediate_exit, 0, __ATOMIC_SEQ_CST);
  const bool stop = __atomic_load_n(&state_.stop_requested, __ATOMIC_SEQ_CST) != 0;
  // An instruction that a handler has answered is completed all the same.
  if (stop) __atomic_store_n(&run_.immediate_exit, 1, __ATOMIC_SEQ_CST);
  const int error = kvm_->Vcpu(KVM_RUN, nullptr);
  run_.kvm_dirty_regs = 0;
  ++counters_.kvm_exits;
  TakeHotState();
  if (error == -EINTR || error == -EAGAIN) {
    if (__atomic_exchange_n(&state_.stop_requested, 0, __ATOMIC_SEQ_CST) == 0) return std::nullopt;
    TakeState();
    DeliverLeftovers();
    return Exit::kStopped;
  }
  if (error < 0) {
    TakeState();
    return Fail(fmt::format("KVM cannot run the guest at rip {:#x}: {}", state_.rip,
                            std::strerror(-error)));
  }
  return OnExit();
}

KvmEngine::Next KvmEngine::OnExit() {
  switch (run_.exit_reason) {
    case KVM_EXIT_IO:
      return OnIo();
    case KVM_EXIT_MMIO:
      return OnMmio();
    case KVM_EXIT_X86_RDMSR:
      return OnReadMsr();
    case KVM_EXIT_X86_WRMSR:
      return OnWriteMsr();
    case KVM_EXIT_SET_TPR:
      options_.platform->TaskPriorityWritten();
      return std::nullopt;
    case KVM_EXIT_IRQ_WINDOW_OPEN:
      TakeState();
      DeliverLeftovers();
      return Exit::kInterruptWindow;
    case KVM_EXIT_HLT:
      return OnHalt();
    case KVM_EXIT_DEBUG:
      return OnDebug();
    case KVM_EXIT_SHUTDOWN:
      TakeState();
      state_.shutdown = 1;
      return Exit::kShutdown;
    case KVM_EXIT_INTERNAL_ERROR:
      if (run_.internal.suberror == KVM_INTERNAL_ERROR_EMULATION) return OnEmulationFailure();
      TakeState();
      return Fail(fmt::format("KVM cannot run the guest at rip {:#x}: internal error {}",
                              state_.rip, run_.internal.suberror));
    case KVM_EXIT_FAIL_ENTRY:
      TakeState();
      return Fail(
          fmt::format("the host's CPU refuses the guest's state at rip {:#x} (reason {:#x})",
                      state_.rip, u64{run_.fail_entry.hardware_entry_failure_reason}));
    default:
      TakeState();
      return Fail(
          fmt::format("KVM stops the guest at rip {:#x} for a reason ({}) that this engine "
                      "does not know",
                      state_.rip, run_.exit_reason));
  }
}

// --- Exits in the middle of an instruction, which the next KVM_RUN completes ---

KvmEngine::Next KvmEngine::OnIo() {
  u8* data = reinterpret_cast<u8*>(&run_) + run_.io.data_offset;
  const unsigned size = run_.io.size;
  for (u32 i = 0; i < run_.io.count; ++i, data += size) {
    u32 value = 0;
    if (run_.io.direction == KVM_EXIT_IO_IN) {
      value = options_.ports->In(run_.io.port, size);
      std::memcpy(data, &value, size);
    } else {
      std::memcpy(&value, data, size);
      options_.ports->Out(run_.io.port, size, value);
    }
  }
  return std::nullopt;
}

KvmEngine::Next KvmEngine::OnMmio() {
  const PhysAddr address(run_.mmio.phys_addr);
  if (run_.mmio.is_write) {
    options_.memory->WritePhys(address, run_.mmio.data, run_.mmio.len);
  } else {
    options_.memory->ReadPhys(address, run_.mmio.data, run_.mmio.len);
  }
  return std::nullopt;
}

namespace {

// What KVM itself has refused to the guest is no business of our table's.
bool IsKvms(u32 index) {
  for (const SharedMsr& msr : kSharedMsrs) {
    if (msr.index == index) return true;
  }
  for (const u32 other : kUnsharedMsrs) {
    if (other == index) return true;
  }
  return false;
}

}  // namespace

KvmEngine::Next KvmEngine::OnReadMsr() {
  u64 value = 0;
  const u32 index = run_.msr.index;
  const bool refused = run_.msr.reason != KVM_MSR_EXIT_REASON_FILTER && IsKvms(index);
  run_.msr.error =
      refused ||
      vcpu::ReadMsr(state_, *options_.cpuid, *options_.platform, index, &value).faulted();
  run_.msr.data = value;
  return std::nullopt;
}

KvmEngine::Next KvmEngine::OnWriteMsr() {
  const u32 index = run_.msr.index;
  const bool refused = run_.msr.reason != KVM_MSR_EXIT_REASON_FILTER && IsKvms(index);
  const u64 apic_base = state_.apic_base;
  run_.msr.error = refused || vcpu::WriteMsr(state_, mmu_, *options_.cpuid, *options_.platform,
                                             index, run_.msr.data)
                                  .faulted();
  // CPUID shows whether the local APIC is on, which is KVM's to answer.
  if (apic_base != state_.apic_base) {
    MsrList list = {};
    list.header.nmsrs = 1;
    list.entries[0].index = vcpu::kMsrApicBase;
    list.entries[0].data = state_.apic_base;
    if (!Put(KVM_SET_MSRS, &list, "the local APIC's base")) return Exit::kFailed;
  }
  return std::nullopt;
}

// --- Exits at an instruction boundary ---

KvmEngine::Next KvmEngine::OnHalt() {
  TakeState();
  DeliverLeftovers();
  state_.halted = 1;
  if (!std::exchange(step_next_, false)) return Exit::kHalted;
  points_.Stop(DebugCause::kStep, state_.LinearPc());
  return Exit::kDebug;
}

KvmEngine::Next KvmEngine::OnDebug() {
  TakeState();
  const u64 dr6 = run_.debug.arch.dr6;
  const LinearAddr pc = state_.LinearPc();
  if (const unsigned hit = debug_registers_.HitWatch(dr6); hit != DebugRegisters::kCount) {
    // Of a watch for stores and loads nobody knows which it was.
    points_.NoteAccess(debug_registers_.address(hit), debug_registers_.size(hit),
                       debug_registers_.reads(hit), true);
  }
  const bool stepped = std::exchange(step_next_, false);
  if (!points_.stopped() && !stepped && points_.IsDebuggersBreakpoint(pc)) {
    points_.Stop(DebugCause::kBreakpoint, pc);
  }
  if (!points_.stopped() && stepped) points_.Stop(DebugCause::kStep, pc);
  if (points_.stopped()) return Exit::kDebug;
  // The guest's own, which KVM gives to whoever debugs it.
  state_.dr[6] = dr6 | vcpu::kDr6Fixed;
  vcpu::DeliverEvent(state_, mmu_, vcpu::Event::Trap(vcpu::kDebug), state_.rip);
  return PutState() ? Next() : Next(Exit::kFailed);
}

// Our simulator knows all of an operating system's instructions; KVM's emulator, which runs what
// hardware cannot (and, in some nested KVMs, all of the guest's kernel), does not.
KvmEngine::Next KvmEngine::OnEmulationFailure() {
  TakeState();  // KVM's #UD, if it made one, is dropped
  constexpr unsigned kMostBytes = 15;
  u8 bytes[kMostBytes];
  const LinearAddr pc = state_.LinearPc();
  const unsigned known = mmu_.DebugRead(pc, bytes, kMostBytes);
  isa::Instr instr;
  const isa::DecodeStatus decoded = isa::Decode(bytes, known, pc, state_.CodeBits(), &instr);
  if (decoded == isa::DecodeStatus::kUndefined) {
    vcpu::DeliverFault(state_, mmu_, vcpu::GuestFault::Simple(vcpu::kInvalidOpcode));
  } else if (decoded == isa::DecodeStatus::kOk && simulator::CanSimulate(instr.op)) {
    ++counters_.kvm_simulated;
    const vcpu::Outcome outcome = simulator::Simulate(instr, simulator_);
    if (outcome.faulted()) vcpu::DeliverFault(state_, mmu_, outcome.fault());
  } else {
    return Fail(fmt::format("KVM's emulator cannot run the guest's instruction at rip {:#x}: {}",
                            state_.rip,
                            isa::DisassembleBytes({bytes, known}, pc, state_.CodeBits())));
  }
  if (std::exchange(step_next_, false)) {
    points_.Stop(DebugCause::kStep, state_.LinearPc());
    return Exit::kDebug;
  }
  if (state_.shutdown) return Exit::kShutdown;
  if (state_.halted) return Exit::kHalted;
  if (state_.irq_pending && vcpu::CanTakeInterrupt(state_)) return Exit::kInterruptWindow;
  return PutState() ? Next() : Next(Exit::kFailed);
}

// --- State ---

bool KvmEngine::Put(unsigned long request, void* argument, const char* what) {
  const int error = kvm_->Vcpu(request, argument);
  if (error >= 0) return true;
  Fail(fmt::format("KVM refuses {} of the guest's at rip {:#x}: {}", what, state_.rip,
                   std::strerror(-error)));
  return false;
}

void KvmEngine::Take(unsigned long request, void* argument, const char* what) {
  if (const int error = kvm_->Vcpu(request, argument); error < 0) {
    Fail(fmt::format("KVM does not tell {} of the guest's: {}", what, std::strerror(-error)));
  }
}

bool KvmEngine::PutState() {
  // `last` is what KVM has; nothing is written that it has already.
  const auto put = [this](auto want, auto* last, unsigned long request, const char* what) {
    if (image_.valid && Same(want, *last)) return true;
    *last = want;
    return Put(request, &want, what);
  };
  const bool done =
      put(SpecialRegistersOf(state_), &image_.sregs, KVM_SET_SREGS, "the system registers") &&
      put(DebugRegistersOf(state_), &image_.debug, KVM_SET_DEBUGREGS, "the debug registers") &&
      put(ExtendedControlOf(state_), &image_.xcrs, KVM_SET_XCRS, "XCR0") &&
      put(XsaveOf(state_), &image_.xsave, KVM_SET_XSAVE, "the extended state") && PutMsrs() &&
      PutTscOffset() &&
      put(EventsOf(state_), &image_.events, KVM_SET_VCPU_EVENTS, "the pending events");
  if (!done) return false;
  if (image_.events.nmi.pending != 0) state_.nmi_pending = 0;  // KVM has it now
  if (const kvm_regs regs = RegistersOf(state_); !image_.valid || !Same(regs, image_.regs)) {
    run_.s.regs.regs = image_.regs = regs;
    run_.kvm_dirty_regs = KVM_SYNC_X86_REGS;
  }
  image_.valid = true;
  return true;
}

void KvmEngine::TakeHotState() {
  image_.regs = run_.s.regs.regs;
  TakeRegisters(image_.regs, &state_);
  state_.cr8 = run_.cr8;
  state_.interrupt_shadow = 0;
}

// Whole: at every return of Run().
void KvmEngine::TakeState() {
  CompleteState();
  Take(KVM_GET_VCPU_EVENTS, &image_.events, "the pending events");
  TakeEvents(image_.events, &state_);
  image_.events.flags = KVM_VCPUEVENT_VALID_SHADOW | KVM_VCPUEVENT_VALID_NMI_PENDING;
  FollowState();
}

void KvmEngine::CompleteState() {
  if (!running_) return;
  Take(KVM_GET_SREGS, &image_.sregs, "the system registers");
  TakeSpecialRegisters(image_.sregs, &state_);
  Take(KVM_GET_DEBUGREGS, &image_.debug, "the debug registers");
  TakeDebugRegisters(image_.debug, &state_);
  Take(KVM_GET_XCRS, &image_.xcrs, "XCR0");
  TakeExtendedControl(image_.xcrs, &state_);
  Take(KVM_GET_XSAVE, &image_.xsave, "the extended state");
  TakeXsave(image_.xsave, &state_);
  TakeMsrs();
}

void KvmEngine::TakeMsrs() {
  MsrList list = {};
  for (const SharedMsr& msr : kSharedMsrs) {
    if (kvm_->KeepsMsr(msr.index)) list.entries[list.header.nmsrs++].index = msr.index;
  }
  Take(KVM_GET_MSRS, &list, "the MSRs");
  unsigned at = 0;
  for (std::size_t i = 0; i < std::size(kSharedMsrs); ++i) {
    if (!kvm_->KeepsMsr(kSharedMsrs[i].index)) continue;
    image_.msrs[i] = state_.*kSharedMsrs[i].field = list.entries[at++].data;
  }
}

bool KvmEngine::PutMsrs() {
  MsrList list = {};
  for (std::size_t i = 0; i < std::size(kSharedMsrs); ++i) {
    const SharedMsr& msr = kSharedMsrs[i];
    const u64 value = state_.*msr.field;
    if (!kvm_->KeepsMsr(msr.index) || (image_.valid && image_.msrs[i] == value)) continue;
    image_.msrs[i] = value;
    list.entries[list.header.nmsrs].index = msr.index;
    list.entries[list.header.nmsrs++].data = value;
  }
  return list.header.nmsrs == 0 || Put(KVM_SET_MSRS, &list, "the MSRs");
}

bool KvmEngine::PutTscOffset() {
  if (image_.valid && image_.tsc_offset == state_.tsc_offset) return true;
  image_.tsc_offset = state_.tsc_offset;
  kvm_device_attr attribute = {};
  attribute.group = KVM_VCPU_TSC_CTRL;
  attribute.attr = KVM_VCPU_TSC_OFFSET;
  attribute.addr = reinterpret_cast<u64>(&image_.tsc_offset);
  return Put(KVM_SET_DEVICE_ATTR, &attribute, "the time-stamp counter");
}

bool KvmEngine::PutGuestDebug() {
  const bool wanted = step_next_ || debug_registers_.any();
  if (!wanted && !debug_dirty_) return true;
  debug_dirty_ = wanted;
  kvm_guest_debug debug = {};
  if (step_next_) debug.control |= KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP;
  if (debug_registers_.any()) {
    debug.control |= KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP;
    for (unsigned i = 0; i < DebugRegisters::kCount; ++i) {
      debug.arch.debugreg[i] = debug_registers_.address(i).value;
    }
    debug.arch.debugreg[7] = debug_registers_.Control(/*breakpoints=*/!step_next_);
  }
  return Put(KVM_SET_GUEST_DEBUG, &debug, "the debugger's points");
}

// The Mmu's shadow is a TLB that nobody flushes while KVM runs the guest.
void KvmEngine::FollowState() {
  if (vcpu::UsesPdptes(state_)) mmu_.LoadPdptes(state_.cr3);
  mmu_.PagingModeChanged();
  mmu_.AddressSpaceLoaded();
  mmu_.InvalidateAll();
  mmu_.PrivilegeChanged();
}

void KvmEngine::StateChanged() { FollowState(); }

void KvmEngine::InjectInterrupt(u8 vector) {
  ++counters_.interrupts_delivered;
  DeliverInjected();
  injected_ = vector;
  state_.halted = 0;
  // The step that follows is the handler's first.
  if (step_next_) DeliverInjected();
}

void KvmEngine::DeliverInjected() {
  if (!injected_.has_value()) return;
  vcpu::DeliverEvent(state_, mmu_, vcpu::Event::External(*std::exchange(injected_, std::nullopt)),
                     state_.rip);
}

// What KVM had begun to deliver when it left.
void KvmEngine::DeliverLeftovers() {
  const kvm_vcpu_events events = image_.events;
  if (const auto exception = LeftException(events, state_.cr2)) {
    ++counters_.exceptions_delivered;
    vcpu::DeliverEvent(state_, mmu_, *exception, state_.rip);
  }
  if (events.interrupt.injected != 0 && events.interrupt.soft == 0) {
    injected_ = events.interrupt.nr;
    DeliverInjected();
  }
}

// --- From outside ---

void KvmEngine::RequestStop() {
  RequestAttention();
  if (running_ && thread_id_ != 0) syscall(SYS_tgkill, getpid(), thread_id_, KickSignal());
}

void KvmEngine::StopInHandler(void*) { RequestAttention(); }

void KvmEngine::RequestAttention() {
  __atomic_store_n(&state_.stop_requested, 1, __ATOMIC_SEQ_CST);
  __atomic_store_n(&run_.immediate_exit, 1, __ATOMIC_SEQ_CST);
}

bool KvmEngine::SetBreakpoint(LinearAddr pc, bool set) {
  bool done = set ? points_.AddBreakpoint(pc) : points_.RemoveBreakpoint(pc);
  if (!debug_registers_.Arm(points_) && done && set) {
    points_.RemoveBreakpoint(pc);
    debug_registers_.Arm(points_);
    done = false;
  }
  return done;
}

bool KvmEngine::SetWatch(const runtime::Watch& watch, bool set) {
  bool done = set ? points_.AddWatch(watch) : points_.RemoveWatch(watch);
  if (!debug_registers_.Arm(points_) && done && set) {
    points_.RemoveWatch(watch);
    debug_registers_.Arm(points_);
    done = false;
  }
  return done;
}

}  // namespace alibi::hardware
