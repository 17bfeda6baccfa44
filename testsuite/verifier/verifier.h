// SPDX-License-Identifier: Apache-2.0
// Verifies emitted code: a data-flow analysis over the host code of one CCF that proves, without
// looking at how it was made, what docs/safety.md claims of every access.
//
//  - Memory is reached through %gs, at places the contract knows, or at a host address that a
//    look-up gave for that very range: on every path to the access, for loads or for stores.
//  - The sequence of a look-up is complete: compare, branch, displacement of the same slot.
//  - No host address is left in a guest register, nor stored where the guest reads.
//  - Branches lead into the CCF, to stubs (with what these expect), to linked CCFs.
//  - Where an access faults, guest registers are as at the start of its instruction, and an access
//    without a look-up of its own says so.
//  - Nothing but computing instructions and those few that the emitter needs.
#ifndef ALIBI_TESTSUITE_VERIFIER_VERIFIER_H_
#define ALIBI_TESTSUITE_VERIFIER_VERIFIER_H_

#include <string>
#include <vector>

#include "translator/ccf.h"

namespace alibi::verifier {

// Complaints; none: the CCF is safe.
std::vector<std::string> Verify(const translator::Ccf& ccf, const StubTable& stubs);

}  // namespace alibi::verifier

#endif  // ALIBI_TESTSUITE_VERIFIER_VERIFIER_H_
