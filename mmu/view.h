// SPDX-License-Identifier: Apache-2.0
// One shadow view: inline TLB entries, jump table, VCPU block and shadow table in one reservation.
//
// abi/contract.h has the layout. Only memory lives here, and the rules that keep what is derived
// from an entry (slots, jump-table entries, cached store targets) no older than the entry. What an
// entry should be is the Mmu's knowledge.
#ifndef ALIBI_MMU_VIEW_H_
#define ALIBI_MMU_VIEW_H_

#include "abi/contract.h"
#include "base/raw_copy.h"
#include "base/result.h"
#include "base/types.h"
#include "mmu/counters.h"
#include "mmu/followed_pages.h"
#include "mmu/page_walker.h"
#include "mmu/root_groups.h"

namespace alibi::mmu {

// Everything that selects a view, in one word: the root below bit 48, then mode bits.
//
// A view that cannot see user pages (SMAP closed) has no root in its key, but a group of roots:
// kernels map the same in many address spaces, so one such view serves all of them and follows CR3
// (Mmu::FollowRoot, mmu/root_groups.h). With SMAP open there are both: views of a root, and, where
// the pool is full, a group's.
struct ViewKey {
  u64 packed = 0;

  static constexpr u64 kRootMask = (u64{1} << 48) - 1;
  static constexpr unsigned kModeShift = 48;  // PagingMode, 2 bits
  static constexpr u64 kWp = u64{1} << 50, kPse = u64{1} << 51, kSmep = u64{1} << 52,
                       kSmap = u64{1} << 53, kNxe = u64{1} << 54, kUser = u64{1} << 55,
                       kSmapOpen = u64{1} << 56;
  static constexpr unsigned kCodeBitsShift = 57;  // 0: 16, 1: 32, 2: 64
  static constexpr unsigned kGroupShift = 59;     // RootGroups, 3 bits
  static constexpr u64 kGroupMask = u64{RootGroups::kMax - 1} << kGroupShift;
  static constexpr u64 kFollows = u64{1} << 62;  // a group of roots instead of a root

  constexpr PagingMode mode() const { return static_cast<PagingMode>((packed >> kModeShift) & 3); }
  constexpr bool user() const { return packed & kUser; }
  constexpr u64 root() const { return packed & kRootMask; }
  constexpr bool smap_open() const { return packed & kSmapOpen; }
  // A supervisor's that is not open.
  constexpr bool closed() const { return !(packed & (kUser | kSmapOpen)); }
  constexpr bool follows_root() const { return packed & kFollows; }
  // Of a view that follows the root.
  constexpr unsigned group() const { return static_cast<unsigned>(packed >> kGroupShift) & 7; }
  constexpr u64 code_bits() const { return packed & u64{3} << kCodeBitsShift; }  // in place
  constexpr bool long_mode() const { return code_bits() == u64{2} << kCodeBitsShift; }
  constexpr bool operator==(const ViewKey&) const = default;
};

// Index of a linear page in the shadow table, and the canonical page of an index.
constexpr u64 EntryIndex(LinearAddr linear) { return (linear.value >> 12) & (kShadowEntries - 1); }
constexpr LinearAddr PageOfIndex(u64 index) {
  return LinearAddr(static_cast<u64>(static_cast<i64>(index << 28) >> 16));
}

class View {
 public:
  // A chunk is the unit in which the table becomes accessible: 32 KB, 4,096 entries, 16 MB of
  // linear addresses. Small, because sparse address spaces pay for whole chunks.
  static constexpr unsigned kChunkShift = 12;
  static constexpr unsigned kLeafShift = 9;  // 512 entries: eight to a chunk
  static constexpr u64 kChunkEntries = u64{1} << kChunkShift;
  static constexpr u32 kMaxChunks = 8192;
  static constexpr u32 kExecuteSlots = 8192;
  static constexpr u32 kMaxTables = 1u << 16;
  static constexpr unsigned kWriteTargets = 16;
  static constexpr unsigned kLeafCaches = 64;
  static constexpr unsigned kMaxRootEntries = 1024;  // of 32-bit paging

  static constexpr LinearAddr kNoLinearPage{~u64{0}};
  static constexpr PhysPage kNoPage{~u64{0}};
  static constexpr u64 kNoTable = ~u64{0};

  // A page the VMM stores to on the guest's behalf (SIMULATE on a page table, mostly).
  struct WriteTarget {
    LinearAddr page = kNoLinearPage;
    PageInfo* info = nullptr;
    u8* host = nullptr;  // read-write alias of the page
    PhysAddr phys;
  };

  // A leaf table this view shadows: walks that find it here need only the last level.
  struct LeafCache {
    u64 base = kNoTable;  // index of the table's first entry
    PhysAddr table;
    u8* host = nullptr;
    u8 rights = 0;
  };

  View() = default;
  ~View();
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  // Reserves the view; `vcpu_fd` holds the VCPU block at `vcpu_offset`.
  Status Reserve(unsigned id, HostAddr guard, const void* const default_jumps[2], int vcpu_fd,
                 u64 vcpu_offset, Counters* counters);
  void set_default_jump_targets(const void* const targets[2]);
  bool reserved() const { return table_ != nullptr; }
  void Retarget(ViewKey key, const PagingContext& context);

  // --- Identity ---
  unsigned id() const { return id_; }
  ViewKey key() const { return key_; }
  const PagingContext& context() const { return context_; }
  bool user() const { return key_.user(); }
  // Supervisor view that must not see user pages?
  bool smap_closed() const { return smap_closed_; }
  HostAddr gs_base() const { return HostAddr(table_); }

  // --- Entries ---
  u64 Poison(u64 index) const { return guard_.value - PageOfIndex(index).value; }
  bool ChunkReady(u64 index) const {
    const u64 chunk = index >> kChunkShift;
    return (chunk_map_[chunk >> 6] >> (chunk & 63)) & 1;
  }
  // Where the address leads: in the arena, or in the guard.
  HostAddr HostOf(LinearAddr address) const {
    return HostAddr(address.value + Entry(EntryIndex(address)));
  }
  // The entry, or poison where the table is not accessible.
  u64 Entry(u64 index) const { return ChunkReady(index) ? table_[index] : Poison(index); }
  // Makes the entry's chunk accessible. False: a bound was reached (or the host refused).
  bool EnsureChunk(u64 index) { return ChunkReady(index) || InitChunk(index); }
  // Precondition: ChunkReady(index).
  bool SetEntry(u64 index, u64 entry) {
    const u64 old = table_[index];
    if (old == entry) return false;
    table_[index] = entry;
    leaf_states_[index >> kChunkShift].filled |= LeafBit(index);
    if (old != Poison(index)) {
      DropCached(index);
      TellFollowers([&](FollowedPages& pages) { pages.Changed(index); });
    }
    return true;
  }
  // For a moment: slots that were filled from the entry stay. False: it is not `from`.
  bool ReplaceEntry(u64 index, u64 from, u64 to) {
    if (Entry(index) != from) return false;
    table_[index] = to;
    return true;
  }
  void PoisonRange(u64 first, u64 count);

  // --- Followers: map pages elsewhere as the entries here are, and as code is fetched ---
  void AddFollower(FollowedPages* follower) {
    follower->next = std::exchange(followers_, follower);
  }
  void RemoveFollower(FollowedPages* follower) {
    FollowedPages** link = &followers_;
    while (*link != follower) link = &(*link)->next;
    *link = std::exchange(follower->next, nullptr);
  }
  // Code is entered elsewhere: whoever links translations leaves this view's jumps alone.
  void set_runs_directly(bool directly) { runs_directly_ = directly; }
  bool runs_directly() const { return runs_directly_; }
  // Changes with what the view is of.
  u32 generation() const { return generation_; }

  // --- Without traces: a TLB ---
  // The entry, its neighbours and the page as code come from a page of so many entries (a power of
  // two) that is global or not (`local`).
  void NoteDerived(u64 index, bool local, u64 page_entries) {
    if (local) leaf_states_[index >> kChunkShift].local |= LeafBit(index);
    if (page_entries > 1) SetLarge(index & ~(page_entries - 1), page_entries, true);
    holds_ = true;
    holds_local_ |= local;
  }
  // Everything, what came of local pages (with what lies close to it), what came of one page. Of
  // `largest` entries is the largest page there can be.
  void Empty();
  void EmptyOfLocal();
  void EmptyOfPage(u64 index, u64 largest);

  u32 chunk_count() const { return chunk_count_; }
  void SetPdpte(unsigned slot, u64 entry) { context_.pdpte[slot] = entry; }
  void SetRoot(PhysAddr root) { context_.root = root; }

  // --- A view that follows the root: the root's entries it was filled through ---
  void UseRootEntry(unsigned slot, u64 entry) {
    root_used_[slot / 64] |= u64{1} << (slot % 64);
    root_entries_[slot] = entry;
  }
  void ForgetRootEntry(unsigned slot) { root_used_[slot / 64] &= ~(u64{1} << (slot % 64)); }
  void ForgetRootEntries() {
    for (u64& word : root_used_) word = 0;
  }
  bool UsesRootEntry(unsigned slot) const { return root_used_[slot / 64] >> (slot % 64) & 1; }
  bool UsesRoot() const {
    for (const u64 word : root_used_) {
      if (word != 0) return true;
    }
    return false;
  }
  // f(slot, entry) for each; f may forget it.
  template <class F>
  void ForEachRootEntry(F f) const {
    for (unsigned word = 0; word < kMaxRootEntries / 64; ++word) {
      for (u64 bits = root_used_[word]; bits != 0; bits &= bits - 1) {
        const unsigned slot = word * 64 + static_cast<unsigned>(__builtin_ctzll(bits));
        f(slot, root_entries_[slot]);
      }
    }
  }
  static constexpr u32 kNoArenaPage = ~u32{0};
  // Where the root is registered as this view's table.
  u32 root_page = kNoArenaPage;

  // --- The view across SYSCALL/SYSRET ---
  void SetPeer(const View* peer) {
    *peer_ = peer == nullptr ? PrivilegePeer{{}, 1} : PrivilegePeer{peer->gs_base(), 0};
  }
  bool HasPeer(const View* view) const {
    return peer_->missing == 0 && peer_->gs_base == view->gs_base();
  }

  // --- The view across STAC/CLAC ---
  void SetSmapPeer(const View* peer) {
    const bool open = key_.smap_open();
    *smap_peer_ = peer == nullptr ? SmapPeer{{}, 1, 1} : SmapPeer{peer->gs_base(), open, !open};
  }
  bool HasSmapPeer(const View* view) const { return smap_peer_->gs_base == view->gs_base(); }

  // --- The view across MOV to CR3 ---
  // Of the operand all bits count but the ignored ones, which are clear in `cr3`.
  void SetRootPeer(const View& peer, u64 cr3, u64 ignored) {
    *root_peer_ = RootPeer::Of(cr3, ignored, peer.gs_base());
  }
  void ForgetRootPeer() { *root_peer_ = RootPeer::None(); }
  // The same while the VCPU may be reading it: one store, after which no operand fits.
  void CutRootPeer() { __atomic_store_n(&root_peer_->negated, 1, __ATOMIC_SEQ_CST); }
  bool HasRootPeer(const View* view) const {
    return root_peer_->mask != 0 && root_peer_->gs_base == view->gs_base();
  }

  // --- Inline TLB entries ---
  // kind 0: loads, 1: stores. Filled here and by the miss stub; both keep the directory.
  void FillSlot(unsigned kind, unsigned slot, LinearAddr page, u64 displacement);
  // Those of so many pages from entry `first` on.
  void ClearSlots(u64 first, u64 count);
  InlineTlbEntry& slot(unsigned kind, unsigned number) {
    return slots_[kind * kSlotCount + number];
  }
  // What is known of the last kMissWindow misses of a slot.
  struct SlotWindow {
    u64 begin = 0;  // when they began (TSC)
    u8 sparse = 0;  // windows in a row, up to now, that did not end with a neighbouring page
  };
  SlotWindow& slot_window(unsigned kind, unsigned number) {
    return slot_windows_[kind * kSlotCount + number];
  }

  // --- Jump table ---
  void SetJump(LinearAddr pc, JumpKind kind, HostAddr host) {
    const u64 slot = JumpIndex(pc, kind);
    jump_table_[slot] = host;
    SetBit(jump_dirty_, slot / kJumpBlock);
    if (jumps_set_ < kFewJumps) jump_log_[jumps_set_] = static_cast<u16>(slot);
    ++jumps_set_;
  }
  HostAddr Jump(LinearAddr pc, JumpKind kind) const { return jump_table_[JumpIndex(pc, kind)]; }
  // Unless there is another one.
  void OfferJump(LinearAddr pc, JumpKind kind, HostAddr host) {
    if (Jump(pc, kind) == default_jump_[static_cast<unsigned>(kind)]) SetJump(pc, kind, host);
  }
  // --- Conflict table: forgets what the jump table does ---
  void SetConflict(LinearAddr pc, HostAddr entry) {
    conflicts_[ConflictEntry::IndexOf(pc)] = {0 - pc.value, entry};
    SetBit(conflicts_dirty_, ConflictEntry::PartOf(pc));
  }
  // Entries of the page, and of the 15 bytes before it: instructions there may reach into it.
  void ResetJumpPage(u64 index);
  void ResetAllJumps();

  // --- Pages that code was fetched from ---
  // Physical page an executed linear page was fetched from, or kNoPage.
  PhysPage ExecutedAs(u64 index) const {
    for (u32 at = ExecuteHash(index);; at = (at + 1) & (kExecuteSlots - 1)) {
      if (execute_[at].index_plus_1 == 0) return kNoPage;
      if (execute_[at].index_plus_1 == index + 1) return execute_[at].phys_page;
    }
  }
  void RecordExecuted(u64 index, PhysPage page);
  // Of a page that is known as executed as `from`: it is `to` now. False: it is not.
  bool RenameExecuted(u64 index, PhysPage from, PhysPage to) {
    for (u32 at = ExecuteHash(index); execute_[at].index_plus_1 != 0;
         at = (at + 1) & (kExecuteSlots - 1)) {
      if (execute_[at].index_plus_1 != index + 1) continue;
      if (execute_[at].phys_page != from) return false;
      execute_[at].phys_page = to;
      return true;
    }
    return false;
  }
  // The mapping changed: the page is not known as executed any more.
  void DropExecuted(u64 index) {
    if (leaf_states_[index >> kChunkShift].executed & LeafBit(index)) DropExecutedSlow(index);
  }
  void DropExecutedRange(u64 first, u64 count);

  // --- Caches for the VMM's own accesses ---
  WriteTarget& WriteTargetOf(LinearAddr page) {
    return targets_[page.InPage().number % kWriteTargets];
  }
  LeafCache& LeafCacheOf(u64 index) {
    return leaves_[(index >> context_.format->level[1].index_bits) % kLeafCaches];
  }
  void DropWriteTarget(u64 index) {
    WriteTarget& target = WriteTargetOf(PageOfIndex(index));
    if (target.page == PageOfIndex(index)) target.page = kNoLinearPage;
  }
  void DropWriteTargets() {
    for (WriteTarget& target : targets_) target.page = kNoLinearPage;
  }
  void DropLeafCaches() {
    for (LeafCache& leaf : leaves_) leaf.base = kNoTable;
  }

  // --- Page tables this view shadows (arena pages; may name one twice or after its removal) ---
  bool AddTable(u32 arena_page) {
    if (table_count_ == kMaxTables) return false;
    tables_[table_count_++] = arena_page;
    return true;
  }
  const u32* tables() const { return tables_; }
  u32 table_count() const { return table_count_; }

  // Back to all poison, nothing cached, nothing known as executed. The caller has taken the view's
  // page-table uses out of the reverse map. `release` gives the memory back to the host as well.
  void Clear(bool release);

 private:
  template <class Tell>
  void TellFollowers(Tell tell) {
    for (FollowedPages* pages = followers_; pages != nullptr; pages = pages->next) tell(*pages);
  }
  struct Executed {
    u64 index_plus_1;
    PhysPage phys_page;
  };

  static u32 ExecuteHash(u64 index) {
    return static_cast<u32>((index * 0x9e3779b97f4a7c15u) >> 32) & (kExecuteSlots - 1);
  }
  // What is reset at a time of the jump table: 2 KB.
  static constexpr u64 kJumpBlock = 256;
  static constexpr u64 kJumpBlocks = kJumpTableEntries / kJumpBlock;
  static_assert(kJumpTableEntries <= 1 << 16, "jump_log_");
  // Kernels that switch the FPU off and on again reset all of it each time, with little in it.
  static constexpr u64 kFewJumps = 32;
  HostAddr DefaultJumpOf(u64 slot) const { return default_jump_[slot >= kComputedJumps ? 1 : 0]; }
  void ResetJumpBlocks(u64 first_slot, u64 count);
  void ResetConflicts(u64 part);
  static void SetBit(u64* bits, u64 at) { bits[at / 64] |= u64{1} << (at % 64); }
  bool InitChunk(u64 index);
  void PoisonEntries(u64 first, u64 count);
  // Those of [first, last] in one chunk that may hold something.
  void PoisonFilled(u64 first, u64 last);
  static u8 LeafBit(u64 index) { return static_cast<u8>(1u << ((index >> kLeafShift) & 7)); }
  // Its residue's holder is the caller's.
  void EmptySlot(unsigned at) {
    slots_[at].Become(InlineTlbEntry::Empty());
    directory_->tag[at] = 0;
    ++counters_->inline_tlb_clears;
  }
  void DropCached(u64 index) {
    u16& holder = directory_->holder[index % SlotDirectory::kResidues];
    if (holder == 0) return;
    if (holder == SlotDirectory::kSeveral) {
      ClearSlotsOf(index);
    } else if (slots_[holder - 1].neg_page == 0 - PageOfIndex(index).value) {
      EmptySlot(holder - 1u);
      holder = 0;
    }
  }
  void ClearSlotsOf(u64 index);
  void SetLarge(u64 first, u64 count, bool large);
  void DropExecutedSlow(u64 index);
  template <class Condition>
  void DropExecutedIf(Condition condition);
  void EraseExecuted(u32 at);

  // Hot first.
  u64* table_ = nullptr;
  u64* chunk_map_ = nullptr;  // 2^24 bits
  u64 root_used_[kMaxRootEntries / 64] = {};
  u64* root_entries_ = nullptr;  // kMaxRootEntries
  // Of a chunk, a bit per leaf table in it.
  struct LeafStates {
    u8 filled;    // clear: all its entries are poison
    u8 local;     // see NoteDerived
    u8 large;     // there may be entries of a page that is larger than 4 KB, and reaches here
    u8 executed;  // clear: none of its pages is in execute_
  };
  LeafStates* leaf_states_ = nullptr;
  HostAddr guard_;
  PrivilegePeer* peer_ = nullptr;
  SmapPeer* smap_peer_ = nullptr;
  RootPeer* root_peer_ = nullptr;
  SlotDirectory* directory_ = nullptr;  // the miss stub fills slots, too
  u32 execute_count_ = 0;
  // What is in execute_, and what was: ranges are taken out of it without a search.
  u32 execute_log_count_ = 0;
  u64* execute_log_ = nullptr;
  u32 chunk_count_ = 0;
  Executed* execute_ = nullptr;
  ViewKey key_;
  PagingContext context_;
  bool smap_closed_ = false;
  bool runs_directly_ = false;
  u32 generation_ = 0;
  bool holds_ = false, holds_local_ = false;  // see NoteDerived
  u64 jump_dirty_[kJumpBlocks / 64] = {};     // blocks that may hold something
  u64 jumps_set_ = 0;                         // since all were reset; the first of them:
  u16 jump_log_[kFewJumps];
  u64 conflicts_dirty_[ConflictEntry::kPages / 64] = {};
  unsigned id_ = 0;
  WriteTarget targets_[kWriteTargets];
  LeafCache leaves_[kLeafCaches];
  InlineTlbEntry* slots_ = nullptr;
  SlotWindow slot_windows_[2 * kSlotCount] = {};
  HostAddr* jump_table_ = nullptr;
  ConflictEntry* conflicts_ = nullptr;
  HostAddr default_jump_[2] = {};  // by JumpKind
  u32* chunks_ = nullptr;          // kMaxChunks
  u32* tables_ = nullptr;          // kMaxTables
  u32 table_count_ = 0;
  Counters* counters_ = nullptr;
  FollowedPages* followers_ = nullptr;
  u8* reservation_ = nullptr;
  u8* side_ = nullptr;
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_VIEW_H_
