// SPDX-License-Identifier: Apache-2.0
#include "direct/code_pages.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <initializer_list>

#include "mmu/test_machine.h"

namespace alibi::direct {
namespace {

constexpr u64 kLinear = 0x401000, kPage = 0x800000, kBefore = 0x802000, kNext = 0x804000;

struct Machine : mmu::TestMachine {
  Machine()
      : pages(*mmu, counters,
              [this](LinearAddr linear, PhysAddr) {
                return linear == LinearAddr(kLinear) ? known : std::vector<u16>();
              }),
        judge({}, {}) {
    EnterLongMode();
    Require(pages.Init().ok());
    Map(kLinear, kPage);
    for (const u64 page : {kPage, kBefore, kNext}) {
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
  CodePages::Verdict Again() {
    return pages.Again(judge, 64, LinearAddr(kLinear), PhysAddr(kPage));
  }
  CodePages::Verdict OfNext() {
    return pages.Of(judge, 64, LinearAddr(kLinear + kPageSize), PhysAddr(kNext));
  }
  bool NeedsNext() { return pages.NeedsNext(judge, 64, LinearAddr(kLinear), PhysAddr(kPage)); }
  bool Fits() {
    return pages.FitsWithNext(judge, 64, LinearAddr(kLinear), PhysAddr(kPage), PhysAddr(kNext));
  }
  HostVisiblePlaces Places() {
    return pages.PlacesIn(judge, 64, LinearAddr(kLinear), PhysAddr(kPage));
  }
  void Put(u64 page, u64 offset, std::initializer_list<u8> bytes) {
    std::copy(bytes.begin(), bytes.end(), Bytes(page) + offset);
  }
  void Write(u64 page, u64 offset, std::initializer_list<u8> bytes) {
    Put(page, offset, bytes);
    pages.Written(memory->ArenaOffset(PhysAddr(page)));
  }
  std::vector<u16> known;
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

// A Debian boot judged the same pairs 60,000 times: in every process, and at each fetch that was
// refused.
TEST_CASE("Two pages are judged together once, until either is written to", "[code_pages]") {
  Machine m;
  // CPUID, or SETcc
  m.Put(kPage, kPageSize - 2, {0x90, 0x0f});
  m.Put(kNext, 0, {0xa2, 0x90, 0x90});
  CHECK(m.Of(64) == CodePages::kNeedsNext);
  CHECK_FALSE(m.Fits());  // the other may be changing
  CHECK(m.OfNext() == CodePages::kEligible);
  CHECK(m.counters.direct_judged_pages == 2);
  for (int i = 0; i < 3; ++i) CHECK_FALSE(m.Fits());
  CHECK(m.counters.direct_judged_pages == 3);
  m.Write(kNext, 0, {0x94, 0xc0});
  CHECK_FALSE(m.Fits());
  CHECK(m.OfNext() == CodePages::kEligible);
  for (int i = 0; i < 3; ++i) CHECK(m.Fits());
  CHECK(m.counters.direct_judged_pages == 5);
  m.Write(kNext, 0, {0xa2, 0x90});
  CHECK(m.OfNext() == CodePages::kEligible);
  CHECK_FALSE(m.Fits());
  m.Write(kPage, kPageSize - 2, {0x31, 0xc0});
  CHECK_FALSE(m.Fits());
  CHECK(m.Of(64) == CodePages::kEligible);
  CHECK(m.Fits());
}

TEST_CASE("Where breakpoints help is known from the verdict on", "[code_pages]") {
  Machine m;
  m.Put(kPage, 700, {0x0f, 0xa2, 0x90, 0x90, 0x90, 0x90, 0x90});
  CHECK(m.Of(64) == CodePages::kIneligible);
  for (int i = 0; i < 3; ++i) {
    CHECK(m.Places().count == 1);
    CHECK(m.Places().offset[0] == 700);
  }
  CHECK(m.counters.direct_judged_pages == 1);
  m.Write(kPage, 1400, {0x0f, 0xa2, 0x90, 0x90, 0x90, 0x90, 0x90});
  CHECK(m.Places().count == 0);  // without a verdict
  CHECK(m.Of(64) == CodePages::kIneligible);
  CHECK(m.Places().count == 2);
  CHECK(m.counters.direct_judged_pages == 2);
  // Others than the guest's CPU had before.
  m.pages.ForgetAll();
  CHECK(m.Places().count == 0);
}

TEST_CASE("A page with breakpoints may need the next one, too", "[code_pages]") {
  Machine m;
  m.Put(kPage, 700, {0x0f, 0xa2, 0x90, 0x90, 0x90, 0x90, 0x90});
  m.Put(kPage, kPageSize - 2, {0x90, 0x0f});
  m.Put(kNext, 0, {0x94, 0xc0, 0x90});
  CHECK(m.Of(64) == CodePages::kIneligible);
  CHECK(m.OfNext() == CodePages::kEligible);
  CHECK(m.NeedsNext());
  CHECK(m.Places().count == 1);
  CHECK(m.Fits());
  m.Write(kNext, 0, {0xa2});
  CHECK(m.OfNext() == CodePages::kEligible);
  CHECK(m.Places().count == 1);
  CHECK_FALSE(m.Fits());
  m.Write(kPage, kPageSize - 1, {0x90});
  CHECK(m.Of(64) == CodePages::kIneligible);
  CHECK_FALSE(m.NeedsNext());
}

// A hot page of GCC stayed translated for five calls of one function, whose displacements have the
// bytes of SLDT.
TEST_CASE("A page that was refused is judged again by what is known then", "[code_pages]") {
  Machine m;
  // So near to the page's beginning every offset may be one.
  for (u16 at = 0; at < 35; at += 7) m.Put(kPage, at, {0xe8, 0x88, 0x0b, 0x0f, 0x00, 0x84, 0xc0});
  CHECK(m.Of(64) == CodePages::kIneligible);
  CHECK(m.Places().count == 0);
  m.known = {28, 33, 21, 26, 14, 19, 7, 12, 0, 5};
  CHECK(m.Of(64) == CodePages::kIneligible);
  CHECK(m.Again() == CodePages::kEligible);
  CHECK(m.Of(64) == CodePages::kEligible);
  // Until it is written to.
  m.Write(kPage, 1600, {0x0f, 0xa2});
  CHECK(m.Again() == CodePages::kIneligible);
  CHECK(m.Of(64) == CodePages::kIneligible);
  CHECK(m.Places().count == 1);
}

}  // namespace
}  // namespace alibi::direct
