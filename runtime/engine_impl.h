// SPDX-License-Identifier: Apache-2.0
// The engine's working parts, shared by engine.cc (run loop, translation), fast_path.cc (callouts),
// fast_path_debug.cc, string_runs.cc, sites.cc, execution_counts.cc, recording.cc and chaining.cc
// (these seven for general registers only) and host_fault.cc (signals).
#ifndef ALIBI_RUNTIME_ENGINE_IMPL_H_
#define ALIBI_RUNTIME_ENGINE_IMPL_H_

#include <signal.h>
#include <x86intrin.h>

#include "runtime/attempted_store.h"
#include "runtime/simulator/simulator.h"
#include "runtime/stubs.h"
#include "runtime/translating_engine.h"
#include "runtime/translation_cache.h"
#include "runtime/watch.h"
#include "translator/emitter.h"

namespace alibi::runtime {

// No library call, which might use vector registers while the guest's are live.
inline void CopyBytes(void* to, const void* from, u64 size) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

class EngineImpl final : public TranslatingEngine, public mmu::TraceListener, private HostCode {
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
  void InjectInterrupt(u8 vector) override;
  const DebugPoints& debug_points() const override { return points_; }
  bool SetBreakpoint(u64 pc, bool set) override;
  bool SetWatch(const Watch& watch, bool set) override;
  void StepNext(bool step) override { step_next_ = step; }
  bool steps_next() const override { return step_next_; }
  void ForgetDebugStop() override { points_.Forget(); }
  void set_event_observer(EventObserver* observer, u32 kinds) override {
    recorder_.Observe(observer, kinds);
  }
  void set_event_log(adapt::log::Ring* log) override;
  void DrainEvents() override { recorder_.Drain(); }
  const Counters& counters() const override { return counters_; }
  const adapt::SiteTable& sites() const override { return sites_; }
  const adapt::Prices& prices() const override { return prices_; }
  const StubTable& stub_table() const override { return stubs_; }
  void set_translation_observer(TranslationObserver* observer) override { observer_ = observer; }
  void CollectExecutions() override;
  u64 tc_bytes_used() const override { return tc_->used(); }
  MemoryUse memory_use() const override;
  std::string DescribeHostPc(u64 host_pc) const override;
  const translator::Ccf* FindCcf(u64 pc) const override;

  // --- mmu::TraceListener ---
  void CodeWritten(PhysAddr address, u64 size) override;
  void PageExecuted(u64 linear_page, PhysAddr page) override;
  // The run loop forgets everything: at once if the guest runs, before it runs otherwise.
  void MemoryMapChanged() override {
    memory_map_changed_ = true;
    RequestAttention();
  }

  // --- fast_path.cc: the callouts ---
#define ALIBI_CALLOUT(name, descriptor, contract) \
  u64 On##name(DescriptorOf<Callout::k##name> r10, u64 r11);
#include "abi/callouts.inc"
#undef ALIBI_CALLOUT
  // A callout of a site, which may leave its CCF before the end: keeps the execution counts right.
  template <class Descriptor, u64 (EngineImpl::*Method)(Descriptor, u64)>
  u64 CountedCallout(Descriptor descriptor, u64 argument) {
    const u64 delivered = counters_.exceptions_delivered;
    again_ = false;
    const SiteDesc* site = SiteOf(descriptor);
    const u64 resume = (this->*Method)(descriptor, argument);
    if (resume == 0 || resume != site->resume) {
      CountLeaving(*site, again_ || counters_.exceptions_delivered != delivered);
    }
    return resume;
  }
  u64 StopSoon(u64 resume);
  // Goes on at the state's PC as Dispatch does, but by way of the jump table where there is one:
  // for computed targets that have mostly been seen before.
  u64 DispatchThroughTable();
  // Translated code switches views without telling: catch up.
  void NoticeView() {
    const u64 gs = _readgsbase_u64();
    if (__builtin_expect(gs != gs_, 0)) {
      gs_ = gs;
      mmu_.ViewEntered(gs);
    }
  }

  // The policy or a log wants to know what events cost.
  void NoticeEntry() {
    if (__builtin_expect(clock_, 0)) entered_ = __rdtsc();
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
  // Finds or makes the translation at state.rip and returns its entry; 0: an event was delivered
  // (or the run must end), look again.
  u64 PrepareEntry();
  // One instruction, and the debug exceptions around it. False: not yet, look again.
  bool Step();
  bool NumericErrorPending() const;
  // x87 state around an instruction that ignores the pending exception. Without `instr` it was not
  // executed.
  void HideNumericError();
  void ShowNumericError(const translator::Instr* instr);
  void Enter(u64 entry);
  u32 CalloutPrice();
  Ccf* Translate(u64 pc, PhysAddr phys, const translator::CodeMode& mode, bool indirect);
  // Says what the newest of those was replaced for.
  adapt::log::Why ForwardReplaced(Ccf* to);
  void GiveUp(Ccf* ccf);
  // An invalidated translation whose guest code is what it was again, or null.
  Ccf* Revive(u64 pc, PhysAddr phys, const translator::CodeMode& mode, const u8* page);
  u64 ContentHash(const Ccf& ccf, const u8* page) const;
  bool HoldsBreakpoint(const Ccf& ccf) const;
  void FlushTc();

  // --- fast_path.cc ---
  // Puts what translations of that mode rely on in place, too: see SettleLegacyState.
  translator::CodeMode CurrentMode();
  // Views do not tell all modes apart, and jump tables must not mix them: true if they were reset.
  bool NoticeMode(const translator::CodeMode& mode);
  bool MayChangeMode(const translator::Instr& instr) const;
  void SettleLegacyState();
  bool ModeHasChanged(const translator::CodeMode& before);
  u64 LinearPc() const {
    return state_.In64BitCode() ? state_.rip
                                : static_cast<u32>(state_.rip + state_.segment[vcpu::kCs].base);
  }
  // Goes on at linear `pc`: host PC, or 0 when the run loop must act (translate, stop,
  // single-step).
  u64 Dispatch(u64 pc);
  void Deliver(const vcpu::GuestFault& fault);
  u64 DeliverAndDispatch(const vcpu::GuestFault& fault);
  // A fault of the site's instruction.
  void DeliverAt(SiteDesc* site, const vcpu::GuestFault& fault) {
    if (!site->keeps_flags) NoteShownFlags(*site, fault);
    Deliver(fault);
  }
  u64 DeliverAtAndDispatch(SiteDesc* site, const vcpu::GuestFault& fault) {
    DeliverAt(site, fault);
    return DispatchThroughTable();
  }
  Ccf* Lookup(u64 pc, const translator::CodeMode& mode, PhysAddr* phys, vcpu::GuestFault* fault,
              bool* faulted);
  static constexpr u8 KindBit(JumpKind kind) {
    return static_cast<u8>(1u << static_cast<unsigned>(kind));
  }
  SiteDesc* SiteOfMiss(MissWord word);
  SiteDesc* SiteOf(MissWord word) { return SiteOfMiss(word); }
  SiteDesc* SiteOf(SiteDesc* site) { return site; }
  u64 LookUp(u64 pc, u8 reached_by);
  void LinkJumpTable(translator::Ccf* ccf);
  bool MustLeave() const;
  // Resumes behind a callout, or dispatches when the translation may not go on.
  u64 Continue(SiteDesc* site, u64 next_pc);
  // The instruction at pc has done nothing so far: again, in another translation of it.
  u64 Retry(u64 pc);
  u64 SimulateNext(u64 pc);  // ... its SIMULATE translation
  void SyncGs();
  // RF holds for one instruction. Without breakpoints nothing but an event in front of that
  // instruction can see it, and there is none when this is called.
  void ForgetResumeFlag() { state_.system_flags &= ~static_cast<u32>(vcpu::kRf); }
  bool GuestRip(u64 host, u64* rip, u64* linear) const override;
  bool X87Opcodes(u64 host, u16* guest, u16* translated) const override;
  bool Canonical(u64 address) const;
  vcpu::GuestFault NonCanonicalFault(const translator::Instr& instr, u64 linear) const;
  bool PlainPages(u64 linear, unsigned size, bool write, u8* pages[2]);
  bool ReadOperand(u64 linear, u8* out, unsigned size, vcpu::GuestFault* fault);
  bool WriteOperand(u64 linear, const u8* data, unsigned size, vcpu::GuestFault* fault);
  // Where the operand at `linear` is bounced: as aligned as there (64 bytes are the most that an
  // instruction demands). Small operands are never split between cache lines: hosts that detect
  // split locks do so wherever they lie, and none of these demands an alignment.
  u8* BounceOf(u64 linear, unsigned size) const {
    const bool split = size <= 8 && linear % 64 + size > 64;
    return split ? bounce_ : bounce_ + linear % 64;
  }
  enum class ElementAccess : u8 { kRead, kWrite, kProbe };
  static u64 ActiveElements(const translator::MemOperand& mem, unsigned mask_register);
  bool AccessElements(const translator::Instr& instr, u64 linear, ElementAccess access,
                      vcpu::GuestFault* fault);

  u64 RefuseBounce(SiteDesc* site, const vcpu::GuestFault& fault);
  u64 EndRefusedStore(SiteDesc* site);
  void StoreFirstPart(const SiteDesc& site);

  // --- string_runs.cc ---
  u64 HostOfRun(u64 linear, bool write);
  bool MakeStringRun(const SiteDesc& site);

  // --- sites.cc ---
  // The site's instruction. CCFs keep bytes: of the sites that ever call out each is decoded once.
  const translator::Instr& InstrOf(const SiteDesc& site) const {
    if (__builtin_expect(site.instr == nullptr, 0)) DecodeSite(site);
    return *site.instr;
  }
  [[gnu::noinline]] void DecodeSite(const SiteDesc& site) const;
  [[gnu::noinline]] static void DecodeAgain(const Ccf& ccf, unsigned index, translator::Instr* out);
  u64 SiteAddress(const SiteDesc& site) const;
  // 32-bit code: the host's sum of base and displacement is no 32-bit address.
  bool SiteWraps(const SiteDesc& site) const;
  bool SiteWrites(const SiteDesc& site) const;
  bool MisalignedOperand(const SiteDesc& site, u64 linear) const;
  // Charges an event to the site; retires its CCF if the verdict changes its kind.
  void Charge(SiteDesc* site, adapt::Event event, bool trapped);
  void RetireIfStale(const SiteDesc& site, adapt::Kind kind);
  // A SIMULATE access has been made: was there a reason for not making it directly?
  void ChargeSimulated(SiteDesc* site, u64 linear, bool write);
  adapt::Access AccessOf(const SiteDesc& site) const;
  // The guest is about to be shown flags that are not its own, because nothing reads them.
  void NoteShownFlags(const SiteDesc& site, const vcpu::GuestFault& fault);
  adapt::SiteRecord& FindOrInsertRecord(const SiteDesc& site);
  adapt::SiteRecord& RecordOf(SiteDesc* site);
  adapt::SiteRecord* OwnRecordOf(const translator::SiteDesc& site);
  u64 PhysOf(const Ccf& ccf, u64 pc) const;

  // --- execution_counts.cc ---
  // The CCF is left at the site's instruction. `undone`: which has certainly not been executed.
  void CountLeaving(const SiteDesc& site, bool undone);

  // --- host_fault.cc ---
  void RestoreStringPointers(const SiteDesc& site, greg_t* gregs) const;
  // SIGFPE: puts the guest in front of the handler of its exception, or of the same instruction
  // (again_) if that is the machine's affair.
  void DeliverArithmeticFault(SiteDesc* site, bool x87);

  // --- fast_path_debug.cc ---
  // A debugger watches some of the operand, and more than one instruction may be running: nothing
  // has been done; to be done again as a single step.
  bool StopsForWatch(const translator::Instr& instr, u64 linear, unsigned size) const {
    return __builtin_expect(points_.any_watch(), 0) && !in_single_ &&
           points_.FindWatch(linear, size, instr.mem.read || !instr.mem.written,
                             instr.mem.written) != nullptr;
  }
  u64 LeaveToStep();
  void NoteSimulatedWatch(bool faulted);
  // #AC, where alignment is checked.
  bool Misaligned(const translator::Instr& instr, u64 linear) const {
    return state_.ChecksAlignment() && (linear & (instr.mem.checked_alignment - 1u)) != 0;
  }
  // Notes data breakpoints; false: #AC.
  bool CarefulAccess(const translator::Instr& instr, u64 linear, unsigned size);
  bool UndoBranch(u64 target);
  // The site is the push of a call to what is no address, which faults before the push can.
  bool CallsNowhere(const SiteDesc& site) const;

  // --- recording.cc: for logs and traces. The first three look themselves whether it is wanted ---
  void RecordOccurrence(const SiteDesc& desc, adapt::SiteRecord& site, adapt::Event event,
                        bool trapped, adapt::Kind verdict);
  void RecordSite(RecordKind kind, const SiteDesc& desc, adapt::SiteRecord& site);
  void RecordSystem(const translator::Instr& instr);
  void RecordFault(const vcpu::GuestFault& fault);
  void RecordOverwritten(const Ccf& ccf, PhysAddr where, u64 bytes);
  void RecordForgottenPage(u64 page);
  void RecordTranslation(const Ccf& ccf, adapt::log::Why why, u64 begin_tsc);
  void RecordFlush(bool site_table_too);
  Record NewRecord(RecordKind kind, u64 pc) const;
  bool NameSite(const SiteDesc& desc, adapt::SiteRecord& site, Record* record);
  void Push(const Record& record);

  // --- chaining.cc ---
  void Chain(ExitDesc* exit, Ccf* target);
  void Unchain(ExitDesc* exit);
  void PatchJump(u64 at, u8 length, u64 target);
  void RedirectEntry(Ccf* ccf, u64 target);
  void RedirectEntryToLookup(Ccf* ccf);
  void Invalidate(Ccf* ccf);
  void Retire(Ccf* ccf);
  void UnlinkExits(Ccf* ccf);
  void RelinkExits();

  TranslatingEngineOptions options_;
  vcpu::VcpuState& state_;
  mmu::Mmu& mmu_;
  mmu::GuestMemory& memory_;
  adapt::Policy& policy_;
  const adapt::Needs needs_;
  adapt::Prices prices_;
  bool clock_;       // the policy or a log wants entered_
  u64 entered_ = 0;  // TSC when the callout or the fault handler was entered
  std::unique_ptr<TranslationCache> tc_;
  std::unique_ptr<translator::Emitter> emitter_;
  const translator::FeatureSet shown_features_;
  std::unique_ptr<translator::TranslationUnit> tu_;
  Stubs stubs_;
  adapt::SiteTable sites_;
  Counters counters_;
  DebugPoints points_;
  bool step_next_ = false;        // a debugger's single step
  bool step_over_watch_ = false;  // the next instruction touches what a debugger watches
  Recorder recorder_;
  u32 logged_sites_ = 0;
  u64 peak_tc_bytes_ = 0, peak_ccfs_ = 0;  // when the TC was last flushed
  u64 watch_hits_ = 0;  // DR6 bits of the data breakpoints that the running instruction hit
  WatchedMemory watched_memory_;
  WatchedPorts watched_ports_;
  SimulatorContext simulator_;
  SimulatorContext watched_simulator_;
  TranslationObserver* observer_ = nullptr;
  u8* bounce_ = nullptr;
  // What runs on the bounce buffer for its traces only, and the fault that comes behind it.
  AttemptedStore attempted_ = AttemptedStore::kNoTrace;
  vcpu::GuestFault refused_store_fault_;
  X87Snapshot x87_before_store_;
  // What the simulator runs for, on the guest's x87 and vector state; null: it does not run.
  SiteDesc* simulating_ = nullptr;
  u64 gs_ = 0;                        // what %gs holds
  ExitDesc* pending_exit_ = nullptr;  // the unchained exit that led to the next translation
  bool pending_indirect_ = false;     // it came through the jump table
  u8 reached_by_ = 0;                 // what the look-up in progress knows of its jump
  // SiteOfMiss's latest answers; a look-up's place is one site's until the TC is flushed.
  struct MissedSite {
    u64 resume = 0;
    SiteDesc* site = nullptr;
  };
  static constexpr u32 kMissedSites = 256;
  MissedSite missed_sites_[kMissedSites];
  bool simulate_next_ = false;  // the next dispatch wants the SIMULATE translation
  bool in_single_ = false;
  bool again_ = false;  // the single step has done nothing yet
  bool memory_map_changed_ = false;
  bool ignore_numeric_error_ = false;  // IGNNE#
  bool hide_numeric_error_ = false;    // the next instruction is one that met it
  u16 hidden_control_ = 0, hidden_exceptions_ = 0;
  bool watching_ = false;   // breakpoints are enabled
  bool ss_shadow_ = false;  // the last step loaded SS: no debug exception before the next
  u64 held_debug_hits_ = 0;
  static constexpr u32 kAlignmentKey = 1u << 9;
  u32 mode_key_ = ~u32{0};  // what NoticeMode saw last
  bool running_ = false;
  int thread_id_ = 0;
  u32 slot_seed_ = 0;

  struct UnlinkedExit {
    u64 at;
    u8 length;
    u8 bytes[10];
  };
  static constexpr unsigned kMaxUnlinkedExits = 64;
  UnlinkedExit unlinked_exits_[kMaxUnlinkedExits];
  unsigned unlinked_exit_count_ = 0;
};

// The engine that runs on this thread, for signal handlers.
EngineImpl*& CurrentEngine();
void InstallHostFaultHandlers();
int StopSignal();

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_ENGINE_IMPL_H_
