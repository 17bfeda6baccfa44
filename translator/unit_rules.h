// SPDX-License-Identifier: Apache-2.0
// Which instructions CR0, CR4 and XCR0 make #UD or #NM: the rules in force, as bits of CodeMode.
//
// They are baked into translations, because operating systems set them once; a guest that saves
// vector state lazily (CR0.TS) has two translations of its code.
#ifndef ALIBI_TRANSLATOR_UNIT_RULES_H_
#define ALIBI_TRANSLATOR_UNIT_RULES_H_

#include "base/types.h"
#include "isa/ir.h"
#include "vcpu/fault.h"
#include "vcpu/state.h"

namespace alibi::translator {

enum UnitRule : u8 {
  kTaskSwitched = 1 << 0,  // CR0.TS
  kEmulation = 1 << 1,     // CR0.EM
  kWaitTraps = 1 << 2,     // CR0.TS and CR0.MP
  kNoSse = 1 << 3,         // CR4.OSFXSR clear
  kNoXsave = 1 << 4,       // CR4.OSXSAVE clear
  kNoAvx = 1 << 5,         // XCR0 without SSE or AVX state
  kNoAvx512 = 1 << 6,      // ... or without the three AVX-512 components
  kNoVex = 1 << 7,         // real or virtual-8086 mode: VEX and EVEX are not known there
};

constexpr u8 UnitRules(const vcpu::VcpuState& state) {
  constexpr u64 kXcr0Avx = 0x6, kXcr0Avx512 = 0xe6;
  const bool switched = state.cr0 & vcpu::kCr0Ts;
  unsigned rules = switched ? kTaskSwitched : 0;
  if (state.cr0 & vcpu::kCr0Em) rules |= kEmulation;
  if (switched && (state.cr0 & vcpu::kCr0Mp)) rules |= kWaitTraps;
  if (!(state.cr4 & vcpu::kCr4Osfxsr)) rules |= kNoSse;
  if (!(state.cr4 & vcpu::kCr4Osxsave)) rules |= kNoXsave;
  if ((state.xcr0 & kXcr0Avx) != kXcr0Avx) rules |= kNoAvx;
  if ((state.xcr0 & kXcr0Avx512) != kXcr0Avx512) rules |= kNoAvx512;
  if (!(state.cr0 & vcpu::kCr0Pe) || (state.system_flags & vcpu::kVm)) rules |= kNoVex;
  return static_cast<u8>(rules);
}

// The exception that an instruction of the unit raises, or kUnitUsable.
inline constexpr u8 kUnitUsable = 0xff;

constexpr u8 UnitFault(isa::Unit unit, u8 rules) {
  struct Row {
    u8 undefined;      // any of these rules: #UD
    u8 not_available;  // otherwise any of these: #NM
  };
  constexpr Row kRows[] = {
      {0, 0},                                                   // kNone
      {0, kEmulation | kTaskSwitched},                          // kX87
      {0, kWaitTraps},                                          // kWait
      {0, kEmulation | kTaskSwitched},                          // kFxsave
      {kEmulation, kTaskSwitched},                              // kMmx
      {kEmulation | kNoSse, kTaskSwitched},                     // kSse
      {kNoVex | kNoXsave | kNoAvx, kTaskSwitched},              // kAvx
      {kNoVex | kNoXsave | kNoAvx | kNoAvx512, kTaskSwitched},  // kAvx512
      {kNoVex, 0},                                              // kVexGpr
      {kNoXsave, kTaskSwitched},                                // kXsave
  };
  static_assert(sizeof(kRows) / sizeof(kRows[0]) == static_cast<unsigned>(isa::Unit::kCount));
  const Row& row = kRows[static_cast<unsigned>(unit)];
  if (rules & row.undefined) return vcpu::kInvalidOpcode;
  return rules & row.not_available ? u8{vcpu::kDeviceNotAvailable} : kUnitUsable;
}

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_UNIT_RULES_H_
