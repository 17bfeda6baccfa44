// SPDX-License-Identifier: Apache-2.0
// Liveness of the arithmetic flags: which of them must survive an inserted sequence.
//
// A flag is live when some path may read it before every path writes it. A fault in between shows
// the guest a flag image in which dead flags hold no particular value; they are written again
// before anything computes with them. Where that has happened to a guest that may have looked,
// its flags are kept exact: from then on all flags are live in front of that instruction.
#ifndef ALIBI_TRANSLATOR_FLAG_LIVENESS_H_
#define ALIBI_TRANSLATOR_FLAG_LIVENESS_H_

#include "base/types.h"
#include "isa/ir.h"
#include "translator/examined_code.h"

namespace alibi::translator {

// The instructions whose faults show the guest all flags as they are.
class ExactFlagSites {
 public:
  virtual ~ExactFlagSites() = default;
  virtual bool KeepsExactFlags(LinearAddr pc) const = 0;
};

// Readable code of one page around a TU, and how much of it was looked at.
struct CodeWindow {
  const u8* bytes = nullptr;  // of address `begin`
  LinearAddr begin;
  LinearAddr end;
  unsigned code_bits = 64;
  u32 code_base = 0;
  const isa::FeatureSet* shown = nullptr;       // as CodeRequest's
  const ExactFlagSites* exact_sites = nullptr;  // null: there are none
  LinearAddr examined_begin;
  LinearAddr examined_end;
  // The same, from `pc` on; null: nobody asks.
  ExaminedCode* examined = nullptr;
  LinearAddr pc{};
};

// The decoder knows linear PCs only: a near branch in a segment with a base wraps in the segment.
void FixBranchTarget(isa::Instr* instr, u32 code_base);

// The flags live in front of `instr`, given those live behind it.
u32 FlagsLiveBefore(const isa::Instr& instr, u32 live_after,
                    const ExactFlagSites* exact_sites = nullptr);

// The flags live at `pc`, looking at a few instructions inside the window; what cannot be seen
// is live. Widens the window's examined range.
u32 FlagsLiveAt(LinearAddr pc, CodeWindow* window);

// The flags live at the exits of a TU that ends with `last`.
u32 FlagsLiveAtExit(const isa::Instr& last, CodeWindow* window);

}  // namespace alibi::translator

#endif  // ALIBI_TRANSLATOR_FLAG_LIVENESS_H_
