// SPDX-License-Identifier: Apache-2.0
#include "mmu/view.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>

namespace alibi::mmu {
namespace {

constexpr u64 kReservationBytes = kViewHeaderBytes + kShadowTableBytes;
constexpr u64 kChunkBytes = View::kChunkEntries * 8;
constexpr u64 kChunkMapBytes = kShadowEntries / View::kChunkEntries / 8;
constexpr u64 kLeafStatesBytes = kShadowEntries / View::kChunkEntries * 4;
constexpr u64 kExecuteBytes = View::kExecuteSlots * (16 + 8);
constexpr u64 kSideBytes = kChunkMapBytes + kLeafStatesBytes + kExecuteBytes +
                           View::kMaxChunks * 4 + View::kMaxTables * 4 + View::kMaxRootEntries * 8;

constexpr u64 kLongestInstruction = 15;

Error HostError(const char* what) {
  return Error{std::string("shadow view: ") + what + ": " + std::strerror(errno) +
               "; raise the limit on virtual memory (ulimit -v) and vm.max_map_count"};
}

}  // namespace

View::~View() {
  if (reservation_ != nullptr) munmap(reservation_, kReservationBytes);
  if (side_ != nullptr) munmap(side_, kSideBytes);
}

Status View::Reserve(unsigned id, HostAddr guard, const void* const default_jumps[2], int vcpu_fd,
                     u64 vcpu_offset, Counters* counters) {
  void* memory = mmap(nullptr, kReservationBytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return HostError("cannot reserve 512 GB of address space");
  u8* base = static_cast<u8*>(memory);
  u8* table = base + kViewHeaderBytes;
  const u64 private_bytes = kVcpuOffset - kSlotDirectoryOffset;
  void* side = MAP_FAILED;
  if (mprotect(base, private_bytes, PROT_READ | PROT_WRITE) != 0 ||
      mmap(table + kVcpuOffset, kVcpuBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
           vcpu_fd, static_cast<off_t>(vcpu_offset)) == MAP_FAILED ||
      (side = mmap(nullptr, kSideBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) == MAP_FAILED) {
    const Error error = HostError("cannot map its header");
    munmap(memory, kReservationBytes);
    return error;
  }
  reservation_ = base;
  side_ = static_cast<u8*>(side);
  chunk_map_ = reinterpret_cast<u64*>(side_);
  static_assert(sizeof(LeafStates) == 4);
  leaf_states_ = reinterpret_cast<LeafStates*>(side_ + kChunkMapBytes);
  execute_ = reinterpret_cast<Executed*>(side_ + kChunkMapBytes + kLeafStatesBytes);
  execute_log_ = reinterpret_cast<u64*>(execute_ + kExecuteSlots);
  chunks_ = reinterpret_cast<u32*>(execute_log_ + kExecuteSlots);
  tables_ = chunks_ + kMaxChunks;
  root_entries_ = reinterpret_cast<u64*>(tables_ + kMaxTables);
  directory_ = reinterpret_cast<SlotDirectory*>(table + kSlotDirectoryOffset);
  slots_ = reinterpret_cast<InlineTlbEntry*>(table + kSlotsOffset);
  peer_ = reinterpret_cast<PrivilegePeer*>(table + kPeerOffset);
  SetPeer(nullptr);
  smap_peer_ = reinterpret_cast<SmapPeer*>(table + kSmapPeerOffset);
  SetSmapPeer(nullptr);
  root_peer_ = reinterpret_cast<RootPeer*>(table + kRootPeerOffset);
  ForgetRootPeer();
  jump_table_ = reinterpret_cast<HostAddr*>(table + kJumpTableOffset);
  conflicts_ = reinterpret_cast<ConflictEntry*>(table + kConflictTableOffset);
  id_ = id;
  guard_ = guard;
  counters_ = counters;
  context_.format = &FormatOf(PagingMode::kNone);
  table_ = reinterpret_cast<u64*>(table);
  for (i32 i = 0; i < 2 * kSlotCount; ++i) slots_[i] = InlineTlbEntry::Empty();
  set_default_jump_targets(default_jumps);
  return Ok{};
}

void View::set_default_jump_targets(const void* const targets[2]) {
  for (unsigned kind = 0; kind < 2; ++kind) default_jump_[kind] = HostAddr(targets[kind]);
  for (u64& dirty : jump_dirty_) dirty = ~u64{0};
  jumps_set_ = kFewJumps + 1;
  SetBit(conflicts_dirty_, 0);
  ResetAllJumps();
}

void View::Retarget(ViewKey key, const PagingContext& context) {
  key_ = key;
  context_ = context;
  runs_directly_ = false;
  ++generation_;
  smap_closed_ = context.smap && !key.user() && !key.smap_open();
}

void View::PoisonEntries(u64 first, u64 count) {
  u64 poison = Poison(first);
  u64* entry = table_ + first;
  for (u64* end = entry + count; entry != end; ++entry, poison -= kPageSize) *entry = poison;
}

void View::PoisonFilled(u64 first, u64 last) {
  LeafStates& states = leaf_states_[first >> kChunkShift];
  constexpr u64 kLeafEntries = u64{1} << kLeafShift;
  for (u64 leaf = first & ~(kLeafEntries - 1); leaf <= last; leaf += kLeafEntries) {
    if (!(states.filled & LeafBit(leaf))) continue;
    const u64 from = std::max(first, leaf), to = std::min(last, leaf + kLeafEntries - 1);
    PoisonEntries(from, to - from + 1);
    if (to - from + 1 != kLeafEntries) continue;
    const u8 others = static_cast<u8>(~LeafBit(leaf));
    states.filled &= others;
    states.local &= others;
  }
}

bool View::InitChunk(u64 index) {
  if (chunk_count_ == kMaxChunks) return false;
  const u64 chunk = index >> kChunkShift;
  u64* entries = table_ + (chunk << kChunkShift);
  if (mprotect(entries, kChunkBytes, PROT_READ | PROT_WRITE) != 0) return false;
#ifdef MADV_POPULATE_WRITE
  // One call instead of a host fault per page; where the host does not know it, faults do.
  madvise(entries, kChunkBytes, MADV_POPULATE_WRITE);
#endif
  PoisonEntries(chunk << kChunkShift, kChunkEntries);
  chunk_map_[chunk >> 6] |= u64{1} << (chunk & 63);
  chunks_[chunk_count_++] = static_cast<u32>(chunk);
  ++counters_->chunk_inits;
  return true;
}

void View::PoisonRange(u64 first, u64 count) {
  const u64 last = first + count - 1;
  const u64 first_chunk = first >> kChunkShift, last_chunk = last >> kChunkShift;
  auto poison_in = [&](u64 chunk) {
    const u64 from = chunk == first_chunk ? first : chunk << kChunkShift;
    const u64 to = chunk == last_chunk ? last : (chunk << kChunkShift) + kChunkEntries - 1;
    PoisonFilled(from, to);
  };
  if (last_chunk - first_chunk < 64) {
    for (u64 chunk = first_chunk; chunk <= last_chunk; ++chunk) {
      if (ChunkReady(chunk << kChunkShift)) poison_in(chunk);
    }
  } else {
    for (u32 i = 0; i < chunk_count_; ++i) {
      if (chunks_[i] >= first_chunk && chunks_[i] <= last_chunk) poison_in(chunks_[i]);
    }
  }
  ClearSlots(first, count);
  DropWriteTargets();
  DropExecutedRange(first, count);
  TellFollowers([&](FollowedPages& pages) { pages.Changed(first, count); });
}

void View::FillSlot(unsigned kind, unsigned slot, LinearAddr page, u64 displacement) {
  const unsigned at = kind * kSlotCount + slot;
  slots_[at].Become(InlineTlbEntry::Of(page, displacement));
  directory_->tag[at] = SlotDirectory::TagOf(page.InPage().number);
  u16& holder = directory_->holder[page.InPage().number % SlotDirectory::kResidues];
  holder = holder == 0 || holder == at + 1 ? static_cast<u16>(at + 1) : SlotDirectory::kSeveral;
  ++counters_->inline_tlb_fills;
}

namespace {

constexpr u64 kEachByte = 0x0101010101010101;

// Eight tags at a time: calls f(slot number) for those whose byte in find(tags) has the upper bit
// set.
template <class Find, class F>
void ForEachSlot(const SlotDirectory& directory, Find find, F f) {
  for (unsigned word = 0; word < sizeof(directory.tag) / 8; ++word) {
    u64 tags;
    __builtin_memcpy(&tags, directory.tag + 8 * word, 8);
    for (u64 bits = find(tags) & kEachByte << 7; bits != 0; bits &= bits - 1)
      f(8 * word + static_cast<unsigned>(__builtin_ctzll(bits)) / 8);
  }
}
template <class F>
void ForEachFilled(const SlotDirectory& directory, F f) {
  static_assert(SlotDirectory::kFilled == 0x80);
  ForEachSlot(
      directory, [](u64 tags) { return tags; }, f);
}
// All those of the tag, and perhaps others: a borrow out of a byte that is zero reaches the next.
template <class F>
void ForEachTagged(const SlotDirectory& directory, u8 tag, F f) {
  const u64 wanted = tag * kEachByte;
  const auto zero_bytes = [wanted](u64 tags) {
    const u64 difference = tags ^ wanted;
    return (difference - kEachByte) & ~difference;
  };
  ForEachSlot(directory, zero_bytes, f);
}

}  // namespace

void View::ClearSlots(u64 first, u64 count) {
  RawFill(reinterpret_cast<u64*>(directory_->holder), 0, sizeof(directory_->holder) / 8);
  ForEachFilled(*directory_, [&](unsigned at) {
    const u64 index = EntryIndex(LinearAddr(0 - slots_[at].neg_page));
    if (index - first < count) {
      EmptySlot(at);
    } else {
      u16& holder = directory_->holder[index % SlotDirectory::kResidues];
      holder = holder == 0 ? static_cast<u16>(at + 1) : SlotDirectory::kSeveral;
    }
  });
}

void View::ClearSlotsOf(u64 index) {
  const u64 neg_page = 0 - PageOfIndex(index).value;
  const u64 residue = index % SlotDirectory::kResidues;
  u16 others = 0;
  ForEachTagged(*directory_, SlotDirectory::TagOf(index), [&](unsigned at) {
    if (slots_[at].neg_page == neg_page) {
      EmptySlot(at);
    } else if (((0 - slots_[at].neg_page) >> 12) % SlotDirectory::kResidues == residue) {
      others = others == 0 ? static_cast<u16>(at + 1) : SlotDirectory::kSeveral;
    }
  });
  directory_->holder[residue] = others;
}

void View::ResetJumpBlocks(u64 first_slot, u64 count) {
  for (u64 block = first_slot / kJumpBlock; block < (first_slot + count) / kJumpBlock; ++block) {
    u64& dirty = jump_dirty_[block / 64];
    const u64 bit = u64{1} << (block % 64);
    if (!(dirty & bit)) continue;
    RawFill(reinterpret_cast<u64*>(jump_table_ + block * kJumpBlock),
            DefaultJumpOf(block * kJumpBlock).value, kJumpBlock);
    dirty &= ~bit;
  }
}

void View::ResetConflicts(u64 part) {
  u64& dirty = conflicts_dirty_[part / 64];
  const u64 bit = u64{1} << (part % 64);
  if (!(dirty & bit)) return;
  for (u64 i = 0; i < ConflictEntry::kPerPage; ++i) {
    const u64 at = part * ConflictEntry::kPerPage + i;
    conflicts_[at] = ConflictEntry::Empty(at);
  }
  dirty &= ~bit;
}

void View::ResetJumpPage(u64 index) {
  const LinearAddr pc = PageOfIndex(index);
  ResetJumpBlocks(JumpIndex(pc, JumpKind::kComputed), kPageSize);
  ResetJumpBlocks(CrossJumpsOfPage(pc), kCrossJumpsPerPage);
  for (u64 i = 1; i <= kLongestInstruction; ++i) {
    for (const JumpKind kind : kJumpKinds) {
      jump_table_[JumpIndex(pc - i, kind)] = default_jump_[static_cast<unsigned>(kind)];
    }
  }
  for (const LinearAddr code : {pc - kLongestInstruction, pc}) {
    ResetConflicts(ConflictEntry::PartOf(code));
  }
  ++counters_->jump_page_resets;
}

void View::ResetAllJumps() {
  if (jumps_set_ <= kFewJumps) {
    for (u64 i = 0; i < jumps_set_; ++i) jump_table_[jump_log_[i]] = DefaultJumpOf(jump_log_[i]);
    for (u64& dirty : jump_dirty_) dirty = 0;
  } else {
    ResetJumpBlocks(0, kJumpTableEntries);
  }
  jumps_set_ = 0;
  for (u64 i = 0; i < std::size(conflicts_dirty_); ++i) {
    while (conflicts_dirty_[i] != 0) ResetConflicts(i * 64 + std::countr_zero(conflicts_dirty_[i]));
  }
}

void View::RecordExecuted(u64 index, PhysPage page) {
  // Probing ends at free slots, so some must stay free; starting over costs only fetches.
  if (execute_count_ >= kExecuteSlots / 4 * 3) DropExecutedRange(0, kShadowEntries);
  if (execute_log_count_ == kExecuteSlots) {
    execute_log_count_ = 0;
    for (u32 i = 0; i < kExecuteSlots; ++i) {
      if (execute_[i].index_plus_1 != 0) {
        execute_log_[execute_log_count_++] = execute_[i].index_plus_1 - 1;
      }
    }
  }
  u32 at = ExecuteHash(index);
  while (execute_[at].index_plus_1 != 0 && execute_[at].index_plus_1 != index + 1) {
    at = (at + 1) & (kExecuteSlots - 1);
  }
  if (execute_[at].index_plus_1 == 0) {
    ++execute_count_;
    execute_log_[execute_log_count_++] = index;
  }
  execute_[at] = Executed{index + 1, page};
  leaf_states_[index >> kChunkShift].executed |= LeafBit(index);
}

// Backward-shift deletion: no tombstones.
void View::EraseExecuted(u32 at) {
  u32 hole = at;
  for (u32 next = (at + 1) & (kExecuteSlots - 1); execute_[next].index_plus_1 != 0;
       next = (next + 1) & (kExecuteSlots - 1)) {
    const u32 home = ExecuteHash(execute_[next].index_plus_1 - 1);
    // Movable unless its home lies cyclically after the hole.
    if (((next - home) & (kExecuteSlots - 1)) >= ((next - hole) & (kExecuteSlots - 1))) {
      execute_[hole] = execute_[next];
      hole = next;
    }
  }
  execute_[hole].index_plus_1 = 0;
  --execute_count_;
}

void View::DropExecutedSlow(u64 index) {
  for (u32 at = ExecuteHash(index); execute_[at].index_plus_1 != 0;
       at = (at + 1) & (kExecuteSlots - 1)) {
    if (execute_[at].index_plus_1 != index + 1) continue;
    EraseExecuted(at);
    ResetJumpPage(index);
    TellFollowers([&](FollowedPages& pages) { pages.Changed(index); });
    return;
  }
}

template <class Condition>
void View::DropExecutedIf(Condition condition) {
  u32 kept = 0;
  for (u32 i = 0; i < execute_log_count_; ++i) {
    const u64 index = execute_log_[i];
    if (condition(index)) {
      DropExecutedSlow(index);
    } else {
      execute_log_[kept++] = index;
    }
  }
  execute_log_count_ = kept;
}

void View::DropExecutedRange(u64 first, u64 count) {
  if (execute_count_ == 0) return;
  if (count <= 64) {
    for (u64 i = 0; i < count; ++i) DropExecutedSlow(first + i);
    return;
  }
  if (count < kShadowEntries) {
    DropExecutedIf([&](u64 index) { return index - first < count; });
    return;
  }
  for (u32 i = 0; i < execute_log_count_; ++i) {
    for (u32 at = ExecuteHash(execute_log_[i]); execute_[at].index_plus_1 != 0;
         at = (at + 1) & (kExecuteSlots - 1)) {
      execute_[at].index_plus_1 = 0;
    }
  }
  execute_count_ = 0;
  execute_log_count_ = 0;
  ResetAllJumps();
  TellFollowers([](FollowedPages& pages) { pages.ChangedAll(); });
}

void View::Empty() {
  if (holds_) Clear(false);
}

void View::EmptyOfLocal() {
  if (!holds_local_) return;
  holds_local_ = false;
  TellFollowers([](FollowedPages& pages) { pages.ChangedAll(); });
  ClearSlots(0, kShadowEntries);
  DropWriteTargets();
  DropExecutedIf(
      [&](u64 index) { return leaf_states_[index >> kChunkShift].local & LeafBit(index); });
  constexpr u64 kLeafEntries = u64{1} << kLeafShift;
  for (u32 i = 0; i < chunk_count_; ++i) {
    LeafStates& states = leaf_states_[chunks_[i]];
    for (unsigned bits = states.filled & states.local; bits != 0; bits &= bits - 1) {
      const unsigned leaf = static_cast<unsigned>(__builtin_ctz(bits));
      PoisonEntries((u64{chunks_[i]} << kChunkShift) + leaf * kLeafEntries, kLeafEntries);
    }
    states.filled &= static_cast<u8>(~states.local);
    states.local = 0;
  }
}

void View::SetLarge(u64 first, u64 count, bool large) {
  for (u64 at = first; at < first + count; at += u64{1} << kLeafShift) {
    u8& bits = leaf_states_[at >> kChunkShift].large;
    bits = static_cast<u8>(large ? bits | LeafBit(at) : bits & ~LeafBit(at));
  }
}

void View::EmptyOfPage(u64 index, u64 largest) {
  if (leaf_states_[index >> kChunkShift].large & LeafBit(index)) {
    PoisonRange(index & ~(largest - 1), largest);
    SetLarge(index & ~(largest - 1), largest, false);
    return;
  }
  if (ChunkReady(index)) SetEntry(index, Poison(index));
  DropWriteTarget(index);
  DropExecuted(index);
}

void View::Clear(bool release) {
  if (release && chunk_count_ != 0) {
    // A fresh mapping: gives back pages and merges the VMAs in one call.
    mmap(table_, kShadowTableBytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    for (u32 i = 0; i < chunk_count_; ++i) {
      chunk_map_[chunks_[i] >> 6] = 0;
      leaf_states_[chunks_[i]] = {};
    }
    chunk_count_ = 0;
  } else {
    for (u32 i = 0; i < chunk_count_; ++i) {
      const u64 first = u64{chunks_[i]} << kChunkShift;
      PoisonFilled(first, first + kChunkEntries - 1);
      leaf_states_[chunks_[i]].large = leaf_states_[chunks_[i]].executed = 0;
    }
  }
  ClearSlots(0, kShadowEntries);
  ResetAllJumps();
  DropExecutedRange(0, kShadowEntries);
  DropWriteTargets();
  DropLeafCaches();
  ForgetRootEntries();
  TellFollowers([](FollowedPages& pages) { pages.ChangedAll(); });
  table_count_ = 0;
  holds_ = holds_local_ = false;
}

}  // namespace alibi::mmu
