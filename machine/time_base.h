// SPDX-License-Identifier: Apache-2.0
// From the host's TSC to the time that has passed for the guest.
#ifndef ALIBI_MACHINE_TIME_BASE_H_
#define ALIBI_MACHINE_TIME_BASE_H_

#include "base/types.h"

namespace alibi::vmm {

struct TimeBase {
  u64 origin_tsc = 0;  // when the machine was made, later by every stop for a debugger
  u64 hz = 1;

  u64 Ns(u64 tsc) const {
    return static_cast<u64>(static_cast<unsigned __int128>(tsc - origin_tsc) * 1'000'000'000 / hz);
  }
};

}  // namespace alibi::vmm

#endif  // ALIBI_MACHINE_TIME_BASE_H_
