// SPDX-License-Identifier: Apache-2.0
// The callouts: what translated code calls while guest vector state is live. Compiled for general
// registers only; no allocation, no library call that might use vector registers.
#include <immintrin.h>
#include <x86intrin.h>

#include <utility>

#include "abi/contract.h"
#include "base/raw_copy.h"
#include "runtime/engine_impl.h"
#include "runtime/simulator/masked_store.h"
#include "vcpu/breakpoints.h"
#include "vcpu/control_transfer.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/descriptors.h"
#include "vcpu/exceptions.h"
#include "vcpu/outcome.h"
#include "vcpu/segments.h"

namespace alibi::runtime {

using translator::Ccf;
using translator::CodeMode;
using translator::Instr;
using translator::SiteDesc;
using vcpu::GuestFault;

namespace {

constexpr u8 kFirstX87Opcode = 0xd8, kLastX87Opcode = 0xdf;

// The guest's mask register k0..k7, which is live in the host's. Only EVEX instructions ask, and
// the host runs them.
u64 LiveMask(unsigned k) {
  u64 value = 0;
#define ALIBI_MASK_CASE(n)                             \
  case n:                                              \
    asm volatile("kmovq %%k" #n ", %0" : "=r"(value)); \
    break;
  switch (k) {
    ALIBI_MASK_CASE(0)
    ALIBI_MASK_CASE(1)
    ALIBI_MASK_CASE(2)
    ALIBI_MASK_CASE(3)
    ALIBI_MASK_CASE(4)
    ALIBI_MASK_CASE(5)
    ALIBI_MASK_CASE(6)
    ALIBI_MASK_CASE(7)
  }
#undef ALIBI_MASK_CASE
  return value;
}

// A slot that misses more often than once in so many cycles is worse than the table look-up, whose
// load sits in every access's dependency chain.
constexpr u64 kThrashCycles = 100;

constexpr u32 kSystemKinds = KindBit(RecordKind::kMsr) | KindBit(RecordKind::kControl);

}  // namespace

bool EngineImpl::Canonical(u64 address) const {
  return static_cast<u64>(static_cast<i64>(address << 16) >> 16) == address;
}

GuestFault EngineImpl::NonCanonicalFault(const Instr& instr, u64 linear) const {
  if (Misaligned(instr, linear) && Canonical(linear) &&
      vcpu::HostHasIntelsWay(vcpu::HostDifference::kEndOfCanonical)) {
    return GuestFault::WithCode(vcpu::kAlignmentCheck, 0);
  }
  const bool stack = instr.mem.present ? instr.mem.stack_segment : true;
  return GuestFault::WithCode(stack ? vcpu::kStackFault : vcpu::kGeneralProtection, 0);
}

bool EngineImpl::MayChangeMode(const Instr& instr) const {
  const translator::OpInfo& op = InfoOf(instr.op);
  if (instr.code_bits != 64) {
    return instr.treatment == translator::Treatment::kTerminator ||
           op.Has(translator::kLoadsFlags | translator::kSystemCall);
  }
  // The rest is dispatched with a look at its mode.
  if (op.Has(translator::kLoadsFlags)) {
    return state_.AlignmentArmed() != ((mode_key_ & kAlignmentKey) != 0);
  }
  return op.Has(translator::kChangesMode);
}

Next EngineImpl::OnSimulate(SiteDesc* site, u64) {
  const Instr& instr = InstrOf(*site);
  ++counters_.simulate_callouts;
  state_.rip = site->ccf->mode.RipOf(instr.pc);
  const bool watched = watching_ || points_.any_watch();
  if (!watched && MakeStringRun(*site)) return Continue(site, instr.next_pc());
  simulating_ = site;
  const vcpu::Outcome outcome = Simulate(instr, watched ? watched_simulator_ : simulator_);
  simulating_ = nullptr;
  if (watched) NoteSimulatedWatch(outcome.faulted());
  if (instr.op == translator::Op::kWrmsr) vcpu::PrepareFastSyscall(state_);
  if (outcome.faulted()) {
    return DeliverAtAndDispatch(site, outcome.fault());
  }
  if (recorder_.Wants(kSystemKinds)) RecordSystem(instr);
  if (MayChangeMode(instr) &&
      (instr.code_bits != 64 ? ModeHasChanged(site->ccf->mode) : NoticeMode(CurrentMode()))) {
    return Dispatch(LinearPc());
  }
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
  const u64 resume = stubs_.miss + word.ResumeDistance();
  MissedSite& known = missed_sites_[(resume >> 4) % kMissedSites];
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

Next EngineImpl::OnMiss(MissWord word, u64 linear) {
  SiteDesc* site = SiteOfMiss(word);
  ALIBI_CHECK(site != nullptr, "a look-up that misses belongs to a site");
  ++counters_.inline_tlb_misses;
  const Instr& instr = InstrOf(*site);
  if (instr.code_bits != 64 && linear >> 32 != 0) return SimulateNext(instr.pc);  // it wrapped
  const bool has_slot = site->slot != 0;
  const bool store = site->window != 0;
  const unsigned slot =
      static_cast<unsigned>(site->slot - kSlotsOffset) / sizeof(InlineTlbEntry) % kSlotCount;
  mmu::View& view = mmu_.current_view();
  if (has_slot && !translator::IsString(site->shape) &&
      view.slot(store, slot).misses % kMissWindow == 0) {
    ++view.slot(store, slot).misses;  // once
    const u64 now = __rdtsc();
    u64& judged = view.slot_judged(store, slot);
    const bool thrashing = now - judged < u64{kMissWindow} * kThrashCycles;
    judged = now;
    adapt::SiteRecord* record = thrashing ? OwnRecordOf(*site) : nullptr;
    if (record != nullptr && IsCurrent(*site->ccf)) {
      record->table_lookup = true;
      ++counters_.lookup_changes;
      RecordSite(RecordKind::kRelookup, *site, *record);
      fragments_->Retire(site->ccf);
      return Retry(instr.pc);
    }
  }
  const u64 span = u64{site->span_minus_1} + 1;
  if (span == site->size && MisalignedOperand(*site, linear)) {
    state_.rip = site->ccf->mode.RipOf(instr.pc);
    return DeliverAtAndDispatch(site, GuestFault::WithCode(vcpu::kGeneralProtection, 0));
  }
  if ((linear & kPageMask) + span > kPageSize) {
    ++counters_.page_crossings;
    state_.rip = site->ccf->mode.RipOf(instr.pc);
    if (site->in_group) return Retry(instr.pc);  // reading a copy may set traces
    if (site->shared) {
      // A group's range crosses, whether or not its members do: look each one up alone.
      // (Simulated this time: what a retry would find may be another translation that groups it.)
      if (adapt::SiteRecord* record = OwnRecordOf(*site)) {
        record->alone = true;
        RecordSite(RecordKind::kUngroup, *site, *record);
        fragments_->Retire(site->ccf);
      }
      return SimulateNext(instr.pc);
    }
    if (!SiteWrites(*site)) {
      // A load needs no write-back: let it read a copy, at an address of the same alignment.
      u8* copy = BounceOf(linear, static_cast<unsigned>(span));
      GuestFault fault;
      if (Canonical(linear) && Canonical(linear + span - 1) &&
          ReadOperand(linear, copy, static_cast<unsigned>(span), &fault)) {
        state_.callout_argument = reinterpret_cast<u64>(copy) - linear;
        return {site->resume};
      }
    }
    return SimulateNext(instr.pc);
  }
  const LinearAddr address(linear);
  if (Canonical(linear)) {
    if (has_slot && mmu_.FillSlot(store, slot, address)) {
      state_.callout_argument = mmu_.current_view().Entry(mmu::EntryIndex(address));
      return {site->resume};
    }
    // A hidden fault needs no host trap here: the runtime has been called anyway.
    GuestFault fault;
    const mmu::Resolution resolution =
        mmu_.ResolveAccess(address, site->size, SiteWrites(*site), &fault);
    SyncGs();
    if (resolution == mmu::Resolution::kFilled) {
      if (has_slot) mmu_.FillSlot(store, slot, address);
      // Other entries may have changed as well, such as the one whose displacement waits in r10.
      if (site->in_group) return Retry(instr.pc);
      state_.callout_argument = mmu_.current_view().Entry(mmu::EntryIndex(address));
      return {site->resume};
    }
    if (site->checked != 0) {
      ++counters_.checked_callouts;
      state_.rip = site->ccf->mode.RipOf(instr.pc);
      if (resolution == mmu::Resolution::kGuestFault && instr.mem.masked_element == 0 &&
          AttemptedStoreOf(instr) == AttemptedStore::kNoTrace) {
        Charge(site, adapt::Event::kTruePageFault, false);
        if (CallsNowhere(*site)) fault = GuestFault::WithCode(vcpu::kGeneralProtection, 0);
        return DeliverAtAndDispatch(site, fault);
      }
      Charge(site, adapt::Event::kTraceFault, false);
      return SimulateNext(instr.pc);
    }
  }
  // Innocent: go on; the access traps and is charged there. A non-canonical address has an entry,
  // too: the sum leaves the address space.
  state_.callout_argument = mmu_.current_view().Entry(mmu::EntryIndex(address));
  return {site->resume};
}

// The host addresses of the one or two pages of an access that touches nothing but plain RAM.
// pages[1] is null if there is one only.
bool EngineImpl::PlainPages(u64 linear, unsigned size, bool write, u8* pages[2]) {
  const auto host_of = [&](u64 address) {
    const u64 host = address + mmu_.current_view().Entry(mmu::EntryIndex(LinearAddr(address)));
    return host - state_.ram_window[write] < state_.ram_window_size[write]
               ? reinterpret_cast<u8*>(host)
               : nullptr;
  };
  const u64 last = linear + size - 1;
  pages[0] = host_of(linear);
  pages[1] = nullptr;
  if (pages[0] == nullptr) return false;
  if (linear >> 12 == last >> 12) return true;
  if (last < linear || (state_.CodeBits() != 64 && last >> 32 != 0)) return false;
  pages[1] = host_of(last & ~kPageMask);
  return pages[1] != nullptr;
}

bool EngineImpl::ReadOperand(u64 linear, u8* out, unsigned size, GuestFault* fault) {
  u8* pages[2];
  if (!PlainPages(linear, size, false, pages)) {
    const bool done = mmu_.Read(LinearAddr(linear), out, size, vcpu::Privilege::kCpl, fault);
    SyncGs();
    return done;
  }
  const u64 first = pages[1] == nullptr ? size : kPageSize - (linear & kPageMask);
  RawCopy(out, pages[0], first);
  if (pages[1] != nullptr) RawCopy(out + first, pages[1], size - first);
  return true;
}

bool EngineImpl::WriteOperand(u64 linear, const u8* data, unsigned size, GuestFault* fault) {
  u8* pages[2];
  if (!PlainPages(linear, size, true, pages)) {
    const bool done = mmu_.Write(LinearAddr(linear), data, size, vcpu::Privilege::kCpl, fault);
    SyncGs();
    return done;
  }
  const u64 first = pages[1] == nullptr ? size : kPageSize - (linear & kPageMask);
  RawCopy(pages[0], data, first);
  if (pages[1] != nullptr) RawCopy(pages[1], data + first, size - first);
  return true;
}

// The guest instruction, by its index in the CCF, that the code at `host` belongs to.
static bool FindInstr(const Ccf* ccf, u64 host, unsigned* index) {
  if (ccf == nullptr || host < ccf->hot_start || host >= ccf->hot_end) return false;
  const translator::CodeMapEntry* found = nullptr;
  for (const translator::CodeMapEntry& entry : ccf->map()) {
    if (entry.host_offset <= host - ccf->hot_start) found = &entry;
  }
  if (found == nullptr || found->instr_index >= ccf->instrs().size()) return false;
  *index = found->instr_index;
  return true;
}

bool EngineImpl::GuestRip(u64 host, u64* rip, u64* linear) const {
  const Ccf* ccf = fragments_->FindByHost(host);
  unsigned index;
  if (!FindInstr(ccf, host, &index)) return false;
  *linear = ccf->instrs().pc(index);
  *rip = ccf->mode.RipOf(*linear);
  return true;
}

bool EngineImpl::X87Opcodes(u64 host, u16* guest, u16* translated) const {
  const Ccf* ccf = fragments_->FindByHost(host);
  unsigned index;
  if (!FindInstr(ccf, host, &index)) return false;
  Instr instr;
  DecodeAgain(*ccf, index, &instr);
  const auto is_x87 = [](const u8* at) { return *at >= kFirstX87Opcode && *at <= kLastX87Opcode; };
  const u8* code = reinterpret_cast<const u8*>(host);
  const u8* const last = reinterpret_cast<const u8*>(ccf->hot_end) - 1;  // has no room for ModRM
  while (code < last && !is_x87(code)) ++code;  // over prefixes, REX among them
  const u8* opcode = &instr.bytes[instr.layout.opcode];
  if (code >= last || !is_x87(opcode)) return false;
  *guest = static_cast<u16>((opcode[0] & 7) << 8 | opcode[1]);
  *translated = static_cast<u16>((code[0] & 7) << 8 | code[1]);
  return true;
}

// One bit per element of a masked operand that the instruction accesses.
u64 EngineImpl::ActiveElements(const translator::MemOperand& mem) {
  u64 mask = LiveMask(mem.mask_register);
  if (mem.mask_bits < 64) mask &= (u64{1} << mem.mask_bits) - 1;
  const unsigned elements = mem.size / mem.masked_element;
  if (mem.packed) {
    const unsigned population = static_cast<unsigned>(__builtin_popcountll(mask));
    return population >= 64 ? ~u64{0} : (u64{1} << population) - 1;
  }
  u64 active = 0;
  for (unsigned i = 0; i < mem.mask_bits; ++i) active |= ((mask >> i) & 1) << (i % elements);
  return active;
}

// Moves the active elements between a masked operand and the bounce buffer, or only looks whether
// they can be written. False: *fault is the lowest one's.
bool EngineImpl::AccessElements(const Instr& instr, u64 linear, ElementAccess access,
                                GuestFault* fault) {
  const unsigned size = instr.mem.masked_element;
  const u64 active = ActiveElements(instr.mem);
  u8* const bounced = BounceOf(linear, instr.mem.size);
  const unsigned elements = instr.mem.size / size;
  const auto in_segment = [&](unsigned i, u64* at) {
    const u64 base = state_.segment[instr.mem.segment].base;
    LinearAddr element;
    const vcpu::Outcome outcome = LinearOperand(
        instr, simulator_, static_cast<u32>(linear - base) + u64{i} * size, size, &element);
    *at = element.value;
    if (outcome.faulted()) *fault = outcome.fault();
    return outcome.done();
  };
  const auto is_address = [&](unsigned i, u64* at) {
    if (instr.code_bits != 64) return in_segment(i, at);
    *at = linear + i * size;
    if (Canonical(*at) && Canonical(*at + size - 1)) return true;
    *fault = NonCanonicalFault(instr, *at);
    return false;
  };
  if (vcpu::HostHasIntelsWay(vcpu::HostDifference::kMaskedOperandFault)) {
    for (unsigned i = 0; i < elements; ++i) {
      u64 unused;
      if (((active >> i) & 1) && !is_address(i, &unused)) return false;
    }
  }
  for (unsigned i = 0; i < elements; ++i) {
    if (!((active >> i) & 1)) continue;
    u64 at;
    bool done = false;
    if (!is_address(i, &at)) return false;
    if (!CarefulAccess(instr, at, size)) {
      *fault = GuestFault::WithCode(vcpu::kAlignmentCheck, 0);
    } else if (access == ElementAccess::kRead) {
      done = ReadOperand(at, bounced + i * size, size, fault);
    } else if (access == ElementAccess::kWrite) {
      done = WriteOperand(at, bounced + i * size, size, fault);
    } else {
      done = mmu_.ProbeWrite(LinearAddr(at), size, vcpu::Privilege::kCpl, fault);
      SyncGs();
      if (!done) PlaceMaskedStoreFault(linear, active, size, instr.code_bits, fault);
    }
    if (!done) return false;
  }
  return true;
}

// An instruction on a bounce operand would meet this fault at its own one.
Next EngineImpl::RefuseBounce(SiteDesc* site, const GuestFault& fault) {
  attempted_ = AttemptedStoreOf(InstrOf(*site));
  if (attempted_ == AttemptedStore::kNoTrace) return DeliverAtAndDispatch(site, fault);
  refused_store_fault_ = fault;
  if (attempted_ != AttemptedStore::kConvert) x87_before_store_.Take();
  return {site->resume};
}

// What the instruction has put into the bounce operand's first eight bytes, if memory takes them.
void EngineImpl::StoreFirstPart(const SiteDesc& site) {
  constexpr unsigned kPart = 8;
  const Instr& instr = InstrOf(site);
  if (refused_store_fault_.vector == vcpu::kAlignmentCheck ||
      !vcpu::HostHasIntelsWay(vcpu::HostDifference::kX87StoreParts)) {
    return;
  }
  LinearAddr first(state_.scratch.operand);
  if (translator::ChecksSegment(instr, site.ccf->mode)) {
    const u64 base = state_.segment[instr.mem.segment].base;
    const u64 offset = static_cast<u32>(first.value - base);
    if (LinearOperand(instr, simulator_, offset, kPart, &first).faulted()) return;
  }
  GuestFault refused;
  if (Canonical(first.value) && Canonical(first.value + kPart - 1) &&
      mmu_.ProbeWrite(first, kPart, vcpu::Privilege::kCpl, &refused)) {
    WriteOperand(first.value, BounceOf(state_.scratch.operand, site.size), kPart, &refused);
  }
  SyncGs();
}

// It has run, and left what traces it leaves.
Next EngineImpl::EndRefusedStore(SiteDesc* site) {
  const Instr& instr = InstrOf(*site);
  switch (std::exchange(attempted_, AttemptedStore::kNoTrace)) {
    case AttemptedStore::kMmx:
      x87_before_store_.PutBackWithTopZero();
      break;
    case AttemptedStore::kX87:
      if (X87Snapshot::KeptFromStoring()) {
        state_.rip = site->ccf->mode.RipOf(instr.next_pc());
        return Continue(site, instr.next_pc());
      }
      x87_before_store_.PutBack();
      if (instr.mem.size == 10) StoreFirstPart(*site);
      break;
    case AttemptedStore::kConvert:
    case AttemptedStore::kNoTrace:
      break;
  }
  return DeliverAtAndDispatch(site, refused_store_fault_);
}

Next EngineImpl::OnBounceBegin(SiteDesc* site, u64 linear) {
  const Instr& instr = InstrOf(*site);
  ++counters_.bounce_callouts;
  attempted_ = AttemptedStore::kNoTrace;
  state_.rip = site->ccf->mode.RipOf(instr.pc);
  const u64 offset = linear;
  const bool in_segment = translator::ChecksSegment(instr, site->ccf->mode);
  if (in_segment) linear = static_cast<u32>(state_.segment[instr.mem.segment].base + offset);
  state_.scratch.operand = linear;
  state_.callout_argument = reinterpret_cast<u64>(BounceOf(linear, site->size));
  LinearAddr address(linear);
  if (in_segment && instr.mem.masked_element == 0) {  // else element by element
    const vcpu::Outcome outcome = LinearOperand(instr, simulator_, offset, site->size, &address);
    if (outcome.faulted()) return RefuseBounce(site, outcome.fault());
  }
  if (MisalignedOperand(*site, linear)) {
    return DeliverAtAndDispatch(site, GuestFault::WithCode(vcpu::kGeneralProtection, 0));
  }
  GuestFault fault;
  if (instr.mem.masked_element != 0) {
    if ((linear & (instr.mem.alignment - 1u)) != 0 && ActiveElements(instr.mem) != 0) {
      return DeliverAtAndDispatch(site, GuestFault::WithCode(vcpu::kGeneralProtection, 0));
    }
    const ElementAccess access = instr.mem.written ? ElementAccess::kProbe : ElementAccess::kRead;
    if (!AccessElements(instr, linear, access, &fault)) {
      Charge(site, adapt::Event::kTruePageFault, false);
      return RefuseBounce(site, fault);
    }
    if (!instr.mem.written) ChargeSimulated(site, linear, false);
    return {site->resume};
  }
  if (!Canonical(linear) || !Canonical(linear + site->size - 1)) {
    return RefuseBounce(site, NonCanonicalFault(instr, linear));
  }
  if (StopsForWatch(instr, linear, site->size)) return LeaveToStep();
  if (site->ccf->mode.careful && !CarefulAccess(instr, linear, site->size)) {
    return RefuseBounce(site, GuestFault::WithCode(vcpu::kAlignmentCheck, 0));
  }
  u8* pages[2];
  if (instr.mem.written && !PlainPages(linear, site->size, true, pages) &&
      !mmu_.ProbeWrite(address, site->size, vcpu::Privilege::kCpl, &fault)) {
    SyncGs();
    Charge(site, adapt::Event::kTruePageFault, false);
    return RefuseBounce(site, fault);
  }
  if (instr.mem.read) {
    if (!ReadOperand(linear, BounceOf(linear, site->size), site->size, &fault)) {
      SyncGs();
      Charge(site, adapt::Event::kTruePageFault, false);
      return DeliverAtAndDispatch(site, fault);
    }
  } else {
    // For operations that write only part of it.
    mmu_.DebugRead(address, BounceOf(linear, site->size), site->size);
  }
  SyncGs();
  if (!instr.mem.written) ChargeSimulated(site, linear, false);
  return {site->resume};
}

Next EngineImpl::OnBounceEnd(SiteDesc* site, u64) {
  const Instr& instr = InstrOf(*site);
  state_.rip = site->ccf->mode.RipOf(instr.pc);
  if (attempted_ != AttemptedStore::kNoTrace) return EndRefusedStore(site);
  GuestFault fault;
  const bool written =
      instr.mem.masked_element != 0
          ? AccessElements(instr, state_.scratch.operand, ElementAccess::kWrite, &fault)
          : WriteOperand(state_.scratch.operand, BounceOf(state_.scratch.operand, site->size),
                         site->size, &fault);
  if (!written) return DeliverAtAndDispatch(site, fault);
  state_.rip = site->ccf->mode.RipOf(instr.next_pc());
  ChargeSimulated(site, state_.scratch.operand, true);
  return Continue(site, instr.next_pc());
}

Next EngineImpl::OnStore(SiteDesc* site, u64 linear) {
  const Instr& instr = InstrOf(*site);
  ++counters_.store_callouts;
  state_.rip = site->ccf->mode.RipOf(instr.pc);
  GuestFault fault;
  if (!Canonical(linear) || !Canonical(linear + site->size - 1)) {
    return DeliverAtAndDispatch(site, NonCanonicalFault(instr, linear));
  }
  if (StopsForWatch(instr, linear, site->size)) return LeaveToStep();
  if (site->ccf->mode.careful && !CarefulAccess(instr, linear, site->size)) {
    return DeliverAtAndDispatch(site, GuestFault::WithCode(vcpu::kAlignmentCheck, 0));
  }
  if (!WriteOperand(linear, reinterpret_cast<const u8*>(&state_.scratch.store), site->size,
                    &fault)) {
    SyncGs();
    Charge(site, adapt::Event::kTruePageFault, false);
    return DeliverAtAndDispatch(site, fault);
  }
  state_.rip = site->ccf->mode.RipOf(instr.next_pc());
  ChargeSimulated(site, linear, true);
  return Continue(site, instr.next_pc());
}

}  // namespace alibi::runtime
