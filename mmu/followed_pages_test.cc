// SPDX-License-Identifier: Apache-2.0
#include "mmu/followed_pages.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

using namespace alibi;
using namespace alibi::mmu;

TEST_CASE("pages are mapped, change, and are told once") {
  auto pages = FollowedPages::Create();
  REQUIRE(pages != nullptr);
  REQUIRE(pages->Add(5, FollowedPages::kRead));
  REQUIRE(pages->Add(6, FollowedPages::kRead | FollowedPages::kWrite));
  CHECK(pages->count() == 2);
  CHECK(pages->RightsOf(6) == (FollowedPages::kRead | FollowedPages::kWrite));
  CHECK(pages->RightsOf(7) == 0);
  pages->Changed(5);
  pages->Changed(5);
  pages->Changed(7);
  CHECK(pages->RightsOf(5) == 0);
  REQUIRE(pages->changed_count() == 1);
  CHECK(pages->changed(0) == 5);
  pages->ForgetChanged();
  CHECK(pages->changed_count() == 0);
  CHECK(pages->count() == 1);
}

TEST_CASE("who uses the pages is stopped once, before one of them counts as changed") {
  struct Counting final : FollowedPages::User {
    explicit Counting(FollowedPages& of) : pages(of) {}
    void StopUsing() override {
      ++stops;
      rights_then = pages.RightsOf(5);
    }
    FollowedPages& pages;
    unsigned stops = 0;
    u8 rights_then = 0;
  };
  auto pages = FollowedPages::Create();
  REQUIRE(pages->Add(5, FollowedPages::kRead));
  REQUIRE(pages->Add(6, FollowedPages::kRead));
  Counting user(*pages);
  pages->set_user(&user);
  pages->Changed(7);
  pages->Changed(8, 1000);
  pages->Changed(8, u64{1} << 30);
  CHECK(user.stops == 0);  // none of these is mapped
  pages->Changed(5);
  CHECK(user.stops == 1);
  CHECK(user.rights_then == FollowedPages::kRead);
  pages->Changed(6);
  CHECK(user.stops == 1);
  REQUIRE(pages->Add(6, FollowedPages::kRead));
  pages->set_user(&user);
  SECTION("a range") { pages->Changed(0, u64{1} << 30); }
  SECTION("all") { pages->ChangedAll(); }
  CHECK(user.stops == 2);
}

TEST_CASE("too many changes are a change of everything") {
  auto pages = FollowedPages::Create();
  for (u64 index = 0; index < FollowedPages::kMaxChanged + 1; ++index) {
    REQUIRE(pages->Add(3 * index, FollowedPages::kRead));
  }
  pages->Changed(0, u64{1} << 30);
  CHECK(pages->all_changed());
  CHECK(pages->count() == 0);
  CHECK(pages->RightsOf(3) == 0);
}

TEST_CASE("no more pages than a process can have mappings") {
  auto pages = FollowedPages::Create();
  for (u64 index = 0; index < FollowedPages::kMaxPages; ++index) {
    REQUIRE(pages->Add(index << 20, FollowedPages::kRead));
  }
  CHECK_FALSE(pages->Add(1, FollowedPages::kRead));
  CHECK(pages->Add(0, FollowedPages::kRead | FollowedPages::kExecute));  // it has that one
  pages->ChangedAll();
  CHECK(pages->all_changed());
  CHECK(pages->Add(1, FollowedPages::kRead));
}

TEST_CASE("against a map: adds, changes, ranges") {
  auto pages = FollowedPages::Create();
  std::map<u64, u8> mapped;
  std::set<u64> changed;
  std::mt19937_64 random(7);
  for (unsigned step = 0; step < 200'000; ++step) {
    // Numbers that meet in the table.
    const u64 index = (random() % 64) << 30 | random() % 64;
    switch (random() % 8) {
      default: {
        const u8 rights = static_cast<u8>(1 + random() % 7);
        REQUIRE(pages->Add(index, rights));
        mapped[index] = rights;
        break;
      }
      case 0:
        pages->Changed(index);
        if (mapped.erase(index) != 0) changed.insert(index);
        break;
      case 1: {
        const u64 count = random() % 2 == 0 ? random() % 32 : u64{1} << (random() % 36);
        pages->Changed(index, count);
        for (auto it = mapped.lower_bound(index);
             it != mapped.end() && it->first < index + count;) {
          changed.insert(it->first);
          it = mapped.erase(it);
        }
        break;
      }
    }
    CHECK(pages->RightsOf(index) == (mapped.contains(index) ? mapped[index] : 0));
    if (random() % 64 == 0) {
      REQUIRE_FALSE(pages->all_changed());
      std::set<u64> told;
      for (u32 i = 0; i < pages->changed_count(); ++i) told.insert(pages->changed(i));
      REQUIRE(told == changed);
      REQUIRE(pages->count() == mapped.size());
      pages->ForgetChanged();
      changed.clear();
    }
  }
}
