// SPDX-License-Identifier: Apache-2.0
// A kernel's side of VMI, the paravirtual interface that a ROM offers: finds the ROM as Linux does,
// asks it where its calls lead, and makes them by call sites that it patches (docs/vmi.md).
#ifndef ALIBI_FROBOS_LIB32_VMI_H_
#define ALIBI_FROBOS_LIB32_VMI_H_

#include "frobos/common/vmi_calls.h"
#include "frobos/common/vmi_rom.h"
#include "frobos/lib32/machine.h"

namespace alibi::frobos {

// VMI_Init's result.
u32 InitVmi(const VmiHeader* rom);
// GetRelocationInfo's answer for any number; and how a call of it ends that began with marks in the
// registers it has to keep.
Relocation RelocationOf(const VmiHeader* rom, u32 call);
Outcome RunRelocationInfo(const VmiHeader* rom, u32 call);

// Makes the call at a site: with these registers, and words on the stack from the lowest address.
// `esp` of the outcome shows the words still there.
u32 VmiSite();
Outcome CallVmi(Relocation to, Frame frame, const u32* words = nullptr, u32 count = 0);

// Puts the whole kernel on VMI if there is a ROM: the library's and the kernel's own privileged
// instructions (privileged.h) become what the ROM answers for them. Without a ROM the kernel keeps
// its instructions; that is a failed check if the command line says rom=yes. To be called once,
// without paging, before anything else. The probes of tests are as they were: what they execute is
// what they test.
void RunOnVmi();
// Whether the kernel is on VMI, and the ROM has its timer.
bool OnVmi();
bool HasVmiTimer();
// What the kernel's own call of this number leads to; OnVmi() only.
Relocation KernelRelocation(u32 call);

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB32_VMI_H_
