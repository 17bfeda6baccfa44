// SPDX-License-Identifier: Apache-2.0
// The recently used views: a switch of address space, privilege or mode is a look-up here.
#ifndef ALIBI_MMU_VIEW_POOL_H_
#define ALIBI_MMU_VIEW_POOL_H_

#include "base/types.h"
#include "mmu/view.h"

namespace alibi::mmu {

class ViewPool {
 public:
  // Each reserves 512 GB of the 128 TB that a process has.
  static constexpr unsigned kMaxViews = 160;
  // Over all views: 512 MB of tables, and at most 2 * 16,384 + 5 * 160 of the host's 65,530 VMAs.
  static constexpr u32 kMaxChunks = 16384;

  struct Setup {
    HostAddr guard;
    const void* default_jumps[2] = {};  // by JumpKind
    int vcpu_fd = -1;
    u64 vcpu_offset = 0;
    unsigned max_views = kMaxViews;
    u32 max_chunks = kMaxChunks;
  };

  void Init(const Setup& setup, Counters* counters) {
    setup_ = setup;
    counters_ = counters;
  }

  // For views still to be reserved.
  void set_default_jump_targets(const void* const targets[2]) {
    for (unsigned kind = 0; kind < 2; ++kind) setup_.default_jumps[kind] = targets[kind];
  }

  // Null if there is none.
  View* Find(ViewKey key) {
    View* hint = hints_[Hash(key)];
    if (hint != nullptr && hint->key() == key && hint->reserved()) return hint;
    return FindSlow(key);
  }
  // Is there a view that was never used?
  bool has_fresh() const { return count_ < MaxViews(); }
  // A view without an owner: never used, or else one whose loss costs little, which the caller must
  // clear before it calls Adopt. Fails only if not even one view can be reserved.
  Result<View*> Obtain();
  // The view now answers to the key.
  void Adopt(View* view, ViewKey key, const PagingContext& context);
  // The view runs.
  void Touch(const View* view) { last_used_[view->id()] = ++clock_; }
  // A page table became one of the view's, or is none of them any more.
  void CountTable(unsigned id, int change) {
    tables_[id] += static_cast<u32>(change);
    // The root stays until its page is used for something else.
    if (change < 0 && tables_[id] <= 1) ++endings_[id];
  }
  // Changes whenever the view has no page table any more but its root: its program has ended.
  u32 endings(unsigned id) const { return endings_[id]; }

  // f(view) for those of the root's address space: the ones that follow the root are.
  template <class F>
  void ForEachOfRoot(PhysAddr root, F f) {
    for (unsigned i = 0; i < count_; ++i) {
      if (keys_[i].follows_root() || keys_[i].root() == root.value) f(views_[i]);
    }
  }

  View& operator[](unsigned id) { return views_[id]; }
  // The views that follow the root.
  unsigned follower_count() const { return follower_count_; }
  View& follower(unsigned i) { return *followers_[i]; }
  unsigned count() const { return count_; }
  u32 TotalChunks() const;
  u32 max_chunks() const { return setup_.max_chunks; }
  // No view may switch to this one by itself any more, nor it to another.
  void ForgetPeer(View* view) {
    view->SetPeer(nullptr);
    view->SetSmapPeer(nullptr);
    view->ForgetRootPeer();
    ForgetRootPeersTo(view);
    const bool supervisor = keys_[view->id()].closed();
    for (unsigned i = 0; i < count_; ++i) {
      // Of two that are not a supervisor's with SMAP closed none leads to the other.
      if (!supervisor && !keys_[i].closed()) continue;
      if (views_[i].HasPeer(view)) views_[i].SetPeer(nullptr);
      if (views_[i].HasSmapPeer(view)) views_[i].SetSmapPeer(nullptr);
    }
  }
  // No load of CR3 may lead to this view (null: to any) by itself any more.
  void ForgetRootPeersTo(const View* view) {
    for (unsigned i = 0; i < count_; ++i) {
      if (!keys_[i].closed()) continue;
      if (view == nullptr || views_[i].HasRootPeer(view)) views_[i].ForgetRootPeer();
    }
  }
  // The same while the pool's VCPU is executing guest code.
  void CutRootPeers() {
    for (unsigned i = 0; i < count_; ++i) {
      if (keys_[i].closed()) views_[i].CutRootPeer();
    }
  }
  // These two may lead to each other by themselves from now on.
  void NoteLinked(const View& a, const View& b) {
    linked_[a.id() / 64] |= u64{1} << (a.id() % 64);
    linked_[b.id() / 64] |= u64{1} << (b.id() % 64);
  }
  // No view may lead to any other by itself any more.
  void ForgetAllPeers() {
    for (unsigned word = 0; word < kLinkedWords; ++word) {
      for (; linked_[word] != 0; linked_[word] &= linked_[word] - 1) {
        View& view = views_[word * 64 + static_cast<unsigned>(__builtin_ctzll(linked_[word]))];
        view.SetPeer(nullptr);
        view.SetSmapPeer(nullptr);
        view.ForgetRootPeer();
      }
    }
  }
  // The largest view but `except`, or null.
  View* Largest(const View* except);

 private:
  static constexpr unsigned kHints = 256;
  static unsigned Hash(ViewKey key) {
    return static_cast<unsigned>((key.packed * 0x9e3779b97f4a7c15u) >> 56);
  }
  View* FindSlow(ViewKey key);
  unsigned MaxViews() const { return setup_.max_views < kMaxViews ? setup_.max_views : kMaxViews; }
  View* Victim();

  View views_[kMaxViews];
  // Of each view, close together: its key, when it ran last, and how many page tables it has.
  ViewKey keys_[kMaxViews];
  u64 last_used_[kMaxViews] = {};
  u32 tables_[kMaxViews] = {};
  u32 endings_[kMaxViews] = {};
  // A bit for each view that has, or had, a link to another.
  static constexpr unsigned kLinkedWords = (kMaxViews + 63) / 64;
  u64 linked_[kLinkedWords] = {};
  View* hints_[kHints] = {};
  View* followers_[kMaxViews] = {};
  unsigned follower_count_ = 0;
  unsigned count_ = 0;
  u64 clock_ = 0;
  u64 random_ = 1;
  Setup setup_;
  Counters* counters_ = nullptr;
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_VIEW_POOL_H_
