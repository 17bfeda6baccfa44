// SPDX-License-Identifier: Apache-2.0
// What the host has and what the guest is shown, by feature.
#ifndef ALIBI_TESTSUITE_COVERAGE_FEATURES_H_
#define ALIBI_TESTSUITE_COVERAGE_FEATURES_H_

#include "isa/features.h"

namespace alibi::coverage {

// The host's own CPUID.
bool HostHas(isa::Feature feature);
// CPUID as a guest in 64-bit mode sees it.
bool GuestIsShown(isa::Feature feature);

// Says for each feature that the host lacks that `what` of it is not compared.
void SayWhatHostLacks(const char* what);

}  // namespace alibi::coverage

#endif  // ALIBI_TESTSUITE_COVERAGE_FEATURES_H_
