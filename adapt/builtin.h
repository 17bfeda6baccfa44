// SPDX-License-Identifier: Apache-2.0
// The built-in policies' makers; MakePolicy() finds them by name.
#ifndef ALIBI_ADAPT_BUILTIN_H_
#define ALIBI_ADAPT_BUILTIN_H_

#include <memory>

#include "adapt/policy.h"

namespace alibi::adapt {

using MakeBuiltin = std::unique_ptr<Policy>(const u32* numbers);

MakeBuiltin MakeNever, MakeAlways;
MakeBuiltin MakeThreshold;   // guilty events
MakeBuiltin MakeHysteresis;  // guilty events, clean callouts, window in 1,000 TSC cycles (0: none)
MakeBuiltin MakeCostModel;
MakeBuiltin MakeTwoLevel;  // guilty events, clean callouts, convictions per page

}  // namespace alibi::adapt

#endif  // ALIBI_ADAPT_BUILTIN_H_
