// SPDX-License-Identifier: Apache-2.0
// Guest-physical memory: RAM and ROM slots, each mapped twice, and who must hear of writes.
//
//   arena:  | read-only alias        | read-write alias       | guard  |
//           ^ ro_base()              ^ rw_base()              ^ guard()
//           |<----- capacity() ----->|<----- capacity() ----->| 64 KB  |
//
// A slot lies at the same offset in both windows. Shadow entries lead into one of the windows or
// into the guard, nowhere else; emitted loads may read both windows, stores the second only.
#ifndef ALIBI_MMU_GUEST_MEMORY_H_
#define ALIBI_MMU_GUEST_MEMORY_H_

#include <memory>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "mmu/huge_blocks.h"
#include "mmu/reverse_map.h"

namespace alibi::mmu {

// Width of guest-physical addresses: what CPUID 0x80000008 shows and where reserved bits begin.
inline constexpr unsigned kPhysBits = 40;
inline constexpr u64 kPhysLimit = u64{1} << kPhysBits;
inline constexpr u64 kGuardBytes = 64 * 1024;
inline constexpr u64 kDefaultArenaBytes = u64{256} << 30;

// Why a page may not be written directly. Any bit keeps shadow entries in the read-only alias.
inline constexpr u8 kPageTableTrace = 1, kCodeTrace = 2, kRomPage = 4, kDirectTrace = 8,
                    kTracedElsewhere = 16;  // for another VCPU: see mmu/beside.h
// Stores to such a page are told to the TraceListener: code was made from its bytes, or runs there
// directly.
inline constexpr u8 kCodeTraces = kCodeTrace | kDirectTrace;
inline constexpr u8 kOwnTraces = kPageTableTrace | kCodeTraces;

// One per page of the arena. Chains are of ReverseMap nodes; 0 ends them.
struct PageInfo {
  u32 writable_chain = 0;  // shadow entries that lead here read-write (may hold stale ones)
  u32 execute_chain = 0;   // linear pages that execute this page (may hold stale ones)
  u32 table_chain = 0;     // uses as a guest page table (exact)
  u16 writable_count = 0;
  u8 flags = 0;
  // Stores since this page table was last used by a walk; out of sync: its place in that list.
  u8 flood = 0;
};
static_assert(sizeof(PageInfo) == 16);

// Told after a guest or device store changed bytes of a page under kCodeTraces. May run while guest
// vector state is live (a fast callout): an implementation that uses vector registers saves it.
class TraceListener {
 public:
  virtual ~TraceListener() = default;
  virtual void CodeWritten(PhysAddr address, u64 size) = 0;
  // The running view fetches code from a page for the first time.
  virtual void PageExecuted([[maybe_unused]] LinearAddr linear_page,
                            [[maybe_unused]] PhysAddr page) {}
  // A slot came or went: code may have changed anywhere, past its traces. Nothing translated before
  // may be entered again.
  virtual void MemoryMapChanged() {}
};

// Physical addresses outside the slots, and stores to ROM. size is 1, 2, 4 or 8. The same warning
// about vector registers holds.
class MmioHandler {
 public:
  virtual ~MmioHandler() = default;
  virtual u64 MmioRead(PhysAddr address, unsigned size) = 0;
  virtual void MmioWrite(PhysAddr address, unsigned size, u64 value) = 0;
};

// How the shadow (above) follows physical writes (here).
class MemoryObserver {
 public:
  virtual ~MemoryObserver() = default;
  // Performs a store inside one page that is traced, then follows it.
  virtual void WriteTraced(PhysAddr address, const void* data, u64 size) = 0;
  // Before slots change: from here to the change's end nobody else may look at them.
  virtual void SlotsWillChange() = 0;
  // A slot came or is about to go: nothing derived from the memory map may stay.
  virtual void SlotsChanged() = 0;
};

struct SlotInfo {
  PhysAddr base;
  u64 size;
  HostAddr host;  // its first byte in the unprotected alias
  bool read_only;
};

class GuestMemory {
 public:
  // Reserves (2 * capacity + guard) bytes of address space; no memory is used until slots come.
  static Result<std::unique_ptr<GuestMemory>> Create(u64 capacity = kDefaultArenaBytes);
  // The same memory with page descriptors of its own, for the Mmu of another VCPU (mmu/beside.h).
  // This one outlives it, and slots come and go here.
  Result<std::unique_ptr<GuestMemory>> Share();
  ~GuestMemory();
  GuestMemory(const GuestMemory&) = delete;
  GuestMemory& operator=(const GuestMemory&) = delete;

  Status AddSlot(PhysAddr base, u64 size, bool read_only = false);
  Status RemoveSlot(PhysAddr base);

  void set_observer(MemoryObserver* observer) { observer_ = observer; }
  void set_mmio_handler(MmioHandler* handler) { mmio_ = handler; }

  // --- The guest-physical interface of loaders and devices; any size, fires traces ---
  // Outside the slots the MMIO handler answers (all ones without one). Stores to ROM go there too.
  void ReadPhys(PhysAddr address, void* out, u64 size) const;
  void WritePhys(PhysAddr address, const void* data, u64 size);
  // For loaders: writes RAM and ROM; false, and nothing written, if part of it is neither.
  bool LoadPhys(PhysAddr address, const void* data, u64 size);
  // Is [address, address + size) all RAM or ROM?
  bool IsBacked(PhysAddr address, u64 size) const;

  u64 MmioRead(PhysAddr address, unsigned size) const;
  void MmioWrite(PhysAddr address, unsigned size, u64 value) const;

  // --- Direct access, for the layers below the traces ---
  // Offset of a RAM or ROM byte in both windows, or kNotRam.
  static constexpr u64 kNotRam = ~u64{0};
  u64 ArenaOffset(PhysAddr address) const {
    for (unsigned i = 0; i < slot_count_; ++i) {
      const u64 offset = address.value - slots_[i].base;
      if (offset < slots_[i].size) return slots_[i].arena_offset + offset;
    }
    return kNotRam;
  }
  // The unprotected alias; valid up to the end of its page. Null if neither RAM nor ROM.
  u8* HostRw(PhysAddr address) const {
    const u64 offset = ArenaOffset(address);
    return offset == kNotRam ? nullptr : rw_base_ + offset;
  }
  PageInfo& InfoAt(u64 arena_offset) const { return info_[arena_offset >> 12]; }
  // The guest begins to use memory at this offset in a slot: asks the host for what lies around it.
  void Back(u64 arena_offset) const {
    if (__builtin_expect(!blocks_->Settled(arena_offset), 0)) BackBlock(arena_offset);
  }
  // f(SlotInfo) for each.
  template <class F>
  void ForEachSlot(F f) const {
    for (unsigned i = 0; i < slot_count_; ++i) {
      const Slot& slot = slots_[i];
      f(SlotInfo{PhysAddr(slot.base), slot.size, rw_base() + slot.arena_offset, slot.read_only});
    }
  }
  // The inverse, for an offset inside a slot.
  PhysAddr PhysOf(u64 arena_offset) const {
    for (unsigned i = 0; i < slot_count_; ++i) {
      const u64 offset = arena_offset - slots_[i].arena_offset;
      if (offset < slots_[i].size) return PhysAddr(slots_[i].base + offset);
    }
    return PhysAddr(~u64{0});
  }
  // Null if neither RAM nor ROM.
  PageInfo* Info(PhysAddr address) const {
    const u64 offset = ArenaOffset(address);
    return offset == kNotRam ? nullptr : &InfoAt(offset);
  }
  // Forgets every chain and page-table trace of every page (code traces and ROM stay).
  void ResetChains();

  // The file behind both windows, where a page's place is its arena offset.
  int fd() const { return fd_; }
  HostAddr ro_base() const { return HostAddr(ro_base_); }
  HostAddr rw_base() const { return HostAddr(rw_base_); }
  HostAddr guard() const { return rw_base() + capacity_; }
  u64 capacity() const { return capacity_; }
  u64 total_bytes() const { return total_bytes_; }

 private:
  static constexpr unsigned kMaxSlots = 32;
  struct Slot {
    u64 base, size, arena_offset;
    bool read_only;
  };

  GuestMemory() = default;
  // For a slot at `base`; or kNotRam.
  u64 FindArenaSpace(PhysAddr base, u64 size) const;
  bool IsFree(u64 start, u64 size) const;
  void BackBlock(u64 arena_offset) const;
  Status CreateInfo();
  // What shares the memory: has its slots, and descriptors of ROM.
  void TakeSlots();
  void SetRom(const Slot& slot);
  // f(memory) for this one and those that share it.
  template <class F>
  void ForEachShare(F f) {
    f(*this);
    for (GuestMemory* share : shares_) f(*share);
  }

  Slot slots_[kMaxSlots] = {};  // largest first: most look-ups end at the first
  unsigned slot_count_ = 0;
  void* reservation_ = nullptr;
  u8* ro_base_ = nullptr;
  u8* rw_base_ = nullptr;
  HugeBlocks* blocks_ = nullptr;  // own_blocks_, or of what is shared
  std::unique_ptr<HugeBlocks> own_blocks_;
  PageInfo* info_ = nullptr;
  u64 capacity_ = 0;
  u64 total_bytes_ = 0;
  int fd_ = -1;
  MemoryObserver* observer_ = nullptr;
  MmioHandler* mmio_ = nullptr;
  std::vector<GuestMemory*> shares_;
  GuestMemory* shared_ = nullptr;  // whose slots these are
};

}  // namespace alibi::mmu

#endif  // ALIBI_MMU_GUEST_MEMORY_H_
