// SPDX-License-Identifier: Apache-2.0
// Loads ELF kernels by the PVH protocol (Xen's docs/misc/pvh.pandoc and
// public/arch-x86/hvm/start_info.h): a Linux vmlinux, for one. They say by a note where to be
// entered.
//
// Every number in the image is taken for an attack. Nothing is written to guest memory before the
// whole image has been found sound.
#ifndef ALIBI_PC_BOOT_PVH_H_
#define ALIBI_PC_BOOT_PVH_H_

#include <span>
#include <string>

#include "base/result.h"
#include "base/types.h"
#include "pc/boot/multiboot.h"

namespace alibi::loader {

struct PvhOptions {
  u64 low_ram_bytes = 0;   // RAM from guest-physical 0; at most kLargestLowRam
  u64 high_ram_bytes = 0;  // RAM from 4 GB
  std::string command_line;
  std::vector<Module> modules;  // the first is Linux's initial RAM disk
  u64 rsdp = 0;                 // guest-physical
};

// For vcpu::ResetToPvh; guest-physical.
struct PvhEntry {
  u32 eip = 0;
  u32 start_info = 0;
};

// Is it an ELF file with the note?
bool IsPvh(std::span<const u8> image);

// `name` is the image's, for messages.
Result<PvhEntry> LoadPvh(std::span<const u8> image, const std::string& name,
                         const PvhOptions& options, GuestMemory& memory);

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_PVH_H_
