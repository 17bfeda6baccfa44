// SPDX-License-Identifier: Apache-2.0
// Kernel views that follow the root: the group that a root belongs to, and what becomes of its
// views when CR3 is loaded.
#include <utility>

#include "mmu/mmu.h"

namespace alibi::mmu {
namespace {

// Does an entry of another root lead where this one led, with the same rights?
bool Alike(const PagingContext& context, u64 entry, u64 other) {
  const bool leaf = IsLeaf(context, context.format->levels, entry);
  const u64 ignored = leaf ? kPteIgnoredAbove : kPteIgnoredAbove | kPteAccessed | kPteDirty;
  return ((entry ^ other) & ~ignored) == 0;
}

constexpr u64 kLongCode = u64{2} << ViewKey::kCodeBitsShift;

}  // namespace

PhysAddr Mmu::RootEntryAddress(unsigned slot) const {
  return context_.root + slot * context_.format->entry_bytes;
}

u64 Mmu::RootEntry(unsigned slot) const {
  if (context_.format->levels == kPdpteLevel) return context_.pdpte[slot];
  return ReadEntry(*memory_, RootEntryAddress(slot), context_.format->entry_bytes);
}

// The loaded root's group runs, and its views follow the root. A root that a group follows already
// is traced for it, so that there is nothing to look at; but PAE's top level is what was loaded.
void Mmu::RunGroupOfRoot(PagingMode mode) {
  const u64 root = context_.root.value;
  if (mode != followed_mode_) {
    // Views of another mode did not follow what ran since.
    followed_mode_ = mode;
    groups_.ForgetRoots();
    pool_.ForgetRootPeersTo(nullptr);
  }
  unsigned group = groups_.GroupOf(root);
  const bool known = group != RootGroups::kMax;
  if (known && mode != PagingMode::kPae) {
    groups_.Run(group, root);
    return;
  }
  // The root is going to be traced, in the middle of all this.
  if (TakeMachine()) return RunGroupOfRoot(mode);
  const auto for_each_follower = [&](auto f) {
    for (unsigned i = 0; i < pool_.follower_count(); ++i) {
      View& view = pool_.follower(i);
      if (view.key().mode() == mode) f(view);
    }
  };
  if (!known) {
    RootGroups::Fit fits[RootGroups::kMax] = {};
    for_each_follower([&](const View& view) {
      // What it lost of user pages would be lost by any group's.
      if (view.key().smap_open()) return;
      RootGroups::Fit& fit = fits[view.key().group()];
      view.ForEachRootEntry([&](unsigned slot, u64 entry) {
        ++(Alike(view.context(), entry, RootEntry(slot)) ? fit.kept : fit.lost);
      });
    });
    const unsigned groups = groups_.count();
    group = groups_.Choose(fits);
    counters_.root_groups += groups_.count() - groups;
  }
  groups_.Run(group, root);
  for_each_follower([&](View& view) {
    if (view.key().group() != group) return;
    if (!known) {
      ++counters_.root_follows;
      view.SetPeer(nullptr);
      view.SetSmapPeer(nullptr);
      pool_.ForgetRootPeersTo(&view);
    }
    FollowRoot(view);
  });
}

// CR3 was loaded: what the new root maps as the old one did stays, with all that was derived from
// it. A flag that the new root's entry lacks is set now, as a CPU may that fetches it early (SDM
// vol. 3, 4.8).
void Mmu::FollowRoot(View& view) {
  const bool latched = context_.format->levels == kPdpteLevel;
  KeepAlikeRootEntries(view);
  ForgetRoot(view);
  // Of the VCPU's context no more than this: the view may be one for other settings of CR0 and CR4.
  view.SetRoot(context_.root);
  if (latched) {
    for (unsigned slot = 0; slot < 4; ++slot) view.SetPdpte(slot, context_.pdpte[slot]);
  }
  if (latched || !view.UsesRoot()) return;
  ReserveNodes();
  if (!view.UsesRoot()) return;
  RegisterRoot(view, context_.root);
  // Up to now other VCPUs could store to the root.
  if (std::exchange(traced_anew_, false)) KeepAlikeRootEntries(view);
}

void Mmu::KeepAlikeRootEntries(View& view) {
  const unsigned top = context_.format->levels;
  const bool latched = top == kPdpteLevel;
  view.ForEachRootEntry([&](unsigned slot, u64 old_entry) {
    const u64 entry = RootEntry(slot);
    if (!Alike(view.context(), old_entry, entry)) {
      DropUpperEntry(view, top, 0, slot, old_entry);
    } else if (!latched && !(entry & kPteAccessed)) {
      WalkResult walk;
      walk.top_level = walk.leaf_level = top;
      walk.entry_address[top] = RootEntryAddress(slot);
      walk.entry[top] = entry;
      (void)MarkWalk(context_, &walk, false);  // has the machine
    }
  });
}

void Mmu::RegisterRoot(View& view, PhysAddr root) {
  const u64 offset = memory_->ArenaOffset(root);
  if (offset == GuestMemory::kNotRam) return;
  TraceTable(offset, Use::Make(0, view.id(), view.context().format->levels, kRightsAll));
  // What hangs below it was found through other roots as well.
  uses_[memory_->InfoAt(offset).table_chain].parts = ~u32{0};
  view.root_page = static_cast<u32>(offset >> 12);
}

// The root is no table of this view any more; what hangs below it may go on being one.
void Mmu::ForgetRoot(View& view) {
  if (view.root_page == View::kNoArenaPage) return;
  UnregisterTable(memory_->InfoAt(u64{view.root_page} << 12),
                  Use::Make(0, view.id(), view.context().format->levels));
  view.root_page = View::kNoArenaPage;
}

// CR3 was loaded, maybe without a switch of views: the kernel view's neighbours are those of the
// new address space, as far as they know it as theirs.
void Mmu::LinkPeers() {
  const ViewKey key = current_->key();
  if (!key.closed()) return;
  if (key.long_mode()) {
    View* user = pool_.Find(ViewKey{user_key_ | kLongCode});
    if (user != nullptr && user->HasPeer(current_)) {
      current_->SetPeer(user);
      pool_.NoteLinked(*current_, *user);
    }
  }
  if (!key.follows_root()) return;
  View* open = pool_.Find(ViewKey{open_key_ | key.code_bits()});
  if (open != nullptr) {
    current_->SetSmapPeer(open);
    open->SetSmapPeer(current_);
    pool_.NoteLinked(*current_, *open);
  }
}

// The same load from the view before may come here by itself from now on, as long as this view
// stays with its root. What it does not do is follow a root, or flush: deferred, nothing has to be
// flushed until the next table is let go (LetGo()), which takes the links away.
void Mmu::LinkRoots(View& from) {
  const ViewKey key = current_->key();
  constexpr u64 kOfRoot = ViewKey::kRootMask | ViewKey::kGroupMask;
  if (coherence_ == Coherence::kDropped || !key.long_mode() || key.mode() != PagingMode::k4Level ||
      !key.closed() || ((key.packed ^ from.key().packed) & ~kOfRoot)) {
    return;
  }
  root_peers_pcide_ = state_->cr4 & vcpu::kCr4Pcide;
  constexpr u64 kNoFlush = u64{1} << 63;
  from.SetRootPeer(*current_, state_->cr3, root_peers_pcide_ != 0 ? kNoFlush : 0);
  pool_.NoteLinked(from, *current_);
  roots_linked_ = true;
}

}  // namespace alibi::mmu
