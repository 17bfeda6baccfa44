// SPDX-License-Identifier: Apache-2.0
// The memory of one VCPU: guest-linear accesses, the shadow views, and their coherence.
//
// Invariants (docs/safety.md argues from them; mmu_test.cc checks them):
//  1. A shadow entry is poison, or leads to the page its guest page tables name *now*, with no more
//     rights than they give the view's privilege class; so TLB flushes have nothing to do. With a
//     coherence strategy that is not eager: or that they named since the guest's last TLB flush.
//  2. It leads to the read-write alias only if the guest entry is writable and dirty, and nothing
//     traces the page.
//  3. Every guest page table that an entry was derived from is under kPageTableTrace. Deferred: or,
//     if it is a leaf table, out of sync (mmu/out_of_sync.h). Dropped: none is.
//  4. Inline TLB entries and jump-table entries of a view never outlive the mapping they came from.
//
// Nothing here touches vector registers or allocates after Create (fast callouts and the host
// fault handler call it while guest vector state is live).
#ifndef ALIBI_MMU_MMU_H_
#define ALIBI_MMU_MMU_H_

#include <memory>
#include <optional>

#include "base/result.h"
#include "base/types.h"
#include "mmu/beside.h"
#include "mmu/coherence.h"
#include "mmu/counters.h"
#include "mmu/guest_memory.h"
#include "mmu/out_of_sync.h"
#include "mmu/page_walker.h"
#include "mmu/reverse_map.h"
#include "mmu/root_groups.h"
#include "mmu/view.h"
#include "mmu/view_pool.h"
#include "mmu/watched_pages.h"
#include "vcpu/fault.h"
#include "vcpu/memory.h"
#include "vcpu/state.h"

namespace alibi::mmu {

struct MmuOptions {
  vcpu::VcpuState* state = nullptr;  // the caller's own mapping of the VCPU block
  GuestMemory* memory = nullptr;     // outlives the Mmu
  int vcpu_fd = -1;                  // kVcpuBlockBytes at vcpu_offset; shared in front of each view
  u64 vcpu_offset = 0;
  const void* default_jump_target = nullptr;  // host address of the look-up stub
  TraceListener* listener = nullptr;
  Coherence coherence = Coherence::kEager;
  unsigned max_views = ViewPool::kMaxViews;
  u32 max_chunks = ViewPool::kMaxChunks;  // of shadow tables, over all views; at least 1
  // Not null: `memory` is shared with other Mmus, whose VCPUs execute guest code beside this one's
  // (Coherence::kEager alone). It outlives the Mmu; the caller enters the Mmu there.
  MmuGroup* group = nullptr;
};

// What the guest can make grow; now, at most so far, at most ever.
struct MemoryUse {
  u64 shadow_bytes, shadow_bytes_peak, shadow_bytes_bound;
  u64 nodes, nodes_peak, nodes_bound;
  u64 views, views_bound;
};

enum class Resolution : u8 {
  kFilled,      // the shadow knows the page now: restart the site
  kGuestFault,  // *fault is the guest's
  kSimulate     // no direct access can do it: device, traced store, ROM store, watched page,
                // page-crossing, or an address that no page table can map (the caller knows the
                // vector)
};

class Mmu final : public vcpu::LinearMemory, public MemoryObserver {
 public:
  // Also fills ram_window[] and ram_window_size[] of the state and makes a view for its mode.
  static Result<std::unique_ptr<Mmu>> Create(const MmuOptions& options);
  ~Mmu() override;

  void set_listener(TraceListener* listener);
  void set_default_jump_targets(const void* const targets[2]);  // by JumpKind; before any code ran

  // --- The running view ---
  // Changes at: Create, PagingModeChanged, AddressSpaceLoaded, PrivilegeChanged, ViewEntered. Load
  // it into %gs.
  HostAddr gs_base() const { return current_->gs_base(); }
  View& current_view() { return *current_; }
  // Changes when a program of the view's address space has ended, as far as its page tables say.
  u32 EndingsOf(const View& view) const { return pool_.endings(view.id()); }

  // After a host fault, or from a CHECKED callout: size 1..4096.
  Resolution ResolveAccess(LinearAddr address, unsigned size, bool write, vcpu::GuestFault* fault);
  // Caches the page in an inline TLB entry of the current view; false if the shadow has no
  // (writable) mapping of it yet, then ResolveAccess first.
  bool FillSlot(bool store, unsigned slot, LinearAddr address);

  // --- vcpu::LinearMemory ---
  bool Read(LinearAddr address, void* out, unsigned size, vcpu::Privilege who,
            vcpu::GuestFault* fault) override;
  bool Write(LinearAddr address, const void* data, unsigned size, vcpu::Privilege who,
             vcpu::GuestFault* fault) override;
  bool ProbeWrite(LinearAddr address, unsigned size, vcpu::Privilege who,
                  vcpu::GuestFault* fault) override;
  bool LoadPdptes(u64 cr3) override;
  void PagingModeChanged() override;
  void AddressSpaceLoaded() override;
  // Invariant 1.
  void InvalidatePage(LinearAddr address) override {
    if (coherence_ != Coherence::kEager) FlushPage(address);
  }
  void InvalidateAll() override {
    if (coherence_ != Coherence::kEager) FlushTranslations(true);
    // CR4.PCIDE decides about bit 63 of what CR3 is loaded with.
    if ((state_->cr4 & vcpu::kCr4Pcide) != root_peers_pcide_) pool_.ForgetRootPeersTo(nullptr);
  }
  // CPL, EFLAGS.AC under SMAP, or the code segment's size.
  void PrivilegeChanged() override {
    const ViewKey key = CurrentKey();
    if (key != current_->key()) SwitchTo(key);
  }

  // Another VCPU's registers are in the VcpuState. All VCPUs share the views, so that what one has
  // filled serves the others, and what one flushes goes for all.
  void VcpuSwitched(unsigned from, unsigned to);

  // The VCPU, which does not run, begins anew in some mode: nothing that it had loaded counts.
  void VcpuStarts(unsigned vcpu) {
    parked_[vcpu] = {};
    InvalidateAll();
  }

  // Translated code has switched views by itself (abi/contract.h): the one at gs_base runs.
  void ViewEntered(HostAddr gs_base);

  // --- VCPUs beside each other (beside.cc) ---
  bool has_news() const { return news_ != nullptr && news_->tables != 0; }
  // Before anything else that the VCPU does outside guest code, and when it has got the machine.
  void HearNews() {
    if (has_news()) HearTableNews();
  }
  // When it has got the machine: others are told of pages that this Mmu has ceased to trace.
  void SettleTraces() {
    if (forgotten_ != nullptr && forgotten_->pages != 0) TellForgotten();
  }
  bool HasMuchToSettle() const { return forgotten_->pages > kMaxForgotten / 2; }
  // The VCPU needs the machine. True: others may have had it meanwhile, so that what was looked up
  // before may be so no more. Without others it always has it.
  bool TakeMachine();
  // Changes whenever TakeMachine() is true.
  u64 machine_epoch() const { return machine_epoch_; }
  // Of changed code, at an instruction boundary.
  void HearCodeNews();
  // May other VCPUs store to the bytes directly meanwhile?
  bool HasOthers() const { return group_ != nullptr; }
  // By who has the machine.
  void StopOthers();
  // An atomic instruction on a traced page is done by halves, by who has the machine: up to its end
  // nobody else stores there.
  void BeginSharedStore(u64 arena_offset);

  // --- Execution ---
  // Translates for fetching code; remembers that the view executes the page. Not RAM: *pa says so
  // (GuestMemory::Info(*pa) is null), nothing is remembered.
  bool Fetch(LinearAddr pc, PhysAddr* pa, vcpu::GuestFault* fault);
  void ResetAllJumpTables();
  // Does a view know the page as executed at `linear`, or may one (the search is bounded)?
  bool MayExecuteAt(PhysAddr page, LinearAddr linear);
  // In every view that executed the page.
  void ResetJumpEntriesForPhysPage(PhysAddr page);

  // --- Code traces: stores to the page reach TraceListener::CodeWritten ---
  // Beside others: the machine is taken for a page that was not traced (TakeMachine()).
  void TraceCode(PhysAddr page);
  void UntraceCode(PhysAddr page);
  bool IsTraced(PhysAddr page) const {
    const PageInfo* info = memory_->Info(page);
    return info != nullptr && (info->flags & kOwnTraces) != 0;
  }
  // The same for a page that runs directly, elsewhere: in its views' followers. The latter: false
  // if it does not; true: the followers have been told to let go of it.
  void TraceDirectCode(PhysAddr page);
  bool UntraceDirectCode(PhysAddr page);

  // --- Watched pages: each store there, or each access, is Resolution::kSimulate ---
  // The pages from `first`'s to `last`'s, too. At most WatchedPages::kMax times.
  void WatchPages(LinearAddr first, LinearAddr last, bool loads);
  void ForgetWatchedPages();

  // --- Without side effects (debuggers, dumps) ---
  // How many of the bytes could be read; device memory is not touched.
  unsigned DebugRead(LinearAddr address, void* out, unsigned size) const;
  // Is the address mapped, and where?
  bool DebugTranslate(LinearAddr address, PhysAddr* pa) const;

  // --- MemoryObserver ---
  void WriteTraced(PhysAddr address, const void* data, u64 size) override;
  void SlotsWillChange() override;
  void SlotsChanged() override;

  Coherence coherence() const { return coherence_; }
  // The guest has announced that it flushes TLBs as the architecture demands: kDeferred takes
  // kEager's place. EndDeferral() is back to what Create() was told, between runs of the guest.
  void BeginDeferral();
  void EndDeferral();
  // The guest says that the page is no page table any more. If that is not so, the next walk knows.
  void TableReleased(PhysAddr page);
  const Counters& counters() const { return counters_; }
  MemoryUse memory_use() const;
  GuestMemory& memory() { return *memory_; }
  ViewPool& views() { return pool_; }
  void FlushAllViews();

 private:
  // Part of an access inside one page, translated.
  struct Piece {
    WalkResult walk;
    unsigned size;
  };
  // The store being followed: RemoveTable must see the entries as they were.
  struct PendingStore {
    u64 first = 1;  // physical address of the first 8-byte unit; 1 = none
    unsigned units = 0;
    const u64* old_values = nullptr;
  };
  static constexpr unsigned kMaxFollowed = 64;  // a longer store is data, not page-table entries

  explicit Mmu(const MmuOptions& options);
  ViewKey CurrentKey() const {
    u64 packed = kernel_key_;
    if (state_->cpl == 3) {
      packed = user_key_;
    } else if ((packed & ViewKey::kSmap) && (state_->system_flags & vcpu::kAc)) {
      packed = open_key_;
    }
    return ViewKey{packed | CodeBits()};
  }
  u64 CodeBits() const {
    const vcpu::Segment& code = state_->segment[vcpu::kCs];
    const u64 bits = code.Long() && (state_->efer & vcpu::kEferLma) ? 2 : code.Big() ? 1 : 0;
    return bits << ViewKey::kCodeBitsShift;
  }
  void ForgetMemoryMap();
  void RecomputePagingKey();
  void ChooseOpenView();
  void AdoptPdptes(u64 root, const u64 pdpte[4]);
  void SwitchTo(ViewKey key);
  void LinkSwitched(View& next);
  [[gnu::noinline]] View* ObtainView();
  // The view whose rights `who` has now, if there is one.
  View* ViewFor(vcpu::Privilege who);
  Access AccessOf(vcpu::Privilege who, bool write) const;
  LinearAddr Wrap(LinearAddr address) const { return LinearAddr(address.value & linear_mask_); }
  // After Wrap: can page tables map it?
  bool Addressable(LinearAddr address) const {
    return linear_mask_ != ~u64{0} || IsCanonical(address.value);
  }

  // --- kernel_views.cc: views that follow the root ---
  PhysAddr RootEntryAddress(unsigned slot) const;
  u64 RootEntry(unsigned slot) const;
  void RunGroupOfRoot(PagingMode mode);
  void FollowRoot(View& view);
  void KeepAlikeRootEntries(View& view);
  void RegisterRoot(View& view, PhysAddr root);
  void ForgetRoot(View& view);
  void LinkPeers();
  void LinkRoots(View& from);
  // Does the address space run, or did it until CR3 was loaded last? Isolated kernels have two
  // roots.
  bool Runs(PhysAddr root) const { return root == context_.root || root == previous_root_; }

  // --- mmu.cc: the VMM's own accesses ---
  bool Translate(LinearAddr address, unsigned size, vcpu::Privilege who, bool write,
                 Piece pieces[2], vcpu::GuestFault* fault);
  bool CheckedWalk(LinearAddr address, const PagingContext& context, const Access& access,
                   View* view, WalkResult* walk, vcpu::GuestFault* fault) const;
  void StoreTo(const View::WriteTarget& target, u64 in_page, const void* data, unsigned size);

  // --- shadow_fill.cc: from guest tables to shadow entries ---
  Resolution Resolve(View& view, LinearAddr address, unsigned size, bool write,
                     vcpu::GuestFault* fault);
  // A walk that starts at the last level where the view knows the leaf table.
  WalkResult WalkIn(View* view, const PagingContext& context, LinearAddr linear) const;
  bool MarkWalk(const PagingContext& context, WalkResult* walk, bool write);
  void ReserveNodes();
  bool MakeChunk(View& view, u64 index);
  bool StoodStill(const WalkResult& walk, unsigned level);
  bool MayEmpty(const View& view);
  bool RegisterTables(View& view, u64 index, const WalkResult& walk);
  // Where the guest's entry allows stores: may the shadow's begin to?
  enum class Writable : u8 { kYes, kIfItIs };
  u64 DesiredEntry(View& view, u64 index, u64 entry, u8 upper_rights,
                   Writable writable = Writable::kYes);
  u64 EntryForPage(View& view, u64 index, PhysAddr page, bool may_write,
                   Writable writable = Writable::kYes);
  void FillEntry(View& view, u64 index, u64 entry);
  void FillSlice(View& view, u64 index, const WalkResult& walk, unsigned count);
  void FillLargePage(View& view, u64 index, PhysAddr page, bool may_write);
  bool Usable(const View& view, u64 index, bool write) const;

  // --- shadow_flush.cc: from the guest's TLB flushes to shadow entries ---
  void LetGo(PhysAddr page);
  void SyncUnits(unsigned place, u64 first, u64 units);
  void SyncPart(u64 arena_offset, u64 bytes);
  void SyncTable(u64 arena_offset);
  bool IsUsedBy(const PageInfo& table, PhysAddr root);
  void FlushTranslations(bool all);
  void EmptyViews(bool all);
  bool IsCrowded() const;
  OutOfSyncTables::Set TablesToFlush(bool all);
  void SyncTables(const OutOfSyncTables::Set& tables, bool all);
  void FlushPage(LinearAddr address);
  unsigned EntryShiftOf(Use use) {
    return pool_[use.view()].context().format->entry_bytes == 8 ? 3 : 2;
  }

  // --- shadow_trace.cc: from stores and traces to shadow entries ---
  void FollowStore(u64 arena_offset, u64 old_value, u64 new_value);
  bool FollowUnit(u64 arena_offset, u64 old_value, u64 new_value);
  bool FollowUse(Use use, u64 in_page, u64 old_value, u64 new_value);
  void SyncEntry(View& view, u64 index, u64 old_entry, u64 new_entry, u8 upper_rights);
  template <class Entry>
  void SyncUse(Use use, u64 first_unit, const u64* known, const u64* now, u64 units);
  void ApplyLeafChange(View& view, u64 index, u64 old_entry, u64 new_entry, u8 upper_rights);
  void ForgetLeaf(View& view, u64 index, u64 old_entry, u64 new_entry);
  bool ApplyUpperChange(View& view, Use use, u64 slot, u64 old_entry, u64 new_entry);
  u64 EntryBeforeStore(PhysAddr address, unsigned bytes) const;
  bool DropUpperEntry(View& view, unsigned level, u64 base, u64 slot, u64 old_entry);
  std::optional<u32> UnregisterTable(PageInfo& info, Use use);
  bool RemoveTable(View& view, unsigned level, PhysAddr table, u64 base);
  void DropTable(u64 arena_offset);
  void TraceTable(u64 arena_offset, Use use);
  void RemoveTableUse(PageInfo& info, u32* link);
  void SetTrace(u64 arena_offset, u8 flag);
  void Demote(u64 arena_offset);
  void ClearTrace(u64 arena_offset, u8 flag);
  u64 OffsetOf(const PageInfo& info) const {
    return static_cast<u64>(&info - &memory_->InfoAt(0)) << 12;
  }
  bool AddWritable(u64 arena_offset, View& view, u64 index);
  void CompactWritable(u64 arena_offset);
  void AddExecuted(View& view, u64 index, u64 arena_offset, PhysAddr page);
  void CompactExecuted(PageInfo& info, PhysAddr page);
  void FlushView(View& view, bool release);

  // --- beside.cc ---
  template <class F>
  void ForEachOther(F f) {
    for (unsigned vcpu = 0; vcpu < group_->count; ++vcpu) {
      Mmu* const other = group_->mmu[vcpu];
      if (other != nullptr && other != this) f(*other, vcpu);
    }
  }
  // f with the other Mmu, whose VCPU does nothing to it meanwhile.
  template <class F>
  void WithHeld(Mmu& other, unsigned vcpu, F f) {
    group_->vcpus->HoldBeside(vcpu);
    f(other);
    group_->vcpus->EndHoldBeside(vcpu);
  }
  bool HasMachine() const { return group_->vcpus->HasMachine(state_->number); }
  bool TakeMachineToTrace(const PageInfo& info) {
    return group_ != nullptr && !(info.flags & kOwnTraces) && TakeMachine();
  }
  void NoteForgotten(u32 page);
  void TellForgotten();
  void TraceElsewhere(u64 arena_offset);
  void ForgetElsewhere(u64 arena_offset);
  void ForgetAllElsewhere();
  bool IsWritable(u64 arena_offset);
  bool IsLeafTable(u64 arena_offset);
  u8 ShareStores(u64 arena_offset);
  void BeforeStore(u64 arena_offset, u64 size);
  void AfterStore(u64 first, unsigned units, const u64* old_values, PhysAddr address, u64 size);
  void HearTableNews();
  void AddTableNews(const TableNews& news);
  void AddCodeNews(const CodeNews& news);

  // Is the page a table of some view whose trace is off?
  static bool OutOfSync(const PageInfo& info) {
    return info.table_chain != 0 && !(info.flags & kPageTableTrace);
  }

  View* current_ = nullptr;
  MmuGroup* const group_;
  std::unique_ptr<News> news_;            // of others' stores; null: there are no others
  std::unique_ptr<Forgotten> forgotten_;  // null: the same
  u64 machine_epoch_ = 0;
  bool traced_anew_ = false;  // a page that others could store to
  vcpu::VcpuState* state_;
  Coherence coherence_;
  // Without code bits: of supervisor code, the same with SMAP open, of user code.
  u64 kernel_key_ = 0, open_key_ = 0, user_key_ = 0;
  u64 linear_mask_ = ~u64{0};
  WatchedPages watched_;
  u64 pdpte_[4] = {};         // PAE: what was loaded with ...
  u64 pdpte_root_ = ~u64{0};  // ... this CR3
  GuestMemory* memory_;
  TraceListener* listener_;
  Counters counters_;
  PendingStore pending_;
  ReverseMap uses_;
  OutOfSyncTables out_of_sync_;
  ViewPool pool_;
  RootGroups groups_;
  PagingContext context_;
  PhysAddr previous_root_;
  // Of a VCPU that does not run: what it has loaded beside VcpuState.
  struct ParkedVcpu {
    u64 pdpte[4] = {};
    u64 pdpte_root = ~u64{0};
    PhysAddr previous_root;
  };
  ParkedVcpu parked_[vcpu::kMaxVcpus];
  u64 known_cr3_ = 0;  // as of RecomputePagingKey
  u64 root_peers_pcide_ = 0;
  bool roots_linked_ = false;  // clear: no load of CR3 leads to another view by itself
  PagingMode followed_mode_ = PagingMode::kNone;
  MmuOptions options_;
  void* node_memory_ = nullptr;
  u32 peak_chunks_ = 0;
  u64 chunks_refused_ = 0;  // since a view was emptied for want of them
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_MMU_H_
