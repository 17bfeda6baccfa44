// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/layout.h"

#include <catch2/catch.hpp>

namespace alibi::loader {
namespace {

constexpr u64 kMiB = 1 << 20;

TEST_CASE("The memory map rises, and RAM is in it once", "[layout]") {
  for (const u64 low : {u64{0x80000}, u64{0x9fe00}, kMiB, 64 * kMiB, 3072 * kMiB}) {
    for (const u64 high : {u64{0}, kMiB, u64{1} << 40}) {
      INFO(low << " " << high);
      u64 end = 0, usable = 0;
      for (const MapRange& range : PcMemoryMap(low, high)) {
        CHECK(range.first >= end);
        CHECK(range.end > range.first);
        end = range.end;
        if (range.usable) usable += range.end - range.first;
      }
      const u64 below = low < kExtendedBda ? low : kExtendedBda;
      CHECK(usable == below + (low > kHoleEnd ? low - kHoleEnd : 0) + high);
    }
  }
}

TEST_CASE("What is placed stays apart", "[layout]") {
  Layout layout(16 * kMiB);
  CHECK(layout.End() == kMiB);
  CHECK(layout.Take(2 * kMiB, kMiB).empty());
  CHECK(layout.Take(3 * kMiB - 1, 1).find("overlapping") == 0);
  CHECK(layout.Take(15 * kMiB, 2 * kMiB).find("outside") == 0);
  CHECK(layout.Take(0x90000, 0x20000).find("in the hole") == 0);
  CHECK(layout.Place(0x1000, 0x1000, 16) == u64{0x1000});
  CHECK(layout.Place(0x1000, 0x1000, 4096) == u64{0x2000});
  CHECK(layout.Place(0x1000, kMiB - 1, 4096) == kMiB);
  CHECK(layout.Place(0x1000, kMiB, 4096) == 3 * kMiB);
  CHECK(layout.Place(layout.End(), 13 * kMiB, 4096) == std::nullopt);
  CHECK(layout.Place(layout.End(), 12 * kMiB, 4096) == 4 * kMiB);
}

}  // namespace
}  // namespace alibi::loader
