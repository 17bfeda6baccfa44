// SPDX-License-Identifier: Apache-2.0
#include "runtime/sites.h"

#include <utility>

#include "base/simd_guard.h"
#include "vcpu/fault.h"

namespace alibi::runtime {

using isa::Instr;
using translator::Ccf;
using translator::SiteDesc;

void Sites::DecodeAgain(const Ccf& ccf, unsigned index, Instr* out) {
  SimdState guests;
  SimdGuard guard(guests);
  *out = ccf.instrs()[index];
}

void Sites::Decode(const SiteDesc& site) const {
  SimdState guests;
  SimdGuard guard(guests);
  Instr* instr = fragments_.tc().NewInstr();
  *instr = site.ccf->instrs()[site.instr_index];
  site.instr = instr;
}

adapt::Access Sites::AccessOf(const SiteDesc& site) const {
  const Instr& instr = InstrOf(site);
  if (instr.op == isa::Op::kDivide) return adapt::Access::kDivide;
  switch (site.shape) {
    case translator::AccessShape::kPush:
      return adapt::Access::kPush;
    case translator::AccessShape::kPop:
    case translator::AccessShape::kFrame:
      return adapt::Access::kPop;
    case translator::AccessShape::kStringSource:
    case translator::AccessShape::kStringDestination:
      return adapt::Access::kOther;
    case translator::AccessShape::kOperand:
      break;
  }
  if (!instr.mem.present) return adapt::Access::kOther;
  if (!instr.mem.written) return adapt::Access::kLoad;
  return instr.mem.read ? adapt::Access::kModify : adapt::Access::kStore;
}

adapt::SiteRecord& Sites::FindOrInsert(const SiteDesc& site) {
  adapt::SiteRecord& record =
      table_.FindOrInsert(InstrOf(site).pc, PhysOf(*site.ccf, InstrOf(site).pc));
  record.access = AccessOf(site);
  return record;
}

adapt::SiteRecord* Sites::OwnRecordOf(const SiteDesc& site) {
  adapt::SiteRecord& record = FindOrInsert(site);
  return record.phys == adapt::kSharedSite ? nullptr : &record;
}

adapt::SiteRecord& Sites::RecordOf(SiteDesc* site) {
  if (site->record == nullptr) site->record = &FindOrInsert(*site);
  return *static_cast<adapt::SiteRecord*>(site->record);
}

// A guest that inspects the frame is shown its own flags from the next time on. Page faults are
// mostly repaired and forgotten: only one that comes again at the same place has been looked at.
void Sites::NoteShownFlags(const SiteDesc& site, const vcpu::GuestFault& fault) {
  adapt::SiteRecord* record = OwnRecordOf(site);
  if (record == nullptr || record->shows_flags) return;
  const LinearAddr page(fault.cr2 | kPageMask);  // never 0
  if (fault.vector == vcpu::kPageFault && std::exchange(record->faulted_page, page) != page) return;
  record->shows_flags = true;
  ++counters_.exact_flag_sites;
  // Whatever took those flags for dead looked at the instruction. It may not be revived, either.
  const PhysAddr phys = PhysOf(*site.ccf, InstrOf(site).pc);
  fragments_.InvalidateBytes(phys.InPage(), phys.PageOffset(), phys.PageOffset() + 1,
                             [](Ccf* ccf) { ccf->retired = true; });
}

void Sites::Charge(SiteDesc* site, adapt::Event event, bool trapped) {
  adapt::SiteRecord& record = RecordOf(site);
  ++record.events[static_cast<unsigned>(event)];
  ++(trapped ? record.traps : record.callouts);
  const adapt::Kind before = record.kind;
  adapt::Kind verdict = before;
  // Nothing is more general than SIMULATE: a guilty event there only ends a row of clean ones.
  if (before != adapt::Kind::kSimulate || event == adapt::Event::kCleanCallout || trapped ||
      record.recent_clean != 0 || needs_.every_event) {
    adapt::Occurrence what{event, trapped};
    if (__builtin_expect(needs_.clock, 0)) {
      what.now = __rdtsc();
      what.cycles = static_cast<u32>(what.now - entered_);
    }
    verdict = policy_.OnEvent(record, what);
  }
  if (events_.Wants(kOccurrenceKinds)) {
    events_.Occurrence(InstrOf(*site), record, event, trapped, verdict, entered_);
  }
  if (verdict == before) {
    if (trapped || event == adapt::Event::kCleanCallout) RetireIfStale(*site, verdict);
    return;
  }
  record.kind = verdict;
  if (verdict > before) {
    ++record.adaptations;
    ++counters_.adaptations;
  } else {
    ++record.reversions;
    ++counters_.reversions;
  }
  Ccf* ccf = site->ccf;
  if (!ccf->mode.simulate) fragments_.Retire(ccf);
}

// Code that others jump into the middle of has several translations, and a verdict retires the one
// it was reached in. The others follow when they pay for the difference.
void Sites::RetireIfStale(const SiteDesc& site, adapt::Kind kind) {
  Ccf* ccf = site.ccf;
  if (ccf->plans()[site.instr_index].kind == static_cast<translator::SiteKind>(kind)) return;
  if (ccf->mode.simulate || ccf->mode.careful) return;
  if (!frozen_) fragments_.Retire(ccf);
}

void Sites::ForgetPage(PhysPage page) {
  if (events_.Wants(RecordKind::kForgottenPage) && table_.MayHaveInPage(page.Base())) {
    events_.ForgottenPage(page);
  }
  table_.ForgetPage(page);
  policy_.OnPageForgotten(page);
}

}  // namespace alibi::runtime
