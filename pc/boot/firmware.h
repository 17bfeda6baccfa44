// SPDX-License-Identifier: Apache-2.0
// What a PC's firmware leaves in memory, for kernels that are loaded without any: ACPI tables, the
// BIOS data area, real-mode interrupt vectors that lead somewhere harmless, and a reset vector.
//
//   0x00000  real-mode vectors         0xf0000  RSDP, then the ACPI tables
//   0x00400  BIOS data area            0xffe00  handlers
//   0x9fc00  extended BIOS data area   0xffff0  the reset vector's jump, the date
//                                      0xf8000  SMBIOS (pc/boot/smbios.h)
//                                      0xfa000  several CPUs: the MP table
#ifndef ALIBI_PC_BOOT_FIRMWARE_H_
#define ALIBI_PC_BOOT_FIRMWARE_H_

#include <vector>

#include "base/types.h"
#include "pc/boot/multiboot.h"

namespace alibi::loader {

// Where the hardware that ACPI describes is (specification 6.4).
struct AcpiHardware {
  unsigned cpus = 1;  // their APIC IDs begin at 0
  u32 local_apic = 0xfee00000;
  u32 io_apic = 0xfec00000;
  u32 hpet = 0xfed00000;
  u32 hpet_block = 0x8086a201;  // lower half of its capabilities
  unsigned sci = 9;             // level-triggered, active high
  u16 smi_command = 0xb2;
  u8 acpi_enable = 0xf1, acpi_disable = 0xf0;
  u16 pm1_event = 0x600, pm1_control = 0x604, pm_timer = 0x608;
  u16 reset_port = 0xcf9;
  u8 reset_value = 6;
};

inline constexpr u64 kRsdpAddress = 0xf0000;
inline constexpr u64 kFirmwareHandlers = 0xffe00;

// RSDP at `address`, tables behind it: RSDT, XSDT, FADT, FACS, DSDT, MADT, HPET; for several CPUs
// an SSDT with their processor objects.
std::vector<u8> BuildAcpi(const AcpiHardware& hardware, u64 address);

// The same for systems that know no ACPI (MultiProcessor Specification 1.4, chapter 4): the
// floating pointer at `address`, the configuration table behind it.
inline constexpr u64 kMpTableAddress = 0xfa000;
std::vector<u8> BuildMpTable(const AcpiHardware& hardware, u64 address);

// Writes everything; false if 0 to 1 MB is not all RAM.
bool WriteFirmware(const AcpiHardware& hardware, GuestMemory& memory);

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_FIRMWARE_H_
