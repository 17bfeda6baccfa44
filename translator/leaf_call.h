// SPDX-License-Identifier: Apache-2.0
// Calls of functions that are hardly more than their return, such as a VMI ROM's for the interrupt
// flag: the CALL's translation does what the function would have done.
//
// That is right as long as the jump table leads to the translation that was looked at. The CALL
// asks there first: whatever makes jumps look again (another mapping, other bytes, another mode)
// makes the CALL a jump again as well.
#ifndef ALIBI_TRANSLATOR_LEAF_CALL_H_
#define ALIBI_TRANSLATOR_LEAF_CALL_H_

#include "base/types.h"
#include "isa/ir.h"
#include "translator/ccf.h"

namespace alibi::translator {

// May calls in this mode be made part of the caller?
constexpr bool InlinesLeaves(const CodeMode& mode) {
  return mode.code_bits != 16 && mode.UsesJumpTable() && !mode.user && !mode.single &&
         !mode.simulate && !mode.careful;
}

// Is it one instruction and RET, or RET alone? The instruction neither faults nor touches memory,
// the stack pointer or the arithmetic flags.
bool IsLeaf(const Ccf& ccf);

// Of such a one, to which the jump table's `entry` leads.
LeafCall LeafOf(const Ccf& ccf, HostAddr entry);

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_LEAF_CALL_H_
