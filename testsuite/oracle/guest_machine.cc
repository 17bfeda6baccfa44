// SPDX-License-Identifier: Apache-2.0
#include "testsuite/oracle/guest_machine.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "abi/contract.h"
#include "adapt/engine_policy.h"
#include "adapt/policy.h"
#include "base/check.h"
#include "base/memory_file.h"
#include "direct/direct_execution.h"
#include "mmu/mmu.h"
#include "testsuite/oracle/random.h"
#include "testsuite/oracle/segments.h"
#include "translator/ccf.h"
#include "vcpu/breakpoints.h"
#include "vcpu/control_registers.h"
#include "vcpu/descriptors.h"
#include "vcpu/reset.h"

namespace alibi::oracle {

namespace {

struct KindRow {
  const char* name;
  const char* meaning;
};
constexpr KindRow kKindRows[] = {
#define ALIBI_KIND(constant, name, what) {#name, what},
#include "testsuite/oracle/kinds.inc"
};

// Guest-physical layout.
constexpr u64 kRamBytes = 8 << 20;
constexpr u64 kGdt = 0x10000, kIdt = 0x11000, kTss = 0x12000, kHandlers = 0x13000;
constexpr u64 kIstTop = 0x16000, kLdt = 0x16000;
constexpr u64 kTables = 0x100000;
constexpr u64 kPages = 0x200000;
// Kind::kDirect has code pages enough for a period of direct/code_pages.h.
constexpr unsigned kFreshCode = 6144;
constexpr u64 kFreshPages = kRamBytes;
constexpr u64 kFreshBytes = kFreshCode * kCodeBytes;
// System structures are seen in the upper half, where the native side has the host's kernel.
constexpr u64 kSystemBase = 0xffff800000000000;
constexpr unsigned kHandlerBytes = 16;
// Selectors as Linux has them, so that reading one gives the same on both sides.
constexpr u16 kKernelCs = 0x10, kKernelSs = 0x18, kTssSelector = 0x40, kLdtSelector = 0x50;

constexpr bool PushesErrorCode(unsigned vector) {
  return vector == 8 || (vector >= 10 && vector <= 14) || vector == 17;
}

struct NoPorts final : vcpu::PortIo {
  u32 In(u16, unsigned) override { return 0xffffffff; }
  void Out(u16, unsigned, u32) override {}
};
struct NoPlatform final : vcpu::Platform {
  void ApicBaseWritten() override {}
  void TaskPriorityWritten() override {}
};

class ForcedPlan final : public runtime::PlanOverride {
 public:
  explicit ForcedPlan(Kind kind) : kind_(kind) {}
  void Override(const isa::Instr& instr, translator::SitePlan* plan) override {
    using translator::LookupKind;
    using translator::SiteKind;
    if (kind_ == Kind::kMixed) {
      const u64 dice = Random(instr.pc.value ^ ++translations_ << 32).Next();
      plan->kind = static_cast<SiteKind>(dice % 4 % 3);  // DIRECT twice as often
      plan->lookup = (dice >> 8) % 4 == 0 ? LookupKind::kTable : LookupKind::kSlot;
      if ((dice >> 16) % 8 == 0) plan->alone = true;  // what must be alone stays so
    }
    if (kind_ == Kind::kChecked || kind_ == Kind::kCheckedTable) plan->kind = SiteKind::kChecked;
    if (kind_ == Kind::kSimulate) plan->kind = SiteKind::kSimulate;
    if (kind_ == Kind::kTable || kind_ == Kind::kCheckedTable) plan->lookup = LookupKind::kTable;
    if (kind_ == Kind::kAlone) plan->alone = true;
  }
  unsigned MaxInstructions() const override {
    return kind_ == Kind::kSingle ? 1 : kind_ == Kind::kPairs ? 2 : translator::kMaxTuInstructions;
  }

 private:
  Kind kind_;
  u64 translations_ = 0;
};

// The policy `always`, but that a sequence in whose state user code cannot run directly does not
// decide about those behind it.
class WheneverPossible final : public adapt::EnginePolicy {
 public:
  const char* name() const override { return "whenever possible"; }
  adapt::UserEngine OnEvent(adapt::EngineRecord&, const adapt::EngineEvent&,
                            const adapt::EnginePrices&) override {
    return adapt::UserEngine::kDirect;
  }
};

const char* PolicyOf(Kind kind) {
  switch (kind) {
    case Kind::kAlways:
      return "always";
    case Kind::kHysteresis:
      return "hysteresis(1,2)";
    default:
      return "threshold";
  }
}

runtime::Engine* volatile running_engine = nullptr;
constexpr unsigned kSlowTick = 50'000;
bool ticking = false;  // somebody has chosen an interval

void OnAlarm(int) {
  if (running_engine != nullptr) running_engine->RequestStop();
}

u64 Milliseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<u64>(now.tv_sec) * 1000 + static_cast<u64>(now.tv_nsec) / 1'000'000;
}

}  // namespace

const char* KindName(Kind kind) { return kKindRows[static_cast<unsigned>(kind)].name; }
const char* KindMeaning(Kind kind) { return kKindRows[static_cast<unsigned>(kind)].meaning; }
Kind KindOf(const std::string& name) {
  for (unsigned i = 0; i < kKindCount; ++i) {
    if (name == kKindRows[i].name) return static_cast<Kind>(i);
  }
  return Kind::kCount;
}

void SetStopInterval(unsigned microseconds) {
  ticking = true;
  struct sigaction action {};
  action.sa_handler = OnAlarm;
  action.sa_flags = SA_ONSTACK | SA_RESTART;  // the guest owns the stack pointer
  sigfillset(&action.sa_mask);                // the engine's stop signal comes behind this one
  sigaction(SIGALRM, &action, nullptr);
  itimerval tick{};
  tick.it_interval.tv_usec = tick.it_value.tv_usec = microseconds == 0 ? kSlowTick : microseconds;
  setitimer(ITIMER_REAL, &tick, nullptr);
}

class GuestMachine::Impl {
 public:
  Impl(Kind kind, runtime::ExecutionSink* executions, adapt::EnginePolicy* engine_policy)
      : kind_(kind), plan_(kind), cpuid_(vcpu::CpuidPolicy::ForHost()) {
    policy_ = std::move(adapt::MakePolicy(PolicyOf(kind)).value());
    memory_ = std::move(mmu::GuestMemory::Create(u64{1} << 30).value());
    const u64 ram_bytes = kRamBytes + (kind == Kind::kDirect ? kFreshBytes : 0);
    ALIBI_CHECK(memory_->AddSlot(PhysAddr(0), ram_bytes).ok(), "test set-up");
    fd_ = CreateMemoryFile("oracle-vcpu", kVcpuBlockBytes);
    ALIBI_CHECK(fd_ >= 0, "test set-up");
    block_ = mmap(nullptr, kVcpuBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    ALIBI_CHECK(block_ != MAP_FAILED, "test set-up");
    state_ = new (block_) vcpu::VcpuState{};
    vcpu::ResetToMultiboot(*state_, cpuid_, 0, 0, 0);
    mmu::MmuOptions mmu_options;
    mmu_options.state = state_;
    mmu_options.memory = memory_.get();
    mmu_options.vcpu_fd = fd_;
    static const char kUnused = 0;
    mmu_options.default_jump_target = &kUnused;
    mmu_options.max_views = 4;
    mmu_ = std::move(mmu::Mmu::Create(mmu_options).value());
    BuildGuest();
    runtime::TranslatingEngineOptions options;
    options.mmu = mmu_.get();
    options.memory = memory_.get();
    options.state = state_;
    options.ports = &ports_;
    options.platform = &platform_;
    options.cpuid = &cpuid_;
    options.policy = policy_.get();
    if (kind == Kind::kDirect) {
      options.engine_policy = engine_policy != nullptr ? engine_policy : &engine_policy_;
    } else {
      options.plan_override = &plan_;  // with one, all code is translated
    }
    options.executions = executions;
    // Small, so that long runs see the cache fill up many times.
    options.tc_bytes = u64{1} << 20;
    auto engine = runtime::TranslatingEngine::Create(options);
    ALIBI_CHECK(engine.ok(), "test set-up");
    engine_ = std::move(engine.value());
    if (!ticking) SetStopInterval(0);
  }

  ~Impl() {
    engine_.reset();
    mmu_.reset();
    munmap(block_, kVcpuBlockBytes);
    close(fd_);
  }

  runtime::TranslatingEngine& engine() { return *engine_; }

  unsigned Run(const TestCase& test, const RunOptions& options, Outcome* outcome) {
    Prepare(test, options);
    const direct::Counters before = DirectCounters();
    const u64 begin = Milliseconds();
    unsigned stops = 0;
    running_engine = engine_.get();
    runtime::Exit exit = engine_->Run();
    while (exit == runtime::Exit::kStopped && Milliseconds() - begin < options.limit_ms) {
      ++stops;
      exit = engine_->Run();
    }
    running_engine = nullptr;
    End(test, exit, outcome);
    outcome->way = WaySince(before);
    return stops;
  }

  u64 RunInSteps(const TestCase& test, const RunOptions& options, Outcome* outcome) {
    Prepare(test, options);
    const u64 begin = Milliseconds();
    u64 executed = 0;
    runtime::Exit exit;
    do {
      const u64 rip = state_->rip;
      const u64 delivered = engine_->counters().exceptions_delivered;
      engine_->StepNext(true);
      exit = engine_->Run();
      engine_->ForgetDebugStop();
      // Neither a fault nor a repeated instruction between two iterations has executed it; #DB
      // comes behind an instruction (of TF, which sequences set).
      const bool fault = delivered != engine_->counters().exceptions_delivered &&
                         state_->rip != kSystemBase + kHandlers + vcpu::kDebug * kHandlerBytes;
      if (exit == runtime::Exit::kDebug && !fault && (state_->rip != rip || !RepeatsAt(rip))) {
        ++executed;
      }
    } while ((exit == runtime::Exit::kDebug || exit == runtime::Exit::kStopped) &&
             state_->halted == 0 && Milliseconds() - begin < options.limit_ms);
    engine_->StepNext(false);
    End(test, state_->halted != 0 ? runtime::Exit::kHalted : exit, outcome);
    return executed;
  }

 private:
  bool RepeatsAt(u64 rip) {
    u8 bytes[15];
    const LinearAddr pc(rip + (state_->In64BitCode() ? 0 : state_->segment[vcpu::kCs].base));
    const unsigned available = mmu_->DebugRead(pc, bytes, sizeof(bytes));
    isa::Instr instr;
    isa::Decode(bytes, available, pc, state_->CodeBits(), &instr);
    return instr.rep || instr.repne;
  }

  direct::Counters DirectCounters() {
    return engine_->direct() != nullptr ? engine_->direct()->counters() : direct::Counters{};
  }
  Way WaySince(const direct::Counters& before) {
    const direct::Counters now = DirectCounters();
    if (now.direct_entries == before.direct_entries) return Way::kTranslated;
    // The last instruction may be the translator's, which delivers the exception.
    const bool all = now.direct_instructions - before.direct_instructions <= 1 &&
                     now.direct_system_calls == before.direct_system_calls &&
                     now.direct_refusals == before.direct_refusals;
    return all ? Way::kDirect : Way::kMixed;
  }

  void Prepare(const TestCase& test, const RunOptions& options) {
    if (kind_ == Kind::kDirect && (options.new_code || code_changed_)) MapFreshCode();
    // A sequence that changed itself needs its code back, too.
    if (options.new_code || code_changed_) WriteCode(test);
    unsigned at = 0;
    for (unsigned i = 0; i < kDataPages.size(); ++i) {
      if (kDataPages[i].kind == PageKind::kAbsent) continue;
      std::memcpy(data_host_[i], InitialMemory().data() + at, kPageSize);
      at += kPageSize;
    }
    LoadState(test.initial);
    if (options.cold) mmu_->FlushAllViews();
    engine_->StateChanged();
  }

  void End(const TestCase& test, runtime::Exit exit, Outcome* outcome) {
    ReadOutcome(exit, outcome);
    code_changed_ = outcome->code != test.CodePages();
  }

  u64* Entry(u64 linear, unsigned level) {
    u64 table = kTables;
    for (unsigned l = 4;; --l) {
      auto* entry = reinterpret_cast<u64*>(
          memory_->HostRw(PhysAddr(table + ((linear >> (12 + 9 * (l - 1))) & 511) * 8)));
      if (l == level) return entry;
      if (*entry == 0) {
        next_table_ += kPageSize;
        *entry = next_table_ | mmu::kPtePresent | mmu::kPteWritable | mmu::kPteUser;
      }
      table = *entry & 0xffffffffff000;
    }
  }
  void Map(u64 linear, u64 phys, u64 bits) { *Entry(linear, 1) = phys | mmu::kPtePresent | bits; }
  // As a guest's kernel would, up to the INVLPG.
  void MapFreshCode() {
    for (unsigned i = 0; i < kCodePages; ++i) {
      // Those of one sequence lie far from each other, and the second in front of the first.
      const u64 at = (kCodePages - 1 - i) * kFreshCode + next_fresh_;
      code_phys_[i] = kFreshPages + at * kPageSize;
      const u64 linear = kCodeBase + i * kPageSize;
      const u64 entry = code_phys_[i] | mmu::kPtePresent | mmu::kPteUser | mmu::kPteWritable;
      memory_->WritePhys(PhysAddr(code_table_ + (linear >> 12 & 511) * 8), &entry, sizeof(entry));
      mmu_->InvalidatePage(LinearAddr(linear));
    }
    next_fresh_ = (next_fresh_ + 1) % kFreshCode;
  }
  void Put64(u64 phys, u64 value) { std::memcpy(memory_->HostRw(PhysAddr(phys)), &value, 8); }

  void BuildGuest() {
    using mmu::kPteNoExecute, mmu::kPteUser, mmu::kPteWritable;
    // Neighbouring pages lie far from each other and in falling order, with gaps that nothing
    // maps.
    u64 phys = kPages + 0x100000;
    auto next = [&] { return phys -= 3 * kPageSize; };
    for (unsigned i = 0; i < kCodePages; ++i) {
      const u64 page = next();
      code_phys_[i] = page;
      Map(kCodeBase + i * kPageSize, page, kPteUser | kPteWritable);
      std::memset(memory_->HostRw(PhysAddr(page)), 0xcc, kPageSize);
    }
    code_table_ = *Entry(kCodeBase, 2) & 0xffffffffff000;
    for (unsigned i = 0; i < kDataPages.size(); ++i) {
      if (kDataPages[i].kind == PageKind::kAbsent) continue;
      const u64 page = next();
      data_host_[i] = memory_->HostRw(PhysAddr(page));
      Map(kDataPages[i].linear, page,
          kPteUser | kPteNoExecute |
              (kDataPages[i].kind == PageKind::kReadWrite ? kPteWritable : 0));
    }
    for (u64 page = kGdt; page <= kLdt; page += kPageSize) {
      Map(kSystemBase + page, page, kPteWritable);
    }
    u64 at = kGdt;
    for (const u64 raw : GlobalDescriptors()) Put64(std::exchange(at, at + 8), raw);
    at = kLdt;
    for (const u64 raw : LocalDescriptors()) Put64(std::exchange(at, at + 8), raw);
    Put64(kTss + 0x24, kSystemBase + kIstTop);  // IST1
    Put64(kTss + 0x60, u64{0x68} << 48);        // no I/O permission map
    for (unsigned vector = 0; vector < 256; ++vector) {
      const u64 handler = kSystemBase + kHandlers + vector * kHandlerBytes;
      const unsigned dpl = vector == 3 || vector == 4 ? 3 : 0;
      Put64(kIdt + vector * 16, (handler & 0xffff) | u64{kKernelCs} << 16 | u64{1} << 32 |
                                    u64{0x8e00u | dpl << 13} << 32 |
                                    (handler >> 16 & 0xffff) << 48);
      Put64(kIdt + vector * 16 + 8, handler >> 32);
      memory_->HostRw(PhysAddr(kHandlers))[vector * kHandlerBytes] = 0xf4;  // hlt
    }
    if (IsInterrupted(kind_)) {
      constexpr u8 kReturn[] = {0x80, 0x4c, 0x24, 0x12, 0x01,  // or byte [rsp + 18], 1: RF
                                0x48, 0xcf};                   // iretq
      std::memcpy(memory_->HostRw(PhysAddr(kHandlers)) + vcpu::kDebug * kHandlerBytes, kReturn,
                  sizeof(kReturn));
    }
  }

  // As a device would: through the guest-physical interface, which tells the engine. Only what
  // differs: the translations of the rest stay.
  void WriteCode(const TestCase& test) {
    const auto pages = test.CodePages();
    for (u64 page = 0; page < kCodePages; ++page) {
      const u8* want = pages.data() + page * kPageSize;
      const u8* have = memory_->HostRw(PhysAddr(code_phys_[page]));
      const u8* end = want + kPageSize;
      for (const u8* from = want; from != end;) {
        const u8* other = have + (from - want);
        const u8* first = std::mismatch(from, end, other).first;
        if (first == end) break;
        // Up to the next 16 bytes that are equal.
        const u8* last = first;
        while (last != end && std::memcmp(last, have + (last - want),
                                          std::min<std::size_t>(16, end - last)) != 0) {
          ++last;
        }
        memory_->WritePhys(PhysAddr(code_phys_[page] + (first - want)), first, last - first);
        from = last;
      }
    }
  }

  // Breakpoints where a sequence is likely to come: at an instruction (if one begins there), at the
  // top of the stack, at what two registers point to.
  void SetBreakpoints(const CpuState& initial) {
    constexpr u64 kEnabled = 0x55, kExecute = 0, kWrite = 1, kAccess = 3, kEight = 2;
    const u64 dice = Random(initial.gpr[vcpu::kRax] ^ initial.gpr[vcpu::kRsp]).Next();
    vcpu::VcpuState& s = *state_;
    s.dr[0] = initial.rip + dice % 16;
    s.dr[1] = initial.gpr[vcpu::kRsp] - 8;
    s.dr[2] = initial.gpr[dice >> 8 & 15] + (dice >> 16 & 31);
    s.dr[3] = initial.gpr[dice >> 24 & 15] + (dice >> 32 & 31);
    const u64 controls[] = {kExecute, kWrite | kEight << 2, kAccess | kEight << 2,
                            kWrite | kEight << 2};
    s.dr[7] |= kEnabled;
    for (unsigned i = 0; i < vcpu::kBreakpoints; ++i) s.dr[7] |= controls[i] << (16 + 4 * i);
  }

  void LoadState(const CpuState& initial) {
    vcpu::VcpuState& s = *state_;
    const bool user = kind_ != Kind::kSupervisor;
    s.cr0 = vcpu::kCr0Pe | vcpu::kCr0Mp | vcpu::kCr0Et | vcpu::kCr0Ne | vcpu::kCr0Wp |
            vcpu::kCr0Am | vcpu::kCr0Pg;
    s.cr2 = 0;
    s.cr3 = kTables;
    s.cr4 = vcpu::kCr4Pae | vcpu::kCr4Pge | vcpu::kCr4Osfxsr | vcpu::kCr4Osxmmexcpt |
            vcpu::kCr4Fsgsbase | vcpu::kCr4Osxsave | vcpu::kCr4Umip;
    s.efer = vcpu::kEferSce | vcpu::kEferLme | vcpu::kEferLma | vcpu::kEferNxe;
    s.xcr0 = XsaveLayout::Host().mask;
    s.dr[6] = vcpu::kDr6Fixed;
    s.dr[7] = vcpu::kDr7Fixed;
    if (kind_ == Kind::kWatched) SetBreakpoints(initial);
    s.cpl = user ? 3 : 0;
    for (unsigned i = 0; i < initial.selector.size(); ++i) {
      s.segment[i] = SegmentOf(initial.selector[i]);
    }
    if (!user) {
      s.segment[vcpu::kCs] =
          vcpu::Descriptor{GlobalDescriptors()[kKernelCs / 8]}.ToSegment(kKernelCs);
      s.segment[vcpu::kSs] =
          vcpu::Descriptor{GlobalDescriptors()[kKernelSs / 8]}.ToSegment(kKernelSs);
    }
    if (initial.selector[vcpu::kFs] < 4) s.segment[vcpu::kFs].base = initial.fs_base;
    if (initial.selector[vcpu::kGs] < 4) s.segment[vcpu::kGs].base = initial.gs_base;
    s.segment[vcpu::kLdtr] = {.base = kSystemBase + kLdt,
                              .limit = static_cast<u32>(8 * LocalDescriptors().size() - 1),
                              .selector = kLdtSelector,
                              .attributes = 0x82};
    s.segment[vcpu::kTr] = {
        .base = kSystemBase + kTss, .limit = 0x67, .selector = kTssSelector, .attributes = 0x8b};
    s.gdtr = {.base = kSystemBase + kGdt, .limit = kGdtLimit};
    s.idtr = {.base = kSystemBase + kIdt, .limit = 0xfff};
    for (unsigned i = 0; i < 16; ++i) s.gpr[i] = initial.gpr[i];
    s.rip = OffsetOf(initial.selector[vcpu::kCs], initial.rip);
    s.SetRflags(initial.rflags | vcpu::kIf | (kind_ == Kind::kStepped ? vcpu::kTf : 0));
    s.halted = s.shutdown = s.nmi_blocked = s.interrupt_shadow = 0;
    s.irq_pending = 0;
    StoreVector(initial.vector, s.xsave_area);
  }

  void ReadOutcome(runtime::Exit exit, Outcome* outcome) {
    const vcpu::VcpuState& s = *state_;
    outcome->end = exit == runtime::Exit::kStopped  ? End::kTimeout
                   : exit == runtime::Exit::kHalted ? End::kException
                                                    : End::kLost;
    for (unsigned i = 0; i < 16; ++i) outcome->state.gpr[i] = s.gpr[i];
    outcome->state.rip = s.rip;
    for (unsigned i = 0; i < outcome->state.selector.size(); ++i) {
      outcome->state.selector[i] = s.segment[i].selector;
    }
    outcome->state.rflags = s.Rflags();
    outcome->state.fs_base = s.segment[vcpu::kFs].base;
    outcome->state.gs_base = s.segment[vcpu::kGs].base;
    outcome->state.vector = LoadVector(s.xsave_area);
    const u64 handler = s.rip - (kSystemBase + kHandlers);
    if (outcome->end == End::kException && handler < 256 * kHandlerBytes) {
      outcome->vector = static_cast<u8>(handler / kHandlerBytes);
      u64 at = s.gpr[vcpu::kRsp] - kSystemBase;
      auto pop = [&] {
        u64 value = 0;
        if (at <= kIstTop - 8) std::memcpy(&value, memory_->HostRw(PhysAddr(at)), 8);
        at += 8;
        return value;
      };
      outcome->error_code = PushesErrorCode(outcome->vector) ? static_cast<u32>(pop()) : 0;
      outcome->cr2 = s.cr2;
      const u64 offset = pop();
      const u16 cs = static_cast<u16>(pop());
      outcome->state.rip = cs == kKernelCs ? offset : LinearOf(cs, offset);
      outcome->state.rflags = pop();
      outcome->state.gpr[vcpu::kRsp] = pop();
      outcome->state.selector[vcpu::kCs] = cs;
      outcome->state.selector[vcpu::kSs] = static_cast<u16>(pop());
    } else if (outcome->end == End::kException) {
      outcome->end = End::kLost;  // a HLT that is no handler's
    }
    unsigned at = 0;
    for (unsigned i = 0; i < kDataPages.size(); ++i) {
      if (kDataPages[i].kind == PageKind::kAbsent) continue;
      std::memcpy(outcome->memory.data() + at, data_host_[i], kPageSize);
      at += kPageSize;
    }
    for (u64 page = 0; page < kCodePages; ++page) {
      std::memcpy(outcome->code.data() + page * kPageSize,
                  memory_->HostRw(PhysAddr(code_phys_[page])), kPageSize);
    }
  }

  Kind kind_;
  ForcedPlan plan_;
  WheneverPossible engine_policy_;
  NoPorts ports_;
  NoPlatform platform_;
  vcpu::CpuidPolicy cpuid_;
  std::unique_ptr<adapt::Policy> policy_;
  std::unique_ptr<mmu::GuestMemory> memory_;
  std::unique_ptr<mmu::Mmu> mmu_;
  std::unique_ptr<runtime::TranslatingEngine> engine_;
  vcpu::VcpuState* state_ = nullptr;
  int fd_ = -1;
  void* block_ = nullptr;
  u64 next_table_ = kTables;
  u64 code_phys_[kCodePages] = {};
  u64 code_table_ = 0;  // the page table that maps them
  unsigned next_fresh_ = 0;
  u8* data_host_[kDataPages.size()] = {};
  bool code_changed_ = false;
};

GuestMachine::GuestMachine(Kind kind, runtime::ExecutionSink* executions,
                           adapt::EnginePolicy* engine_policy)
    : kind_(kind), impl_(std::make_unique<Impl>(kind, executions, engine_policy)) {}
GuestMachine::~GuestMachine() = default;
unsigned GuestMachine::Run(const TestCase& test, const RunOptions& options, Outcome* outcome) {
  return impl_->Run(test, options, outcome);
}
u64 GuestMachine::RunInSteps(const TestCase& test, const RunOptions& options, Outcome* outcome) {
  return impl_->RunInSteps(test, options, outcome);
}
bool GuestMachine::works() const {
  return kind_ != Kind::kDirect || impl_->engine().direct() != nullptr;
}
runtime::TranslatingEngine& GuestMachine::engine() { return impl_->engine(); }
void GuestMachine::set_observer(runtime::TranslationObserver* observer) {
  impl_->engine().set_translation_observer(observer);
}

}  // namespace alibi::oracle
