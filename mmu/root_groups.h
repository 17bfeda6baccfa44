// SPDX-License-Identifier: Apache-2.0
// Which roots share their kernel views.
//
// A kernel view without a root in its key serves every root that maps alike what the view was
// filled through. Roots that do not are of different groups, each with views of its own: a guest
// that isolates its kernel's page tables from its programs' has two, and alternates between them.
#ifndef ALIBI_MMU_ROOT_GROUPS_H_
#define ALIBI_MMU_ROOT_GROUPS_H_

#include "base/types.h"

namespace alibi::mmu {

class RootGroups {
 public:
  static constexpr unsigned kMax = 8;  // View keys have room for so many

  // Of a group's views, when a root is loaded: root entries that they were filled through and that
  // are the same in this root, and those that are not.
  struct Fit {
    u32 kept = 0, lost = 0;
  };

  RootGroups() { ForgetRoots(); }
  void ForgetRoots() {
    for (u64& root : roots_) root = kNoRoot;
  }

  unsigned running() const { return running_; }
  unsigned count() const { return count_; }
  // The group that follows this root already; or kMax.
  unsigned GroupOf(u64 root) const {
    if (roots_[running_] == root) return running_;
    for (unsigned group = 0; group < count_; ++group) {
      if (roots_[group] == root) return group;
    }
    return kMax;
  }
  // For a root that no group follows: fits[0..count()).
  unsigned Choose(const Fit fits[kMax]);
  // The group follows this root from now on, and runs.
  void Run(unsigned group, u64 root) {
    if (group != running_) last_used_[group] = ++clock_;
    roots_[group] = root;
    running_ = group;
  }

 private:
  static constexpr u64 kNoRoot = ~u64{0};

  u64 roots_[kMax];
  u64 last_used_[kMax] = {};
  u64 clock_ = 0;
  u32 paid_[kMax] = {};  // entries lost since the last split
  unsigned running_ = 0;
  unsigned count_ = 1;
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_ROOT_GROUPS_H_
