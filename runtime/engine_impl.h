// SPDX-License-Identifier: Apache-2.0
// The engine ties its parts together: Fragments, Accesses, Sites, Events, DebugStep. Its
// functions lie in engine.cc (run loop), translation.cc, stepping.cc and host_fault.cc (signals);
// and, for general registers only, in dispatch.cc, fast_path.cc (callouts of sites), operands.cc,
// fast_path_debug.cc, string_runs.cc, execution_counts.cc and trace_listener.cc.
#ifndef ALIBI_RUNTIME_ENGINE_IMPL_H_
#define ALIBI_RUNTIME_ENGINE_IMPL_H_

#include <signal.h>
#include <x86intrin.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "direct/direct_execution.h"
#include "runtime/accesses.h"
#include "runtime/attempted_store.h"
#include "runtime/events.h"
#include "runtime/fragments.h"
#include "runtime/host_signal.h"
#include "runtime/pending.h"
#include "runtime/sites.h"
#include "runtime/stubs.h"
#include "runtime/translating_engine.h"
#include "runtime/translation_store.h"
#include "runtime/watch.h"
#include "simulator/simulator.h"
#include "translator/emitter.h"
#include "translator/packed_ccf.h"
#include "vcpu/debug_step.h"

namespace alibi::runtime {

struct GuestCode;

class EngineImpl final : public TranslatingEngine,
                         public mmu::TraceListener,
                         private Fragments::Listener,
                         private DetachedCode,
                         private simulator::HostCode {
 public:
  explicit EngineImpl(const TranslatingEngineOptions& options);
  ~EngineImpl() override;
  Status Init();

  Exit Run() override;
  void RequestStop() override;
  void StopInHandler(void* context) override;
  void RequestAttention() override;
  void IgnoreNumericError() override;
  void StateChanged() override;
  void VcpuSwitched(unsigned from, unsigned to) override;
  void InjectInterrupt(u8 vector) override;
  const DebugPoints& debug_points() const override { return points_; }
  bool SetBreakpoint(LinearAddr pc, bool set) override;
  bool SetWatch(const Watch& watch, bool set) override;
  void StepNext(bool step) override { step_next_ = step; }
  bool steps_next() const override { return step_next_; }
  void ForgetDebugStop() override { points_.Forget(); }
  void set_event_observer(EventObserver* observer, u32 kinds) override;
  void set_event_log(adapt::log::Ring* log) override;
  void DrainEvents() override { events_.Drain(); }
  const Counters& counters() const override { return counters_; }
  const adapt::SiteTable& sites() const override { return sites_->table(); }
  const adapt::Prices& prices() const override { return sites_->prices(); }
  direct::DirectExecution* direct() const override { return direct_.get(); }
  DetachedCode* detached() override {
    return direct_ != nullptr && options_.vcpus > 1 ? this : nullptr;
  }
  const StubTable& stub_table() const override { return stubs_; }
  void set_translation_observer(TranslationObserver* observer) override { observer_ = observer; }
  void CollectExecutions() override;
  u64 tc_bytes_used() const override { return tc().used(); }
  MemoryUse memory_use() const override;
  std::string DescribeHostPc(HostAddr host_pc) const override;
  const translator::Ccf* FindCcf(LinearAddr pc) const override;

  // --- trace_listener.cc: mmu::TraceListener ---
  void CodeWritten(PhysAddr address, u64 size) override;
  void PageExecuted(LinearAddr linear_page, PhysAddr page) override;
  // The run loop forgets everything: at once if the guest runs, before it runs otherwise.
  void MemoryMapChanged() override {
    memory_map_changed_ = true;
    RequestAttention();
  }

  // --- dispatch.cc, fast_path.cc: the callouts ---
#define ALIBI_CALLOUT(name, descriptor, contract) \
  Next On##name(DescriptorOf<Callout::k##name> r10, u64 r11);
#include "abi/callouts.inc"
#undef ALIBI_CALLOUT
  // A callout of a site, which may leave its CCF before the end: keeps the execution counts right.
  template <class Descriptor, Next (EngineImpl::*Method)(Descriptor, u64)>
  Next CountedCallout(Descriptor descriptor, u64 argument) {
    const SiteDesc* site = SiteOf(descriptor);
    const Next next = (this->*Method)(descriptor, argument);
    if (!next.host || next.host != site->resume) CountLeaving(*site, next.undone);
    return next;
  }
  // A stop is wanted while a callout goes on at `resume`: makes translated code leave from there.
  HostAddr StopSoon(HostAddr resume);
  // Goes on after a signal handler has put the guest's state into the VCPU block.
  Next DispatchFromSignal() { return DispatchThroughTable(std::exchange(pending_, {})); }
  // Translated code switches views without telling: catch up.
  void NoticeView() {
    const HostAddr gs(_readgsbase_u64());
    if (__builtin_expect(gs != gs_, 0)) {
      gs_ = gs;
      mmu_.ViewEntered(gs);
    }
  }

  void NoticeEntry() { sites_->NoticeEntry(); }

  // Around guest code, where other VCPUs execute it beside this one. An atomic instruction keeps
  // the machine while it runs on its bounced operand.
  void EnterGuest() {
    const bool keeps = std::exchange(keeps_machine_, false);
    if (options_.gate != nullptr && !keeps) options_.gate->EnterGuest();
  }
  void LeaveGuest() {
    if (options_.gate != nullptr) options_.gate->LeaveGuest();
  }
  // Behind EnterGuest(), by who does not come from a callout, whose stub looks: another VCPU has
  // wanted something before, and has not signalled.
  bool WasWanted() const {
    return options_.gate != nullptr &&
           __atomic_load_n(&state_.stop_requested, __ATOMIC_SEQ_CST) != 0;
  }

  // --- host_fault.cc ---
  // True: the fault was the guest's business and the context goes on correctly.
  bool HandleHostFault(int signal, siginfo_t* info, void* context);
  void HandleStopSignal(void* context);

 private:
  using Ccf = translator::Ccf;
  using SiteDesc = translator::SiteDesc;
  using ExitDesc = translator::ExitDesc;

  // --- engine.cc ---
  // What handlers of signals on this thread go by.
  void BeginRun();
  void EndRun();

  // --- translation.cc ---
  // Finds or makes the translation at state.rip and returns its entry; none: an event was delivered
  // (or the run must end), look again.
  HostAddr PrepareEntry();
  void Enter(HostAddr entry);
  // Programs are loaded at addresses that nobody has seen: what their code was translated to
  // elsewhere comes there. False: it has not been, or runs there still.
  bool MoveCodeTo(LinearAddr pc, PhysAddr phys, const translator::CodeMode& mode);
  u32 CalloutPrice();
  // Null: a fault of the instruction fetch was delivered. Drops how->exit if it has linked it.
  Ccf* Translate(LinearAddr pc, PhysAddr phys, const translator::CodeMode& mode, Pending* how);
  void CodeReplaced(const Ccf& from, const Ccf& to) override {
    if (observer_ != nullptr) observer_->OnAdaptation(from, to);
  }
  void CodeInvalidated(PhysAddr page) override { mmu_.ResetJumpEntriesForPhysPage(page); }
  void FetchCode(GuestCode* code);
  vcpu::Outcome DecodeUnit(GuestCode* code);
  // A translation that ends with a CALL of what may turn out to be a leaf (translator/leaf_call.h).
  struct LeafCaller {
    Ccf* ccf = nullptr;
    LinearAddr target{};
  };
  LinearAddr FindLeaf(GuestCode* code, const isa::Instr& last);
  bool CallsLeaf(GuestCode* code, const translator::PackedCcf& stored);
  void PlanSites(const GuestCode& code, translator::EmitRequest* request);
  translator::EmitRequest CommonRequest() const;
  Ccf* EmitUnit(const GuestCode& code, const translator::PackedCcf* stored, Pending* how);
  Fragments::Replaced Register(Ccf* ccf, const GuestCode& code);

  // --- stored.cc ---
  Status OpenStore();
  bool UsesStore(const GuestCode& code) const;
  enum class Among : u8 { kAll, kFollowing };  // those behind the one found last
  std::optional<translator::PackedCcf> FindStored(const GuestCode& code, Among among);
  Ccf* LoadStored(GuestCode* code, Among among, Pending* how);
  Ccf* LoadSuccessor(const Ccf& ccf);
  void LoadSuccessors(const Ccf& first);
  static bool HasPlansOf(const translator::PackedCcf& stored, const GuestCode& code);
  // What has just been emitted.
  void Store(const GuestCode& code, const translator::EmitRequest& request,
             const translator::EmitResult& emitted, const Ccf& ccf);
  // Throws all translations away, `how`'s exit among them.
  void FlushTc(Pending* how);

  // --- stepping.cc ---
  // One instruction, and the debug exceptions around it. False: not yet, look again.
  bool Step();
  void ArmBreakpoints();
  void WatchPages();
  bool NumericErrorPending() const;
  // x87 state around an instruction that ignores the pending exception. Without `instr` it was not
  // executed.
  void HideNumericError();
  void ShowNumericError(const isa::Instr* instr);

  // --- user_code.cc: the engine of user code ---
  Status StartDirectExecution();
  void Sample();
  std::vector<u16> TranslatedStarts(LinearAddr linear_page, PhysAddr page);
  // What has happened to a user view's address space: chooses its engine anew.
  void TellEnginePolicy(mmu::View& view, adapt::EngineEvent event);
  void NoticeProgram(mmu::View& view);
  // User code of the current view is to run on.
  bool GoesDirectly();
  bool EnginePolicyFailed() const {
    return direct_ != nullptr && options_.engine_policy->fault() != nullptr;
  }
  bool RunDirectly();
  void EndDirectRun(direct::Exit exit, const direct::Report& report, u64 begin);
  // DetachedCode:
  bool Any() const override { return direct_->AnyDetached(); }
  bool Is(unsigned vcpu) const override { return direct_->IsDetached(vcpu); }
  bool HasStopped(unsigned vcpu) override { return direct_->HasStopped(vcpu); }
  void Return() override;
  void Drop(unsigned vcpu) override { direct_->Drop(vcpu); }
  void Wait() override;
  void Offer(bool others_wait, bool never) override;
  bool IsCrowded() const override { return direct_->IsCrowded(); }
  void MakeRoom() override { direct_->MakeRoom(); }

  // --- dispatch.cc ---
  // Does user code of the current view leave translated code, because it runs directly?
  bool LeavesForDirect(const translator::CodeMode& mode) const;
  // Puts what translations of that mode rely on in place, too: see SettleLegacyState.
  translator::CodeMode CurrentMode();
  // Views do not tell all modes apart, and jump tables must not mix them: true if they were reset.
  bool NoticeMode(const translator::CodeMode& mode);
  bool LeavesMode(const isa::Instr& instr, const translator::CodeMode& before);
  void SettleLegacyState();
  bool ModeHasChanged(const translator::CodeMode& before);
  // Behind a load of ES, DS, FS or GS, which changes nothing else of the mode.
  bool FlatnessHasChanged(const translator::CodeMode& before, unsigned loaded);
  bool SegmentsAreFlat() const;
  LinearAddr LinearPc() const { return state_.LinearPc(); }
  // Goes on at `pc`. Where the run loop must act (translate, stop, single-step), it does so
  // knowing `how` the guest comes there.
  Next Dispatch(LinearAddr pc, const Pending& how = {});
  // The same at the state's PC, but by way of the jump table where there is one: for computed
  // targets that have mostly been seen before.
  Next DispatchThroughTable(const Pending& how = {});
  // Is there one for code at the state's PC? Outside 64-bit code it looks at the mode first.
  bool HasJumpTable();
  void Deliver(const vcpu::GuestFault& fault);
  Next DeliverAndDispatch(const vcpu::GuestFault& fault);
  // A fault of the site's instruction.
  void DeliverAt(SiteDesc* site, const vcpu::GuestFault& fault) {
    if (!site->keeps_flags) sites_->NoteShownFlags(*site, fault);
    Deliver(fault);
  }
  Next DeliverAtAndDispatch(SiteDesc* site, const vcpu::GuestFault& fault) {
    DeliverAt(site, fault);
    return DispatchThroughTable({.undone = true});
  }
  Ccf* Lookup(LinearAddr pc, const translator::CodeMode& mode, PhysAddr* phys,
              vcpu::GuestFault* fault, bool* faulted);
  static constexpr u8 KindBit(JumpKind kind) {
    return static_cast<u8>(1u << static_cast<unsigned>(kind));
  }
  SiteDesc* SiteOfMiss(MissWord word);
  SiteDesc* SiteOf(MissWord word) { return SiteOfMiss(word); }
  SiteDesc* SiteOf(SiteDesc* site) { return site; }
  Next LookUp(LinearAddr pc, u8 jump_kinds);
  void LinkJumpTable(translator::Ccf* ccf, u8 jump_kinds);
  void NoticeLeaf(const translator::Ccf& leaf);
  bool MustLeave() const;
  // Resumes behind a callout, or dispatches when the translation may not go on.
  Next Continue(SiteDesc* site, LinearAddr next_pc);
  // The instruction at pc has done nothing so far: again, in another translation of it.
  Next Retry(LinearAddr pc) { return Dispatch(pc, {.undone = true}); }
  // ... its SIMULATE translation.
  Next SimulateNext(LinearAddr pc) { return Dispatch(pc, {.simulate = true, .undone = true}); }
  void SyncGs();
  // RF holds for one instruction. Without breakpoints nothing but an event in front of that
  // instruction can see it, and there is none when this is called.
  void ForgetResumeFlag() { state_.system_flags &= ~static_cast<u32>(vcpu::kRf); }
  bool GuestRip(HostAddr host, u64* rip, LinearAddr* linear) const override;
  bool X87Opcodes(HostAddr host, u16* guest, u16* translated) const override;
  bool LeavesSlot(SiteDesc* site, bool store, unsigned slot, LinearAddr linear);
  Next MissAcrossPages(SiteDesc* site, const isa::Instr& instr, LinearAddr linear, unsigned span);
  bool PlainPages(LinearAddr linear, unsigned size, bool write, u8* pages[2]);
  bool ReadOperand(LinearAddr linear, u8* out, unsigned size, vcpu::GuestFault* fault);
  bool WriteOperand(LinearAddr linear, const u8* data, unsigned size, vcpu::GuestFault* fault);
  // Where the operand at `linear` is bounced: as aligned as there (64 bytes are the most that an
  // instruction demands). Small operands are never split between cache lines: hosts that detect
  // split locks do so wherever they lie, and none of these demands an alignment.
  u8* BounceOf(LinearAddr linear, unsigned size) const {
    return size <= 8 && SplitsLine(linear, size) ? bounce_ : bounce_ + linear.value % 64;
  }
  static bool SplitsLine(LinearAddr linear, unsigned size) { return linear.value % 64 + size > 64; }
  // Is there other guest code meanwhile?
  bool RunsBeside() const {
    return mmu_.HasOthers() || (direct_ != nullptr && direct_->AnyDetached());
  }
  void BeginAtomic(LinearAddr linear, unsigned size);
  u8* AtomicPlace(LinearAddr linear, unsigned size);
  enum class ElementAccess : u8 { kRead, kWrite, kProbe };
  static u64 ActiveElements(const isa::Instr& instr);
  bool AccessElements(const isa::Instr& instr, LinearAddr linear, ElementAccess access,
                      vcpu::GuestFault* fault);

  Next BounceElements(SiteDesc* site, LinearAddr linear);
  Next RefuseBounce(SiteDesc* site, const vcpu::GuestFault& fault);
  Next EndRefusedStore(SiteDesc* site);
  void StoreFirstPart(const SiteDesc& site);

  // --- string_runs.cc ---
  HostAddr HostOfRun(LinearAddr linear, bool write);
  bool MakeStringRun(const SiteDesc& site);

  // --- Sites ---
  const isa::Instr& InstrOf(const SiteDesc& site) const { return sites_->InstrOf(site); }
  void Charge(SiteDesc* site, adapt::Event event, bool trapped) {
    sites_->Charge(site, event, trapped);
  }
  // A SIMULATE access has been made: was there a reason for not making it directly? (operands.cc)
  void ChargeSimulated(SiteDesc* site, LinearAddr linear, bool write);

  // --- execution_counts.cc ---
  // The CCF is left at the site's instruction. `undone`: which has certainly not been executed.
  void CountLeaving(const SiteDesc& site, bool undone);

  // --- host_fault.cc ---
  void RestoreStringPointers(const SiteDesc& site, greg_t* gregs) const;
  // What to do about an access that has trapped. May charge the site.
  Verdict JudgeTrap(SiteDesc* site, const siginfo_t* info, HostFault what);
  // The Mmu has filled the shadow: goes on at the access itself, if that is possible.
  bool RestartAccess(const SiteDesc& site, const translator::FaultPoint& point, greg_t* gregs);
  void TakeGuestState(const SiteDesc& site, greg_t* gregs);
  Verdict JudgeFault(SiteDesc* site, const siginfo_t* info, HostFault what, bool x87);
  // SIGFPE: the guest's exception, or the same instruction once more if that is the machine's
  // affair.
  Verdict JudgeNumericError(bool x87);
  void LeaveSimulator(bool x87);

  // --- fast_path_debug.cc ---
  // Does the guest or a debugger watch data, or ports?
  bool Watches() const { return __builtin_expect(watching_ || points_.any_watch(), 0); }
  bool HitsWatch(const isa::Instr& instr, LinearAddr linear, unsigned size) const;
  // Some of the operand is watched, and more than one instruction may be running: nothing has been
  // done; to be done again as a single step.
  bool StopsForWatch(const isa::Instr& instr, LinearAddr linear, unsigned size) const {
    return Watches() && !in_single_ && HitsWatch(instr, linear, size);
  }
  Next LeaveToStep(SiteDesc* site);
  void NoteSimulatedWatch(bool faulted);
  // Notes the breakpoints and watchpoints that an access of a single step hits.
  void NoteWatched(const isa::Instr& instr, LinearAddr linear, unsigned size);
  static vcpu::SteppedInstruction DescribeStep(const isa::Instr& instr,
                                               const translator::CodeMode& mode);
  void DeliverDebug(const vcpu::DebugException& trap);
  // Around an instruction that is simulated while breakpoints are enabled, as Step() around its
  // own. True: a #DB was delivered behind it.
  void BeginWatched();
  bool TrapsBehind(const SiteDesc& site);
  bool BreakpointsChanged() const {
    return state_.dr[7] != armed_.control ||
           (__builtin_expect(watching_, 0) && armed_ != ArmedRegisters::Of(state_));
  }
  bool UndoBranch(LinearAddr target);

  TranslationCache& tc() const { return fragments_->tc(); }

  TranslatingEngineOptions options_;
  vcpu::VcpuState& state_;
  mmu::Mmu& mmu_;
  mmu::GuestMemory& memory_;
  adapt::Policy& policy_;
  std::optional<Fragments> fragments_;
  std::unique_ptr<translator::Emitter> emitter_;
  std::unique_ptr<TranslationStore> store_;          // null: nothing is kept
  std::unique_ptr<direct::DirectExecution> direct_;  // null: all code is translated
  // By view; of what it is in its present generation.
  struct UserCode {
    u32 generation = 0;
    u32 endings = 0;  // of its programs, told
    adapt::EngineRecord record;
  };
  UserCode user_code_[mmu::ViewPool::kMaxViews];
  u32 user_spaces_ = 0;           // address spaces met so far
  mmu::View* sampled_ = nullptr;  // the user view that was interrupted last
  u64 last_sample_ = 0;           // TSC
  bool translate_next_ = false;   // user code goes on translated, up to where it looks up
  bool step_next_user_ = false;   // its next instruction is the translator's
  std::unique_ptr<translator::PackedCcf::Room> unpacking_;
  const isa::FeatureSet shown_features_;
  std::unique_ptr<translator::TranslationUnit> tu_;
  Stubs stubs_;
  std::optional<Sites> sites_;
  const Accesses accesses_{state_};
  Counters counters_;
  DebugPoints points_;
  bool step_next_ = false;        // a debugger's single step
  bool step_over_watch_ = false;  // the next instruction touches what a debugger watches
  Events events_{state_};
  u64 watch_hits_ = 0;  // DR6 bits of the data breakpoints that the running instruction hit
  WatchedMemory watched_memory_;
  WatchedPorts watched_ports_;
  simulator::SimulatorContext simulator_;
  simulator::SimulatorContext watched_simulator_;
  TranslationObserver* observer_ = nullptr;
  u8* bounce_ = nullptr;
  // What runs on the bounce buffer for its traces only, and the fault that comes behind it.
  AttemptedStore attempted_ = AttemptedStore::kNoTrace;
  vcpu::GuestFault refused_store_fault_;
  X87Snapshot x87_before_store_;
  // What the simulator runs for, on the guest's x87 and vector state; null: it does not run.
  SiteDesc* simulating_ = nullptr;
  HostAddr gs_;  // what %gs holds
  // A locked operand is being bounced: the guest code in between is part of it.
  bool keeps_machine_ = false;
  bool in_place_ = false;  // ... or changed where it lies
  Pending pending_;        // from a dispatch that needs the run loop to PrepareEntry; else empty
  // SiteOfMiss's latest answers; a look-up's place is one site's until the TC is flushed.
  struct MissedSite {
    HostAddr resume;
    SiteDesc* site = nullptr;
  };
  static constexpr u32 kMissedSites = 256;
  MissedSite missed_sites_[kMissedSites];
  bool in_single_ = false;
  bool memory_map_changed_ = false;
  bool ignore_numeric_error_ = false;  // IGNNE#
  bool hide_numeric_error_ = false;    // the next instruction is one that met it
  u16 hidden_control_ = 0, hidden_exceptions_ = 0;
  // The guest's debug registers as ArmBreakpoints has seen them.
  struct ArmedRegisters {
    u64 control = 0, address[vcpu::kBreakpoints] = {};

    static ArmedRegisters Of(const vcpu::VcpuState& state) {
      return {state.dr[7], {state.dr[0], state.dr[1], state.dr[2], state.dr[3]}};
    }
    bool operator==(const ArmedRegisters&) const = default;
  };
  ArmedRegisters armed_;
  bool watching_ = false;          // breakpoints are enabled
  bool port_breakpoints_ = false;  // of ports, too: one instruction at a time
  vcpu::DebugStep debug_step_;
  static constexpr u32 kAlignmentKey = 1u << 9;
  u32 mode_key_ = ~u32{0};  // what NoticeMode saw last
  // What is known between two runs of a VCPU that does not run, beside its state.
  struct Parked {
    Pending pending;
    vcpu::DebugStep debug_step;
    bool step_over_watch = false;
    bool translate_next = false;
    bool step_next_user = false;
    bool ignore_numeric_error = false;
  };
  Parked parked_[vcpu::kMaxVcpus];
  bool running_ = false;
  int thread_id_ = 0;
  u32 slot_seed_ = 0;
  LeafCaller leaf_caller_;  // the latest one
};

// The engine that runs on this thread, for signal handlers.
EngineImpl*& CurrentEngine();
void InstallHostFaultHandlers();
int StopSignal();

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_ENGINE_IMPL_H_
