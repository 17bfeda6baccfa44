// SPDX-License-Identifier: Apache-2.0
// Which instructions translated code may contain at all.
#ifndef ALIBI_TESTSUITE_VERIFIER_ALLOWED_H_
#define ALIBI_TESTSUITE_VERIFIER_ALLOWED_H_

#include <Zydis/Zydis.h>

#include <span>

namespace alibi::verifier {

bool IsAllowed(const ZydisDecodedInstruction& z, std::span<const ZydisDecodedOperand> operands);

}  // namespace alibi::verifier

#endif  // ALIBI_TESTSUITE_VERIFIER_ALLOWED_H_
