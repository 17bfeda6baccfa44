// SPDX-License-Identifier: Apache-2.0
// Tests that compare with the host's CPU say on standard output which CPU that is, and what they
// therefore could not check: once for each matter and process.
#ifndef ALIBI_TESTSUITE_HOST_CPU_H_
#define ALIBI_TESTSUITE_HOST_CPU_H_

#include <span>
#include <string>

#include "base/types.h"

namespace alibi::testsuite {

// "Intel, family 6, model 143, stepping 8: Intel(R) Xeon(R) Processor".
std::string DescribeHostCpu();

// Prints the above, the first time.
void AnnounceHostCpu();

// Returns `can`; says otherwise that `what` is not checked on this host, and what it needs.
bool CanCheck(bool can, const std::string& what, const std::string& needs);

// What the manuals reserve, the decoder takes for #UD, and this host runs: why that is, or null.
const char* RunsReservedEncoding(std::span<const u8> bytes);

// Does FXSAVE store the x87's pointers while no exception is pending? AMD's CPUs store zeros then,
// and XRSTOR loads these: without an exception the pointers last until the next task switch.
bool FxsaveAlwaysHasX87Pointers();

}  // namespace alibi::testsuite

#endif  // ALIBI_TESTSUITE_HOST_CPU_H_
