// SPDX-License-Identifier: Apache-2.0
#include "machine/hosting.h"

#include <catch2/catch.hpp>

namespace alibi {
namespace {

TEST_CASE("What is kept is read from a list") {
  auto all = ParseHosting("all");
  REQUIRE(all.ok());
  CHECK(all->views == Hosting::kAll);
  CHECK(all->satellites == Hosting::kAll);
  CHECK(!all->remaps);
  auto some = ParseHosting("views=2,remap,satellites=8");
  REQUIRE(some.ok());
  CHECK(some->views == 2);
  CHECK(some->satellites == 8);
  CHECK(some->remaps);
}

TEST_CASE("What is no list of what is kept") {
  for (const char* text : {"", "views", "views=", "views=0", "views=-1", "views=1x", "remap,", ",",
                           "satellites=99999999999", "all,remap"}) {
    INFO(text);
    CHECK(!ParseHosting(text).ok());
  }
  CHECK(ParseHosting("rooms=2").error().message ==
        "there is no 'rooms'; there are all, views=NUMBER, satellites=NUMBER, remap");
}

}  // namespace
}  // namespace alibi
