// SPDX-License-Identifier: Apache-2.0
// The opcode space, walked systematically: every opcode of every map with the prefixes, ModRM bytes
// and VEX and EVEX fields that decide what it is.
#ifndef ALIBI_TESTSUITE_COVERAGE_OPCODE_SPACE_H_
#define ALIBI_TESTSUITE_COVERAGE_OPCODE_SPACE_H_

#include <array>
#include <functional>

#include "base/types.h"

namespace alibi::coverage {

using InstructionBytes = std::array<u8, 15>;  // what follows the instruction is zero

enum class Depth : u8 {
  kShort,  // a ModRM byte per extension and form, few prefixes: about 100,000 per mode
  kFull,   // all ModRM bytes, all combinations of prefixes and fields: some 10 million per mode
};

// `visit` returns false when the rest of this opcode's ModRM bytes is of no interest (it has none).
using Visitor = std::function<bool(const InstructionBytes& bytes, unsigned significant)>;

void WalkLegacy(unsigned code_bits, Depth depth, const Visitor& visit);
void WalkVex(unsigned code_bits, Depth depth, const Visitor& visit);
void WalkEvex(unsigned code_bits, Depth depth, const Visitor& visit);

}  // namespace alibi::coverage

#endif  // ALIBI_TESTSUITE_COVERAGE_OPCODE_SPACE_H_
