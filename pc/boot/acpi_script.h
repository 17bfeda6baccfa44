// SPDX-License-Identifier: Apache-2.0
// ACPI tables for firmware that places them itself: the bytes of BuildAcpi() as fw_cfg files, and
// the script by which SeaBIOS allocates them, corrects their pointers and sums them up
// ("etc/table-loader", QEMU's hw/acpi/bios-linker-loader.c describes its 128-byte commands).
#ifndef ALIBI_PC_BOOT_ACPI_SCRIPT_H_
#define ALIBI_PC_BOOT_ACPI_SCRIPT_H_

#include <string>
#include <vector>

#include "base/types.h"

namespace alibi::loader {

struct FirmwareFile {
  std::string name;
  std::vector<u8> bytes;
};

// `tables`: the RSDP at offset 0 and all that it leads to, built for address 0.
std::vector<FirmwareFile> ScriptAcpi(const std::vector<u8>& tables);

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_ACPI_SCRIPT_H_
