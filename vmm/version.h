// SPDX-License-Identifier: Apache-2.0
#ifndef ALIBI_VMM_VERSION_H_
#define ALIBI_VMM_VERSION_H_

#include "alibi/version.h"

namespace alibi::vmm {

inline constexpr const char* kVersion = ALIBI_VERSION;

}  // namespace alibi::vmm

#endif  // ALIBI_VMM_VERSION_H_
