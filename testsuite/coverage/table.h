// SPDX-License-Identifier: Apache-2.0
// docs/coverage.md: how every instruction is treated, how that is tested, and how often.
#ifndef ALIBI_TESTSUITE_COVERAGE_TABLE_H_
#define ALIBI_TESTSUITE_COVERAGE_TABLE_H_

#include <string>
#include <vector>

#include "base/types.h"
#include "testsuite/coverage/inventory.h"

namespace alibi::coverage {

// Of one instruction.
struct Tested {
  u64 forms = 0;             // the oracle's forms of it
  std::array<u64, 3> run{};  // how often the sequences have it, in 64-, 32- and 16-bit code
  std::string elsewhere;     // tests and FrobOS kernels that name it, or why there are none
};

// What generated sequences and the sources of tests say; `root` is the source tree.
std::vector<Tested> CountTests(const std::vector<InventoryRow>& rows, u64 sequences,
                               const std::string& root);

std::string RenderTable(const std::vector<InventoryRow>& rows, const std::vector<Tested>& tested,
                        u64 sequences);

// The part of a row that does not change with every new test.
std::string RowHead(const InventoryRow& row);

}  // namespace alibi::coverage

#endif  // ALIBI_TESTSUITE_COVERAGE_TABLE_H_
