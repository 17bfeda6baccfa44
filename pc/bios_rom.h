// SPDX-License-Identifier: Apache-2.0
// A firmware ROM in the memory map of a PC: whole at the top of 4 GB, its last 128 KB (or all of a
// smaller one) below 1 MB, where the host bridge's PAM registers can put RAM in its place.
//
//   0xc0000 .. 0x100000   13 ranges, each the ROM's, RAM, or write-protected RAM
//   4 GB - size .. 4 GB   the ROM
#ifndef ALIBI_PC_BIOS_ROM_H_
#define ALIBI_PC_BIOS_ROM_H_

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "devices/pci/pci.h"
#include "mmu/guest_memory.h"

namespace alibi::vmm {

class BiosRom {
 public:
  static constexpr u64 kLargest = u64{16} << 20;
  static constexpr u64 kShadowBase = 0xc0000, kShadowEnd = 0x100000;

  // What the arena needs beside the slots of others, the ROM's size included. The ranges that
  // change may leave holes: at most 12 of 16 KB lie apart from each other and from one other slot,
  // with up to 14 holes between, each too small for the range of 64 KB.
  static constexpr u64 ArenaBytes(u64 rom_bytes) {
    return rom_bytes + 12 * (u64{16} << 10) + 15 * (u64{64} << 10);
  }

  // Is this a size a ROM can have? `name` is for messages.
  static Status CheckSize(u64 bytes, const std::string& name);

  // Maps the ROM into memory without slots in either place, when all other slots are there.
  // `memory` outlives the result.
  static Result<std::unique_ptr<BiosRom>> Map(std::vector<u8> image, mmu::GuestMemory& memory);

  // Maps RAM and ROM as the registers say. Between runs of the guest only: it moves memory slots.
  // Where a register sends reads to the ROM and writes to RAM, the writes are lost. Fails only if
  // the host refuses what it gave before, if the arena has ArenaBytes().
  Status Apply(const devices::PciHost::Pam& pam);

 private:
  enum class Source : u8 { kNothing, kRom, kRam, kProtectedRam };
  struct Range {
    u64 base, size;
    Source source = Source::kNothing;
  };
  static constexpr unsigned kRanges = 13;

  BiosRom(std::vector<u8> image, mmu::GuestMemory& memory);
  Status Switch(Range& range, Source source);

  std::vector<u8> image_;
  mmu::GuestMemory& memory_;
  Range ranges_[kRanges];
  std::vector<u8> ram_;  // what unmapped RAM holds
};

}  // namespace alibi::vmm

#endif  // ALIBI_PC_BIOS_ROM_H_
