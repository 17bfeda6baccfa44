// SPDX-License-Identifier: Apache-2.0
// A translation that is moved to another linear address is, byte for byte, the one that would have
// been made there: its code, and its data in the TC.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <vector>

#include "base/types.h"
#include "runtime/fragments.h"
#include "testsuite/emitted_code/golden_cases.h"
#include "translator/emitter.h"
#include "translator/translation_unit.h"

namespace alibi::testsuite {
namespace {

using runtime::Fragments;
using runtime::TranslationCache;
using translator::Ccf;
using translator::LookupKind;
using translator::SiteKind;
using translator::SitePlan;

// So many pages apart that both choose the same inline TLB entries (a multiple of ChooseSlot's 22
// and 64, emitter_memory.cc) and, but for what the test is about, the same jump table entries.
constexpr LinearAddr kHere{0x5566'7788'9000};
constexpr LinearAddr kThere = kHere + u64{22} * 32 * 0x10001 * kPageSize;

constexpr SitePlan kPlans[] = {
    {}, {SiteKind::kDirect, LookupKind::kTable}, {SiteKind::kChecked}, {SiteKind::kSimulate}};

class Nobody final : public Fragments::Listener {
  void CodeReplaced(const Ccf&, const Ccf&) override {}
  void CodeInvalidated(PhysAddr) override {}
};

class Bench {
 public:
  // Emits the case at `pc`, for the TC's next place. Null: it is no instruction there.
  Ccf* Emit(const GoldenCase& what, const SitePlan& plan, bool indirect, LinearAddr pc, Ccf* ccf,
            const translator::EmitTarget& target) {
    const auto status = BuildTranslationUnit({.pc = pc,
                                              .code_bits = 64,
                                              .bytes = what.bytes.data(),
                                              .available = static_cast<unsigned>(what.bytes.size()),
                                              .max_instructions = 1,
                                              .look_ahead = false},
                                             tu_.get());
    if (status != isa::DecodeStatus::kOk || tu_->count != 1) return nullptr;
    translator::EmitRequest request;
    request.tu = tu_.get();
    request.mode.user = what.user;
    request.plans[0] = plan;
    request.indirect_entry = indirect;
    request.target = target;
    emitted = emitter_.Emit(request, ccf);
    REQUIRE(emitted.fits);
    ccf->examined_begin = pc;
    ccf->examined_end = pc + what.bytes.size();
    return ccf;
  }

  runtime::Counters counters;
  Nobody nobody;
  std::unique_ptr<TranslationCache> made = std::move(TranslationCache::Create(8 << 20).value());
  StubTable stubs = StubTable::Somewhere(made->stub_host());
  Fragments fragments{std::move(made), stubs, counters, nobody};
  translator::EmitResult emitted;

 private:
  translator::Emitter emitter_{stubs};
  std::unique_ptr<translator::TranslationUnit> tu_ =
      std::make_unique<translator::TranslationUnit>();
};

TEST_CASE("A moved translation is the one that would have been made there") {
  Bench bench;
  PhysPage phys_page;
  unsigned moved = 0;
  for (const GoldenCase& what : GoldenCases()) {
    INFO(what.line);
    for (const SitePlan& plan : kPlans) {
      for (const bool indirect : {false, true}) {
        TranslationCache& tc = bench.fragments.tc();
        if (!tc.HasRoom()) bench.fragments.Flush();
        Ccf* ccf = tc.NewCcf();
        const translator::EmitTarget target = tc.Target();
        ccf->phys_page = phys_page = PhysPage(phys_page.number + 1);
        if (bench.Emit(what, plan, indirect, kHere, ccf, target) == nullptr) continue;
        tc.Commit(ccf, bench.emitted);
        bench.fragments.Add(ccf);
        const bool movable = ccf->movable;
        REQUIRE(bench.fragments.Move(phys_page, kThere, [](LinearAddr) { return true; }));
        CHECK(ccf->valid == movable);
        if (!movable) continue;
        ++moved;

        const std::vector<u8> data(target.data, target.data + bench.emitted.data_size);
        const auto bytes = [](HostAddr from, HostAddr to) {
          const u8* first = from.As();
          return std::vector<u8>(first, first + (to - from));
        };
        const std::vector<u8> hot = bytes(ccf->hot_start, ccf->hot_end);
        const std::vector<u8> cold = bytes(ccf->cold_start, ccf->cold_end);
        REQUIRE(bench.Emit(what, plan, indirect, kThere, ccf, target) != nullptr);
        const translator::EmitResult& anew = bench.emitted;
        CHECK(hot == std::vector<u8>(anew.hot_code, anew.hot_code + anew.hot_size));
        CHECK(cold == std::vector<u8>(anew.cold_code, anew.cold_code + anew.cold_size));
        CHECK(data == std::vector<u8>(target.data, target.data + anew.data_size));
      }
    }
  }
  CHECK(moved > 1000);
}

}  // namespace
}  // namespace alibi::testsuite
