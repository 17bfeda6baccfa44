// SPDX-License-Identifier: Apache-2.0
// A 64-bit kernel's side of VMI, by the convention of Alibi's ROM (docs/vmi.md).
#ifndef ALIBI_FROBOS_LIB_VMI_H_
#define ALIBI_FROBOS_LIB_VMI_H_

#include "frobos/common/vmi_calls.h"
#include "frobos/common/vmi_rom.h"
#include "frobos/lib/types.h"

namespace alibi::frobos {

// VMI_Init's and GetRelocationInfo's addresses; the ROM has entries for 64-bit kernels.
u64 VmiInitEntry(const VmiHeader* rom);
u64 VmiRelocationEntry(const VmiHeader* rom);

// Results of theirs.
u64 InitVmi(const VmiHeader* rom);
Relocation RelocationOf(const VmiHeader* rom, u64 call);

// Puts the whole kernel on VMI if there is a ROM with entries for it: its sites (privileged.h)
// become what the ROM answers. The kernel's start does so, unless the command line says vmi=no.
void RunOnVmi();
// The ROM that it is on; null: none.
const VmiHeader* KernelRom();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_VMI_H_
