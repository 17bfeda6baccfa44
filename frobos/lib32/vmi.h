// SPDX-License-Identifier: Apache-2.0
// A kernel's side of VMI, the paravirtual interface that a ROM offers: finds the ROM as Linux does,
// asks it where its calls lead, and makes them by call sites that it patches (docs/vmi.md).
#ifndef ALIBI_FROBOS_LIB32_VMI_H_
#define ALIBI_FROBOS_LIB32_VMI_H_

#include "frobos/lib32/machine.h"

namespace alibi::frobos {

enum VmiCall : u32 {
  kVmiCpuid = 0,
  kVmiWrmsr,
  kVmiRdmsr,
  kVmiSetGdt,
  kVmiSetLdt,
  kVmiSetIdt,
  kVmiSetTr,
  kVmiGetGdt,
  kVmiGetLdt,
  kVmiGetIdt,
  kVmiGetTr,
  kVmiWriteGdtEntry,
  kVmiWriteLdtEntry,
  kVmiWriteIdtEntry,
  kVmiUpdateKernelStack,
  kVmiSetCr0,
  kVmiSetCr2,
  kVmiSetCr3,
  kVmiSetCr4,
  kVmiGetCr0,
  kVmiGetCr2,
  kVmiGetCr3,
  kVmiGetCr4,
  kVmiWbinvd,
  kVmiSetDr,
  kVmiGetDr,
  kVmiRdpmc,
  kVmiRdtsc,
  kVmiClts,
  kVmiEnableInterrupts,
  kVmiDisableInterrupts,
  kVmiGetInterruptMask,
  kVmiSetInterruptMask,
  kVmiIret,
  kVmiSysexit,
  kVmiHalt,
  kVmiReboot,
  kVmiShutdown,
  kVmiSetPxe,
  kVmiSetPxeLong,
  kVmiUpdatePxe,
  kVmiUpdatePxeLong,
  kVmiMachineToPhysical,
  kVmiPhysicalToMachine,
  kVmiAllocatePage,
  kVmiReleasePage,
  kVmiInvalPage,
  kVmiFlushTlb,
  kVmiSetLinearMapping,
  kVmiSetIoplMask = 61,
  kVmiSetInitialApState,
  kVmiApicWrite,
  kVmiApicRead,
  kVmiIoDelay,
  kVmiGetCycleFrequency,
  kVmiGetCycleCounter,
  kVmiSetAlarm,
  kVmiCancelAlarm,
  kVmiGetWallclockTime,
  kVmiWallclockUpdated,
  kVmiSetLazyMode = 73,
  kVmiCalls
};

struct [[gnu::packed]] VmiHeader {
  u16 signature;
  u8 blocks;
  u8 entry16[4];
  u8 pad;
  u32 vmi_signature;
  u8 minor, major, slots, reserved0;
  u32 virtual_top;
  u16 reserved1, licence, pci, pnp;
};

struct Relocation {
  enum Type : u8 { kNone, kCall, kJump, kNop };
  Type type;
  u32 address;
  bool operator==(const Relocation&) const = default;
};

// The ROM, where physical memory is at its own addresses; null: there is none.
const VmiHeader* FindVmi();
// VMI_Init's result.
u32 InitVmi(const VmiHeader* rom);
// GetRelocationInfo's answer for any number; and how a call of it ends that began with marks in the
// registers it has to keep.
Relocation RelocationOf(const VmiHeader* rom, u32 call);
Outcome RunRelocationInfo(const VmiHeader* rom, u32 call);

// What a site becomes for that answer: five bytes. For kNone they stay as they are.
void PatchSite(void* site, Relocation to);

// Makes the call at a site: with these registers, and words on the stack from the lowest address.
// `esp` of the outcome shows the words still there.
constexpr u32 kVmiSiteBytes = 5;
u32 VmiSite();
Outcome CallVmi(Relocation to, Frame frame, const u32* words = nullptr, u32 count = 0);

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB32_VMI_H_
