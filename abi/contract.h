// SPDX-License-Identifier: Apache-2.0
// The contract of emitted code: what every translation, stub and callout may rely on.
//
//            low addresses                                                  high addresses
//   +---------------+------------------+-------------+---------------------------------------+
//   | inline TLB    | conflict and     | VCPU block  | shadow table: 2^36 entries of 8 bytes |
//   | and directory | jump table       | (shared by  | entry[page]: host = linear + entry    |
//   | (this view)   | (this view)      |  all views) | (this view)                           |
//   +---------------+------------------+-------------+---------------------------------------+
//   ^ kSlotDirectoryOffset             ^ kVcpuOffset ^ %gs base
//        kSlotsOffset, kConflictTableOffset, kJumpTableOffset
//
// A *view* is one shadow of one guest address space as one privilege class sees it; everything
// derived from its mappings lies in front of its table, so that switching views is one WRGSBASE.
//
// Registers in translated code:
//   r10, r11   scratch; their guest values are in VcpuState::gpr (static counts over libc, bash,
//              git and cc1 show them as the least used: 0.8-1.7 % of instructions name them)
//   rsp        the guest's rsp: never a valid VMM stack; signals use the alternate stack
//   the rest   guest values, including arithmetic flags and all vector state
//   %gs        the view; SYSCALL, SYSRET, STAC, CLAC and MOV to CR3 change it without the VMM, and
//              it looks (RDGSBASE) when it is called next; %fs stays the C library's
//   DF         always clear (the guest's DF is VcpuState::df_flag)
//
// What a sequence keeps for itself lies in VcpuState::scratch, a field for each use
// (vcpu/scratch.inc); what else of the VCPU block it reaches is listed in fields.inc, and what it
// calls in callouts.inc.
//
// Memory access (every kind): the op itself is the last instruction that can fault, and only
// scratch registers are written before it, so a site can be restarted from its first instruction.
#ifndef ALIBI_ABI_CONTRACT_H_
#define ALIBI_ABI_CONTRACT_H_

#include "base/types.h"
#include "vcpu/state.h"

namespace alibi {

inline constexpr u64 kShadowEntries = u64{1} << 36;
inline constexpr u64 kShadowTableBytes = kShadowEntries * 8;

inline constexpr i32 kVcpuBlockBytes = 8192;
inline constexpr i32 kJumpTableEntries = 1 << 16;
inline constexpr i32 kJumpTableBytes = kJumpTableEntries * 8;
inline constexpr i32 kSlotCount = 1024;  // per access kind

// One cached translation of a page: hit when linear + neg_page <= 4096 - size (unsigned); then
// host = linear + displacement.
struct InlineTlbEntry {
  u64 neg_page;
  u64 displacement;
  u64 host_page;  // page + displacement: added to the offset in the page, saves a register
  u64 misses;     // counted by the miss stub; survives what else the slot forgets

  static constexpr InlineTlbEntry Of(LinearAddr page, u64 displacement) {
    return {0 - page.value, displacement, page.value + displacement, 0};
  }
  // Caches a page that does not exist: an address that hits it is not canonical, and stays so on
  // the host. So no valid bit is needed, and no guest page (0 among them) behaves specially.
  static constexpr InlineTlbEntry Empty() { return Of(LinearAddr(u64{1} << 63), 0); }
  void Become(const InlineTlbEntry& other) {
    const u64 count = misses;
    *this = other;
    misses = count;
  }
};

// Every so many misses of a slot the runtime judges whether it pays for the site.
inline constexpr u32 kMissWindow = 2048;

// Which inline TLB entries cache a page, so that a changed shadow entry finds them without a
// search: by page number modulo kResidues, none (0), at most one (its number + 1), or several.
struct SlotDirectory {
  static constexpr u32 kResidues = 512;
  static constexpr u16 kSeveral = 0xffff;
  u16 holder[kResidues];
  // [slot]: 0 if it is empty, else the tag of the page, so that of those with several holders a
  // search looks at few slots.
  u8 tag[2 * kSlotCount];

  static constexpr u8 kFilled = 0x80;
  static constexpr u8 TagOf(u64 page_number) { return static_cast<u8>(page_number) | kFilled; }
};
static_assert(sizeof(SlotDirectory) <= 3072);

// The view of the same address space on the other side of SYSCALL and SYSRET, so that their in-TC
// sequences can switch %gs by themselves. `missing` is zero when gs_base is good.
struct PrivilegePeer {
  HostAddr gs_base;
  u64 missing;
};
// The view of the same address space on the other side of STAC and CLAC, for theirs. `no_stac` is
// zero in a view of closed SMAP whose open counterpart is gs_base, `no_clac` the reverse.
struct SmapPeer {
  HostAddr gs_base;
  u64 no_stac, no_clac;
};
// The view that a MOV to CR3 leads to. Of a kernel's 64-bit view: a load of this value leads to the
// view gs_base, and needs nothing else.
struct RootPeer {
  u64 mask;     // the bits of the operand that count
  u64 negated;  // those bits (PEXT) plus this are zero for the value
  u64 cr3;      // what CR3 becomes
  HostAddr gs_base;

  static constexpr RootPeer Of(u64 cr3, u64 ignored, HostAddr gs_base) {
    return {~ignored, 0 - cr3, cr3, gs_base};
  }
  static constexpr RootPeer None() { return {0, 1, 0, {}}; }  // no operand fits
};
// A target that shares its place in the jump table with others: the stub behind a failed entry
// check looks here. Which entry is a target's own says the PC, by PEXT: each page of code has a few
// (and shares them with pages far away), and there the PC's bits decide where functions begin.
struct ConflictEntry {
  u64 negated;     // the PC
  HostAddr entry;  // of the translation, without a check

  static constexpr u64 kApart = 16;
  static constexpr u64 kPerPage = 8;
  static constexpr u64 kPages = 8192;
  static constexpr u64 kIndexMask = (kPages - 1) * kPageSize + (kPerPage - 1) * kApart;

  static constexpr u64 PartOf(LinearAddr pc) { return pc.InPage().number % kPages; }
  static constexpr u64 IndexOf(LinearAddr pc) {
    return PartOf(pc) * kPerPage + pc.value / kApart % kPerPage;
  }
  // Names a PC that has its entry elsewhere. Of most it is 0: new memory is empty.
  static constexpr ConflictEntry Empty(u64 index) { return {index == 0 ? 0 - kApart : 0, {}}; }
};
inline constexpr i32 kConflictTableBytes =
    static_cast<i32>(ConflictEntry::kPages * ConflictEntry::kPerPage * sizeof(ConflictEntry));

inline constexpr i32 kSlotDirectoryBytes = 4096;  // with the peers in its upper quarter
inline constexpr i32 kSlotsBytes = 2 * kSlotCount * static_cast<i32>(sizeof(InlineTlbEntry));

// %gs-relative displacements.
inline constexpr i32 kVcpuOffset = -kVcpuBlockBytes;
inline constexpr i32 kJumpTableOffset = kVcpuOffset - kJumpTableBytes;
inline constexpr i32 kConflictTableOffset = kJumpTableOffset - kConflictTableBytes;
inline constexpr i32 kSlotsOffset = kConflictTableOffset - kSlotsBytes;  // loads first, then stores
inline constexpr i32 kSlotDirectoryOffset = kSlotsOffset - kSlotDirectoryBytes;
inline constexpr i32 kPeerOffset = kSlotDirectoryOffset + 3072;
inline constexpr i32 kSmapPeerOffset = kPeerOffset + static_cast<i32>(sizeof(PrivilegePeer));
inline constexpr i32 kRootPeerOffset = kSmapPeerOffset + static_cast<i32>(sizeof(SmapPeer));
inline constexpr i32 kViewHeaderBytes = -kSlotDirectoryOffset;

static_assert(sizeof(vcpu::VcpuState) <= kVcpuBlockBytes);
static_assert(kRootPeerOffset + static_cast<i32>(sizeof(RootPeer)) <= kSlotsOffset);
static_assert(kViewHeaderBytes % 4096 == 0);

// The jump table has two halves, because its indices are computed at different times and targets of
// one kind must not drive out those of the other.
//
// Computed targets (returns, mostly): the PC's low bits, by PEXT with kJumpIndexMask; a page takes
// 4,096 entries of eight. Constant targets in another page (calls of functions, which begin at
// multiples of 16, mostly): chosen when the jump is translated, so that a hash costs nothing; a
// page takes 1,024 entries of 32.
enum class JumpKind : u8 { kComputed, kCrossPage };
inline constexpr JumpKind kJumpKinds[] = {JumpKind::kComputed, JumpKind::kCrossPage};
inline constexpr u64 kComputedJumps = u64{1} << 15;
inline constexpr u64 kJumpIndexMask = kComputedJumps - 1;
inline constexpr u64 kCrossJumpsPerPage = 1024;
static_assert(kJumpTableEntries == kComputedJumps + 32 * kCrossJumpsPerPage);

// The first entry of the page's cross-page targets.
constexpr u64 CrossJumpsOfPage(LinearAddr pc) {
  return kComputedJumps + pc.InPage().number % 32 * kCrossJumpsPerPage;
}
constexpr u64 JumpIndex(LinearAddr pc, JumpKind kind) {
  if (kind == JumpKind::kComputed) return pc.value & kJumpIndexMask;
  return CrossJumpsOfPage(pc) + (pc.value * 0x9e3779b97f4a7c15u >> 54) % kCrossJumpsPerPage;
}
// The entry's %gs displacement.
constexpr i32 JumpTablePlace(LinearAddr pc, JumpKind kind) {
  return kJumpTableOffset + static_cast<i32>(JumpIndex(pc, kind) * 8);
}

}  // namespace alibi

#endif  // ALIBI_ABI_CONTRACT_H_
