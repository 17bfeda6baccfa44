// SPDX-License-Identifier: Apache-2.0
// What lies at a %gs displacement, in words: for listings of emitted code.
#ifndef ALIBI_ABI_GS_NAMES_H_
#define ALIBI_ABI_GS_NAMES_H_

#include <string>

#include "base/types.h"

namespace alibi {

// After abi/contract.h: "vcpu.r10", "load_slot[3].neg_page", "jump_table[0x12]". `index` is the
// operand's index part, such as "r10*8", or "".
std::string NameGsOperand(const std::string& index, i64 displacement);

}  // namespace alibi

#endif  // ALIBI_ABI_GS_NAMES_H_
