// SPDX-License-Identifier: Apache-2.0
#include "direct/guards.h"

#include <catch2/catch.hpp>

using namespace alibi;
using namespace alibi::direct;

namespace {

using Places = std::vector<LinearAddr>;

struct Rig {
  Guards guards;
  std::vector<u64> evicted;

  bool Guard(const Places& places) {
    return guards.Guard(places[0].value / kPageSize, places, &evicted);
  }
  Places Now() const { return {guards.places().begin(), guards.places().end()}; }
};

Places In(u64 page, unsigned count) {
  Places places;
  for (unsigned i = 0; i < count; ++i) places.push_back(LinearAddr(page * kPageSize + 32 * i));
  return places;
}

}  // namespace

TEST_CASE("a page is refused some times before breakpoints pay") {
  Rig rig;
  for (u32 i = 1; i < Guards::kRefusals; ++i) REQUIRE_FALSE(rig.guards.Refused(7));
  CHECK(rig.guards.Refused(7));
  CHECK_FALSE(rig.guards.Refused(8));
  // While it waits, it is looked at after twice as many each time.
  for (u32 i = Guards::kRefusals + 1; i < 2 * Guards::kRefusals; ++i) {
    REQUIRE_FALSE(rig.guards.Refused(7));
  }
  CHECK(rig.guards.Refused(7));
  rig.guards.Forget();
  CHECK_FALSE(rig.guards.Refused(7));
}

TEST_CASE("breakpoints are given out as long as they last") {
  Rig rig;
  CHECK_FALSE(rig.guards.Has(1));
  REQUIRE(rig.Guard(In(1, 3)));
  CHECK(rig.guards.Has(1));
  CHECK_FALSE(rig.guards.Has(2));
  CHECK(rig.guards.changed());
  rig.guards.Set();
  // The same again is no news.
  REQUIRE(rig.Guard(In(1, 3)));
  CHECK_FALSE(rig.guards.changed());
  CHECK(rig.Now() == In(1, 3));
  // Two more there are not.
  CHECK_FALSE(rig.Guard(In(2, 2)));
  CHECK_FALSE(rig.guards.changed());
  REQUIRE(rig.Guard(In(3, 1)));
  CHECK(rig.guards.places().size() == Guards::kBreakpoints);
  CHECK(rig.evicted.empty());
}

TEST_CASE("who is refused for long takes those of the page that has them longest") {
  Rig rig;
  REQUIRE(rig.Guard(In(1, 2)));
  REQUIRE(rig.Guard(In(2, 2)));
  for (u32 i = 0; i < Guards::kToEvict; ++i) rig.guards.Refused(3);
  REQUIRE(rig.Guard(In(3, 1)));
  CHECK(rig.evicted == std::vector<u64>{1});
  Places left = In(2, 2);
  left.push_back(In(3, 1)[0]);
  CHECK(rig.Now() == left);
}

TEST_CASE("a page with other places than before") {
  Rig rig;
  REQUIRE(rig.Guard(In(1, 2)));
  rig.guards.Set();
  REQUIRE(rig.Guard(In(1, 1)));
  CHECK(rig.guards.changed());
  CHECK(rig.Now() == In(1, 1));
  rig.guards.Set();
  rig.guards.Release(1);
  CHECK(rig.guards.changed());
  CHECK(rig.Now().empty());
  rig.guards.Set();
  rig.guards.Release(1);
  CHECK_FALSE(rig.guards.changed());
}

TEST_CASE("who is stopped again and again is banned") {
  Rig rig;
  for (u32 i = 0; i < Guards::kRefusals; ++i) rig.guards.Refused(1);
  REQUIRE(rig.Guard(In(1, 2)));
  for (u32 i = 1; i < Guards::kMostHits; ++i) REQUIRE_FALSE(rig.guards.Hit(1));
  CHECK(rig.guards.Hit(1));
  CHECK(rig.Now().empty());
  for (u32 i = 0; i < 2 * Guards::kRefusals; ++i) REQUIRE_FALSE(rig.guards.Refused(1));
}
