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
#include "runtime/engine_impl.h"
#include "runtime/trap_price.h"
#include "translator/decoder.h"
#include "vcpu/breakpoints.h"
#include "vcpu/control_registers.h"
#include "vcpu/control_transfer.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/exceptions.h"
#include "vcpu/interrupts.h"
#include "vcpu/msr.h"

namespace alibi::runtime {

using translator::Ccf;
using translator::CodeMode;
using translator::DecodeStatus;
using translator::ExitDesc;
using translator::Instr;
using translator::kNoPage;
using translator::Op;
using vcpu::GuestFault;

namespace {

constexpr u64 kBounceBytes = 8192;
constexpr u64 kXsaveHeader = 512;
constexpr u16 kX87Exceptions = 0x3f, kX87Summary = 0x8080;  // the status word's ES and B
// XCR0 components that translated code may touch: x87, SSE, AVX, AVX-512. (Not PKRU: the host's.)
constexpr u64 kXstateComponents = 0xe7;

// What is known of the instructions of one page.
class SitesOfPage final : public translator::ExactFlagSites {
 public:
  SitesOfPage(adapt::SiteTable& sites, PhysAddr page)
      : sites_(sites), page_(page.value & ~kPageMask), any_(sites.MayHaveInPage(page_)) {}
  bool any() const { return any_; }
  const adapt::SiteRecord* Find(u64 pc) const {
    return any_ ? sites_.Find(pc, page_ | (pc & kPageMask)) : nullptr;
  }
  bool KeepsExactFlags(u64 pc) const override {
    const adapt::SiteRecord* site = Find(pc);
    return site != nullptr && site->shows_flags;
  }

 private:
  adapt::SiteTable& sites_;
  const u64 page_;
  const bool any_;
};

template <class Descriptor, u64 (EngineImpl::*Method)(Descriptor, u64)>
u64 CalloutThunk(void* engine, u64 r10, u64 r11) {
  auto* self = static_cast<EngineImpl*>(engine);
  self->NoticeView();
  self->NoticeEntry();
  return (self->*Method)(DescriptorIn<Descriptor>(r10), r11);
}

template <class Descriptor, u64 (EngineImpl::*Method)(Descriptor, u64)>
u64 CountingThunk(void* engine, u64 r10, u64 r11) {
  auto* self = static_cast<EngineImpl*>(engine);
  self->NoticeView();
  self->NoticeEntry();
  return self->CountedCallout<Descriptor, Method>(DescriptorIn<Descriptor>(r10), r11);
}

template <class Descriptor, u64 (EngineImpl::*Method)(Descriptor, u64)>
CalloutFunction ThunkOf(bool counts) {
  if constexpr (kIsOfSite<Descriptor>) {
    if (counts) return &CountingThunk<Descriptor, Method>;
  }
  return &CalloutThunk<Descriptor, Method>;
}

bool IsSoftwareInterrupt(Op op) {
  return op == Op::kInt || op == Op::kInt3 || op == Op::kInto || op == Op::kInt1;
}

bool IsString(Op op) {
  return op == Op::kMovs || op == Op::kStos || op == Op::kLods || op == Op::kCmps ||
         op == Op::kScas || op == Op::kIns || op == Op::kOuts;
}

// Those after which an interrupt shadow is that of SS, which holds debug exceptions back as well.
bool LoadsSs(Op op) { return op == Op::kMovSreg || op == Op::kPopSreg || op == Op::kLds; }

// FLDCW, FLDENV and FRSTOR: of the waiting instructions those that load the control word.
bool LoadsControlWord(const Instr& instr) {
  if (instr.unit != translator::Unit::kX87) return false;
  const u8* byte = &instr.bytes[instr.layout.opcode];
  const u8 extension = byte[1] >> 3 & 7;
  if (byte[1] >= 0xc0) return false;
  return (byte[0] == 0xd9 && (extension == 4 || extension == 5)) ||
         (byte[0] == 0xdd && extension == 4);
}

u64 ReadXcr0() {
  u32 low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return u64{high} << 32 | low;
}

// What the guest's CPUID does not show is #UD when it is translated.
translator::FeatureSet ShownFeatures(const vcpu::CpuidPolicy& policy,
                                     const vcpu::VcpuState& state) {
  translator::FeatureSet shown;
  for (unsigned i = 1; i < static_cast<unsigned>(translator::Feature::kCount); ++i) {
    const auto feature = static_cast<translator::Feature>(i);
    const translator::FeatureBit& bit = FeatureBitOf(feature);
    const vcpu::CpuidRegisters r = policy.Query(state, bit.leaf, bit.subleaf);
    const u32 registers[] = {r.eax, r.ebx, r.ecx, r.edx};
    if (!((registers[static_cast<unsigned>(bit.reg)] >> bit.bit) & 1)) shown.Hide(feature);
  }
  return shown;
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
      needs_(options.policy->needs()),
      clock_(needs_.clock),
      shown_features_(ShownFeatures(*options.cpuid, *options.state)),
      tu_(std::make_unique<translator::TranslationUnit>()),
      watched_memory_(*options.state, *options.mmu, &watch_hits_, &points_),
      watched_ports_(*options.state, *options.ports, &watch_hits_),
      simulator_{*options.state,    *options.mmu,   *options.ports,
                 *options.platform, *options.cpuid, this},
      watched_simulator_{*options.state,    watched_memory_, watched_ports_,
                         *options.platform, *options.cpuid,  this} {}

EngineImpl::~EngineImpl() {
  if (bounce_ != nullptr) munmap(bounce_, kBounceBytes);
}

Status EngineImpl::Init() {
  Result<std::unique_ptr<TranslationCache>> tc = TranslationCache::Create(options_.tc_bytes);
  if (!tc.ok()) return tc.error();
  tc_ = std::move(*tc);
  ALIBI_CHECK(tc_->stub_host() >> 32 != 0,
              "pointers below 4 GB are the guest's own (x87_pointers.h)");
  void* bounce =
      mmap(nullptr, kBounceBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bounce == MAP_FAILED) return Error{"out of host memory"};
  bounce_ = static_cast<u8*>(bounce);

  StubRequest request;
  request.engine = this;
  const bool counts = options_.executions != nullptr;
#define ALIBI_CALLOUT(name, descriptor, contract)             \
  request.callouts[static_cast<unsigned>(Callout::k##name)] = \
      ThunkOf<DescriptorOf<Callout::k##name>, &EngineImpl::On##name>(counts);
#include "abi/callouts.inc"
#undef ALIBI_CALLOUT
  request.stop_soon = [](void* engine, u64 resume, u64) {
    return static_cast<EngineImpl*>(engine)->StopSoon(resume);
  };
  request.dispatch = [](void* engine, u64, u64) {
    static_cast<EngineImpl*>(engine)->NoticeView();
    return static_cast<EngineImpl*>(engine)->DispatchThroughTable();
  };
  request.host = tc_->stub_host();
  request.xstate_mask = ReadXcr0() & kXstateComponents;
  std::vector<u8> code;
  stubs_ = EmitStubs(request, &code);
  tc_->Write(request.host, code.data(), code.size());

  emitter_ = std::make_unique<translator::Emitter>(stubs_);

  mmu_.set_listener(this);
  const void* const default_jumps[] = {
      reinterpret_cast<const void*>(stubs_.at(Callout::kLookupComputed)),
      reinterpret_cast<const void*>(stubs_.at(Callout::kLookupCrossPage))};
  mmu_.set_default_jump_targets(default_jumps);
  state_.cr8_reserved_mask = ~u64{0xf};
  state_.page_index_mask = (kShadowEntries - 1) << 12;
  state_.jump_index_mask = kJumpIndexMask;
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
  prices_.trap = TrapPrice();
  prices_.callout = CalloutPrice();
  policy_.Watch(prices_);
  return Ok{};
}

u32 EngineImpl::CalloutPrice() {
  constexpr u32 kRoundTrips = 64, kSamples = 7;
  SyncGs();
  const u64 rcx = state_.gpr[vcpu::kRcx], flags = state_.arithmetic_flags;
  u64 least = ~u32{0};
  for (unsigned i = 0; i < kSamples; ++i) {
    state_.gpr[vcpu::kRcx] = kRoundTrips;
    const u64 begin = __rdtsc();
    reinterpret_cast<void (*)(u64)>(stubs_.enter)(stubs_.probe);
    least = std::min<u64>(least, (__rdtsc() - begin) / kRoundTrips);
  }
  state_.gpr[vcpu::kRcx] = rcx;
  state_.arithmetic_flags = flags;
  return static_cast<u32>(least);
}

Exit EngineImpl::Run() {
  InstallHostFaultHandlers();
  CurrentEngine() = this;
  thread_id_ = static_cast<int>(syscall(SYS_gettid));
  __atomic_store_n(&running_, true, __ATOMIC_SEQ_CST);
  gs_ = 0;
  hide_numeric_error_ = false;  // an interrupt may have come in front of that instruction
  struct Leave {
    EngineImpl* engine;
    ~Leave() {
      __atomic_store_n(&engine->running_, false, __ATOMIC_SEQ_CST);
      engine->pending_exit_ = nullptr;
      engine->pending_indirect_ = false;
      engine->RelinkExits();
      CurrentEngine() = nullptr;
    }
  } leave{this};
  for (;;) {
    RelinkExits();
    recorder_.Drain();
    counters_.policy_faults = policy_.fault() != nullptr;
    if (points_.stopped()) return Exit::kDebug;
    if (memory_map_changed_) {
      memory_map_changed_ = false;
      if (!tc_->all().empty()) FlushTc();
    }
    if (state_.shutdown) return Exit::kShutdown;
    if (__atomic_exchange_n(&state_.stop_requested, 0, __ATOMIC_SEQ_CST) != 0)
      return Exit::kStopped;
    const bool debug_step = step_next_ || step_over_watch_;
    if (!debug_step && state_.irq_pending && vcpu::CanTakeInterrupt(state_)) {
      return Exit::kInterruptWindow;
    }
    if (!debug_step && state_.nmi_pending && vcpu::CanTakeNmi(state_)) {
      return Exit::kInterruptWindow;
    }
    if (state_.halted) return Exit::kHalted;
    watching_ = vcpu::BreakpointsEnabled(state_);
    if (!debug_step && points_.any_breakpoint() && points_.IsBreakpoint(LinearPc())) {
      points_.Stop(DebugCause::kBreakpoint, LinearPc());
      continue;
    }
    // How long IGNNE# lasts shows in the status word alone: one instruction at a time.
    if (ignore_numeric_error_ && !NumericErrorPending()) ignore_numeric_error_ = false;
    if ((state_.system_flags & vcpu::kTf) || state_.interrupt_shadow != 0 || watching_ ||
        ignore_numeric_error_ || debug_step) {
      const bool done = Step();
      if (debug_step && done) {
        step_over_watch_ = false;
        if (std::exchange(step_next_, false) && !points_.stopped()) {
          points_.Stop(DebugCause::kStep, LinearPc());
        }
      }
      continue;
    }
    ss_shadow_ = false;
    if (const u64 entry = PrepareEntry(); entry != 0) Enter(entry);
  }
}

void EngineImpl::Enter(u64 entry) {
  SyncGs();
  reinterpret_cast<void (*)(u64)>(stubs_.enter)(entry);
  ++counters_.full_exits;
}

// The XSAVE area begins with x87's control and status words.
bool EngineImpl::NumericErrorPending() const {
  u16 words[2];
  u64 components;
  std::memcpy(words, state_.xsave_area, sizeof(words));
  std::memcpy(&components, state_.xsave_area + kXsaveHeader, sizeof(components));
  return (components & 1) != 0 && (words[1] & ~words[0] & kX87Exceptions) != 0;
}

void EngineImpl::HideNumericError() {
  u16 words[2];
  std::memcpy(words, state_.xsave_area, sizeof(words));
  hidden_control_ = words[0];
  hidden_exceptions_ = words[1] & ~words[0] & kX87Exceptions;
  words[0] |= kX87Exceptions;
  words[1] &= static_cast<u16>(~(hidden_exceptions_ | kX87Summary));
  std::memcpy(state_.xsave_area, words, sizeof(words));
}

void EngineImpl::ShowNumericError(const Instr* instr) {
  if (instr != nullptr && LoadsControlWord(*instr)) return;
  u16 words[2];
  std::memcpy(words, state_.xsave_area, sizeof(words));
  words[0] = (words[0] & ~kX87Exceptions) | (hidden_control_ & kX87Exceptions);
  words[1] |= hidden_exceptions_ | kX87Summary;
  std::memcpy(state_.xsave_area, words, sizeof(words));
}

// SDM vol. 3, 17.3 and table 6-2.
bool EngineImpl::Step() {
  const bool trap = (state_.system_flags & vcpu::kTf) != 0;
  const bool only_branches = (state_.debugctl & vcpu::kDebugCtlBtf) != 0;
  const u64 start = state_.rip;
  const bool hide = hide_numeric_error_;
  hide_numeric_error_ = false;  // whatever is delivered now: others follow
  const u16 task = state_.segment[vcpu::kTr].selector;
  auto deliver = [&](u64 dr6, bool between_iterations) {
    vcpu::ReportDebug(state_, dr6);
    ++counters_.exceptions_delivered;
    vcpu::Event event = vcpu::Event::Trap(vcpu::kDebug);
    event.between_iterations = between_iterations;
    vcpu::DeliverEvent(state_, mmu_, event, state_.rip);
  };
  const bool shadowed = ss_shadow_ && vcpu::HasIntelsWay(vcpu::GuestDifference::kBreakpointInShadow,
                                                         options_.cpuid->vendor());
  if (watching_ && !shadowed && !(state_.system_flags & vcpu::kRf)) {
    const u64 hits = MatchBreakpoints(state_, vcpu::BreakpointAccess::kExecute, LinearPc(), 1);
    // A fault, but one whose frame does not have RF set.
    if (hits != 0) {
      ss_shadow_ = false;
      deliver(hits | std::exchange(held_debug_hits_, 0), false);
      return true;
    }
  }

  // What MOV SS has held back waits for the boundary behind the next instruction. If that one
  // faults, this is the one in front of its handler (SDM vol. 3, 6.8.3), as with INT n.
  const u64 delivered = counters_.exceptions_delivered;
  const bool general_detect = (state_.dr[7] & vcpu::kDr7Gd) != 0;
  auto deliver_held = [&] {
    ss_shadow_ = false;
    const u64 held = held_debug_hits_;
    held_debug_hits_ = 0;
    if (held == 0 || state_.shutdown) return;
    // A #DB of its own, of MOV DR, brings it along.
    if (general_detect && !(state_.dr[7] & vcpu::kDr7Gd)) {
      state_.dr[6] |= held;
    } else {
      deliver(held, false);
    }
  };

  in_single_ = true;
  again_ = false;
  watch_hits_ = 0;
  const u64 entry = PrepareEntry();
  if (entry != 0) {
    const Ccf& ccf = *tc_->FindByHost(entry);
    const Instr instr = ccf.instrs().front();
    const u64 next_rip = ccf.mode.RipOf(instr.next_pc());
    const translator::Op op = instr.op;
    const bool repeated = instr.rep || instr.repne;
    const u8 shadow = state_.interrupt_shadow;
    state_.interrupt_shadow = 0;  // it covers exactly this instruction
    if (op == Op::kInt1 && held_debug_hits_ != 0) {
      // Its own #DB brings along what MOV SS has held back.
      vcpu::ReportDebug(state_, held_debug_hits_);
      held_debug_hits_ = 0;
    }
    if (hide) HideNumericError();
    Enter(entry);
    in_single_ = false;
    const bool again = (again_ || simulate_next_) && counters_.exceptions_delivered == delivered;
    if (hide) {
      const bool done = !again && counters_.exceptions_delivered == delivered;
      ShowNumericError(done ? &instr : nullptr);
    }
    if (again) {
      if (!state_.halted) state_.interrupt_shadow = shadow;
      return false;
    }
    if (counters_.exceptions_delivered != delivered) {
      points_.Forget();  // it has not touched anything after all
      deliver_held();
      return true;
    }
    ss_shadow_ = false;
    const u64 held = held_debug_hits_;
    held_debug_hits_ = 0;
    const bool unfinished = repeated && IsString(op) && state_.rip == start;
    const bool switched = op != Op::kLtr && state_.segment[vcpu::kTr].selector != task;
    if (op != Op::kIret && !switched && !unfinished)
      state_.system_flags &= ~static_cast<u32>(vcpu::kRf);
    // A taken INT n, INT3, INTO or INT1 has cleared TF before the trap would come.
    const bool taken = IsSoftwareInterrupt(op) && !(state_.system_flags & vcpu::kTf);
    u64 hits = watch_hits_ | held;
    if (LoadsSs(op) && state_.interrupt_shadow != 0) {
      ss_shadow_ = true;
      held_debug_hits_ = hits;
      return true;
    }
    // SYSCALL and SYSRET step by the TF they leave behind, by themselves.
    const bool steps_itself = op == Op::kSyscall || op == Op::kSysret;
    const bool passes = only_branches && (unfinished || state_.rip == next_rip);
    // Of a task switch TF went into the old task's TSS.
    if (trap && !taken && !steps_itself && !switched && !passes) hits |= vcpu::kDr6Bs;
    if (hits != 0) deliver(hits, unfinished);
    return true;
  }
  in_single_ = false;
  if (counters_.exceptions_delivered == delivered) return false;
  deliver_held();
  return true;
}

bool EngineImpl::SetBreakpoint(u64 pc, bool set) {
  if (!set) return points_.RemoveBreakpoint(pc);
  if (!points_.AddBreakpoint(pc)) return false;
  // None of the translations there are may run over it.
  for (Ccf* ccf : tc_->all()) {
    if (pc - ccf->pc < ccf->guest_bytes) Invalidate(ccf);
  }
  return true;
}

bool EngineImpl::HoldsBreakpoint(const Ccf& ccf) const {
  for (unsigned i = 0; i < ccf.instrs().size(); ++i) {
    if (points_.IsBreakpoint(ccf.instrs().pc(i))) return true;
  }
  return false;
}

bool EngineImpl::SetWatch(const Watch& watch, bool set) {
  const bool watched = points_.any_watch();
  const bool done = set ? points_.AddWatch(watch) : points_.RemoveWatch(watch);
  // Jump tables must not mix careful translations with others.
  if (points_.any_watch() != watched) mmu_.ResetAllJumpTables();
  return done;
}

u64 EngineImpl::PrepareEntry() {
  CodeMode mode = CurrentMode();
  mode.single = in_single_;
  mode.simulate = simulate_next_;
  mode.careful = mode.careful || watching_;
  NoticeMode(mode);
  const u64 pc = LinearPc();
  PhysAddr phys;
  GuestFault fault;
  bool faulted = false;
  Ccf* ccf = Lookup(pc, mode, &phys, &fault, &faulted);
  if (!faulted && ccf == nullptr) {
    ccf = Translate(pc, phys, mode, pending_indirect_);
    if (ccf == nullptr) {  // an instruction fetch faulted, and the fault was delivered
      pending_exit_ = nullptr;
      pending_indirect_ = false;
      return 0;
    }
  }
  ExitDesc* exit = pending_exit_;
  const bool indirect = pending_indirect_;
  pending_exit_ = nullptr;
  pending_indirect_ = false;
  simulate_next_ = false;
  if (faulted) {
    Deliver(fault);
    return 0;
  }
  if (!mode.simulate && !mode.single) {
    if (indirect && mode.UsesJumpTable()) LinkJumpTable(ccf);
    if (exit != nullptr) Chain(exit, ccf);
  }
  return ccf->entry;
}

Ccf* EngineImpl::Translate(u64 pc, PhysAddr phys, const CodeMode& mode, bool indirect) {
  const u64 begin = __rdtsc();
  if (!tc_->HasRoom() || sites_.overflowed()) FlushTc();
  auto deliver = [&](const GuestFault& fault) {
    Deliver(fault);
    return nullptr;
  };

  // Code outside RAM is rare: it is copied, and cannot be traced.
  u8 copy[2 * 16];
  const u8* bytes = memory_.HostRw(phys);
  unsigned available = static_cast<unsigned>(kPageSize - phys.PageOffset());
  const bool in_ram = bytes != nullptr;
  if (!in_ram) {
    available = std::min(available, 16u);
    memory_.ReadPhys(phys, copy, available);
    bytes = copy;
  }
  // An instruction behind CS's limit faults when it is reached.
  const u64 in_segment = mode.code_bits == 64 ? ~u64{0} : mode.code_limit - mode.RipOf(pc) + u64{1};
  available = static_cast<unsigned>(std::min<u64>(available, in_segment));
  const unsigned most = options_.plan_override == nullptr
                            ? translator::kMaxTuInstructions
                            : options_.plan_override->MaxInstructions();
  const unsigned limit = mode.single || mode.simulate || !in_ram ? 1 : most;
  const SitesOfPage sites(sites_, phys);
  u8 next_bytes[16];
  translator::CodeRequest code{.pc = pc,
                               .code_bits = mode.code_bits,
                               .bytes = bytes,
                               .available = available,
                               .page_before = in_ram ? static_cast<unsigned>(phys.PageOffset()) : 0,
                               .code_base = mode.code_base,
                               .max_instructions = limit,
                               // A single step's #DB shows all flags.
                               .look_ahead = !mode.single,
                               .shown = &shown_features_,
                               .exact_sites = sites.any() ? &sites : nullptr};
  DecodeStatus status = BuildTranslationUnit(code, tu_.get());
  u64 second_page = kNoPage;
  if (status == DecodeStatus::kNeedMoreBytes && in_segment > available) {
    PhysAddr next;
    GuestFault fault;
    u64 next_pc = (pc & ~kPageMask) + kPageSize;
    if (mode.code_bits != 64) next_pc = static_cast<u32>(next_pc);
    if (mode.code_bits == 64 && !Canonical(next_pc)) {
      return deliver(GuestFault::WithCode(vcpu::kGeneralProtection, 0));
    }
    if (!mmu_.Fetch(LinearAddr(next_pc), &next, &fault)) return deliver(fault);
    memory_.ReadPhys(next, next_bytes, sizeof(next_bytes));
    code.next_page = next_bytes;
    code.next_available =
        static_cast<unsigned>(std::min<u64>(sizeof(next_bytes), in_segment - available));
    code.page_before = 0;
    code.max_instructions = 1;
    status = BuildTranslationUnit(code, tu_.get());
    second_page = next.PageNumber();
  }
  // A breakpoint begins a translation, which is then not made.
  for (unsigned i = 1; points_.any_breakpoint() && i < tu_->count; ++i) {
    if (!points_.IsBreakpoint(tu_->instrs[i].pc)) continue;
    code.max_instructions = i;
    status = BuildTranslationUnit(code, tu_.get());
    break;
  }
  if (status == DecodeStatus::kTooLong || status == DecodeStatus::kNeedMoreBytes) {
    return deliver(GuestFault::WithCode(vcpu::kGeneralProtection, 0));
  }
  if (status != DecodeStatus::kOk) return deliver(GuestFault::Simple(vcpu::kInvalidOpcode));

  if (in_ram && second_page == kNoPage && limit != 1) {
    if (Ccf* old = Revive(pc, phys, mode, bytes - phys.PageOffset())) {
      if (recorder_.Wants(RecordKind::kTranslation)) {
        RecordTranslation(*old, adapt::log::Why::kRevived, begin);
      }
      return old;
    }
  }

  Ccf* const ccf = tc_->NewCcf();
  ccf->phys_page = phys.PageNumber();
  ccf->phys_page2 = second_page;
  translator::EmitRequest request;
  request.tu = tu_.get();
  request.mode = mode;
  request.indirect_entry = indirect && pending_exit_ == nullptr && !mode.simulate && !mode.single &&
                           mode.UsesJumpTable();
  request.shown = &shown_features_;
  request.slot_seed = slot_seed_;
  request.count = options_.executions != nullptr;
  request.ports = options_.ports;
  request.sysret_loads_ss =
      vcpu::HasIntelsWay(vcpu::GuestDifference::kSysretStackSegment, options_.cpuid->vendor());
  request.cmps_destination_first =
      vcpu::HostHasIntelsWay(vcpu::HostDifference::kCompareStringsFault);
  for (unsigned i = 0; i < tu_->count; ++i) {
    if (const adapt::SiteRecord* site = sites.Find(tu_->instrs[i].pc)) {
      request.plans[i].kind = static_cast<translator::SiteKind>(site->kind);
      request.plans[i].alone = site->alone;
      if (site->table_lookup) request.plans[i].lookup = translator::LookupKind::kTable;
    }
    if (options_.plan_override != nullptr) {
      options_.plan_override->Override(tu_->instrs[i], &request.plans[i]);
    }
    if (mode.simulate || mode.careful ||
        (tu_->instrs[i].op == Op::kMovCr && recorder_.Wants(RecordKind::kControl))) {
      request.plans[i].kind = translator::SiteKind::kSimulate;
    }
  }

  // Fall-through elision: if the predecessor's last jump ends where this CCF would begin, the CCF
  // takes the jump's place.
  ExitDesc* elide = nullptr;
  if (pending_exit_ != nullptr && !mode.single && !mode.simulate && second_page == kNoPage &&
      pending_exit_->kind == translator::ExitKind::kDirect && pending_exit_->patch_length == 5 &&
      pending_exit_->target == pc && pending_exit_->patch + 5 == tc_->hot_next() &&
      pending_exit_->ccf->phys_page == ccf->phys_page &&
      pending_exit_->patch >= pending_exit_->ccf->entry + translator::kEntryBytes) {
    elide = pending_exit_;
    tc_->TrimHot(5);
    elide->ccf->hot_end -= 5;
  }
  request.target = tc_->Target();
  const translator::EmitResult emitted = emitter_->Emit(request, ccf);
  ALIBI_CHECK(emitted.fits, "a CCF fits the room that HasRoom() promised");
  slot_seed_ += emitted.slots_used;
  ccf->examined_begin = tu_->examined_begin;
  ccf->examined_end = tu_->examined_end;
  tc_->Commit(ccf, emitted);
  if (elide != nullptr) {
    elide->elided = true;
    elide->linked = ccf;
    elide->next_incoming = ccf->incoming;
    ccf->incoming = elide;
    pending_exit_ = nullptr;
    ++counters_.elided_exits;
  }
  if (in_ram) {
    ccf->content_hash = ContentHash(*ccf, bytes - phys.PageOffset());
    mmu_.TraceCode(PhysAddr(phys.value & ~kPageMask));
    if (second_page != kNoPage) mmu_.TraceCode(PhysAddr(second_page * kPageSize));
  }
  if (Ccf* given_up = tc_->index().Add(ccf)) GiveUp(given_up);
  adapt::log::Why why = ForwardReplaced(ccf);
  if (mode.simulate) why = adapt::log::Why::kSimulate;
  if (mode.single) why = adapt::log::Why::kSingle;
  ++counters_.translations;
  counters_.translated_instructions += tu_->count;
  counters_.translated_guest_bytes += tu_->byte_length;
  counters_.emitted_bytes += emitted.hot_size + emitted.cold_size;
  counters_.translation_cycles += __rdtsc() - begin;
  prices_.retranslate = static_cast<u32>(counters_.translation_cycles / counters_.translations);
  if (recorder_.Wants(RecordKind::kTranslation)) RecordTranslation(*ccf, why, begin);
  if (observer_ != nullptr) observer_->OnTranslation(*ccf);
  return ccf;
}

u64 EngineImpl::ContentHash(const Ccf& ccf, const u8* page) const {
  return TranslationCache::HashBytes(page + (ccf.examined_begin - (ccf.pc & ~kPageMask)),
                                     ccf.examined_end - ccf.examined_begin);
}

// Replaced translations of this code, and those whose code was overwritten, forward to the new one:
// predecessors fall into some of them.
adapt::log::Why EngineImpl::ForwardReplaced(Ccf* to) {
  auto why = adapt::log::Why::kFirst;
  const CodeIndex& index = tc_->index();
  for (Ccf* old = index.Newest(to->pc, to->phys_page, to->mode); old != nullptr; old = old->older) {
    index.CountSteps(1);
    if (old == to || IsCurrent(*old)) continue;
    RedirectEntry(old, to->entry);
    if (old->forwards) continue;  // to another one so far
    old->forwards = true;
    if (why == adapt::log::Why::kFirst) {
      why = old->retired ? adapt::log::Why::kVerdict : adapt::log::Why::kOverwritten;
    }
    if (old->valid && observer_ != nullptr) observer_->OnAdaptation(*old, *to);
    // Nobody is in it while this runs, and nobody gets in: it has no say in its page any more,
    // whose list would otherwise grow with every change of mind.
    if (old->retired) old->valid = false;
  }
  counters_.index_steps = index.steps();
  return why;
}

// The index has given this version up, so that it will never be forwarded again: who still enters
// it goes on where the first version leads.
void EngineImpl::GiveUp(Ccf* ccf) {
  if (IsCurrent(*ccf)) return;  // of an instruction that crosses into this page or that one
  RedirectEntry(ccf, tc_->index().First(*ccf)->entry);
  ccf->forwards = true;
  ccf->valid = false;
}

// Kernels patch code and patch it back (text_poke's INT3 among others): the old translation still
// lies in the TC, with its sites as they were adapted.
Ccf* EngineImpl::Revive(u64 pc, PhysAddr phys, const CodeMode& mode, const u8* page) {
  CodeIndex& index = tc_->index();
  for (Ccf* ccf = index.Newest(pc, phys.PageNumber(), mode); ccf != nullptr; ccf = ccf->older) {
    index.CountSteps(1);
    if (ccf->valid || ccf->retired || ccf->phys_page2 != kNoPage ||
        ContentHash(*ccf, page) != ccf->content_hash) {
      continue;
    }
    if (points_.any_breakpoint() && HoldsBreakpoint(*ccf)) continue;
    tc_->Write(ccf->entry, ccf->entry_bytes.data(), ccf->entry_bytes.size());
    ccf->entry_bytes[0] = 0;
    ccf->valid = true;
    ccf->forwards = false;
    index.Renew(ccf);
    mmu_.TraceCode(PhysAddr(phys.value & ~kPageMask));
    ++counters_.ccf_revivals;
    ForwardReplaced(ccf);
    return ccf;
  }
  return nullptr;
}

void EngineImpl::FlushTc() {
  RelinkExits();
  pending_exit_ = nullptr;
  // Traces of code pages stay: the next translation of a page finds its trace set, and a store to a
  // page without translations only costs its own callout.
  for (const Ccf* ccf : tc_->all()) mmu_.UntraceCode(PhysAddr(ccf->phys_page * kPageSize));
  CollectExecutions();
  peak_tc_bytes_ = std::max(peak_tc_bytes_, tc_->used());
  peak_ccfs_ = std::max<u64>(peak_ccfs_, tc_->all().size());
  tc_->Flush();
  for (MissedSite& missed : missed_sites_) missed = {};
  mmu_.ResetAllJumpTables();
  ++counters_.tc_flushes;
  if (recorder_.Wants(RecordKind::kFlush)) RecordFlush(sites_.overflowed());
  if (sites_.overflowed()) {
    sites_.Clear();
    ++counters_.site_table_flushes;
  }
}

void EngineImpl::CollectExecutions() {
  if (options_.executions == nullptr) return;
  for (Ccf* ccf : tc_->all()) {
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

void EngineImpl::InjectInterrupt(u8 vector) {
  ++counters_.interrupts_delivered;
  vcpu::DeliverEvent(state_, mmu_, vcpu::Event::External(vector), state_.rip);
}

void EngineImpl::set_event_log(adapt::log::Ring* log) {
  ALIBI_CHECK(log == nullptr || logged_sites_ == 0,
              "an engine has one log: sites are numbered for it");
  recorder_.set_log(log);
  clock_ = needs_.clock || log != nullptr;
}

MemoryUse EngineImpl::memory_use() const {
  MemoryUse use;
  use.tc_bytes = tc_->used();
  use.tc_bytes_peak = std::max(peak_tc_bytes_, use.tc_bytes);
  use.tc_bytes_bound = tc_->capacity();
  use.ccfs = tc_->all().size();
  use.ccfs_peak = std::max(peak_ccfs_, use.ccfs);
  use.ccfs_bound = tc_->max_ccfs();
  return use;
}

const Ccf* EngineImpl::FindCcf(u64 pc) const {
  for (auto it = tc_->all().rbegin(); it != tc_->all().rend(); ++it) {
    if ((*it)->pc == pc && (*it)->valid && !(*it)->retired) return *it;
  }
  return nullptr;
}

std::string EngineImpl::DescribeHostPc(u64 host_pc) const {
  char text[160];
  if (tc_->IsStub(host_pc)) {
    const char* name = "(entry)";
    u64 start = tc_->stub_host();
#define ALIBI_CALLOUT(callout, descriptor, contract)                                 \
  if (const u64 at = stubs_.at(Callout::k##callout); at <= host_pc && at >= start) { \
    name = #callout;                                                                 \
    start = at;                                                                      \
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
  } else if (const Ccf* ccf = tc_->FindByHost(host_pc)) {
    std::snprintf(text, sizeof(text), "CCF of guest PC 0x%llx, hot +0x%llx",
                  static_cast<unsigned long long>(ccf->pc),
                  static_cast<unsigned long long>(host_pc - ccf->hot_start));
  } else {
    std::snprintf(text, sizeof(text), "outside the TC");
  }
  return text;
}

}  // namespace alibi::runtime
