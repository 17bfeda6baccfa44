// SPDX-License-Identifier: Apache-2.0
// encodings.inc, parsed.
#ifndef ALIBI_TESTSUITE_ORACLE_ENCODINGS_H_
#define ALIBI_TESTSUITE_ORACLE_ENCODINGS_H_

#include <string>
#include <vector>

#include "base/types.h"

namespace alibi::oracle {

enum class Size : u8 { kByte, kAny, kDoubleOrQuad, kStack, kNone };
enum class Space : u8 { kLegacy, kVex, kEvex };
enum class Bank : u8 { kGpr, kXmm, kMmx, kMask };
enum class Immediate : u8 { kNone, kByte, kWord, kUpTo4, kFull };

struct InstructionForm {
  std::string name;
  Size size = Size::kNone;
  Space space = Space::kLegacy;
  u8 vector_length = 0;     // VEX, EVEX: L
  bool any_length = false;  // L may be chosen
  bool uses_vvvv = true;    // VEX, EVEX
  u8 map = 1;               // VEX, EVEX
  u8 prefix = 0;            // 0, 66, F2, F3
  int wide = -1;            // REX.W, VEX.W: -1 by size
  std::vector<u8> opcode;   // legacy: with 0F escapes
  bool modrm = false;
  bool reg_in_opcode = false;
  int extension = -1;  // ModRM.reg; -1: a register
  bool memory_only = false, register_only = false;
  std::vector<u8> tail;  // fixed bytes behind the immediate
  Immediate immediate = Immediate::kNone;
  Bank reg = Bank::kGpr, rm = Bank::kGpr;
  bool lock = false, maybe = false, user = false, align = false, rare = false, narrow = false;
};

const std::vector<InstructionForm>& InstructionForms();

}  // namespace alibi::oracle

#endif  // ALIBI_TESTSUITE_ORACLE_ENCODINGS_H_
