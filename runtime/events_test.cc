// SPDX-License-Identifier: Apache-2.0
// What records say, who gets them, and how a log learns of sites.
#include "runtime/events.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

namespace alibi::runtime {
namespace {

using adapt::Event;
using adapt::Kind;
using adapt::log::Ring;
using isa::Instr;

constexpr LinearAddr kPc{0x401000};
constexpr PhysAddr kPhys{0x9000};

class Observer final : public EventObserver {
 public:
  void OnEvents(std::span<const Record> events) override {
    seen.insert(seen.end(), events.begin(), events.end());
  }
  std::vector<Record> seen;
};

struct Bench {
  Bench() {
    state->cr3 = 0x1000;
    instr.pc = kPc;
    instr.length = 2;
    instr.bytes = {0x89, 0x07};
    site.pc = kPc;
    site.phys = kPhys;
  }
  void Occur(Kind verdict) {
    events.Occurrence(instr, site, Event::kTraceFault, /*trapped=*/true, verdict, 0);
  }
  std::vector<Record> Drain() {
    events.Drain();
    return std::exchange(observer.seen, {});
  }
  // What a log's ring of 16 records holds.
  std::vector<Record> Logged() {
    std::vector<Record> records;
    for (auto front = log.Front(); !front.empty(); front = log.Front()) {
      records.insert(records.end(), front.begin(), front.end());
      log.Pop(front.size());
    }
    return records;
  }
  std::unique_ptr<vcpu::VcpuState> state = std::make_unique<vcpu::VcpuState>();
  Events events{*state};
  Observer observer;
  Ring log{4};
  Instr instr;
  adapt::SiteRecord site;
};

TEST_CASE("Nobody listens: nothing is recorded") {
  Bench bench;
  CHECK_FALSE(bench.events.Wants(adapt::log::kAllKinds));
  bench.Occur(Kind::kSimulate);
  bench.events.SiteChanged(RecordKind::kUngroup, bench.instr, bench.site);
  CHECK(bench.site.log_number == 0);
}

TEST_CASE("An observer gets the kinds that it has asked for") {
  Bench bench;
  bench.events.Observe(&bench.observer, KindBit(RecordKind::kVerdict));
  bench.Occur(Kind::kDirect);  // no change: an occurrence
  CHECK(bench.Drain().empty());
  bench.site.traps = 3;
  bench.Occur(Kind::kSimulate);
  const std::vector<Record> seen = bench.Drain();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].kind == RecordKind::kVerdict);
  CHECK(seen[0].pc == kPc);
  CHECK(seen[0].physical == kPhys);
  CHECK(seen[0].cr3 == 0x1000);
  CHECK(seen[0].before == Kind::kDirect);
  CHECK(seen[0].after == Kind::kSimulate);
  CHECK(seen[0].event == Event::kTraceFault);
  CHECK(seen[0].flag);
  CHECK(seen[0].value == 3);
  CHECK(bench.site.log_number == 0);  // of a log there is none
}

TEST_CASE("The observer's ring fills: the guest is asked to leave translated code") {
  Bench bench;
  bench.events.Observe(&bench.observer, KindBit(RecordKind::kFault));
  const auto fault = [&] {
    bench.events.Fault(kPc, vcpu::GuestFault::Page(LinearAddr(0x5008), vcpu::kPfWrite));
  };
  fault();
  CHECK(bench.state->stop_requested == 0);
  const std::vector<Record> seen = bench.Drain();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].number == vcpu::kPageFault);
  CHECK(seen[0].value == 0x5008);
  CHECK(seen[0].more == vcpu::kPfWrite);
  for (unsigned i = 0; i < (1u << Recorder::kObserverRingLog2) / 2 + 1; ++i) fault();
  CHECK(bench.state->stop_requested != 0);
}

TEST_CASE("A log is told of a site once, in front of what happens there first") {
  Bench bench;
  bench.events.set_log(&bench.log);
  bench.Occur(Kind::kDirect);
  bench.Occur(Kind::kDirect);
  adapt::SiteRecord other{.pc = kPc + 8, .phys = kPhys + 8};
  bench.events.SiteChanged(RecordKind::kRelookup, bench.instr, other);
  const std::vector<Record> logged = bench.Logged();
  REQUIRE(logged.size() == 5);
  CHECK(logged[0].kind == RecordKind::kSite);
  const adapt::log::Site site = SiteOf(logged[0]);
  CHECK(site.pc == kPc);
  CHECK(site.physical == kPhys);
  CHECK(site.length == 2);
  CHECK(site.bytes[0] == 0x89);
  CHECK(logged[1].kind == RecordKind::kOccurrence);
  CHECK(logged[1].site == 0);
  CHECK(logged[2].site == 0);
  CHECK(logged[3].kind == RecordKind::kSite);
  CHECK(logged[4].kind == RecordKind::kRelookup);
  CHECK(logged[4].site == 1);
}

TEST_CASE("A full log does not number a site that it was not told of") {
  Bench bench;
  bench.events.set_log(&bench.log);
  while (bench.log.lost() == 0) bench.events.ForgottenPage(PhysPage(0x1000));
  bench.Occur(Kind::kDirect);
  CHECK(bench.site.log_number == 0);
  bench.Logged();
  bench.Occur(Kind::kDirect);
  CHECK(bench.site.log_number == 1);
}

TEST_CASE("System instructions: MSRs and control registers, as they are now") {
  Bench bench;
  bench.events.Observe(&bench.observer, KindBit(RecordKind::kMsr) | KindBit(RecordKind::kControl));
  bench.state->gpr[vcpu::kRcx] = 0xc0000080;
  bench.state->gpr[vcpu::kRax] = 0x500;
  bench.state->gpr[vcpu::kRdx] = 1;
  bench.instr.op = isa::Op::kWrmsr;
  bench.events.SystemInstruction(bench.instr);
  bench.state->cr0 = 0x80000011;
  bench.instr.op = isa::Op::kClts;
  bench.events.SystemInstruction(bench.instr);
  bench.instr.op = isa::Op::kHlt;
  bench.events.SystemInstruction(bench.instr);
  const std::vector<Record> seen = bench.Drain();
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].more == 0xc0000080);
  CHECK(seen[0].value == 0x100000500);
  CHECK(seen[0].flag);
  CHECK(seen[1].number == 0);
  CHECK(seen[1].value == 0x80000011);
}

TEST_CASE("Translations: what was made, and what it was overwritten by") {
  Bench bench;
  bench.events.Observe(&bench.observer,
                       KindBit(RecordKind::kTranslation) | KindBit(RecordKind::kOverwritten));
  translator::Ccf ccf;
  ccf.pc = kPc + 4;
  ccf.phys_page = kPhys.InPage();
  ccf.guest_bytes = 9;
  ccf.instr_count = 3;
  ccf.hot_start = HostAddr(0x10000);
  ccf.hot_end = HostAddr(0x10040);
  ccf.cold_start = HostAddr(0x20000);
  ccf.cold_end = HostAddr(0x20010);
  ccf.mode.user = true;
  bench.events.Translation(ccf, adapt::log::Why::kVerdict, 0);
  bench.events.Overwritten(ccf, kPhys + 6, 2);
  const std::vector<Record> seen = bench.Drain();
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].physical == kPhys + 4);
  CHECK(seen[0].number == 3);
  CHECK(seen[0].value == 9);
  CHECK(seen[0].more == 0x50);
  CHECK(seen[0].flag);
  CHECK(seen[0].extra == 64);
  CHECK(seen[0].why == adapt::log::Why::kVerdict);
  CHECK(seen[1].value == (kPhys + 6).value);
  CHECK(seen[1].more == 2);
}

TEST_CASE("Which VCPU runs is recorded for who wants it") {
  Bench bench;
  bench.events.Vcpu(1);
  bench.events.set_log(&bench.log);
  bench.events.Vcpu(2);
  const std::vector<Record> logged = bench.Logged();
  REQUIRE(logged.size() == 1);
  CHECK(logged[0].kind == RecordKind::kVcpu);
  CHECK(logged[0].number == 2);
}

TEST_CASE("What an engine policy was told is of the address space that it is about") {
  Bench bench;
  CHECK_FALSE(bench.events.Wants(RecordKind::kEngine));
  bench.events.set_log(&bench.log);
  REQUIRE(bench.events.Wants(RecordKind::kEngine));
  adapt::log::EngineOccurrence what;
  what.space = 7;
  what.after = adapt::UserEngine::kDirect;
  what.event = {.kind = adapt::EngineEvent::Kind::kRan, .now = 5, .cycles = 6, .stops = 3};
  bench.events.EngineVerdict(0x2000, what);
  const std::vector<Record> logged = bench.Logged();
  REQUIRE(logged.size() == 1);
  CHECK(logged[0].kind == RecordKind::kEngine);
  CHECK(logged[0].cr3 == 0x2000);
  CHECK(logged[0].tsc == 5);
  const adapt::log::EngineOccurrence back = EngineOccurrenceOf(logged[0]);
  CHECK(back.space == 7);
  CHECK(back.before == adapt::UserEngine::kTranslate);
  CHECK(back.after == adapt::UserEngine::kDirect);
  CHECK(back.event.cycles == 6);
  CHECK(back.event.stops == 3);
}

}  // namespace
}  // namespace alibi::runtime
