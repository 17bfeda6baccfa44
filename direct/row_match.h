// SPDX-License-Identifier: Apache-2.0
// Comparing bytes with a row of host_visible.inc.
#ifndef ALIBI_DIRECT_ROW_MATCH_H_
#define ALIBI_DIRECT_ROW_MATCH_H_

#include "base/types.h"
#include "direct/host_visible.h"

namespace alibi::direct {

// Known bytes; what lies behind `size` could be anything.
struct CodeBytes {
  const u8* bytes;
  unsigned size;
  unsigned code_bits;  // 64 or 32
};

enum class RowMatch : u8 {
  kNo,
  kYes,
  kCut,  // as far as the bytes are known
};

// Would it be an instruction of the row, if one began at `start` with prefixes only, and its opcode
// (with its escape, VEX or EVEX prefix) at `opcode`? hidden: what decides for rows that depend on
// features.
RowMatch MatchRow(const HostVisibleRow& row, const CodeBytes& code, unsigned start, unsigned opcode,
                  const FeatureList& hidden);

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_ROW_MATCH_H_
