// SPDX-License-Identifier: Apache-2.0
// Nodes that lead from a physical page back to its uses in views: one bounded pool for all chains.
#ifndef ALIBI_MMU_REVERSE_MAP_H_
#define ALIBI_MMU_REVERSE_MAP_H_

#include "base/check.h"
#include "base/types.h"

namespace alibi::mmu {

// Which entry of which view, packed. `level` and `rights` matter to page-table uses only: the level
// of the table (1 = leaf) and what the levels above it allow.
struct Use {
  u64 packed = 0;

  static constexpr Use Make(u64 index, unsigned view, unsigned level = 0, unsigned rights = 0) {
    return {index | u64{view} << 36 | u64{level} << 44 | u64{rights} << 48};
  }
  constexpr u64 index() const { return packed & ((u64{1} << 36) - 1); }
  constexpr unsigned view() const { return (packed >> 36) & 0xff; }
  constexpr unsigned level() const { return (packed >> 44) & 0xf; }
  constexpr unsigned rights() const { return (packed >> 48) & 0xf; }
  // The same table at the same place, whatever its rights.
  constexpr bool SamePlace(Use other) const { return ((packed ^ other.packed) << 16) == 0; }
  constexpr bool operator==(const Use&) const = default;
};

class ReverseMap {
 public:
  struct Node {
    Use use;
    u32 next;
    union {
      // Of execute and writable chains: how many may be pushed in front of this one before stale
      // ones are sought.
      u32 room;
      // Of table chains: the parts of the table, of 32, through which the view found other tables.
      u32 parts;
    };
  };
  static constexpr u32 kMaxNodes = 1u << 22;  // 64 MB, used as far as it is needed

  // `nodes` has room for kMaxNodes.
  void Init(Node* nodes) {
    nodes_ = nodes;
    Reset();
  }
  // Every node is free again; the chains' heads are the caller's to clear.
  void Reset() {
    peak_ = peak();
    free_ = 0;
    fresh_ = 1;
    used_ = 0;
  }
  u32 used() const { return used_; }
  // Fresh nodes are taken only when no freed one is left.
  u32 peak() const { return peak_ > fresh_ - 1 ? peak_ : fresh_ - 1; }
  u32 available() const { return kMaxNodes - 1 - used_; }
  Node& operator[](u32 node) { return nodes_[node]; }

  void Push(u32* head, Use use) {
    u32 node = free_;
    if (node != 0) {
      free_ = nodes_[node].next;
    } else {
      ALIBI_CHECK(fresh_ < kMaxNodes, "reverse-map nodes were reserved before use");
      node = fresh_++;
    }
    ++used_;
    nodes_[node].use = use;
    nodes_[node].next = *head;
    *head = node;
  }
  // The same for a chain whose stale nodes are sought from time to time. True: now; then the head's
  // room is to be set.
  bool PushCounted(u32* head, Use use, u32 least) {
    const u32 room = *head == 0 ? least : nodes_[*head].room;
    Push(head, use);
    nodes_[*head].room = room - 1;
    return room == 1;
  }
  // Of each use one node stays from *link on, none of those that have gone. mark(use) says whether
  // the use is there, and makes it one that is not; unmark(use) undoes that. How many stay?
  template <class Mark, class Unmark>
  u32 Compact(u32* link, Mark mark, Unmark unmark) {
    u32 kept = 0;
    for (u32* at = link; *at != 0;) {
      if (mark(nodes_[*at].use)) {
        ++kept;
        at = &nodes_[*at].next;
      } else {
        Remove(at);
      }
    }
    for (u32 node = *link; node != 0; node = nodes_[node].next) unmark(nodes_[node].use);
    return kept;
  }
  // *link is the head or a node's next; it then holds the node after the removed one.
  void Remove(u32* link) {
    const u32 node = *link;
    *link = nodes_[node].next;
    nodes_[node].next = free_;
    free_ = node;
    --used_;
  }

 private:
  Node* nodes_ = nullptr;
  u32 free_ = 0;
  u32 fresh_ = 1;
  u32 used_ = 0;
  u32 peak_ = 0;
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_REVERSE_MAP_H_
