// SPDX-License-Identifier: Apache-2.0
// A guest fault is an architectural value, never an error of ours.
#ifndef ALIBI_VCPU_FAULT_H_
#define ALIBI_VCPU_FAULT_H_

#include "base/types.h"

namespace alibi::vcpu {

enum Vector : u8 {
  kDivideError = 0,
  kDebug = 1,
  kNmi = 2,
  kBreakpoint = 3,
  kOverflow = 4,
  kBoundRange = 5,
  kInvalidOpcode = 6,
  kDeviceNotAvailable = 7,
  kDoubleFault = 8,
  kInvalidTss = 10,
  kSegmentNotPresent = 11,
  kStackFault = 12,
  kGeneralProtection = 13,
  kPageFault = 14,
  kX87Error = 16,
  kAlignmentCheck = 17,
  kMachineCheck = 18,
  kSimdError = 19
};

// #PF error code bits (SDM vol. 3, 4.7).
inline constexpr u32 kPfPresent = 1, kPfWrite = 2, kPfUser = 4, kPfReserved = 8, kPfFetch = 16;

struct GuestFault {
  u8 vector = 0;
  bool has_error_code = false;
  u32 error_code = 0;
  u64 cr2 = 0;  // meaningful for #PF only

  static constexpr GuestFault Simple(Vector v) { return {v, false, 0, 0}; }
  static constexpr GuestFault WithCode(Vector v, u32 code) { return {v, true, code, 0}; }
  static constexpr GuestFault Page(LinearAddr address, u32 code) {
    return {kPageFault, true, code, address.value};
  }
  constexpr bool operator==(const GuestFault&) const = default;
};

}  // namespace alibi::vcpu

#endif  // ALIBI_VCPU_FAULT_H_
