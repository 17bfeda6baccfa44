// SPDX-License-Identifier: Apache-2.0
// Listings of guest code, IR and emitted code.
#ifndef ALIBI_TESTSUITE_ORACLE_LISTING_H_
#define ALIBI_TESTSUITE_ORACLE_LISTING_H_

#include <span>
#include <string>
#include <vector>

#include "abi/callouts.h"
#include "testsuite/oracle/test_case.h"
#include "translator/ccf.h"

namespace alibi::oracle {

// "10000100  48 01 d8        ADD RAX, RBX", one line per instruction.
std::string ListGuest(std::span<const u8> bytes, u64 pc, unsigned code_bits = 64);
std::string ListGuest(const TestCase& test);
// The IR of a translation: treatment, plan, operands, flags.
std::string ListIr(const translator::Ccf& ccf);
// Emitted bytes through Capstone, with their addresses.
std::string ListHost(const translator::Ccf& ccf);
// The same for golden files: see testsuite/emitted_code/stable_listing.h.
std::string ListStable(const translator::Ccf& ccf, const StubTable& stubs);

}  // namespace alibi::oracle

#endif  // ALIBI_TESTSUITE_ORACLE_LISTING_H_
