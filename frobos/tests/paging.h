// SPDX-License-Identifier: Apache-2.0
// The parts of the paging kernel.
#ifndef ALIBI_FROBOS_TESTS_PAGING_H_
#define ALIBI_FROBOS_TESTS_PAGING_H_

namespace alibi::frobos {

// paging_permutations.cc: all rights of leaf and parent, against all kinds of access.
void TestPermutations();
// paging_crossing.cc: accesses over two pages that are no physical neighbours.
void TestCrossing();

}  // namespace alibi::frobos

#endif  // ALIBI_FROBOS_TESTS_PAGING_H_
