// SPDX-License-Identifier: Apache-2.0
// Every instruction that the decoder knows: its encodings, and how each code size treats it.
#ifndef ALIBI_TESTSUITE_COVERAGE_INVENTORY_H_
#define ALIBI_TESTSUITE_COVERAGE_INVENTORY_H_

#include <array>
#include <string>
#include <vector>

#include "isa/features.h"
#include "isa/ir.h"
#include "testsuite/coverage/opcode_space.h"

namespace alibi::coverage {

struct InventoryRow {
  std::string section;
  std::string mnemonic;
  std::string encodings;
  std::array<std::string, 3> modes;  // of 64-, 32- and 16-bit code: treatment and op, #UD, or "-"
  isa::Feature feature = isa::Feature::kBase;
  bool defined = false;   // not #UD in some mode
  bool ident = false;     // IDENT in all modes that have it
  bool compared = false;  // every_encoding_test runs it here
};

// Plain IDENT, and its result depends on nothing but the state: every_encoding_test runs it on the
// host and in all translation kinds.
bool ComparesWithHost(const isa::Instr& instr);

// The opcode of an encoding: "0F 58", and the prefix that selects it: "66", "VEX.66".
struct OpcodeName {
  std::string prefix, opcode;
};
OpcodeName OpcodeOf(const isa::Instr& instr, const InstructionBytes& bytes);

// By section, then by name. What depends on the host's vendor is left out.
std::vector<InventoryRow> TakeInventory();

}  // namespace alibi::coverage

#endif  // ALIBI_TESTSUITE_COVERAGE_INVENTORY_H_
