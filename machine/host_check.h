// SPDX-License-Identifier: Apache-2.0
// Can this host run translated code?
#ifndef ALIBI_MACHINE_HOST_CHECK_H_
#define ALIBI_MACHINE_HOST_CHECK_H_

#include "base/result.h"
#include "base/types.h"

namespace alibi::vmm {

struct HostFeatures {
  bool bmi2 = false;                  // flag-free shifts and bit extraction
  bool lahf = false;                  // LAHF/SAHF in 64-bit mode
  bool avx = false;                   // and the system saves its state
  bool fsgsbase = false;              // the system lets user code write the gs base (Linux 5.9)
  u64 address_space_limit = ~u64{0};  // RLIMIT_AS
};

HostFeatures ReadHostFeatures();

// One line about the first thing that is missing.
Status CheckHost(const HostFeatures& host);

}  // namespace alibi::vmm

#endif  // ALIBI_MACHINE_HOST_CHECK_H_
