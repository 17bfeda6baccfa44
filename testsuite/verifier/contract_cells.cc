// SPDX-License-Identifier: Apache-2.0
#include "testsuite/verifier/contract_cells.h"

#include <cstddef>

#include "abi/contract.h"
#include "vcpu/state.h"

namespace alibi::verifier {
namespace {

using vcpu::VcpuState;

enum class Who : u8 { kCodeReads, kCodeWrites, kStubs };

struct Field {
  std::size_t offset, size;
  Who who;
  Cell cell = Cell::kState;
};

#define ALIBI_CELL(name, who, cell) \
  { offsetof(VcpuState, name), sizeof(VcpuState::name), Who::who, Cell::cell }
// The first that fits wins.
constexpr Field kFields[] = {
    ALIBI_CELL(gpr[vcpu::kR10], kCodeWrites, kGuestGpr),
    ALIBI_CELL(gpr[vcpu::kR11], kCodeWrites, kGuestGpr),
    ALIBI_CELL(scratch, kCodeWrites, kScratch),
    ALIBI_CELL(page_index_mask, kCodeReads, kPageMask),
    ALIBI_CELL(jump_index_mask, kCodeReads, kJumpMask),
    ALIBI_CELL(latched_port[0].cell, kCodeReads, kLatch),
    ALIBI_CELL(latched_port[1].cell, kCodeReads, kLatch),
    ALIBI_CELL(latched_port[2].cell, kCodeReads, kLatch),
#define ALIBI_ABI_FIELD(name, who) ALIBI_CELL(name, who, kState),
#include "abi/fields.inc"
};
#undef ALIBI_CELL

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
    if (field.who == Who::kStubs) return {};
    CellInfo info{.cell = field.cell, .writable = field.who == Who::kCodeWrites};
    if (field.cell == Cell::kScratch) info.index = static_cast<unsigned>(at - field.offset) / 8;
    if (field.cell == Cell::kLatch) {
      const std::size_t first = offsetof(VcpuState, latched_port[0].cell);
      info.index = 1u << (field.offset - first) / sizeof(VcpuState::LatchedPort);
    }
    return info;
  }
  return {};
}

}  // namespace alibi::verifier
