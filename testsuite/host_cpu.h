// SPDX-License-Identifier: Apache-2.0
// Tests that compare with the host's CPU say on standard output which CPU that is, and what they
// therefore could not check: once for each matter and process.
#ifndef ALIBI_TESTSUITE_HOST_CPU_H_
#define ALIBI_TESTSUITE_HOST_CPU_H_

#include <string>

namespace alibi::testsuite {

// "Intel, family 6, model 143, stepping 8: Intel(R) Xeon(R) Processor".
std::string DescribeHostCpu();

// Prints the above, the first time.
void AnnounceHostCpu();

// Returns `can`; says otherwise that `what` is not checked on this host, and what it needs.
bool CanCheck(bool can, const std::string& what, const std::string& needs);

}  // namespace alibi::testsuite

#endif  // ALIBI_TESTSUITE_HOST_CPU_H_
