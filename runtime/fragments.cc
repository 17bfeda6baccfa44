// SPDX-License-Identifier: Apache-2.0
#include "runtime/fragments.h"

#include "abi/contract.h"
#include "base/raw_copy.h"
#include "translator/entry_check.h"

namespace alibi::runtime {

using translator::ExitKind;
using translator::kNoPage;

namespace {

constexpr u8 kJumpBytes = 5;  // jmp rel32

const u8* CodeAt(HostAddr host) { return host.As<const u8>(); }

// Also where it has only looked whether flags are needed.
bool DependsOnBreakpoint(const translator::Ccf& ccf, const DebugPoints& points) {
  const u64 moved = ccf.Pc() - ccf.pc;
  return points.AnyBreakpointIn(ccf.examined_begin + moved, ccf.examined_end - ccf.examined_begin);
}

void AddIncoming(translator::ExitDesc* exit, translator::Ccf* target) {
  exit->linked = target;
  exit->next_incoming = target->incoming;
  target->incoming = exit;
}

}  // namespace

void Fragments::PatchJump(HostAddr at, u8 length, HostAddr target) {
  const i32 rel = static_cast<i32>(target - (at + length));
  if (length == 6) {  // of a conditional jump, which it stays
    tc_->Write(at + 2, &rel, 4);
    return;
  }
  u8 jump[kJumpBytes] = {0xe9};
  __builtin_memcpy(jump + 1, &rel, 4);
  tc_->Write(at, jump, kJumpBytes);
}

// --- Links ---

void Fragments::Chain(ExitDesc* exit, Ccf* target) {
  if (exit->kind != ExitKind::kDirect || exit->linked != nullptr || !IsCurrent(*exit->ccf) ||
      exit->ccf->mode.single || target->phys_page2 != kNoPage ||
      target->mapping != exit->ccf->mapping) {
    return;
  }
  PatchJump(exit->patch, exit->patch_length, target->entry);
  AddIncoming(exit, target);
  ++counters_.chained_exits;
}

void Fragments::Unchain(ExitDesc* exit) {
  if (exit->linked == nullptr) return;
  for (ExitDesc** link = &exit->linked->incoming; *link != nullptr;
       link = &(*link)->next_incoming) {
    if (*link == exit) {
      *link = exit->next_incoming;
      break;
    }
  }
  exit->linked = nullptr;
  exit->next_incoming = nullptr;
  // An elided exit has no jump: its successor's entry has been redirected instead.
  if (!exit->elided) PatchJump(exit->patch, exit->patch_length, exit->stub);
}

void Fragments::Unlink(HostAddr at, u8 length, HostAddr target) {
  UnlinkedExit& exit = unlinked_exits_[unlinked_exit_count_++];
  exit.at = at;
  exit.length = length;
  for (unsigned i = 0; i < length; ++i) exit.bytes[i] = CodeAt(at)[i];
  PatchJump(at, length, target);
}

void Fragments::UnlinkExits(Ccf* ccf) {
  if (unlinked_exit_count_ + ccf->exits().size() > kMaxUnlinkedExits) return;
  for (unsigned i = 0; i < unlinked_exit_count_; ++i) {
    const HostAddr at = unlinked_exits_[i].at;
    if (at >= ccf->hot_start && at < ccf->hot_end) return;  // done already
  }
  for (ExitDesc* exit : ccf->exits()) {
    if (exit->kind != ExitKind::kDirect) {
      Unlink(exit->patch, kJumpBytes, stubs_.at(Callout::kStop));
    } else if (exit->elided && exit->linked != nullptr) {
      Unlink(exit->linked->entry, kJumpBytes, exit->stub);
    } else if (exit->linked != nullptr) {  // else it goes to its stub anyway
      Unlink(exit->patch, exit->patch_length, exit->stub);
    }
  }
  ++counters_.async_stops;
}

void Fragments::RelinkExits() {
  while (unlinked_exit_count_ > 0) {
    const UnlinkedExit& exit = unlinked_exits_[--unlinked_exit_count_];
    tc_->Write(exit.at, exit.bytes, exit.length);
  }
}

HostAddr Fragments::IndirectEntry(Ccf* ccf) {
  if (ccf->indirect_entry) return ccf->indirect_entry;
  constexpr u32 kBytes = translator::kMaxEntryCheckBytes + kJumpBytes;
  const HostAddr host = tc_->AllocateCold(kBytes);
  if (!host) return {};
  u8 check[kBytes];
  tc_->Write(host, check,
             translator::WriteIndirectEntry(ccf->pc, ccf->flags_live_in, ccf->entry,
                                            stubs_.entry_miss, host, check));
  ccf->indirect_entry = host;
  return host;
}

// --- Coming ---

bool Fragments::DropJump(ExitDesc* exit, LinearAddr pc, PhysPage phys_page) {
  if (exit->kind != ExitKind::kDirect || exit->linked != nullptr || !IsCurrent(*exit->ccf) ||
      exit->patch_length != kJumpBytes || exit->target != pc ||
      exit->patch + kJumpBytes != tc_->hot_next() || exit->ccf->phys_page != phys_page ||
      exit->patch < exit->ccf->entry + translator::kEntryBytes) {
    return false;
  }
  tc_->TrimHot(kJumpBytes);
  exit->ccf->hot_end -= kJumpBytes;
  return true;
}

void Fragments::Elide(ExitDesc* exit, Ccf* successor) {
  exit->elided = true;
  AddIncoming(exit, successor);
  ++counters_.elided_exits;
}

Fragments::Replaced Fragments::Add(Ccf* ccf) {
  if (Ccf* given_up = tc_->index().Add(ccf)) GiveUp(given_up);
  return ForwardReplaced(ccf);
}

// Predecessors fall into some of those that `to` replaces.
Fragments::Replaced Fragments::ForwardReplaced(Ccf* to) {
  auto replaced = Replaced::kNothing;
  const CodeIndex& index = tc_->index();
  for (Ccf* old = index.Newest(to->pc, to->phys_page, to->mode); old != nullptr; old = old->older) {
    index.CountSteps(1);
    if (old == to || IsCurrent(*old)) continue;
    RedirectEntry(old, to->entry);
    if (old->forwards) continue;  // to another one so far
    old->forwards = true;
    if (replaced == Replaced::kNothing) {
      replaced = old->retired ? Replaced::kRetired : Replaced::kOverwritten;
    }
    if (old->valid) listener_.CodeReplaced(*old, *to);
    // Nobody is in it while this runs, and nobody gets in. The list of the CCFs that depend on its
    // page drops it for that: the list would otherwise grow with every change of a verdict.
    if (old->retired) old->valid = false;
  }
  counters_.index_steps = index.steps();
  return replaced;
}

// The index has given this version up, so that it will never be forwarded again: who still enters
// it goes on where the first version leads.
void Fragments::GiveUp(Ccf* ccf) {
  if (IsCurrent(*ccf)) return;  // of an instruction that crosses into this page or that one
  RedirectEntry(ccf, tc_->index().First(*ccf)->entry);
  ccf->forwards = true;
  ccf->valid = false;
}

u64 Fragments::ContentHash(const Ccf& ccf, const u8* page) {
  return TranslationCache::HashBytes(page + (ccf.examined_begin - ccf.pc.PageBase()),
                                     ccf.examined_end - ccf.examined_begin);
}

// Kernels patch code and patch it back (text_poke's INT3 among others): the old translation still
// lies in the TC, with its sites as they were adapted.
Fragments::Ccf* Fragments::Revive(LinearAddr pc, PhysPage phys_page, const CodeMode& mode,
                                  const u8* page, const DebugPoints& points) {
  CodeIndex& index = tc_->index();
  for (Ccf* ccf = index.Newest(pc, phys_page, mode); ccf != nullptr; ccf = ccf->older) {
    index.CountSteps(1);
    if (ccf->valid || ccf->retired || ccf->phys_page2 != kNoPage ||
        ContentHash(*ccf, page) != ccf->content_hash || (ccf->Pc() != ccf->pc && !ccf->movable) ||
        DependsOnBreakpoint(*ccf, points)) {
      continue;
    }
    tc_->Write(ccf->entry, ccf->entry_bytes.data(), ccf->entry_bytes.size());
    MoveCcf(ccf);
    ccf->entry_bytes[0] = 0;
    ccf->valid = true;
    ccf->forwards = false;
    index.Renew(ccf);
    ++counters_.ccf_revivals;
    ForwardReplaced(ccf);
    return ccf;
  }
  return nullptr;
}

// --- Moving ---

void Fragments::MoveMapping(translator::CodeMapping* mapping, LinearAddr linear_page) {
  RelinkExits();
  CodeIndex& index = tc_->index();
  index.Move(mapping, linear_page);
  ++counters_.moved_mappings;
  const TranslationCache::Writing open(*tc_);
  index.ForEachCurrent(mapping, [&](Ccf* ccf) {
    if (ccf->movable) {
      MoveCcf(ccf);
    } else {
      Invalidate(ccf);
    }
  });
  counters_.index_steps = index.steps();
}

void Fragments::MoveCcf(Ccf* ccf) {
  const u64 delta = ccf->Pc() - ccf->pc;
  if (delta == 0) return;
  ++counters_.moved_ccfs;
  ccf->pc += delta;
  ccf->examined_begin += delta;
  ccf->examined_end += delta;
  for (const translator::PcPlace place : ccf->pcs()) {
    LinearAddr pc;
    __builtin_memcpy(&pc, CodeAt(ccf->hot_start + place), sizeof(pc));
    pc += delta;
    tc_->Write(ccf->hot_start + place, &pc, sizeof(pc));
  }
  for (ExitDesc* exit : ccf->exits()) {
    if (exit->kind == ExitKind::kIndirect) continue;
    exit->target += delta;
    if (!exit->NamesTableEntry()) continue;
    const i32 place = JumpTablePlace(exit->target, JumpKind::kCrossPage);
    tc_->Write(exit->patch + exit->patch_length - sizeof(place), &place, sizeof(place));
  }
  if (ccf->indirect_entry) MoveEntryCheck(ccf);
}

void Fragments::MoveEntryCheck(Ccf* ccf) {
  u8 check[translator::kMaxEntryCheckBytes];
  tc_->Write(ccf->indirect_entry, check,
             translator::WriteEntryCheck(ccf->pc, ccf->flags_live_in, stubs_.entry_miss,
                                         ccf->indirect_entry, check));
}

// --- Going ---

void Fragments::RedirectEntryToLookup(Ccf* ccf) {
  if (ccf->entry_bytes[0] == 0) {
    RawCopy(ccf->entry_bytes.data(), CodeAt(ccf->entry), ccf->entry_bytes.size());
  }
  RedirectEntry(ccf, ccf->redirect);
  ccf->forwards = false;
}

void Fragments::Invalidate(Ccf* ccf) {
  if (!ccf->valid) return;
  RelinkExits();
  ccf->valid = false;
  listener_.CodeInvalidated(ccf->phys_page.Base());
  while (ccf->incoming != nullptr) Unchain(ccf->incoming);
  for (ExitDesc* exit : ccf->exits()) Unchain(exit);
  RedirectEntryToLookup(ccf);
}

void Fragments::InvalidateAt(LinearAddr pc) {
  const u64 offset = pc.PageOffset();
  tc_->index().ForEachMappingAt(pc.PageBase(), [&](const translator::CodeMapping& mapping) {
    InvalidateBytes(mapping.phys_page, offset, offset + 1, [](Ccf*) {});
  });
}

void Fragments::Retire(Ccf* ccf) {
  if (!IsCurrent(*ccf)) return;
  RelinkExits();
  ccf->retired = true;
  RedirectEntryToLookup(ccf);
}

void Fragments::Flush() {
  RelinkExits();
  peak_tc_bytes_ = tc_bytes_peak();
  peak_ccfs_ = ccfs_peak();
  tc_->Flush();
  ++counters_.tc_flushes;
}

}  // namespace alibi::runtime
