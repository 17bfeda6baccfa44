// SPDX-License-Identifier: Apache-2.0
// Callouts of sites: simulated instructions, exceptions, look-ups that miss. They run while guest
// vector state is live: compiled for general registers only; no allocation, no library call that
// might use vector registers.
#include <x86intrin.h>

#include "isa/raw.h"
#include "runtime/engine_impl.h"
#include "vcpu/control_transfer.h"
#include "vcpu/descriptors.h"
#include "vcpu/outcome.h"

namespace alibi::runtime {

using isa::Instr;
using translator::Ccf;
using translator::SiteDesc;
using vcpu::GuestFault;

namespace {

// A slot that misses more often than once in so many cycles is worse than the table look-up, whose
// load sits in every access's dependency chain.
constexpr u64 kThrashCycles = 100;
// A large program has so many slots in use that none misses often, even if each access to it does.
// Nobody counts hits; but a walk through an array, which has many, misses at the next page. So a
// slot that misses once in so many cycles is left, too, if as many windows in a row have ended with
// a page that is no neighbour of the one before it.
constexpr u64 kSparseCycles = 20000;
constexpr u8 kSparseWindows = 3;

constexpr u32 kSystemKinds = KindBit(RecordKind::kMsr) | KindBit(RecordKind::kControl);

}  // namespace

// Behind a simulated instruction: neither its unit nor a jump table knows where it goes on. What
// ends a unit of other code than 64-bit is looked at when it is dispatched.
bool EngineImpl::LeavesMode(const Instr& instr, const translator::CodeMode& before) {
  const isa::OpInfo& op = InfoOf(instr.op);
  if (instr.code_bits == 64) {
    const bool may = op.Has(isa::kLoadsFlags)
                         ? state_.AlignmentArmed() != ((mode_key_ & kAlignmentKey) != 0)
                         : op.Has(isa::kChangesMode);
    return may && NoticeMode(CurrentMode());
  }
  if (isa::EndsTranslationUnit(instr.treatment, op)) return state_.CodeBits() == 64;
  if (op.Has(isa::kLoadsSegment)) return FlatnessHasChanged(before, instr.system_reg);
  return op.Has(isa::kLoadsFlags) && ModeHasChanged(before);
}

Next EngineImpl::OnSimulate(SiteDesc* site, u64) {
  const Instr& instr = InstrOf(*site);
  ++counters_.simulate_callouts;
  state_.rip = site->ccf->mode.RipOf(instr.pc);
  if (MakeStringRun(*site)) return Continue(site, instr.next_pc());
  if (instr.IsLocked() && RunsBeside()) {
    BeginAtomic(accesses_.AddressOf(*site, instr), site->size);
  }
  const bool watched = Watches();
  const bool may_trap = watching_ && !in_single_;  // Step() does it itself
  if (may_trap) BeginWatched();
  simulating_ = site;
  const vcpu::Outcome outcome = Simulate(instr, watched ? watched_simulator_ : simulator_);
  simulating_ = nullptr;
  if (watched) NoteSimulatedWatch(outcome.faulted());
  if (instr.op == isa::Op::kWrmsr) vcpu::PrepareFastSyscall(state_);
  if (outcome.faulted()) {
    return DeliverAtAndDispatch(site, outcome.fault());
  }
  if (events_.Wants(kSystemKinds)) events_.SystemInstruction(instr);
  if (may_trap && TrapsBehind(*site)) return Dispatch(LinearPc());
  if (LeavesMode(instr, site->ccf->mode)) return Dispatch(LinearPc());
  return Continue(site, instr.next_pc());
}

Next EngineImpl::OnRecheck(SiteDesc* site, u64) {
  ++counters_.segment_rechecks;
  return SimulateNext(InstrOf(*site).pc);
}

Next EngineImpl::OnRaise(SiteDesc* site, u64) {
  ++counters_.raise_callouts;
  state_.rip = site->ccf->mode.RipOf(InstrOf(*site).pc);
  if (site->vector == vcpu::kDivideError) {
    Charge(site, adapt::Event::kArithmetic, false);
  }
  return DeliverAtAndDispatch(site, GuestFault::Simple(static_cast<vcpu::Vector>(site->vector)));
}

// The site that a look-up's miss belongs to, by where it goes on.
SiteDesc* EngineImpl::SiteOfMiss(MissWord word) {
  const HostAddr resume = stubs_.miss + word.ResumeDistance();
  MissedSite& known = missed_sites_[(resume.value >> 4) % kMissedSites];
  if (known.resume == resume) return known.site;
  if (Ccf* ccf = fragments_->FindByHost(resume)) {
    for (SiteDesc* site : ccf->sites()) {
      if (site->resume != resume) continue;
      known = {resume, site};
      return site;
    }
  }
  return nullptr;
}

// A slot that several sites fight for, or a site whose accesses are all over memory: the site goes
// to the table from now on. Not a CHECKED one: it was convicted because entries are invalid when it
// comes, and in the table these trap. True: its translation is retired for that.
bool EngineImpl::LeavesSlot(SiteDesc* site, bool store, unsigned slot, LinearAddr linear) {
  mmu::View& view = mmu_.current_view();
  if (site->checked || translator::IsString(site->shape) ||
      view.slot(store, slot).misses % kMissWindow != 0) {
    return false;
  }
  ++view.slot(store, slot).misses;  // once
  mmu::View::SlotWindow& window = view.slot_window(store, slot);
  const u64 now = __rdtsc();
  const u64 cycles_per_miss = (now - window.begin) / kMissWindow;
  const u64 pages_on = (linear.value + view.slot(store, slot).neg_page) >> 12;
  const bool walks = pages_on + 1 <= 2;
  window.begin = now;
  window.sparse = walks || cycles_per_miss >= kSparseCycles ? 0 : window.sparse + 1;
  const bool thrashing = cycles_per_miss < kThrashCycles || window.sparse >= kSparseWindows;
  adapt::SiteRecord* record = thrashing ? sites_->OwnRecordOf(*site) : nullptr;
  if (record == nullptr || !IsCurrent(*site->ccf)) return false;
  record->table_lookup = true;
  ++counters_.lookup_changes;
  events_.SiteChanged(RecordKind::kRelookup, InstrOf(*site), *record);
  fragments_->Retire(site->ccf);
  return true;
}

// A look-up whose range crosses into another page has no one entry.
Next EngineImpl::MissAcrossPages(SiteDesc* site, const Instr& instr, LinearAddr linear,
                                 unsigned span) {
  ++counters_.page_crossings;
  state_.rip = site->ccf->mode.RipOf(instr.pc);
  if (site->in_group) return Retry(instr.pc);  // reading a copy may set traces
  if (site->shared) {
    // A group's range crosses, whether or not its members do: look each one up alone.
    // (Simulated this time: what a retry would find may be another translation that groups it.)
    if (adapt::SiteRecord* record = sites_->OwnRecordOf(*site)) {
      record->alone = true;
      events_.SiteChanged(RecordKind::kUngroup, instr, *record);
      fragments_->Retire(site->ccf);
    }
    return SimulateNext(instr.pc);
  }
  if (!Accesses::Writes(*site, instr) && !Watches()) {
    // A load needs no write-back: let it read a copy, at an address of the same alignment.
    u8* copy = BounceOf(linear, span);
    GuestFault fault;
    if (!Accesses::LeavesAddressSpace(linear, span) && ReadOperand(linear, copy, span, &fault)) {
      state_.callout_argument = reinterpret_cast<u64>(copy) - linear.value;
      return {site->resume};
    }
  }
  return SimulateNext(instr.pc);
}

Next EngineImpl::OnMiss(MissWord word, u64 r11) {
  const LinearAddr linear(r11);
  SiteDesc* site = SiteOfMiss(word);
  ALIBI_CHECK(site != nullptr, "a look-up that misses belongs to a site");
  ++counters_.inline_tlb_misses;
  const Instr& instr = InstrOf(*site);
  const Access access{Found::kMiss, *site, instr, linear, site->size};
  const Verdict known = accesses_.Classify(access);
  if (known.way == Verdict::Way::kSimulate) return SimulateNext(instr.pc);
  const bool has_slot = site->slot != 0;
  const bool store = site->window != 0;
  const unsigned slot =
      static_cast<unsigned>(site->slot - kSlotsOffset) / sizeof(InlineTlbEntry) % kSlotCount;
  if (has_slot && LeavesSlot(site, store, slot, linear)) return Retry(instr.pc);
  if (known.way == Verdict::Way::kDeliver) {
    state_.rip = site->ccf->mode.RipOf(instr.pc);
    return DeliverAtAndDispatch(site, known.fault);
  }
  const unsigned span = site->span_minus_1 + 1u;
  if (linear.PageOffset() + span > kPageSize) return MissAcrossPages(site, instr, linear, span);

  // An address that is not canonical has an entry, too: the sum leaves the address space.
  const auto resume = [&] {
    state_.callout_argument = mmu_.current_view().Entry(mmu::EntryIndex(linear));
    return Next{site->resume};
  };
  if (!IsCanonical(linear) || (has_slot && mmu_.FillSlot(store, slot, linear))) {
    return resume();
  }
  // A hidden fault needs no host trap here: the runtime has been called anyway.
  GuestFault fault;
  const mmu::Resolution resolution =
      mmu_.ResolveAccess(linear, site->size, Accesses::Writes(*site, instr), &fault);
  SyncGs();
  if (resolution == mmu::Resolution::kFilled && has_slot) mmu_.FillSlot(store, slot, linear);
  const Verdict verdict = accesses_.Classify(access, resolution, fault);
  if (verdict.charged) {
    ++counters_.checked_callouts;
    state_.rip = site->ccf->mode.RipOf(instr.pc);
    Charge(site, verdict.event, false);
  }
  switch (verdict.way) {
    case Verdict::Way::kRetry:
      return Retry(instr.pc);
    case Verdict::Way::kDeliver:
      return DeliverAtAndDispatch(site, verdict.fault);
    case Verdict::Way::kSimulate:
      return SimulateNext(instr.pc);
    case Verdict::Way::kResume:
      break;
  }
  return resume();
}

// The guest instruction, by its index in the CCF, that the code at `host` belongs to.
static bool FindInstr(const Ccf* ccf, HostAddr host, unsigned* index) {
  if (ccf == nullptr || host < ccf->hot_start || host >= ccf->hot_end) return false;
  const translator::CodeMapEntry* found = nullptr;
  for (const translator::CodeMapEntry& entry : ccf->map()) {
    if (entry.host_offset <= host - ccf->hot_start) found = &entry;
  }
  if (found == nullptr || found->instr_index >= ccf->instrs().size()) return false;
  *index = found->instr_index;
  return true;
}

bool EngineImpl::GuestRip(HostAddr host, u64* rip, LinearAddr* linear) const {
  const Ccf* ccf = fragments_->FindByHost(host);
  unsigned index;
  if (!FindInstr(ccf, host, &index)) return false;
  *linear = ccf->instrs().pc(index);
  *rip = ccf->mode.RipOf(*linear);
  return true;
}

bool EngineImpl::X87Opcodes(HostAddr host, u16* guest, u16* translated) const {
  const Ccf* ccf = fragments_->FindByHost(host);
  unsigned index;
  if (!FindInstr(ccf, host, &index)) return false;
  Instr instr;
  Sites::DecodeAgain(*ccf, index, &instr);
  const u8* const bytes = instr.bytes.data();
  return isa::X87Opcode(bytes, bytes + instr.length, guest) &&
         isa::X87Opcode(host.As<const u8>(), ccf->hot_end.As<const u8>(), translated);
}

}  // namespace alibi::runtime
