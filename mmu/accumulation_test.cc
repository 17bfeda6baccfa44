// SPDX-License-Identifier: Apache-2.0
// Work that must not grow with what a guest accumulates, by counts.
#include <catch2/catch.hpp>

#include "mmu/test_machine.h"

namespace alibi::mmu {
namespace {

using M = TestMachine;
constexpr u64 kAll = M::kP | M::kW | M::kU | M::kA | M::kD;

TEST_CASE("a page that is executed at many addresses", "[accumulation]") {
  M m;
  constexpr u64 kPage = 0x100000, kFirst = 0x40000000, kPlaces = 4096, kRounds = 8;
  for (u64 i = 0; i < kPlaces; ++i) m.Map(kFirst + i * kPageSize, kPage, kAll, kAll);
  m.EnterLongMode();
  PhysAddr pa;
  // Each round forgets where the page is executed by way of a table above the leaves, so that
  // stale nodes of the same places accumulate as well.
  for (u64 round = 0; round < kRounds; ++round) {
    for (u64 i = 0; i < kPlaces; ++i) {
      REQUIRE(m.mmu->Fetch(LinearAddr(kFirst + i * kPageSize), &pa, &m.fault));
    }
    const u64 entry = m.EntryAddress(kFirst, 3);
    const u64 value = *m.Host(entry);
    for (const u64 stored : {u64{0}, value}) {
      m.memory->WritePhys(PhysAddr(entry), &stored, 8);
    }
  }
  const Counters& counters = m.mmu->counters();
  INFO(counters.executed_steps);
  CHECK(counters.executed_steps <= 4 * kRounds * kPlaces);
  CHECK(m.mmu->memory_use().nodes <= 4 * kPlaces);

  // A change of the page's code visits those that have fetched it since the last change.
  for (u64 i = 0; i < kPlaces; ++i) {
    REQUIRE(m.mmu->Fetch(LinearAddr(kFirst + i * kPageSize), &pa, &m.fault));
  }
  m.mmu->ResetJumpEntriesForPhysPage(PhysAddr(kPage));
  const u64 before = counters.executed_steps;
  for (u64 i = 0; i < 1000; ++i) {
    REQUIRE(m.mmu->Fetch(LinearAddr(kFirst), &pa, &m.fault));
    m.mmu->ResetJumpEntriesForPhysPage(PhysAddr(kPage));
  }
  CHECK(counters.executed_steps - before == 1000);
}

TEST_CASE("a page table at many addresses", "[accumulation]") {
  M m;
  constexpr u64 kFirst = u64{1} << 32, kSpan = u64{2} << 20, kPlaces = 4096;
  m.Map(kFirst, 0x100000, kAll, kAll);
  const u64 table = *m.Host(m.EntryAddress(kFirst, 2));
  for (u64 i = 1; i < kPlaces; ++i) *m.Host(m.EntryAddress(kFirst + i * kSpan, 2, kAll)) = table;
  m.EnterLongMode();
  u64 value = 0;
  for (u64 i = 0; i < kPlaces; ++i) REQUIRE(m.Read64(kFirst + i * kSpan, &value));
  const Counters& counters = m.mmu->counters();
  INFO(counters.table_steps);
  CHECK(counters.table_steps <= 1024 * kPlaces);
  // Each store to the table is followed to all of its places that are known.
  const u64 unmapped = 0, before = counters.pte_updates;
  m.memory->WritePhys(PhysAddr(m.EntryAddress(kFirst)), &unmapped, 8);
  CHECK(counters.pte_updates - before <= 1025);
  for (u64 i = 0; i < kPlaces; i += 255) CHECK_FALSE(m.Read64(kFirst + i * kSpan, &value));
}

}  // namespace
}  // namespace alibi::mmu
