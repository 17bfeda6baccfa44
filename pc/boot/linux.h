// SPDX-License-Identifier: Apache-2.0
// Loads Linux kernels by the x86 boot protocol (Documentation/x86/boot.rst, version 2.02 and up):
// the bzImage, or the zImage of old, its command line, an initial RAM disk and the memory map, and
// says where to enter.
//
//   0x08000  GDT              0x10000  struct boot_params     0x20000  command line
//   0x09000  page tables      ...      the kernel, and the initial RAM disk as high as it may be
//
// Every number in the image is taken for an attack. Nothing is written to guest memory before the
// whole image has been found sound.
#ifndef ALIBI_PC_BOOT_LINUX_H_
#define ALIBI_PC_BOOT_LINUX_H_

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "pc/boot/multiboot.h"

namespace alibi::loader {

// The 16-bit entry is the setup code's, which calls the BIOS: only a machine with one can start
// there (LinuxRom in pc/boot/linux_rom.h).
enum class LinuxEntryPoint : u8 { kBest, k16, k32, k64 };

struct LinuxOptions {
  u64 low_ram_bytes = 0;   // RAM from guest-physical 0; at most kLargestLowRam
  u64 high_ram_bytes = 0;  // RAM from 4 GB
  std::string command_line;
  std::span<const u8> initrd;  // empty: none
  u64 rsdp = 0;                // guest-physical, if the kernel is to be told; else 0
  LinuxEntryPoint entry = LinuxEntryPoint::kBest;  // best: 64 bits if the kernel has such an entry
};

// For vcpu::ResetToLinux32 and ResetToLinux64; all guest-physical. `gdt` holds __BOOT_CS and
// __BOOT_DS.
struct LinuxEntry {
  u64 rip = 0;
  u64 boot_params = 0;
  u32 gdt = 0;
  u64 page_tables = 0;  // they map the first 4 GB onto itself; 0: enter with 32 bits
};

// Does it have a bzImage's signature?
bool IsLinux(std::span<const u8> image);

// Is its setup code the only way in? So it is with a zImage, which is loaded below 1 MB, and with
// what has no code at 1 MB to jump to (iPXE).
bool StartsThroughBios(std::span<const u8> image);

// `name` is the image's, for messages.
Result<LinuxEntry> LoadLinux(std::span<const u8> image, const std::string& name,
                             const LinuxOptions& options, GuestMemory& memory);

// For the 16-bit entry: what goes where in guest-physical memory, when a BIOS has started. Real
// mode then goes on at setup_at / 16 + 20h : 0, with all other segments setup_at / 16.
struct LinuxSetup {
  std::vector<u8> setup;
  u32 setup_at = 0;
  std::span<const u8> kernel;  // of the image
  u32 kernel_at = 0;
  std::vector<u8> command_line;  // with its NUL
  u32 command_line_at = 0;
  u32 initrd_at = 0;  // 0: none
};
Result<LinuxSetup> PrepareLinuxSetup(std::span<const u8> image, const std::string& name,
                                     const LinuxOptions& options);

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_LINUX_H_
