// SPDX-License-Identifier: Apache-2.0
// Host signals: faults of translated code, classified, and asynchronous stops.
//
// A fault in the TC is the guest's doing. The handler puts the guest's state into the VCPU block,
// acts, and returns either to the restarted site or to the dispatch stub; sigreturn restores the
// guest's vector state. A fault anywhere else is our bug.
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "abi/contract.h"
#include "adapt/plugin_file.h"
#include "base/check.h"
#include "runtime/abort_status.h"
#include "runtime/engine_impl.h"
#include "runtime/host_signal.h"
#include "vcpu/exceptions.h"

namespace alibi::runtime {

using isa::Instr;
using translator::Ccf;
using translator::FaultPoint;
using translator::SiteDesc;
using vcpu::GuestFault;

namespace {

constexpr u64 kAltStackBytes = 256 * 1024;
constexpr int kFaultSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

// Guest GPR number -> index into gregs.
constexpr int kGregOf[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                             REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                             REG_R12, REG_R13, REG_R14, REG_R15};

const FaultPoint* FindFaultPoint(const Ccf& ccf, HostAddr host) {
  const u64 offset = host - ccf.hot_start;
  for (const FaultPoint& point : ccf.faults()) {
    if (point.host_offset == offset) return &point;
  }
  return nullptr;
}

[[noreturn]] void ReportCrash(int signal, const siginfo_t* info, const ucontext_t* context) {
  char text[512];
  int n;
  if (const char* plugin = adapt::RunningPlugin(); plugin != nullptr) {
    n = std::snprintf(text, sizeof(text),
                      "alibi: the policy plug-in '%.300s' has crashed: signal %d, address %p\n",
                      plugin, signal, info->si_addr);
  } else {
    const HostAddr rip(static_cast<u64>(context->uc_mcontext.gregs[REG_RIP]));
    std::string where = "no engine";
    if (CurrentEngine() != nullptr) where = CurrentEngine()->DescribeHostPc(rip);
    n = std::snprintf(
        text, sizeof(text), "alibi: internal error: signal %d at host PC 0x%llx (%s), address %p\n",
        signal, static_cast<unsigned long long>(rip.value), where.c_str(), info->si_addr);
  }
  if (write(STDERR_FILENO, text, static_cast<size_t>(n)) < 0) std::_Exit(70);
  std::signal(signal, SIG_DFL);
  std::raise(SIGABRT);
  std::_Exit(70);
}

// Nobody can go on without the page, and restarting the access would fault for ever.
[[noreturn]] void ReportMissingMemory(const siginfo_t* info) {
  const bool poisoned = info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO;
  char text[256];
  const int n = std::snprintf(
      text, sizeof(text), "alibi: the host has lost memory at address %p: %s\n", info->si_addr,
      poisoned ? "its hardware reports an error there (see dmesg); start the guest anew"
               : "it has no page for it; free memory, or raise the control group's limit");
  if (write(STDERR_FILENO, text, static_cast<size_t>(n)) < 0) std::_Exit(kAbortOfHostMemory);
  AbortStatus() = kAbortOfHostMemory;
  std::abort();
}

void OnFaultSignal(int signal, siginfo_t* info, void* context) {
  if (ClassifyHostFault(signal, info->si_code) == HostFault::kMissingMemory) {
    ReportMissingMemory(info);
  }
  const int saved_errno = errno;
  EngineImpl* engine = CurrentEngine();
  if (engine == nullptr || !engine->HandleHostFault(signal, info, context)) {
    ReportCrash(signal, info, static_cast<ucontext_t*>(context));
  }
  errno = saved_errno;
}

void OnStopSignal(int, siginfo_t*, void* context) {
  const int saved_errno = errno;
  if (CurrentEngine() != nullptr) CurrentEngine()->HandleStopSignal(context);
  errno = saved_errno;
}

// The alternate stack of a thread that runs VCPUs. SS_AUTODISARM: whether the handler already runs
// on it must not be judged by rsp, which is the guest's.
class AltStack {
 public:
  AltStack() {
    memory_ =
        mmap(nullptr, kAltStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ALIBI_CHECK(memory_ != MAP_FAILED, "the host has memory for a signal stack");
    stack_t stack{};
    stack.ss_sp = memory_;
    stack.ss_size = kAltStackBytes;
    stack.ss_flags = static_cast<int>(1u << 31);  // SS_AUTODISARM
    ALIBI_CHECK(sigaltstack(&stack, nullptr) == 0, "the host accepts an alternate signal stack");
  }
  ~AltStack() {
    stack_t off{};
    off.ss_flags = SS_DISABLE;
    sigaltstack(&off, nullptr);
    munmap(memory_, kAltStackBytes);
  }

 private:
  void* memory_;
};

}  // namespace

EngineImpl*& CurrentEngine() {
  static thread_local EngineImpl* current = nullptr;
  return current;
}

int StopSignal() { return SIGRTMIN + 3; }

void InstallHostFaultHandlers() {
  static thread_local std::unique_ptr<AltStack> stack;
  if (stack == nullptr) stack = std::make_unique<AltStack>();
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = OnFaultSignal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, StopSignal());
    for (int signal : kFaultSignals) sigaction(signal, &action, nullptr);
    action.sa_sigaction = OnStopSignal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(StopSignal(), &action, nullptr);
    return true;
  }();
  (void)installed;
}

// The pointers of a string instruction are host addresses while it runs: as the guest has them.
void EngineImpl::RestoreStringPointers(const SiteDesc& site, greg_t* gregs) const {
  for (const SiteDesc* other : site.ccf->sites()) {
    if (other->instr_index != site.instr_index || !translator::IsString(other->shape)) continue;
    const bool source = other->shape == translator::AccessShape::kStringSource;
    const auto* slot = (gs_ + static_cast<u64>(i64{other->slot})).As<const InlineTlbEntry>();
    gregs[source ? REG_RSI : REG_RDI] -= static_cast<greg_t>(slot->displacement);
  }
}

Verdict EngineImpl::JudgeNumericError(bool x87) {
  if (x87 && !(state_.cr0 & vcpu::kCr0Ne)) {
    if (ignore_numeric_error_) {
      hide_numeric_error_ = true;
      return Verdict::Go(Verdict::Way::kRetry);
    }
    if (options_.platform->NumericError()) {
      // In front of the instruction, which any interrupt interrupts. Its shadow is over: it would
      // keep the interrupt out that it waits for.
      state_.halted = 1;
      state_.interrupt_shadow = 0;
      return Verdict::Go(Verdict::Way::kRetry);
    }
  }
  const vcpu::Vector simd =
      state_.cr4 & vcpu::kCr4Osxmmexcpt ? vcpu::kSimdError : vcpu::kInvalidOpcode;
  return Verdict::Deliver(GuestFault::Simple(x87 ? vcpu::kX87Error : simd));
}

// An exception that the guest's FPU has kept for its next instruction, which is simulated: the
// guest's, wherever the simulator met it. Its registers are in the VCPU block already, and the
// simulator's frames hold nothing that must be undone.
void EngineImpl::LeaveSimulator(bool x87) {
  SiteDesc* site = std::exchange(simulating_, nullptr);
  ++counters_.host_faults_arithmetic;
  if (Watches()) NoteSimulatedWatch(/*faulted=*/true);
  const Verdict verdict = JudgeNumericError(x87);
  if (verdict.way == Verdict::Way::kDeliver) DeliverAt(site, verdict.fault);
}

// Puts what the host's registers hold of the guest into the VCPU block. R10 and R11 are there.
void EngineImpl::TakeGuestState(const SiteDesc& site, greg_t* gregs) {
  if (translator::IsString(site.shape)) RestoreStringPointers(site, gregs);
  for (unsigned reg = 0; reg < 16; ++reg) {
    if (reg != vcpu::kR10 && reg != vcpu::kR11) {
      state_.gpr[reg] = static_cast<u64>(gregs[kGregOf[reg]]);
    }
  }
  state_.arithmetic_flags = static_cast<u64>(gregs[REG_EFL]) & vcpu::kArithmeticFlags;
  state_.rip = site.ccf->mode.RipOf(InstrOf(site).pc);
}

bool EngineImpl::HandleHostFault(int signal, siginfo_t* info, void* context) {
  const HostFault what = ClassifyHostFault(signal, info->si_code);
  if (what == HostFault::kShutMemory) return false;
  greg_t* gregs = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const HostAddr rip(static_cast<u64>(gregs[REG_RIP]));
  if (rip == stubs_.miss_load) {
    gregs[REG_RIP] = static_cast<greg_t>(stubs_.miss_slow.value);
    return true;
  }
  const auto dispatch = [&](const Pending& how) {
    pending_ = how;
    SyncGs();
    EnterGuest();
    gregs[REG_RIP] = static_cast<greg_t>(stubs_.dispatch.value);
    return true;
  };
  const bool x87 = gregs[REG_TRAPNO] == vcpu::kX87Error;
  if (simulating_ != nullptr && signal == SIGFPE &&
      (x87 || gregs[REG_TRAPNO] == vcpu::kSimdError)) {
    ++counters_.host_faults;
    LeaveSimulator(x87);
    return dispatch({.undone = true});
  }
  const Ccf* ccf = fragments_->FindByHost(rip);
  if (ccf == nullptr || rip < ccf->hot_start || rip >= ccf->hot_end) return false;
  const FaultPoint* point = FindFaultPoint(*ccf, rip);
  if (point == nullptr) return false;
  SiteDesc& site = *ccf->sites()[point->site];
  LeaveGuest();
  ++counters_.host_faults;
  NoticeView();
  NoticeEntry();
  TakeGuestState(site, gregs);
  const Verdict verdict = JudgeFault(&site, info, what, x87);
  if (verdict.way == Verdict::Way::kResume) return false;  // not of the guest's making
  if (verdict.way == Verdict::Way::kRetry && what == HostFault::kAccess &&
      RestartAccess(site, *point, gregs)) {
    EnterGuest();
    if (WasWanted()) HandleStopSignal(context);
    return true;
  }
  if (verdict.way == Verdict::Way::kDeliver) DeliverAt(&site, verdict.fault);
  if (ccf->counts != nullptr) CountLeaving(site, /*undone=*/true);
  return dispatch({.simulate = verdict.way == Verdict::Way::kSimulate, .undone = true});
}

Verdict EngineImpl::JudgeFault(SiteDesc* site, const siginfo_t* info, HostFault what, bool x87) {
  if (translator::IsString(site->shape)) {
    // An address that is not canonical may hit an empty slot.
    return Verdict::Go(Verdict::Way::kSimulate);
  }
  if (what == HostFault::kArithmetic) {
    ++counters_.host_faults_arithmetic;
    // MMX instructions raise it, too, for an x87 instruction before them.
    if (info->si_code != FPE_INTDIV) return JudgeNumericError(x87);
    Charge(site, adapt::Event::kArithmetic, true);
    return Verdict::Deliver(GuestFault::Simple(vcpu::kDivideError));
  }
  if (what == HostFault::kUndefined) {
    return Verdict::Deliver(GuestFault::Simple(vcpu::kInvalidOpcode));
  }
  if (!InstrOf(*site).mem.present && site->shape == translator::AccessShape::kOperand) {
    return Verdict::Go(Verdict::Way::kResume);
  }
  return JudgeTrap(site, info, what);
}

Verdict EngineImpl::JudgeTrap(SiteDesc* site, const siginfo_t* info, HostFault what) {
  const auto charge = [&](const Verdict& verdict) {
    if (verdict.charged) {
      ++(verdict.event == adapt::Event::kTruePageFault ? counters_.host_faults_true
                                                       : counters_.host_faults_trace);
      Charge(site, verdict.event, true);
    }
    return verdict;
  };
  if (what == HostFault::kSplitLock) {  // on a bounce operand it is none, and no other CPU sees it
    return charge(Verdict::Go(Verdict::Way::kSimulate).Charged(adapt::Event::kTraceFault));
  }
  const Instr& instr = InstrOf(*site);
  const bool masked = instr.mem.masked_element != 0;
  const HostAddr trapped_at(info->si_addr);
  Access access{Found::kTrap, *site, instr, accesses_.AddressOf(*site, instr), site->size};
  access.host_protection = info->si_code == SI_KERNEL;
  // An untouched part of the shadow table: nothing has been accessed yet.
  access.in_table = trapped_at - mmu_.gs_base() < kShadowTableBytes;
  // Of a masked operand the host has found an element that is accessed.
  access.any_element = masked && access.host_protection;
  const Verdict verdict = accesses_.Classify(access);
  if (verdict.way != Verdict::Way::kResume) return charge(verdict);

  LinearAddr begin = access.linear;
  unsigned size = site->size;
  if (masked) {
    // Elements in front are left out by the mask. Displacements are whole pages.
    const u64 skipped = (trapped_at.value - begin.value) & kPageMask;
    if (!access.in_table && skipped < size) {
      begin += skipped;
      size = 1;
    }
  }
  GuestFault fault;
  const mmu::Resolution answer =
      mmu_.ResolveAccess(begin, size, Accesses::Writes(*site, instr), &fault);
  if (answer == mmu::Resolution::kFilled) ++counters_.host_faults_hidden;
  return charge(accesses_.Classify(access, answer, fault));
}

bool EngineImpl::RestartAccess(const SiteDesc& site, const FaultPoint& point, greg_t* gregs) {
  const Ccf& ccf = *site.ccf;
  // Fault after fault may be a guest's way; a request to stop must get in between.
  if (__atomic_load_n(&state_.stop_requested, __ATOMIC_RELAXED) != 0) return false;
  if (site.in_group) return false;
  // The entry may be redirected meanwhile.
  if (site.Restart() != ccf.entry && site.Restart() - ccf.entry < translator::kEntryBytes) {
    return false;
  }
  if (point.follower) {
    const LinearAddr address = accesses_.AddressOf(site, InstrOf(site));
    gregs[REG_R10] = static_cast<greg_t>(mmu_.current_view().Entry(mmu::EntryIndex(address)));
  } else {
    gregs[REG_RIP] = static_cast<greg_t>(site.Restart().value);
  }
  SyncGs();
  return true;
}

void EngineImpl::HandleStopSignal(void* context) {
  __atomic_store_n(&state_.stop_requested, 1, __ATOMIC_SEQ_CST);
  if (direct_ != nullptr) direct_->Interrupt();
  greg_t* gregs = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const HostAddr rip(static_cast<u64>(gregs[REG_RIP]));
  if (!tc().ContainsCode(rip)) return;  // callouts look at stop_requested before they resume
  if (!tc().IsStub(rip)) {
    if (Ccf* ccf = fragments_->FindByHost(rip)) fragments_->UnlinkExits(ccf);
    return;
  }
  const bool in_conflict = rip >= stubs_.conflict && rip < stubs_.conflict_end;
  if (in_conflict && rip >= stubs_.conflict_saved) {
    gregs[REG_RCX] = static_cast<greg_t>(state_.scratch.rcx);
  }
  if (in_conflict || (rip >= stubs_.jump && rip < stubs_.jump_end)) {
    gregs[REG_RIP] = static_cast<greg_t>(stubs_.at(Callout::kStop).value);  // r11 is the target
    return;
  }
  if (rip >= stubs_.miss && rip < stubs_.miss_end) {
    // r10 is the site's word until the stub has stored where it resumes; then it is an entry, which
    // may look like anything.
    const MissWord word{static_cast<u64>(gregs[REG_R10])};
    if (Ccf* ccf = fragments_->FindByHost(stubs_.miss + word.ResumeDistance())) {
      fragments_->UnlinkExits(ccf);
    }
  }
  // A stub that resumes translated code has stored where. A stale value does no harm.
  StopSoon(state_.resume_host_pc);
}

}  // namespace alibi::runtime
