// SPDX-License-Identifier: Apache-2.0
// Loads Multiboot 1 kernels (specification 0.6.96): ELF32, ELF64, or the header's own addresses.
//
// Every number in the image is taken for an attack. Nothing is written to guest memory before the
// whole image has been found sound.
#ifndef ALIBI_PC_BOOT_MULTIBOOT_H_
#define ALIBI_PC_BOOT_MULTIBOOT_H_

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace alibi::loader {

// Guest-physical memory as a loader needs it. The loader stays inside the RAM it was told of.
class GuestMemory {
 public:
  virtual ~GuestMemory() = default;
  // False if the range is not RAM after all.
  virtual bool Write(PhysAddr addr, std::span<const u8> bytes) = 0;
  virtual bool Zero(PhysAddr addr, u64 size) = 0;
};

struct Module {
  std::span<const u8> bytes;
  std::string command_line;
};

struct MultibootOptions {
  u64 low_ram_bytes = 0;   // RAM from guest-physical 0; at most kLargestLowRam
  u64 high_ram_bytes = 0;  // RAM from 4 GB
  std::string command_line;
  std::vector<Module> modules;
};

// Below the I/O APIC: RAM beyond this has to go above 4 GB.
inline constexpr u64 kLargestLowRam = 0xfec00000;

// The machine state the kernel expects: 32-bit protected mode, paging off, flat 4 GB segments,
// interrupts off, A20 on, and:
struct MultibootEntry {
  u32 eip = 0;
  u32 eax = 0;  // the boot magic
  u32 ebx = 0;  // the information structure, in low memory where the image leaves room
};

// Is there a valid header where it must be?
bool IsMultiboot(std::span<const u8> image);

// `name` is the image's, for messages.
Result<MultibootEntry> LoadMultiboot(std::span<const u8> image, const std::string& name,
                                     const MultibootOptions& options, GuestMemory& memory);

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_MULTIBOOT_H_
