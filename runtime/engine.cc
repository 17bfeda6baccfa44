// SPDX-License-Identifier: Apache-2.0
// The run loop and translation: everything that may take its time.
#include <immintrin.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include <cstring>
#include <utility>

#include "abi/contract.h"
#include "base/check.h"
#include "isa/decoder.h"
#include "runtime/engine_impl.h"
#include "runtime/trap_price.h"
#include "vcpu/breakpoints.h"
#include "vcpu/control_registers.h"
#include "vcpu/control_transfer.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/exceptions.h"
#include "vcpu/interrupts.h"
#include "vcpu/msr.h"

namespace alibi::runtime {

using isa::DecodeStatus;
using isa::Instr;
using isa::Op;
using translator::Ccf;
using translator::CodeMode;
using translator::ExitDesc;
using translator::kNoPage;
using vcpu::GuestFault;

namespace {

constexpr u64 kBounceBytes = 8192;
// XCR0 components that translated code may touch: x87, SSE, AVX, AVX-512. (Not PKRU: the host's.)
constexpr u64 kXstateComponents = 0xe7;

template <class Descriptor, Next (EngineImpl::*Method)(Descriptor, u64)>
u64 CalloutThunk(void* engine, u64 r10, u64 r11) {
  auto* self = static_cast<EngineImpl*>(engine);
  self->NoticeView();
  self->NoticeEntry();
  return (self->*Method)(DescriptorIn<Descriptor>(r10), r11).host.value;
}

template <class Descriptor, Next (EngineImpl::*Method)(Descriptor, u64)>
u64 CountingThunk(void* engine, u64 r10, u64 r11) {
  auto* self = static_cast<EngineImpl*>(engine);
  self->NoticeView();
  self->NoticeEntry();
  return self->CountedCallout<Descriptor, Method>(DescriptorIn<Descriptor>(r10), r11).host.value;
}

// The same for one VCPU of several that execute guest code beside each other.
template <CalloutFunction Thunk>
u64 GatedThunk(void* engine, u64 r10, u64 r11) {
  auto* self = static_cast<EngineImpl*>(engine);
  self->LeaveGuest();
  const u64 next = Thunk(engine, r10, r11);
  self->EnterGuest();
  return next;
}

template <CalloutFunction Thunk>
CalloutFunction GatedIf(bool gated) {
  return gated ? &GatedThunk<Thunk> : Thunk;
}

template <class Descriptor, Next (EngineImpl::*Method)(Descriptor, u64)>
CalloutFunction ThunkOf(bool counts, bool gated) {
  if constexpr (kIsOfSite<Descriptor>) {
    if (counts) return GatedIf<&CountingThunk<Descriptor, Method>>(gated);
  }
  return GatedIf<&CalloutThunk<Descriptor, Method>>(gated);
}

u64 DispatchThunk(void* engine, u64, u64) {
  auto* self = static_cast<EngineImpl*>(engine);
  self->NoticeView();
  return self->DispatchFromSignal().host.value;
}

u64 ReadXcr0() {
  u32 low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return u64{high} << 32 | low;
}

// What the guest's CPUID does not show is #UD when it is translated.
isa::FeatureSet ShownFeatures(const vcpu::CpuidPolicy& policy, const vcpu::VcpuState& state) {
  return isa::FeaturesShownBy(
      [&](u32 leaf, u32 subleaf) { return policy.Query(state, leaf, subleaf); });
}

}  // namespace

Result<std::unique_ptr<TranslatingEngine>> TranslatingEngine::Create(
    const TranslatingEngineOptions& options) {
  auto engine = std::make_unique<EngineImpl>(options);
  if (Status status = engine->Init(); !status.ok()) return status.error();
  return std::unique_ptr<TranslatingEngine>(std::move(engine));
}

EngineImpl::EngineImpl(const TranslatingEngineOptions& options)
    : options_(options),
      state_(*options.state),
      mmu_(*options.mmu),
      memory_(*options.memory),
      policy_(*options.policy),
      shown_features_(ShownFeatures(*options.cpuid, *options.state)),
      tu_(std::make_unique<translator::TranslationUnit>()),
      watched_memory_(*options.state, *options.mmu, &watch_hits_, &points_),
      watched_ports_(*options.state, *options.ports, &watch_hits_),
      simulator_{*options.state,    *options.mmu,   *options.ports,
                 *options.platform, *options.cpuid, this},
      watched_simulator_{*options.state,    watched_memory_, watched_ports_,
                         *options.platform, *options.cpuid,  this} {}

EngineImpl::~EngineImpl() {
  // What cannot be kept is translated again.
  if (store_ != nullptr) (void)store_->Save();
  if (bounce_ != nullptr) munmap(bounce_, kBounceBytes);
}

Status EngineImpl::Init() {
  Result<std::unique_ptr<TranslationCache>> made = TranslationCache::Create(options_.tc_bytes);
  if (!made.ok()) return made.error();
  fragments_.emplace(std::move(*made), stubs_, counters_, static_cast<Fragments::Listener&>(*this));
  sites_.emplace(policy_, *fragments_, events_, counters_, options_.plan_override != nullptr);
  ALIBI_CHECK(tc().stub_host().value >> 32 != 0,
              "pointers below 4 GB are the guest's own (x87_pointers.h)");
  void* bounce =
      mmap(nullptr, kBounceBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bounce == MAP_FAILED) return Error{"out of host memory"};
  bounce_ = static_cast<u8*>(bounce);

  StubRequest request;
  request.engine = this;
  const bool counts = options_.executions != nullptr, gated = options_.gate != nullptr;
#define ALIBI_CALLOUT(name, descriptor, contract)             \
  request.callouts[static_cast<unsigned>(Callout::k##name)] = \
      ThunkOf<DescriptorOf<Callout::k##name>, &EngineImpl::On##name>(counts, gated);
#include "abi/callouts.inc"
#undef ALIBI_CALLOUT
  request.stop_soon = [](void* engine, u64 resume, u64) {
    return static_cast<EngineImpl*>(engine)->StopSoon(HostAddr(resume)).value;
  };
  request.dispatch = GatedIf<&DispatchThunk>(gated);
  request.host = tc().stub_host();
  request.xstate_mask = ReadXcr0() & kXstateComponents;
  std::vector<u8> code;
  stubs_ = EmitStubs(request, &code);
  tc().Write(request.host, code.data(), code.size());

  emitter_ = std::make_unique<translator::Emitter>(stubs_);
  if (Status opened = OpenStore(); !opened.ok()) return opened;

  mmu_.set_listener(this);
  const void* const default_jumps[] = {stubs_.at(Callout::kLookupComputed).As(),
                                       stubs_.at(Callout::kLookupCrossPage).As()};
  mmu_.set_default_jump_targets(default_jumps);
  state_.cr8_reserved_mask = ~u64{0xf};
  state_.page_index_mask = (kShadowEntries - 1) << 12;
  state_.jump_index_mask = kJumpIndexMask;
  state_.conflict_index_mask = ConflictEntry::kIndexMask;
  vcpu::PrepareFastSyscall(state_);
  vcpu::UpdateRdtsc(state_);
  // An XSAVE area that was never written: the state after FNINIT, MXCSR at its reset value.
  u16 fcw = 0;
  std::memcpy(&fcw, state_.xsave_area, 2);
  if (fcw == 0) {
    const u16 reset_fcw = 0x37f;
    const u32 reset_mxcsr = 0x1f80;
    const u64 components = 3;
    std::memcpy(state_.xsave_area, &reset_fcw, 2);
    std::memcpy(state_.xsave_area + 24, &reset_mxcsr, 4);
    std::memcpy(state_.xsave_area + 512, &components, 8);
  }
  sites_->prices().trap = TrapPrice();
  sites_->prices().callout = CalloutPrice();
  sites_->ShowPrices();
  return StartDirectExecution();
}

u32 EngineImpl::CalloutPrice() {
  constexpr u32 kRoundTrips = 64, kSamples = 7;
  SyncGs();
  const u64 rcx = state_.gpr[vcpu::kRcx], flags = state_.arithmetic_flags;
  u64 least = ~u32{0};
  for (unsigned i = 0; i < kSamples; ++i) {
    state_.gpr[vcpu::kRcx] = kRoundTrips;
    const u64 begin = __rdtsc();
    EnterGuest();
    stubs_.enter.As<void(u64)>()(stubs_.probe.value);
    LeaveGuest();
    least = std::min<u64>(least, (__rdtsc() - begin) / kRoundTrips);
  }
  state_.gpr[vcpu::kRcx] = rcx;
  state_.arithmetic_flags = flags;
  return static_cast<u32>(least);
}

namespace {
// Of the calling thread; a system call once, since the VCPU is run again at each news.
int ThreadId() {
  static thread_local const int id = static_cast<int>(syscall(SYS_gettid));
  return id;
}
}  // namespace

void EngineImpl::BeginRun() {
  InstallHostFaultHandlers();
  CurrentEngine() = this;
  thread_id_ = ThreadId();
  __atomic_store_n(&running_, true, __ATOMIC_SEQ_CST);
}

void EngineImpl::EndRun() {
  __atomic_store_n(&running_, false, __ATOMIC_SEQ_CST);
  pending_.ForgetLinks();
  fragments_->RelinkExits();
  CurrentEngine() = nullptr;
}

Exit EngineImpl::Run() {
  BeginRun();
  gs_ = {};
  hide_numeric_error_ = false;  // an interrupt may have come in front of that instruction
  struct Leave {
    EngineImpl* engine;
    ~Leave() { engine->EndRun(); }
  } leave{this};
  for (;;) {
    mmu_.HearCodeNews();
    fragments_->RelinkExits();
    events_.Drain();
    counters_.policy_faults = (policy_.fault() != nullptr) + EnginePolicyFailed();
    if (points_.stopped()) return Exit::kDebug;
    if (memory_map_changed_) {
      memory_map_changed_ = false;
      if (!tc().all().empty()) FlushTc(&pending_);
    }
    if (state_.shutdown) return Exit::kShutdown;
    if (__atomic_exchange_n(&state_.stop_requested, 0, __ATOMIC_SEQ_CST) != 0) {
      Sample();
      return Exit::kStopped;
    }
    const bool debug_step = step_next_ || step_over_watch_;
    if (!debug_step && state_.irq_pending && vcpu::CanTakeInterrupt(state_)) {
      return Exit::kInterruptWindow;
    }
    if (!debug_step && state_.nmi_pending && vcpu::CanTakeNmi(state_)) {
      return Exit::kInterruptWindow;
    }
    if (state_.halted) return Exit::kHalted;
    if (BreakpointsChanged()) ArmBreakpoints();
    if (!debug_step && points_.IsDebuggersBreakpoint(LinearPc())) {
      points_.Stop(DebugCause::kBreakpoint, LinearPc());
      continue;
    }
    // How long IGNNE# lasts shows in the status word alone: one instruction at a time.
    if (ignore_numeric_error_ && !NumericErrorPending()) ignore_numeric_error_ = false;
    if ((state_.system_flags & vcpu::kTf) || state_.interrupt_shadow != 0 || port_breakpoints_ ||
        points_.IsGuestBreakpoint(LinearPc()) || ignore_numeric_error_ || debug_step ||
        (step_next_user_ && state_.cpl == 3)) {
      const bool done = Step();
      if (done) step_next_user_ = false;
      if (debug_step && done) {
        step_over_watch_ = false;
        if (std::exchange(step_next_, false) && !points_.stopped()) {
          points_.Stop(DebugCause::kStep, LinearPc());
        }
      }
      continue;
    }
    debug_step_.NotStepped();
    ForgetResumeFlag();
    if (GoesDirectly()) {
      if (RunDirectly()) continue;
      __atomic_store_n(&state_.stop_requested, 0, __ATOMIC_SEQ_CST);
      Sample();
      return Exit::kDetached;
    }
    if (const HostAddr entry = PrepareEntry()) {
      if (direct_ != nullptr) direct_->TellOfStops();
      Enter(entry);
    }
  }
}

void EngineImpl::Enter(HostAddr entry) {
  SyncGs();
  EnterGuest();
  if (WasWanted()) StopSoon(entry);
  stubs_.enter.As<void(u64)>()(entry.value);
  LeaveGuest();
  ++counters_.full_exits;
}

bool EngineImpl::SetBreakpoint(LinearAddr pc, bool set) {
  if (!set) return points_.RemoveBreakpoint(pc);
  if (!points_.AddBreakpoint(pc)) return false;
  fragments_->InvalidateAt(pc);
  return true;
}

bool EngineImpl::SetWatch(const Watch& watch, bool set) {
  const bool done = set ? points_.AddWatch(watch) : points_.RemoveWatch(watch);
  WatchPages();
  return done;
}

void EngineImpl::CollectExecutions() {
  if (options_.executions == nullptr) return;
  for (Ccf* ccf : tc().all()) {
    options_.executions->OnExecutions(*ccf, *ccf->counts);
    *ccf->counts = {.told_before = true};
  }
}

void EngineImpl::RequestStop() {
  __atomic_store_n(&state_.stop_requested, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&running_, __ATOMIC_SEQ_CST) && thread_id_ != 0) {
    syscall(SYS_tgkill, getpid(), thread_id_, StopSignal());
  }
}

void EngineImpl::StopInHandler(void* context) {
  __atomic_store_n(&state_.stop_requested, 1, __ATOMIC_SEQ_CST);
  if (running_ && CurrentEngine() == this) HandleStopSignal(context);
}

void EngineImpl::RequestAttention() {
  __atomic_store_n(&state_.stop_requested, 1, __ATOMIC_SEQ_CST);
}

void EngineImpl::IgnoreNumericError() {
  ignore_numeric_error_ = true;
  RequestAttention();
}

void EngineImpl::StateChanged() {
  vcpu::PrepareFastSyscall(state_);
  vcpu::UpdateRdtsc(state_);
  mmu_.PagingModeChanged();
  mmu_.InvalidateAll();
  mmu_.PrivilegeChanged();
}

// Translations, views with all that they cache, and sites are the machine's, not a VCPU's.
void EngineImpl::VcpuSwitched(unsigned from, unsigned to) {
  parked_[from] = {pending_,        debug_step_,     step_over_watch_,
                   translate_next_, step_next_user_, ignore_numeric_error_};
  pending_ = parked_[to].pending;
  translate_next_ = parked_[to].translate_next;
  step_next_user_ = parked_[to].step_next_user;
  debug_step_ = parked_[to].debug_step;
  step_over_watch_ = parked_[to].step_over_watch;
  ignore_numeric_error_ = parked_[to].ignore_numeric_error;
  vcpu::PrepareFastSyscall(state_);
  vcpu::UpdateRdtsc(state_);
  mmu_.VcpuSwitched(from, to);
  events_.Vcpu(static_cast<u8>(to));
}

void EngineImpl::InjectInterrupt(u8 vector) {
  ++counters_.interrupts_delivered;
  vcpu::DeliverEvent(state_, mmu_, vcpu::Event::External(vector), state_.rip);
}

void EngineImpl::set_event_observer(EventObserver* observer, u32 kinds) {
  events_.Observe(observer, kinds);
  if (options_.vcpus > 1) events_.Vcpu(state_.number);
}

void EngineImpl::set_event_log(adapt::log::Ring* log) {
  events_.set_log(log);
  sites_->WantClock(log != nullptr);
  if (options_.vcpus > 1) events_.Vcpu(state_.number);
}

MemoryUse EngineImpl::memory_use() const {
  MemoryUse use;
  use.tc_bytes = tc().used();
  use.tc_bytes_peak = fragments_->tc_bytes_peak();
  use.tc_bytes_bound = tc().capacity();
  use.ccfs = tc().all().size();
  use.ccfs_peak = fragments_->ccfs_peak();
  use.ccfs_bound = tc().max_ccfs();
  return use;
}

const Ccf* EngineImpl::FindCcf(LinearAddr pc) const {
  for (auto it = tc().all().rbegin(); it != tc().all().rend(); ++it) {
    if ((*it)->pc == pc && (*it)->valid && !(*it)->retired) return *it;
  }
  return nullptr;
}

std::string EngineImpl::DescribeHostPc(HostAddr host_pc) const {
  char text[160];
  if (tc().IsStub(host_pc)) {
    const char* name = "(entry)";
    HostAddr start = tc().stub_host();
#define ALIBI_CALLOUT(callout, descriptor, contract)                                      \
  if (const HostAddr at = stubs_.at(Callout::k##callout); at <= host_pc && at >= start) { \
    name = #callout;                                                                      \
    start = at;                                                                           \
  }
#include "abi/callouts.inc"
#undef ALIBI_CALLOUT
    if (stubs_.miss <= host_pc && stubs_.miss >= start) {
      name = "Miss";
      start = stubs_.miss;
    }
    const u64 offset = host_pc - start;
    std::snprintf(text, sizeof(text), offset == 0 ? "TC stub %s" : "TC stub %s +0x%llx", name,
                  static_cast<unsigned long long>(offset));
  } else if (const Ccf* ccf = fragments_->FindByHost(host_pc)) {
    std::snprintf(text, sizeof(text), "CCF of guest PC 0x%llx, hot +0x%llx",
                  static_cast<unsigned long long>(ccf->pc.value),
                  static_cast<unsigned long long>(host_pc - ccf->hot_start));
  } else {
    std::snprintf(text, sizeof(text), "outside the TC");
  }
  return text;
}

}  // namespace alibi::runtime
