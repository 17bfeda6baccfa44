// SPDX-License-Identifier: Apache-2.0
// Native against translated: what must agree, and the few differences that translation may make.
#ifndef ALIBI_TESTSUITE_ORACLE_COMPARE_H_
#define ALIBI_TESTSUITE_ORACLE_COMPARE_H_

#include <string>
#include <vector>

#include "testsuite/oracle/guest_machine.h"
#include "testsuite/oracle/test_case.h"

namespace alibi::oracle {

// One line per difference ("* rax  native 0x1  alibi 0x2"); empty: they agree. Sequences that do
// not end on the native side agree with anything. `run`: how often this machine has run the same
// code before.
std::vector<std::string> Differences(const TestCase& test, Kind kind, const Outcome& native,
                                     const Outcome& guest, unsigned run);

// The arithmetic flags that the code may still read at `pc`.
u64 LiveFlagsAt(const CodeImage& code, u64 pc, u16 cs);

// The masked differences and why they are allowed, for reports.
std::string MaskTable();

}  // namespace alibi::oracle

#endif  // ALIBI_TESTSUITE_ORACLE_COMPARE_H_
