// SPDX-License-Identifier: Apache-2.0
#include "translator/flag_liveness.h"

#include <algorithm>

#include "isa/decode_templates.h"
#include "vcpu/state.h"

namespace alibi::translator {
namespace {

constexpr u32 kAll = static_cast<u32>(vcpu::kArithmeticFlags);

// Real code writes the flags within three or four instructions of a block's start, or not soon.
constexpr unsigned kLookAheadInstructions = 8;

bool ShowsAllFlags(const isa::Instr& instr) {
  return ShowsAllFlags(instr.treatment, InfoOf(instr.op));
}

// The flags of which nothing is left behind `instr`.
u32 FlagsKilled(const isa::Instr& instr) {
  return instr.flags_written_maybe ? 0 : instr.flags_written & ~instr.flags_kept_maybe;
}

// An arithmetic fault shows the flags, and is an ordinary event in programs. (A page fault shows
// them, too, but is repaired and forgotten.) 16-bit code is old or short, and its faults are those
// of segments: all of them show the flags exactly.
inline bool MayShowAllFlags(const isa::Instr& instr, const ExactFlagSites* exact_sites) {
  // Most instructions are IDENT, and have no name.
  const bool shows = instr.treatment == isa::Treatment::kIdent
                         ? instr.op != isa::Op::kNone && InfoOf(instr.op).Has(isa::kDivides)
                         : ShowsAllFlags(instr);
  return shows || instr.code_bits == 16 ||
         (exact_sites != nullptr && exact_sites->KeepsExactFlags(instr.pc));
}

}  // namespace

void FixBranchTarget(isa::Instr* instr, u32 code_base) {
  if (code_base == 0 || !instr->HasRelativeTarget()) return;
  u32 offset = static_cast<u32>(instr->next_pc().value + instr->immediate) - code_base;
  if (instr->operand_bits == 16) offset &= 0xffff;
  instr->branch_target = LinearAddr(static_cast<u32>(offset + code_base));
}

u32 FlagsLiveBefore(const isa::Instr& instr, u32 live_after, const ExactFlagSites* exact_sites) {
  if (MayShowAllFlags(instr, exact_sites)) return kAll;
  live_after &= ~FlagsKilled(instr);
  return live_after | instr.flags_read;
}

u32 FlagsLiveAt(LinearAddr pc, CodeWindow* window) {
  u32 live = 0;
  u32 undecided = kAll;
  isa::DecodeTemplates& templates = isa::DecodeTemplates::OfThread();
  isa::Instr instr;
  for (unsigned i = 0; i < kLookAheadInstructions && undecided != 0; ++i) {
    if (pc < window->begin || pc >= window->end) break;
    if (templates.Decode(window->bytes + (pc - window->begin),
                         static_cast<unsigned>(window->end - pc), pc, window->code_bits,
                         &instr) != isa::DecodeStatus::kOk) {
      break;
    }
    FixBranchTarget(&instr, window->code_base);
    if (window->shown != nullptr) isa::HideUnlessShown(*window->shown, &instr);
    window->examined_begin = std::min(window->examined_begin, pc);
    window->examined_end = std::max(window->examined_end, instr.next_pc());
    if (window->examined != nullptr) {
      const auto offset = static_cast<i64>(pc - window->pc);
      window->examined->NoteRange(offset, offset + instr.length);
      window->examined->Note(instr, offset);
    }
    if (MayShowAllFlags(instr, window->exact_sites)) break;
    live |= instr.flags_read & undecided;
    undecided &= ~instr.flags_read;
    undecided &= ~FlagsKilled(instr);
    if (instr.op == isa::Op::kJmp) {
      pc = instr.branch_target;
    } else if (instr.treatment == isa::Treatment::kControl) {
      break;
    } else {
      pc = instr.next_pc();
    }
  }
  return live | undecided;
}

u32 FlagsLiveAtExit(const isa::Instr& last, CodeWindow* window) {
  if (ShowsAllFlags(last)) return kAll;
  const isa::OpInfo& op = InfoOf(last.op);
  if (op.Has(isa::kJumps)) return FlagsLiveAt(last.branch_target, window);
  if (op.Has(isa::kBranches)) {
    const u32 live = FlagsLiveAt(last.branch_target, window);
    return live == kAll ? live : live | FlagsLiveAt(last.next_pc(), window);
  }
  return last.treatment == isa::Treatment::kControl ? kAll : FlagsLiveAt(last.next_pc(), window);
}

}  // namespace alibi::translator
