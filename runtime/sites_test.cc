// SPDX-License-Identifier: Apache-2.0
// What sites are charged with, and what becomes of their translations.
#include "runtime/sites.h"

#include <catch2/catch.hpp>
#include <vector>

#include "runtime/fragments_bench.h"
#include "vcpu/state.h"

namespace alibi::runtime {
namespace {

using adapt::Event;
using adapt::Kind;
using translator::Ccf;
using translator::CodeMode;
using translator::SiteDesc;

// Of the site's instruction; another TU may run into it.
constexpr LinearAddr kSite = kPc + 0x20;
constexpr PhysAddr kSitePhys = kPhysPage.Base() + kSite.PageOffset();

class Scripted final : public adapt::Policy {
 public:
  const char* name() const override { return "scripted"; }
  adapt::Needs needs() const override { return wants; }
  Kind OnEvent(adapt::SiteRecord&, adapt::Occurrence what) override {
    asked.push_back(what);
    return verdict;
  }
  void OnPageForgotten(PhysPage page) override { forgotten.push_back(page); }

  adapt::Needs wants;
  Kind verdict = Kind::kDirect;
  std::vector<adapt::Occurrence> asked;
  std::vector<PhysPage> forgotten;
};

class SitesBench {
 public:
  explicit SitesBench(adapt::Needs needs = {}, bool frozen = false)
      : policy(Needing(needs)),
        sites(policy, fragments.fragments, events, fragments.counters, frozen) {
    store.pc = kSite;
    store.mem.present = store.mem.written = true;
  }

  // The site of a store, in a translation of its own.
  SiteDesc SiteIn(Ccf* ccf) {
    SiteDesc site;
    site.ccf = ccf;
    site.instr = &store;
    return site;
  }
  SiteDesc Site(const CodeMode& mode = {}) { return SiteIn(fragments.Make(kSite, {}, mode)); }

  FragmentsBench fragments;
  isa::Instr store;
  vcpu::VcpuState state;
  Events events{state};
  Scripted policy;
  Sites sites;

 private:
  static Scripted Needing(adapt::Needs needs) {
    Scripted policy;
    policy.wants = needs;
    return policy;
  }
};

TEST_CASE("An event is charged to the instruction's record, and the policy is asked") {
  SitesBench bench;
  SiteDesc site = bench.Site();
  bench.sites.Charge(&site, Event::kTraceFault, true);
  bench.sites.Charge(&site, Event::kPageCrossing, false);
  const adapt::SiteRecord& record = bench.sites.RecordOf(&site);
  CHECK(record.pc == kSite);
  CHECK(record.phys == kSitePhys);
  CHECK(record.access == adapt::Access::kStore);
  CHECK((record.traps == 1 && record.callouts == 1));
  CHECK(record.events[static_cast<unsigned>(Event::kTraceFault)] == 1);
  REQUIRE(bench.policy.asked.size() == 2);
  CHECK(bench.policy.asked[0].trapped);
  CHECK_FALSE(bench.policy.asked[1].trapped);
  CHECK(bench.policy.asked[0].now == 0);  // nobody wants the clock
  CHECK_FALSE(site.ccf->retired);
}

TEST_CASE("A site's instruction is found where its translation has been moved to") {
  SitesBench bench;
  constexpr LinearAddr kHere{0x7f12'3456'7000}, kThere{0x55ab'cdef'0000};
  bench.store.pc = kHere + 2;
  SiteDesc site = bench.SiteIn(bench.fragments.Make(kHere));
  CHECK(bench.sites.InstrOf(site).pc == kHere + 2);
  REQUIRE(bench.fragments.Move(kThere));
  CHECK(bench.sites.InstrOf(site).pc == kThere + 2);
}

TEST_CASE("Another translation of the same instruction, elsewhere, has the same record") {
  SitesBench bench;
  SiteDesc here = bench.Site();
  bench.sites.Charge(&here, Event::kTraceFault, true);
  bench.store.pc = kSite + 0x10000;
  SiteDesc there = bench.SiteIn(bench.fragments.Make(kSite + 0x10000));
  CHECK(&bench.sites.RecordOf(&there) == &bench.sites.RecordOf(&here));
}

TEST_CASE("A verdict that changes the kind retires the translation") {
  SitesBench bench;
  SiteDesc site = bench.Site();
  bench.policy.verdict = Kind::kSimulate;
  bench.sites.Charge(&site, Event::kTraceFault, true);
  CHECK(bench.sites.RecordOf(&site).kind == Kind::kSimulate);
  CHECK(site.ccf->retired);
  CHECK(bench.fragments.counters.adaptations == 1);
  bench.policy.verdict = Kind::kDirect;
  SiteDesc now = bench.Site();
  bench.sites.Charge(&now, Event::kCleanCallout, false);
  CHECK(now.ccf->retired);
  CHECK(bench.fragments.counters.reversions == 1);
}

TEST_CASE("One-off SIMULATE translations are nobody's verdict") {
  SitesBench bench;
  CodeMode mode;
  mode.simulate = true;
  SiteDesc site = bench.Site(mode);
  bench.policy.verdict = Kind::kSimulate;
  bench.sites.Charge(&site, Event::kTraceFault, true);
  CHECK_FALSE(site.ccf->retired);
}

TEST_CASE("A translation that another's verdict has left behind is retired when it pays for that") {
  SitesBench bench;
  SiteDesc site = bench.Site();
  SiteDesc stale = bench.SiteIn(bench.fragments.Make(kSite - 8));  // runs into the same instruction
  bench.policy.verdict = Kind::kSimulate;
  bench.sites.Charge(&site, Event::kTraceFault, true);
  REQUIRE(site.ccf->retired);
  bench.sites.Charge(&stale, Event::kTraceFault, false);
  CHECK_FALSE(stale.ccf->retired);
  bench.sites.Charge(&stale, Event::kTraceFault, true);
  CHECK(stale.ccf->retired);
}

TEST_CASE("Where a test says how code is translated, stale translations stay") {
  SitesBench bench({}, /*frozen=*/true);
  SiteDesc site = bench.Site();
  SiteDesc stale = bench.SiteIn(bench.fragments.Make(kSite - 8));
  bench.policy.verdict = Kind::kSimulate;
  bench.sites.Charge(&site, Event::kTraceFault, true);
  bench.sites.Charge(&stale, Event::kTraceFault, true);
  CHECK_FALSE(stale.ccf->retired);
}

TEST_CASE("At a SIMULATE site a guilty event changes nothing, unless the policy wants them all") {
  for (const bool every : {false, true}) {
    SitesBench bench({.every_event = every});
    SiteDesc site = bench.Site();
    bench.policy.verdict = Kind::kSimulate;
    bench.sites.Charge(&site, Event::kTraceFault, true);
    bench.policy.asked.clear();
    bench.sites.Charge(&site, Event::kTraceFault, false);
    CHECK(bench.policy.asked.size() == (every ? 1 : 0));
    bench.sites.Charge(&site, Event::kCleanCallout, false);
    CHECK(bench.policy.asked.size() == (every ? 2 : 1));
  }
}

TEST_CASE("A policy that wants the clock is told when, and what it cost") {
  SitesBench bench({.clock = true});
  SiteDesc site = bench.Site();
  bench.sites.NoticeEntry();
  bench.sites.Charge(&site, Event::kTraceFault, true);
  REQUIRE(bench.policy.asked.size() == 1);
  CHECK(bench.policy.asked[0].now != 0);
  CHECK(bench.policy.asked[0].cycles > 0);
  CHECK(bench.policy.asked[0].cycles < 1u << 31);
}

TEST_CASE("Once the table is full, sites have no record of their own") {
  SitesBench bench;
  for (u64 i = 0; i < bench.sites.table().capacity(); ++i) {
    bench.sites.table().FindOrInsert(LinearAddr(i), kPhysPage.Base() + ((1 + i) << 12));
  }
  SiteDesc site = bench.Site();
  CHECK(bench.sites.OwnRecordOf(site) == nullptr);
  CHECK(bench.sites.table().overflowed());
  bench.sites.NoteShownFlags(site, vcpu::GuestFault::Simple(vcpu::kDivideError));
  CHECK(site.ccf->valid);
}

TEST_CASE("A fault that shows dead flags has its instruction translated anew") {
  SitesBench bench;
  const auto page_fault = [](u64 cr2) {
    vcpu::GuestFault fault = vcpu::GuestFault::WithCode(vcpu::kPageFault, 0);
    fault.cr2 = cr2;
    return fault;
  };
  SECTION("at once") {
    SiteDesc site = bench.Site();
    bench.sites.NoteShownFlags(site, vcpu::GuestFault::Simple(vcpu::kDivideError));
    CHECK_FALSE(site.ccf->valid);
    CHECK(bench.fragments.Revive(kSite) == nullptr);
  }
  SECTION("a page fault when it comes again, for the same page") {
    SiteDesc site = bench.Site();
    bench.sites.NoteShownFlags(site, page_fault(0x5000));
    bench.sites.NoteShownFlags(site, page_fault(0x6000));
    CHECK(site.ccf->valid);
    bench.sites.NoteShownFlags(site, page_fault(0x6ffc));
    CHECK_FALSE(site.ccf->valid);
    CHECK(bench.fragments.counters.exact_flag_sites == 1);
  }
}

TEST_CASE("When a page's code has gone, its sites are innocent, and the policy knows") {
  SitesBench bench;
  SiteDesc site = bench.Site();
  bench.policy.verdict = Kind::kSimulate;
  bench.sites.Charge(&site, Event::kTraceFault, true);
  bench.sites.ForgetPage(kPhysPage);
  CHECK(bench.policy.forgotten == std::vector<PhysPage>{kPhysPage});
  CHECK(bench.sites.table().Find(kSitePhys) == nullptr);
}

}  // namespace
}  // namespace alibi::runtime
