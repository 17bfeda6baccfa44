// SPDX-License-Identifier: Apache-2.0
// What a PC's firmware tells about the machine in System Management BIOS tables (DMTF DSP0134,
// version 2.8): names, one processor, the memory.
#ifndef ALIBI_PC_BOOT_SMBIOS_H_
#define ALIBI_PC_BOOT_SMBIOS_H_

#include <vector>

#include "base/types.h"
#include "pc/boot/multiboot.h"

namespace alibi::loader {

struct SmbiosHardware {
  u64 low_ram_bytes = 0;   // from 0
  u64 high_ram_bytes = 0;  // from 4 GB
};

struct Smbios {
  std::vector<u8> anchor;  // the entry point structure of 32 bits
  std::vector<u8> tables;
};

// For tables at `tables_at`.
Smbios BuildSmbios(const SmbiosHardware& hardware, u32 tables_at);

// In the segment that systems search, behind the ACPI tables. False if that is no RAM.
inline constexpr u64 kSmbiosAddress = 0xf8000;
bool WriteSmbios(const SmbiosHardware& hardware, GuestMemory& memory);

// What SeaBIOS finds them by; it places them itself.
inline constexpr char kSmbiosAnchorFile[] = "etc/smbios/smbios-anchor";
inline constexpr char kSmbiosTablesFile[] = "etc/smbios/smbios-tables";

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_SMBIOS_H_
