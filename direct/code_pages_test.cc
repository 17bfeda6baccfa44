// SPDX-License-Identifier: Apache-2.0
#include "direct/code_pages.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "mmu/test_machine.h"

namespace alibi::direct {
namespace {

constexpr u64 kLinear = 0x401000, kPage = 0x800000, kBefore = 0x802000;

struct Machine : mmu::TestMachine {
  Machine() : pages(*mmu, counters), judge({}, {}) {
    EnterLongMode();
    Require(pages.Init().ok());
    Map(kLinear, kPage);
    for (const u64 page : {kPage, kBefore}) {
      // MOV EAX, [ESP+8]; ADD EAX, 7
      constexpr u8 kPlain[] = {0x8b, 0x44, 0x24, 0x08, 0x83, 0xc0, 0x07};
      for (u64 at = 0; at + 7 <= kPageSize; at += 7) std::memcpy(Bytes(page) + at, kPlain, 7);
    }
  }
  void Map(u64 linear, u64 page) { *Host(EntryAddress(linear)) = page | kP | kU | kA; }
  u8* Bytes(u64 page) { return memory->HostRw(PhysAddr(page)); }
  CodePages::Verdict Of(unsigned code_bits) {
    return pages.Of(judge, code_bits, LinearAddr(kLinear), PhysAddr(kPage));
  }
  Counters counters;
  CodePages pages;
  CodeJudge judge;
};

TEST_CASE("Verdicts are of code of one size, until the page is written to", "[code_pages]") {
  Machine m;
  m.Bytes(kPage)[700] = 0x1e;  // PUSH DS; 64-bit code has no such instruction
  CHECK(m.Of(64) == CodePages::kEligible);
  CHECK(m.Of(32) == CodePages::kIneligible);
  CHECK(m.Of(64) == CodePages::kEligible);
  CHECK(m.counters.direct_judged_pages == 2);
  m.Bytes(kPage)[700] = 0x8b;
  CHECK(m.Of(32) == CodePages::kIneligible);
  m.pages.Written(m.memory->ArenaOffset(PhysAddr(kPage)));
  CHECK(m.Of(32) == CodePages::kEligible);
  CHECK(m.Of(64) == CodePages::kEligible);
  CHECK(m.counters.direct_judged_pages == 4);
}

// A hot page of perl stayed translated, because the guest had mapped the page before it later.
TEST_CASE("What was refused for want of what lies before is judged again", "[code_pages]") {
  Machine m;
  std::memset(m.Bytes(kPage), 0x1e, 4);  // PUSH DS, or the rest of MOV EAX, 1E1E1E1Eh
  m.Bytes(kBefore)[kPageSize - 1] = 0xb8;
  CHECK(m.Of(32) == CodePages::kIneligible);
  CHECK(m.Of(32) == CodePages::kIneligible);
  CHECK(m.counters.direct_judged_pages == 1);
  m.Map(kLinear - kPageSize, kBefore);
  CHECK(m.Of(32) == CodePages::kEligible);
  CHECK(m.Of(32) == CodePages::kEligible);
  CHECK(m.counters.direct_judged_pages == 2);
}

}  // namespace
}  // namespace alibi::direct
