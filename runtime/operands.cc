// SPDX-License-Identifier: Apache-2.0
// Operands that the runtime reads and writes for translated code: bounced ones, whole or by
// elements, and simulated stores. Compiled for general registers only: guest vector state is live.
#include <immintrin.h>

#include <utility>

#include "base/raw_copy.h"
#include "runtime/engine_impl.h"
#include "simulator/masked_store.h"
#include "vcpu/cpu_differences.h"
#include "vcpu/outcome.h"

namespace alibi::runtime {

using isa::Instr;
using translator::SiteDesc;
using vcpu::GuestFault;

namespace {

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

}  // namespace

// The host addresses of the one or two pages of an access that touches nothing but plain RAM.
// pages[1] is null if there is one only.
bool EngineImpl::PlainPages(LinearAddr linear, unsigned size, bool write, u8* pages[2]) {
  const auto host_of = [&](LinearAddr address) {
    const HostAddr host = mmu_.current_view().HostOf(address);
    return host.value - state_.ram_window[write] < state_.ram_window_size[write] ? host.As()
                                                                                 : nullptr;
  };
  const LinearAddr last = linear + size - 1;
  pages[0] = host_of(linear);
  pages[1] = nullptr;
  if (pages[0] == nullptr) return false;
  if (linear.InPage() == last.InPage()) return true;
  if (last < linear || (state_.CodeBits() != 64 && last.value >> 32 != 0)) return false;
  pages[1] = host_of(last.PageBase());
  return pages[1] != nullptr;
}

bool EngineImpl::ReadOperand(LinearAddr linear, u8* out, unsigned size, GuestFault* fault) {
  u8* pages[2];
  if (!PlainPages(linear, size, false, pages)) {
    const bool done = mmu_.Read(linear, out, size, vcpu::Privilege::kCpl, fault);
    SyncGs();
    return done;
  }
  const u64 first = pages[1] == nullptr ? size : kPageSize - linear.PageOffset();
  RawCopy(out, pages[0], first);
  if (pages[1] != nullptr) RawCopy(out + first, pages[1], size - first);
  return true;
}

bool EngineImpl::WriteOperand(LinearAddr linear, const u8* data, unsigned size, GuestFault* fault) {
  u8* pages[2];
  if (!PlainPages(linear, size, true, pages)) {
    const bool done = mmu_.Write(linear, data, size, vcpu::Privilege::kCpl, fault);
    SyncGs();
    return done;
  }
  const u64 first = pages[1] == nullptr ? size : kPageSize - linear.PageOffset();
  RawCopy(pages[0], data, first);
  if (pages[1] != nullptr) RawCopy(pages[1], data + first, size - first);
  return true;
}

// One bit per element of a masked operand that the instruction accesses.
[[gnu::noinline]] u64 EngineImpl::ActiveElements(const Instr& instr) {
  const isa::MemOperand& mem = instr.mem;
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
bool EngineImpl::AccessElements(const Instr& instr, LinearAddr linear, ElementAccess access,
                                GuestFault* fault) {
  const unsigned size = instr.mem.masked_element;
  const u64 active = ActiveElements(instr);
  u8* const bounced = BounceOf(linear, instr.mem.size);
  const unsigned elements = instr.mem.size / size;
  const auto in_segment = [&](unsigned i, LinearAddr* at) {
    const u64 base = state_.segment[instr.mem.segment].base;
    const vcpu::Outcome outcome = LinearOperand(
        instr, simulator_, static_cast<u32>(linear.value - base) + u64{i} * size, size, at);
    if (outcome.faulted()) *fault = outcome.fault();
    return outcome.done();
  };
  const auto is_address = [&](unsigned i, LinearAddr* at) {
    if (instr.code_bits != 64) return in_segment(i, at);
    *at = linear + i * size;
    if (!Accesses::LeavesAddressSpace(*at, size)) return true;
    *fault = accesses_.NonCanonicalFault(instr, *at);
    return false;
  };
  if (vcpu::HostHasIntelsWay(vcpu::HostDifference::kMaskedOperandFault)) {
    for (unsigned i = 0; i < elements; ++i) {
      LinearAddr unused;
      if (((active >> i) & 1) && !is_address(i, &unused)) return false;
    }
  }
  for (unsigned i = 0; i < elements; ++i) {
    if (!((active >> i) & 1)) continue;
    LinearAddr at;
    bool done = false;
    if (!is_address(i, &at)) return false;
    if (accesses_.Misaligned(instr, at)) {
      *fault = GuestFault::WithCode(vcpu::kAlignmentCheck, 0);
      return false;
    }
    NoteWatched(instr, at, size);
    if (access == ElementAccess::kRead) {
      done = ReadOperand(at, bounced + i * size, size, fault);
    } else if (access == ElementAccess::kWrite) {
      done = WriteOperand(at, bounced + i * size, size, fault);
    } else {
      done = mmu_.ProbeWrite(at, size, vcpu::Privilege::kCpl, fault);
      SyncGs();
      if (!done) simulator::PlaceMaskedStoreFault(linear, active, size, instr.code_bits, fault);
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
  const LinearAddr operand(state_.scratch.operand);
  LinearAddr first = operand;
  if (translator::ChecksSegment(instr, site.ccf->mode)) {
    const u64 base = state_.segment[instr.mem.segment].base;
    const u64 offset = static_cast<u32>(first.value - base);
    if (LinearOperand(instr, simulator_, offset, kPart, &first).faulted()) return;
  }
  GuestFault refused;
  if (!Accesses::LeavesAddressSpace(first, kPart) &&
      mmu_.ProbeWrite(first, kPart, vcpu::Privilege::kCpl, &refused)) {
    WriteOperand(first, BounceOf(operand, site.size), kPart, &refused);
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

Next EngineImpl::BounceElements(SiteDesc* site, LinearAddr linear) {
  const Instr& instr = InstrOf(*site);
  GuestFault fault;
  const ElementAccess access = instr.mem.written ? ElementAccess::kProbe : ElementAccess::kRead;
  if (!AccessElements(instr, linear, access, &fault)) {
    Charge(site, adapt::Event::kTruePageFault, false);
    return RefuseBounce(site, fault);
  }
  if (!instr.mem.written) ChargeSimulated(site, linear, false);
  return {site->resume};
}

// Up to the callout's end, or the end of the operand's bouncing, neither detached user code nor
// another VCPU stores there: they have no mapping for stores of a page that is traced, which take
// the machine, and are stopped for others.
void EngineImpl::BeginAtomic(LinearAddr linear, unsigned size) {
  mmu_.TakeMachine();
  const HostAddr host = mmu_.current_view().HostOf(linear);
  if (host - memory_.ro_base() < memory_.capacity() && linear.PageOffset() + size <= kPageSize &&
      memory_.InfoAt(host - memory_.ro_base()).flags != 0) {
    return mmu_.BeginSharedStore((host - memory_.ro_base()) & ~kPageMask);
  }
  if (direct_ != nullptr) direct_->StopAll();
  mmu_.StopOthers();
}

// Where a locked operand lies that can be changed there, as one access, whoever runs beside: in
// plain memory, which nobody traces as long as this VCPU has the machine. Null: it is to be
// bounced.
u8* EngineImpl::AtomicPlace(LinearAddr linear, unsigned size) {
  mmu_.TakeMachine();
  u8* pages[2];
  return !SplitsLine(linear, size) && PlainPages(linear, size, true, pages) ? pages[0] : nullptr;
}

Next EngineImpl::OnBounceBegin(SiteDesc* site, u64 r11) {
  const Instr& instr = InstrOf(*site);
  ++counters_.bounce_callouts;
  attempted_ = AttemptedStore::kNoTrace;
  in_place_ = false;
  state_.rip = site->ccf->mode.RipOf(instr.pc);
  const bool in_segment = translator::ChecksSegment(instr, site->ccf->mode);
  const LinearAddr linear(
      in_segment ? static_cast<u32>(state_.segment[instr.mem.segment].base + r11) : r11);
  state_.scratch.operand = linear.value;
  state_.callout_argument = reinterpret_cast<u64>(BounceOf(linear, site->size));
  LinearAddr address = linear;
  if (in_segment && instr.mem.masked_element == 0) {  // else element by element
    const vcpu::Outcome outcome = LinearOperand(instr, simulator_, r11, site->size, &address);
    if (outcome.faulted()) return RefuseBounce(site, outcome.fault());
  }
  if (StopsForWatch(instr, linear, site->size)) return LeaveToStep(site);
  const bool masked = instr.mem.masked_element != 0;
  Access access{Found::kBounce, *site, instr, linear, site->size};
  access.any_element = masked && ActiveElements(instr) != 0;
  const Verdict verdict = accesses_.Classify(access);
  if (verdict.way == Verdict::Way::kDeliver) {
    return verdict.at_once ? DeliverAtAndDispatch(site, verdict.fault)
                           : RefuseBounce(site, verdict.fault);
  }
  if (masked) return BounceElements(site, linear);
  NoteWatched(instr, linear, site->size);
  if (instr.IsLocked() && RunsBeside()) {
    if (u8* const place = AtomicPlace(linear, site->size)) {
      SyncGs();
      keeps_machine_ = in_place_ = true;
      state_.callout_argument = reinterpret_cast<u64>(place);
      return {site->resume};
    }
    BeginAtomic(linear, site->size);
  }
  GuestFault fault;
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
  keeps_machine_ = instr.IsLocked();
  return {site->resume};
}

Next EngineImpl::OnBounceEnd(SiteDesc* site, u64) {
  const Instr& instr = InstrOf(*site);
  state_.rip = site->ccf->mode.RipOf(instr.pc);
  if (attempted_ != AttemptedStore::kNoTrace) return EndRefusedStore(site);
  GuestFault fault;
  const LinearAddr operand(state_.scratch.operand);
  const bool written =
      in_place_ || (instr.mem.masked_element != 0
                        ? AccessElements(instr, operand, ElementAccess::kWrite, &fault)
                        : WriteOperand(operand, BounceOf(operand, site->size), site->size, &fault));
  if (!written) return DeliverAtAndDispatch(site, fault);
  state_.rip = site->ccf->mode.RipOf(instr.next_pc());
  ChargeSimulated(site, operand, true);
  return Continue(site, instr.next_pc());
}

Next EngineImpl::OnStore(SiteDesc* site, u64 r11) {
  const LinearAddr linear(r11);
  const Instr& instr = InstrOf(*site);
  ++counters_.store_callouts;
  state_.rip = site->ccf->mode.RipOf(instr.pc);
  if (StopsForWatch(instr, linear, site->size)) return LeaveToStep(site);
  GuestFault fault;
  const Verdict verdict = accesses_.Classify({Found::kStore, *site, instr, linear, site->size});
  if (verdict.way == Verdict::Way::kDeliver) return DeliverAtAndDispatch(site, verdict.fault);
  NoteWatched(instr, linear, site->size);
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

// A SIMULATE access has been made: was there a reason for not making it directly?
void EngineImpl::ChargeSimulated(SiteDesc* site, LinearAddr linear, bool write) {
  const translator::CodeMode& mode = site->ccf->mode;
  if (mode.simulate || mode.careful) return;  // no choice of the policy's
  adapt::Event event = adapt::Event::kTraceFault;
  if (linear.PageOffset() + site->size > kPageSize) {
    event = adapt::Event::kPageCrossing;
  } else {
    const HostAddr host = mmu_.current_view().HostOf(linear);
    if (host.value - state_.ram_window[write] < state_.ram_window_size[write]) {
      event = adapt::Event::kCleanCallout;
    }
  }
  Charge(site, event, false);
}

}  // namespace alibi::runtime
