// SPDX-License-Identifier: Apache-2.0
// Sites: what a site's access is, what its record is charged with, and the policy's verdicts, which
// retire translations.
//
// A record belongs to an instruction, wherever its page is mapped and however often it is
// translated. Once the table is full, sites share a record that changes nothing.
//
// Called while guest vector state is live: compiled for general registers only.
#ifndef ALIBI_RUNTIME_SITES_H_
#define ALIBI_RUNTIME_SITES_H_

#include <x86intrin.h>

#include "adapt/policy.h"
#include "adapt/site_table.h"
#include "base/types.h"
#include "isa/ir.h"
#include "runtime/counters.h"
#include "runtime/events.h"
#include "runtime/fragments.h"
#include "translator/ccf.h"
#include "vcpu/fault.h"

namespace alibi::runtime {

class Sites {
 public:
  using Ccf = translator::Ccf;
  using SiteDesc = translator::SiteDesc;

  // The references outlive this. `frozen`: translations are what a test wants, whatever verdicts
  // say.
  Sites(adapt::Policy& policy, Fragments& fragments, Events& events, Counters& counters,
        bool frozen)
      : policy_(policy),
        needs_(policy.needs()),
        fragments_(fragments),
        events_(events),
        counters_(counters),
        frozen_(frozen) {}

  adapt::SiteTable& table() { return table_; }
  const adapt::SiteTable& table() const { return table_; }
  // What things cost, kept up to date by the engine.
  adapt::Prices& prices() { return prices_; }
  const adapt::Prices& prices() const { return prices_; }
  // The policy is told of them from now on.
  void ShowPrices() { policy_.Watch(prices_); }

  // The policy or a log wants to know what events cost: from the start of the callout or the fault
  // handler, which is now.
  void WantClock(bool log) { clock_ = needs_.clock || log; }
  void NoticeEntry() {
    if (__builtin_expect(clock_, 0)) entered_ = __rdtsc();
  }

  // The site's instruction. CCFs keep bytes: of the sites that ever call out each is decoded once.
  const isa::Instr& InstrOf(const SiteDesc& site) const {
    if (__builtin_expect(site.instr == nullptr, 0)) Decode(site);
    // Its CCF may have been moved since it was decoded.
    const u64 moved = site.ccf->pc.PageBase() - site.instr->pc.PageBase();
    if (__builtin_expect(moved != 0, 0)) site.instr->Move(moved);
    return *site.instr;
  }
  [[gnu::noinline]] static void DecodeAgain(const Ccf& ccf, unsigned index, isa::Instr* out);

  adapt::SiteRecord& RecordOf(SiteDesc* site);
  // Null if the table has no room for it: retranslating the site would then change nothing.
  adapt::SiteRecord* OwnRecordOf(const SiteDesc& site);
  // Charges an event to the site; retires its CCF if the verdict changes its kind.
  void Charge(SiteDesc* site, adapt::Event event, bool trapped);
  // The guest is about to be shown flags that are not its own, because nothing reads them.
  void NoteShownFlags(const SiteDesc& site, const vcpu::GuestFault& fault);
  // No code is left in the page.
  void ForgetPage(PhysPage page);

 private:
  static constexpr u32 kOccurrenceKinds =
      KindBit(RecordKind::kOccurrence) | KindBit(RecordKind::kVerdict);

  [[gnu::noinline]] void Decode(const SiteDesc& site) const;
  adapt::Access AccessOf(const SiteDesc& site) const;
  adapt::SiteRecord& FindOrInsert(const SiteDesc& site);
  void RetireIfStale(const SiteDesc& site, adapt::Kind kind);

  adapt::Policy& policy_;
  const adapt::Needs needs_;
  Fragments& fragments_;
  Events& events_;
  Counters& counters_;
  const bool frozen_;
  adapt::SiteTable table_;
  adapt::Prices prices_;
  bool clock_ = needs_.clock;
  u64 entered_ = 0;  // TSC
};

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_SITES_H_
