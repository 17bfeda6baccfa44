// SPDX-License-Identifier: Apache-2.0
// The option ROM by which a paravirtual kernel finds VMI, the virtual machine interface
// (docs/vmi.md): what it calls instead of executing privileged instructions itself.
#ifndef ALIBI_PC_BOOT_VMI_ROM_H_
#define ALIBI_PC_BOOT_VMI_ROM_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace alibi::loader {

// Which groups of calls have their paravirtual form: bits by the list in vmi_calls.inc.
struct VmiGroups {
  u32 bits = 0;
};

// "full", "transparent" (none), or names with commas between. Fails with the names there are.
Result<VmiGroups> ParseVmiGroups(const std::string& list);
// With commas between, for messages.
std::string VmiGroupNames();

std::vector<u8> VmiRom(VmiGroups groups);

// Where it lies if no BIOS places it: kernels look at every 2 KB from C0000h to DFFFFh, and the
// first 32 KB are a video BIOS's.
inline constexpr PhysAddr kVmiRomAddress{0xc8000};
inline constexpr char kVmiRomFile[] = "genroms/vmi.bin";

}  // namespace alibi::loader

#endif  // ALIBI_PC_BOOT_VMI_ROM_H_
