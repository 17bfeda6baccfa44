// SPDX-License-Identifier: Apache-2.0
#include "testsuite/verifier/contract_cells.h"

#include <cstddef>

#include "abi/contract.h"
#include "vcpu/state.h"

namespace alibi::verifier {
namespace {

using vcpu::VcpuState;

struct Field {
  std::size_t offset, size;
  bool writable;
  Cell cell = Cell::kState;
};

#define ALIBI_FIELD(name, ...) \
  { offsetof(VcpuState, name), sizeof(VcpuState::name), __VA_ARGS__ }
// Everything else of the VCPU block is the runtime's: among it the VMM's stack pointer, where to go
// on after a callout, and where guest RAM lies.
constexpr Field kFields[] = {
    {offsetof(VcpuState, gpr) + 8 * vcpu::kR10, 8, true, Cell::kGuestGpr},
    {offsetof(VcpuState, gpr) + 8 * vcpu::kR11, 8, true, Cell::kGuestGpr},
    ALIBI_FIELD(scratch, true, Cell::kScratch),
    ALIBI_FIELD(page_index_mask, false, Cell::kPageMask),
    ALIBI_FIELD(jump_index_mask, false, Cell::kJumpMask),
    ALIBI_FIELD(if_flag, true),
    ALIBI_FIELD(df_flag, true),
    ALIBI_FIELD(cpl, true),
    ALIBI_FIELD(system_flags, true),
    ALIBI_FIELD(last_branch, true),
    ALIBI_FIELD(cr8, true),
    ALIBI_FIELD(segment, true),
    ALIBI_FIELD(kernel_gs_base, true),
    ALIBI_FIELD(cr0, false),
    ALIBI_FIELD(cr2, false),
    ALIBI_FIELD(cr3, true),
    ALIBI_FIELD(cr4, false),
    ALIBI_FIELD(cr8_bias, false),
    ALIBI_FIELD(cr8_reserved_mask, false),
    ALIBI_FIELD(irq_pending, false),
    ALIBI_FIELD(slow_rdtsc, false),
    ALIBI_FIELD(segment_fast_limit, false),
    ALIBI_FIELD(fast_syscall, false),
    ALIBI_FIELD(lstar, false),
    ALIBI_FIELD(tsc_offset, false),
    ALIBI_FIELD(tsc_aux, false),
};
#undef ALIBI_FIELD

CellInfo InSlots(u64 at, unsigned size) {
  const u64 number = at / sizeof(InlineTlbEntry), inside = at % sizeof(InlineTlbEntry);
  const i32 slot = kSlotsOffset + static_cast<i32>(number * sizeof(InlineTlbEntry));
  const bool stores = number >= u64{kSlotCount};
  if (size != 8) return {};
  switch (inside) {
    case offsetof(InlineTlbEntry, neg_page):
      return {Cell::kNegPage, false, stores, slot, 0};
    case offsetof(InlineTlbEntry, displacement):
      return {Cell::kDisplacement, false, stores, slot, 0};
    case offsetof(InlineTlbEntry, host_page):
      return {Cell::kHostPage, false, stores, slot, 0};
    default:
      return {};
  }
}

CellInfo InPeers(i64 displacement, unsigned size) {
  const i64 peer = displacement - kPeerOffset, smap = displacement - kSmapPeerOffset;
  if (size != 8) return {};
  if (peer == offsetof(PrivilegePeer, gs_base)) return {.cell = Cell::kPeerView, .writable = true};
  const i64 root = displacement - kRootPeerOffset;
  if (smap == offsetof(SmapPeer, gs_base) || root == offsetof(RootPeer, gs_base)) {
    return {.cell = Cell::kPeerView};
  }
  if (root == offsetof(RootPeer, mask) || root == offsetof(RootPeer, negated) ||
      root == offsetof(RootPeer, cr3)) {
    return {.cell = Cell::kState};
  }
  if (peer == offsetof(PrivilegePeer, missing) || smap == offsetof(SmapPeer, no_stac) ||
      smap == offsetof(SmapPeer, no_clac)) {
    return {.cell = Cell::kState};
  }
  return {};
}

}  // namespace

CellInfo CellAt(i64 displacement, unsigned size) {
  if (displacement < kSlotsOffset) return InPeers(displacement, size);
  if (displacement < kJumpTableOffset) {
    return InSlots(static_cast<u64>(displacement - kSlotsOffset), size);
  }
  if (displacement < kVcpuOffset) {
    const bool entry = size == 8 && (displacement - kJumpTableOffset) % 8 == 0;
    return {.cell = entry ? Cell::kJumpTable : Cell::kNone};
  }
  if (displacement >= 0) return {};
  const u64 at = static_cast<u64>(displacement - kVcpuOffset);
  for (const Field& field : kFields) {
    if (at < field.offset || at + size > field.offset + field.size) continue;
    CellInfo info{.cell = field.cell, .writable = field.writable};
    if (field.cell == Cell::kScratch) info.index = static_cast<unsigned>(at - field.offset) / 8;
    return info;
  }
  return {};
}

}  // namespace alibi::verifier
