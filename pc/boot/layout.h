// SPDX-License-Identifier: Apache-2.0
// Where things may lie in a PC's memory: the map that kernels are told of, and a planner that keeps
// what a loader places apart.
#ifndef ALIBI_PC_BOOT_LAYOUT_H_
#define ALIBI_PC_BOOT_LAYOUT_H_

#include <optional>
#include <string>
#include <vector>

#include "base/types.h"

namespace alibi::loader {

inline constexpr u64 kExtendedBda = 0x9fc00;  // the last KB below 640 K is the BIOS's by custom
inline constexpr u64 kVgaHole = 0xa0000;
inline constexpr u64 kBiosRom = 0xf0000;  // here are our ACPI tables, too
inline constexpr u64 kHoleEnd = 0x100000;
inline constexpr u64 kTopRom = 0xfffc0000;
inline constexpr u64 kFourGiB = u64{1} << 32;

struct MapRange {
  u64 first = 0;
  u64 end = 0;  // exclusive
  bool usable = false;
};

// What a BIOS says by INT 15h, E820h: rising, without overlap. `low_ram` bytes from 0, `high_ram`
// from 4 GB.
std::vector<MapRange> PcMemoryMap(u64 low_ram, u64 high_ram);

// Places things in RAM below 4 GB and remembers what is taken.
class Layout {
 public:
  explicit Layout(u64 low_ram) : low_ram_(low_ram) {}

  // Empty if [first, first + size), which must not wrap, is usable RAM and free; else why not.
  std::string Take(u64 first, u64 size);
  // The lowest free place at or above `from`; `alignment` is a power of two.
  std::optional<u64> Place(u64 from, u64 size, u64 alignment);
  // Everything taken lies below; at least 1 MB.
  u64 End() const;

 private:
  u64 low_ram_;
  std::vector<MapRange> taken_;
};

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_LAYOUT_H_
