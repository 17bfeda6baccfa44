// SPDX-License-Identifier: Apache-2.0
// The instructions of the golden files, for tests that emit them in other ways.
#ifndef ALIBI_TESTSUITE_EMITTED_CODE_GOLDEN_CASES_H_
#define ALIBI_TESTSUITE_EMITTED_CODE_GOLDEN_CASES_H_

#include <string>
#include <vector>

#include "base/types.h"

namespace alibi::testsuite {

struct GoldenCase {
  std::string line;  // as the file has it
  std::vector<u8> bytes;
  bool user = false;
};

// Those of 64-bit code, and an operand with half of a PC.
std::vector<GoldenCase> GoldenCases();

}  // namespace alibi::testsuite

#endif  // ALIBI_TESTSUITE_EMITTED_CODE_GOLDEN_CASES_H_
