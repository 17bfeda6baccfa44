// SPDX-License-Identifier: Apache-2.0
// What a host trap costs here: a policy weighs it against callouts and retranslations.
#ifndef ALIBI_RUNTIME_TRAP_PRICE_H_
#define ALIBI_RUNTIME_TRAP_PRICE_H_

#include "base/types.h"

namespace alibi::runtime {

// TSC cycles of a SIGSEGV and the return from its handler: the median of a few dozen, measured on
// the first call, which takes well under a millisecond. Any thread.
u32 TrapPrice();

}  // namespace alibi::runtime

#endif  // ALIBI_RUNTIME_TRAP_PRICE_H_
