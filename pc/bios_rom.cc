// SPDX-License-Identifier: Apache-2.0
#include "pc/bios_rom.h"

#include <algorithm>
#include <utility>

namespace alibi::vmm {
namespace {

constexpr u64 kFourGiB = u64{1} << 32;
constexpr u64 kMaxLowRom = 128 * 1024;
constexpr u64 kSmallRange = 16 * 1024, kBigRange = 64 * 1024;
// Of a PAM nibble.
constexpr u8 kReadRam = 1, kWriteRam = 2;

}  // namespace

Status BiosRom::CheckSize(u64 bytes, const std::string& name) {
  if (bytes != 0 && bytes <= kLargest && (bytes & kPageMask) == 0) return Ok{};
  return Error{"'" + name + "' has " + std::to_string(bytes) +
               " bytes: a ROM is a multiple of 4096 bytes, up to 16 MB"};
}

BiosRom::BiosRom(std::vector<u8> image, mmu::GuestMemory& memory)
    : image_(std::move(image)), memory_(memory), ram_(kShadowEnd - kShadowBase) {
  u64 base = kShadowBase;
  for (Range& range : ranges_) {
    range.base = base;
    range.size = base == kShadowEnd - kBigRange ? kBigRange : kSmallRange;
    base += range.size;
  }
}

Result<std::unique_ptr<BiosRom>> BiosRom::Map(std::vector<u8> image, mmu::GuestMemory& memory) {
  std::unique_ptr<BiosRom> rom(new BiosRom(std::move(image), memory));
  const PhysAddr base(kFourGiB - rom->image_.size());
  Status added = memory.AddSlot(base, rom->image_.size(), /*read_only=*/true);
  if (!added.ok()) return added.error();
  memory.LoadPhys(base, rom->image_.data(), rom->image_.size());
  // The guest may want all of it to be RAM. If the host has no room, it should say so now.
  const PhysAddr shadow(kShadowBase);
  added = memory.AddSlot(shadow, kShadowEnd - kShadowBase);
  if (added.ok()) added = memory.RemoveSlot(shadow);
  if (!added.ok()) return added.error();
  Status applied = rom->Apply({});
  if (!applied.ok()) return applied.error();
  return rom;
}

Status BiosRom::Apply(const devices::PciHost::Pam& pam) {
  for (unsigned i = 0; i < kRanges; ++i) {
    // Register 0 has the BIOS's range in its upper half; each other one has two ranges of 16 KB.
    const u8 bits = i == kRanges - 1 ? pam[0] >> 4 : pam[1 + i / 2] >> (i & 1 ? 4 : 0);
    const Source source = !(bits & kReadRam)   ? Source::kRom
                          : (bits & kWriteRam) ? Source::kRam
                                               : Source::kProtectedRam;
    if (source == ranges_[i].source) continue;
    Status switched = Switch(ranges_[i], source);
    if (!switched.ok()) return switched;
  }
  return Ok{};
}

Status BiosRom::Switch(Range& range, Source source) {
  const PhysAddr base(range.base);
  const u64 low_rom = std::min<u64>(image_.size(), kMaxLowRom);
  const u64 rom_base = kShadowEnd - low_rom;
  u8* ram = ram_.data() + (range.base - kShadowBase);
  if (memory_.IsBacked(base, 1) || memory_.IsBacked(base + (range.size - 1), 1)) {
    if (range.source != Source::kRom) memory_.ReadPhys(base, ram, range.size);
    const u64 first = range.source == Source::kRom ? std::max(range.base, rom_base) : range.base;
    Status removed = memory_.RemoveSlot(PhysAddr(first));
    if (!removed.ok()) return removed;
  }
  range.source = source;
  if (source != Source::kRom) {
    Status added = memory_.AddSlot(base, range.size, source == Source::kProtectedRam);
    if (added.ok()) memory_.LoadPhys(base, ram, range.size);
    return added;
  }
  // A small ROM may cover the end of a range only.
  const u64 first = std::max(range.base, rom_base), end = range.base + range.size;
  if (first >= end) return Ok{};
  Status added = memory_.AddSlot(PhysAddr(first), end - first, /*read_only=*/true);
  if (added.ok()) {
    const u8* bytes = image_.data() + (image_.size() - (kShadowEnd - first));
    memory_.LoadPhys(PhysAddr(first), bytes, end - first);
  }
  return added;
}

}  // namespace alibi::vmm
