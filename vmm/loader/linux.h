// Loads Linux kernels by the x86 boot protocol (Documentation/x86/boot.rst, version 2.04 and up):
// the bzImage, its command line, an initial RAM disk and the memory map, and says where to enter.
//
// Every number in the image is taken for an attack. Nothing is written to guest memory before the
// whole image has been found sound.
#ifndef ALIBI_VMM_LOADER_LINUX_H_
#define ALIBI_VMM_LOADER_LINUX_H_

#include <span>
#include <string>

#include "base/result.h"
#include "base/types.h"
#include "vmm/loader/multiboot.h"

namespace alibi::loader {

struct LinuxOptions {
  u64 low_ram_bytes = 0;   // RAM from guest-physical 0; at most kLargestLowRam
  u64 high_ram_bytes = 0;  // RAM from 4 GB
  std::string command_line;
  std::span<const u8> initrd;  // empty: none
  u64 rsdp = 0;                // guest-physical, if the kernel is to be told; else 0
};

// The machine state of the 32-bit entry: protected mode, paging off, flat segments with
// __BOOT_CS 10h and __BOOT_DS 18h, interrupts off, EBP EDI EBX zero, and:
struct LinuxEntry {
  u32 eip = 0;
  u32 esi = 0;  // struct boot_params
};

// Does it have a bzImage's signature?
bool IsLinux(std::span<const u8> image);

// `name` is the image's, for messages.
Result<LinuxEntry> LoadLinux(std::span<const u8> image, const std::string& name,
                             const LinuxOptions& options, GuestMemory& memory);

}  // namespace alibi::loader

#endif  // ALIBI_VMM_LOADER_LINUX_H_
