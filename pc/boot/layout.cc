// SPDX-License-Identifier: Apache-2.0
#include "pc/boot/layout.h"

#include <algorithm>

#include "pc/boot/elf.h"

namespace alibi::loader {
namespace {

u64 AlignUp(u64 value, u64 alignment) { return (value + (alignment - 1)) & ~(alignment - 1); }

}  // namespace

std::vector<MapRange> PcMemoryMap(u64 low_ram, u64 high_ram) {
  std::vector<MapRange> map;
  const auto add = [&map](u64 first, u64 end, bool usable) {
    if (first < end) map.push_back({first, end, usable});
  };
  add(0, std::min(low_ram, kExtendedBda), true);
  add(kExtendedBda, std::min(low_ram, kVgaHole), false);
  add(kBiosRom, kHoleEnd, false);
  add(kHoleEnd, low_ram, true);
  add(kTopRom, kFourGiB, false);
  add(kFourGiB, kFourGiB + high_ram, true);
  return map;
}

std::string Layout::Take(u64 first, u64 size) {
  const u64 end = first + size;
  if (end > low_ram_) return "outside RAM (" + std::to_string(low_ram_ >> 20) + " MB)";
  if (first < kHoleEnd && end > kVgaHole) return "in the hole between 640 KB and 1 MB";
  for (const MapRange& range : taken_) {
    if (first < range.end && range.first < end) {
      return "overlapping " + Hex(range.first) + "-" + Hex(range.end - 1);
    }
  }
  taken_.push_back({first, end, false});
  return "";
}

std::optional<u64> Layout::Place(u64 from, u64 size, u64 alignment) {
  u64 first = AlignUp(from, alignment);
  for (;;) {
    // Each obstacle moves the candidate up, so this ends.
    u64 next = first;
    if (first < kHoleEnd && first + size > kExtendedBda) next = kHoleEnd;
    for (const MapRange& range : taken_) {
      if (first < range.end && range.first < first + size) next = std::max(next, range.end);
    }
    if (next == first) break;
    first = AlignUp(next, alignment);
  }
  if (first > low_ram_ || size > low_ram_ - first) return std::nullopt;
  taken_.push_back({first, first + size, false});
  return first;
}

u64 Layout::End() const {
  u64 end = kHoleEnd;
  for (const MapRange& range : taken_) end = std::max(end, range.end);
  return end;
}

}  // namespace alibi::loader
