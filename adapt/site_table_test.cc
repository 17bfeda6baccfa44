// SPDX-License-Identifier: Apache-2.0
#include "adapt/site_table.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>

namespace alibi::adapt {
namespace {

TEST_CASE("Sites are keyed by their physical address, wherever it is mapped") {
  SiteTable table(4);
  CHECK(table.Find(PhysAddr(0x2000)) == nullptr);
  SiteRecord& a = table.FindOrInsert(LinearAddr(0x1000), PhysAddr(0x2000));
  SiteRecord& b = table.FindOrInsert(LinearAddr(0x1000), PhysAddr(0x3000));
  SiteRecord& c = table.FindOrInsert(LinearAddr(0x5000), PhysAddr(0x4000));
  CHECK((&a != &b && &b != &c && &a != &c));
  CHECK(&table.FindOrInsert(LinearAddr(0x7000), PhysAddr(0x2000)) == &a);
  CHECK((a.pc == LinearAddr(0x1000) && a.phys == PhysAddr(0x2000) && a.kind == Kind::kDirect));
  a.traps = 7;
  CHECK(table.Find(PhysAddr(0x2000)) == &a);
  CHECK(&table.FindOrInsert(LinearAddr(0x1000), PhysAddr(0x2000)) == &a);
  CHECK(table.size() == 3);
  CHECK(table.All().size() == 3);
}

TEST_CASE("A site at address zero is a site") {
  SiteTable table(4);
  CHECK(table.Find(PhysAddr(0)) == nullptr);
  SiteRecord& site = table.FindOrInsert(LinearAddr(0), PhysAddr(0));
  CHECK(table.Find(PhysAddr(0)) == &site);
}

TEST_CASE("When full, sites share a record that is as new every time") {
  SiteTable table(4);
  for (u64 i = 0; i < 12; ++i)
    CHECK(table.FindOrInsert(LinearAddr(i), PhysAddr(i)).phys == PhysAddr(i));
  SiteRecord& extra = table.FindOrInsert(LinearAddr(100), PhysAddr(100));
  CHECK(extra.phys == kSharedSite);
  extra.kind = Kind::kSimulate;
  extra.recent_guilty = 9;
  SiteRecord& other = table.FindOrInsert(LinearAddr(101), PhysAddr(101));
  CHECK((&other == &extra && other.kind == Kind::kDirect && other.recent_guilty == 0));
  CHECK(table.Find(PhysAddr(100)) == nullptr);
  CHECK(table.size() == 12);
  CHECK(table.All().size() == 12);
}

TEST_CASE("Forgetting a page makes its sites innocent and its places reusable") {
  SiteTable table(4);
  for (u64 i = 0; i < 6; ++i)
    table.FindOrInsert(LinearAddr(i), PhysAddr(0x1000 + i)).kind = Kind::kSimulate;
  for (u64 i = 0; i < 6; ++i)
    table.FindOrInsert(LinearAddr(i), PhysAddr(0x2000 + i)).kind = Kind::kChecked;
  table.Find(PhysAddr(0x1003))->traps = 5;
  table.ForgetPage(PhysPage(0x1));
  CHECK(table.Find(PhysAddr(0x1003)) == nullptr);
  CHECK(table.Find(PhysAddr(0x2003))->kind == Kind::kChecked);
  // The same site again: innocent, but its history is not lost.
  SiteRecord& again = table.FindOrInsert(LinearAddr(3), PhysAddr(0x1003));
  CHECK((again.kind == Kind::kDirect && again.traps == 5));
  // Five forgotten places are left.
  unsigned kept = 0;
  for (u64 i = 0; i < 100; ++i)
    kept += table.FindOrInsert(LinearAddr(i), PhysAddr(0x9000 + i)).phys != kSharedSite;
  CHECK(kept >= 1);
  CHECK(kept <= 5);
  CHECK(table.size() == 12);
  CHECK(table.Find(PhysAddr(0x1003)) == &again);
  table.ForgetPage(PhysPage(0x9));
  table.ForgetPage(PhysPage(0x777));
}

TEST_CASE("Against a map, with random sites and pages forgotten") {
  constexpr u64 kSeed = 20240611;
  std::mt19937_64 random(kSeed);
  SiteTable table(12);
  std::map<u64, u32> model;  // by physical address
  for (int step = 0; step < 200000; ++step) {
    const u64 page = (random() % 24) << 12;
    const u64 phys = page + random() % 64;
    const u64 pc = phys + ((random() & 1) << 40);
    if (random() % 500 == 0) {
      table.ForgetPage(PhysPage(page >> 12));
      std::erase_if(model, [&](const auto& entry) { return entry.first >> 12 == page >> 12; });
    } else if (random() & 1) {
      SiteRecord& site = table.FindOrInsert(LinearAddr(pc), PhysAddr(phys));
      REQUIRE(site.phys == PhysAddr(phys));
      site.recent_guilty = ++model[phys];
    }
    const auto known = model.find(phys);
    SiteRecord* site = table.Find(PhysAddr(phys));
    REQUIRE((site != nullptr) == (known != model.end()));
    if (site != nullptr) REQUIRE(site->recent_guilty == known->second);
  }
}

TEST_CASE("A table that was too small says so, and begins again when it is cleared") {
  SiteTable table(4);
  for (u64 i = 0; i < table.capacity(); ++i) table.FindOrInsert(LinearAddr(i), PhysAddr(i << 12));
  CHECK_FALSE(table.overflowed());
  CHECK(table.FindOrInsert(LinearAddr(1000), PhysAddr(1000 << 12)).phys == kSharedSite);
  CHECK(table.overflowed());
  table.Clear();
  CHECK_FALSE(table.overflowed());
  CHECK(table.size() == 0);
  CHECK(table.All().empty());
  CHECK(table.Find(PhysAddr(1 << 12)) == nullptr);
  CHECK_FALSE(table.MayHaveInPage(PhysAddr(1 << 12)));
  SiteRecord& site = table.FindOrInsert(LinearAddr(1), PhysAddr(1 << 12));
  CHECK((site.phys == PhysAddr(1 << 12) && site.kind == Kind::kDirect && site.callouts == 0));
}

}  // namespace
}  // namespace alibi::adapt
