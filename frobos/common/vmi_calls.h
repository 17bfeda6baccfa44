// SPDX-License-Identifier: Apache-2.0
// The numbers of VMI's calls (docs/vmi.md has each one's registers).
#ifndef ALIBI_FROBOS_COMMON_VMI_CALLS_H_
#define ALIBI_FROBOS_COMMON_VMI_CALLS_H_

#include "frobos/common/types.h"

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
  kVmiCalls,
  // 64-bit kernels' own.
  kVmiSysret = kVmiSysexit,
  kVmiSetCr8 = 74,
  kVmiGetCr8,
  kVmiSwapgs,
  kVmiCalls64
};

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_COMMON_VMI_CALLS_H_
