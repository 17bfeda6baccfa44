// SPDX-License-Identifier: Apache-2.0
// Verdicts on probes: see frobos/common/check.h for the rest.
#ifndef ALIBI_FROBOS_LIB_CHECK_H_
#define ALIBI_FROBOS_LIB_CHECK_H_

#include "frobos/common/check.h"
#include "frobos/lib/trap.h"
#include "frobos/lib/types.h"

namespace alibi::frobos {

// The outcome must be this exception with this error code, at rip (0: any).
void CheckFault(const char* name, const Outcome& outcome, u8 vector, u64 error = 0, u64 rip = 0);
// The code must have run to its end.
void CheckDone(const char* name, const Outcome& outcome);

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_LIB_CHECK_H_
