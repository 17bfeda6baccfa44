// SPDX-License-Identifier: Apache-2.0
#include "mmu/watched_pages.h"

#include <catch2/catch.hpp>

#include "mmu/test_machine.h"

namespace alibi::mmu {
namespace {

using M = TestMachine;

constexpr u64 kUser = M::kP | M::kW | M::kU | M::kA | M::kD;
constexpr u64 kPage = 0x400000, kFrame = 0x300000;

struct Machine : M {
  Machine() {
    for (u64 i = 0; i < 4; ++i) Map(kPage + i * kPageSize, kFrame + i * kPageSize, kUser);
    EnterLongMode();
    SetCpl(3);
  }
  bool Filled(u64 page) { return InRw(HostOf(kPage + page * kPageSize)); }
  Resolution Touch(u64 page) { return Resolve(kPage + page * kPageSize, true); }
};

TEST_CASE("A page whose loads are watched has no entry, whatever is done to its mapping",
          "[watched]") {
  Machine m;
  REQUIRE(m.Touch(1) == Resolution::kFilled);
  REQUIRE(m.Filled(1));
  REQUIRE(m.mmu->FillSlot(true, 7, LinearAddr(kPage + kPageSize)));
  m.mmu->WatchPages(LinearAddr(kPage + kPageSize + 8), LinearAddr(kPage + kPageSize + 15), true);
  CHECK(m.InGuard(m.HostOf(kPage + kPageSize)));
  CHECK_FALSE(m.mmu->FillSlot(true, 7, LinearAddr(kPage + kPageSize)));
  CHECK(m.mmu->current_view().slot(1, 7).neg_page == InlineTlbEntry::Empty().neg_page);
  CHECK(m.Touch(1) == Resolution::kSimulate);
  CHECK(m.InGuard(m.HostOf(kPage + kPageSize)));
  // Its neighbours have theirs, and their fills leave it alone.
  CHECK(m.Touch(2) == Resolution::kFilled);
  CHECK(m.Touch(0) == Resolution::kFilled);
  CHECK(m.Filled(2));
  CHECK(m.InGuard(m.HostOf(kPage + kPageSize)));
  // The guest maps other memory there, and its store is followed.
  const u64 entry = (kFrame + 9 * kPageSize) | kUser;
  m.memory->WritePhys(PhysAddr(m.EntryAddress(kPage + kPageSize)), &entry, 8);
  CHECK(m.Touch(1) == Resolution::kSimulate);
  CHECK(m.InGuard(m.HostOf(kPage + kPageSize)));
  // The VMM's own accesses are as ever.
  vcpu::GuestFault fault;
  const u64 value = 0x123456789;
  u64 read = 0;
  CHECK(m.mmu->Write(LinearAddr(kPage + kPageSize), &value, 8, vcpu::Privilege::kCpl, &fault));
  CHECK(m.mmu->Read(LinearAddr(kPage + kPageSize), &read, 8, vcpu::Privilege::kCpl, &fault));
  CHECK(read == value);
  CHECK(m.InGuard(m.HostOf(kPage + kPageSize)));

  m.mmu->ForgetWatchedPages();
  CHECK(m.Touch(1) == Resolution::kFilled);
  CHECK(m.Filled(1));
}

TEST_CASE("A page whose stores are watched is read directly", "[watched]") {
  Machine m;
  REQUIRE(m.Touch(1) == Resolution::kFilled);
  REQUIRE(m.mmu->FillSlot(true, 7, LinearAddr(kPage + kPageSize)));
  m.mmu->WatchPages(LinearAddr(kPage + kPageSize), LinearAddr(kPage + kPageSize), false);
  CHECK(m.InRo(m.HostOf(kPage + kPageSize)));
  CHECK(m.mmu->current_view().slot(1, 7).neg_page == InlineTlbEntry::Empty().neg_page);
  CHECK(m.Touch(1) == Resolution::kSimulate);
  CHECK(m.InRo(m.HostOf(kPage + kPageSize)));
  m.mmu->FlushAllViews();
  CHECK(m.Resolve(kPage + kPageSize, false) == Resolution::kFilled);
  CHECK(m.InRo(m.HostOf(kPage + kPageSize)));
  m.mmu->ForgetWatchedPages();
  CHECK(m.Touch(1) == Resolution::kFilled);
}

TEST_CASE("Pages are watched in every view, and in those to come", "[watched]") {
  Machine m;
  REQUIRE(m.Touch(0) == Resolution::kFilled);
  m.SetCpl(0);
  REQUIRE(m.Touch(0) == Resolution::kFilled);
  m.mmu->WatchPages(LinearAddr(kPage), LinearAddr(kPage), true);
  CHECK(m.InGuard(m.HostOf(kPage)));
  m.SetCpl(3);
  CHECK(m.InGuard(m.HostOf(kPage)));
  m.mmu->FlushAllViews();
  CHECK(m.Touch(0) == Resolution::kSimulate);
  CHECK(m.Touch(1) == Resolution::kFilled);
}

TEST_CASE("Ranges of watched pages end where they end", "[watched]") {
  Machine m;
  for (u64 i = 0; i < 4; ++i) REQUIRE(m.Touch(i) == Resolution::kFilled);
  // From the end of one page to the start of another.
  m.mmu->WatchPages(LinearAddr(kPage + 2 * kPageSize - 1), LinearAddr(kPage + 2 * kPageSize), true);
  CHECK(m.Filled(0));
  CHECK(m.InGuard(m.HostOf(kPage + kPageSize)));
  CHECK(m.InGuard(m.HostOf(kPage + 2 * kPageSize)));
  CHECK(m.Filled(3));
  m.mmu->ForgetWatchedPages();
  // What has no address is no page; what reaches into it, everything on this side.
  m.mmu->WatchPages(LinearAddr(u64{1} << 47), LinearAddr(u64{1} << 50), true);
  CHECK(m.Touch(1) == Resolution::kFilled);
  m.mmu->WatchPages(LinearAddr(kPage + kPageSize), LinearAddr(u64{1} << 50), true);
  CHECK(m.Filled(0));
  CHECK(m.Touch(1) == Resolution::kSimulate);
  CHECK(m.Touch(3) == Resolution::kSimulate);
}

}  // namespace
}  // namespace alibi::mmu
