// SPDX-License-Identifier: Apache-2.0
// What a loader needs of an ELF file: its loadable segments and its entry point, by physical
// address, with every number checked against the file.
#ifndef ALIBI_PC_BOOT_ELF_H_
#define ALIBI_PC_BOOT_ELF_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace alibi::loader {

// `bytes` go to `address`; zeros fill up to `memory_size`.
struct Segment {
  u64 address = 0;
  u64 memory_size = 0;
  std::span<const u8> bytes;
  // So many of the first bytes are the file's own: ELF header, program headers, notes, and zeros
  // between them. Linkers make them part of the first segment, and no kernel misses them.
  u64 preamble = 0;
};

struct LoadableImage {
  std::vector<Segment> segments;  // none is empty; no address + memory_size wraps
  u64 entry = 0;                  // physical
  // The note XEN_ELFNOTE_PHYS32_ENTRY, where a PVH kernel is entered (pc/boot/pvh.h).
  std::optional<u64> pvh_entry;
};

bool LooksLikeElf(std::span<const u8> image);

// Takes little-endian executables for i386 (ELF32) and x86-64 (ELF64).
Result<LoadableImage> ParseElf(std::span<const u8> image, const std::string& name);

// Linked to 1 MB without a script, a kernel has its headers in the page in front, which is ROM in a
// PC. Takes from each segment what lies in [first, end) if that is preamble alone.
void DropPreambleIn(u64 first, u64 end, LoadableImage* image);

// Integers of the file at `offset`, which the caller has checked.
u16 Load16(std::span<const u8> bytes, u64 offset);
u32 Load32(std::span<const u8> bytes, u64 offset);
u64 Load64(std::span<const u8> bytes, u64 offset);

// "0x1234", for messages.
std::string Hex(u64 value);

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_ELF_H_
