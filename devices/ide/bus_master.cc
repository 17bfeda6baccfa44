// SPDX-License-Identifier: Apache-2.0
#include "devices/ide/bus_master.h"

#include <algorithm>
#include <utility>

namespace alibi::devices {
namespace {

constexpr u8 kEndOfTable = 0x80;

}  // namespace

BusMasterChannel::BusMasterChannel(Dma& dma, std::function<bool()> allowed,
                                   std::function<void()> started)
    : dma_(dma), allowed_(std::move(allowed)), started_(std::move(started)) {}

void BusMasterChannel::Write(unsigned offset, u8 value) {
  if (WriteQuietly(offset, value)) return;
  command_ = value & (kStart | kToMemory);
  status_ |= kActive;
  regions_ = 0;
  last_region_ = false;
  left_ = 0;
  started_();
}

void BusMasterChannel::Reset() {
  command_ = 0;
  status_ = 0;
  table_ = 0;
}

bool BusMasterChannel::NextRegion() {
  u8 entry[8];
  if (last_region_ || regions_ == kMaxRegions) return false;
  // The table's low address bits wrap in its 64 KB.
  const u32 at = (table_ & 0xffff0000) | ((table_ + regions_ * 8) & 0xffff);
  if (!dma_.Read(PhysAddr(at), entry, sizeof entry)) return false;
  ++regions_;
  address_ = static_cast<u32>(entry[0] | entry[1] << 8 | entry[2] << 16) | u32{entry[3]} << 24;
  address_ &= ~u32{1};
  left_ = static_cast<u32>(entry[4] | entry[5] << 8) & ~u32{1};
  if (left_ == 0) left_ = 65536;
  last_region_ = entry[7] & kEndOfTable;
  return true;
}

template <class Step>
u64 BusMasterChannel::Move(u64 size, bool to_memory, Step step) {
  u64 moved = 0;
  bool ok = running() && allowed_() && to_memory == ((command_ & kToMemory) != 0);
  while (ok && moved < size) {
    if (left_ == 0 && !NextRegion()) break;
    const u32 piece = static_cast<u32>(std::min<u64>(left_, size - moved));
    ok = step(PhysAddr(address_), moved, piece);
    if (!ok) break;
    moved += piece;
    address_ += piece;
    left_ -= piece;
  }
  if (!ok) status_ |= kError;
  if (moved < size) status_ &= static_cast<u8>(~kActive);
  return moved;
}

u64 BusMasterChannel::ToMemory(const u8* data, u64 size) {
  return Move(size, true, [&](PhysAddr address, u64 at, u32 bytes) {
    return dma_.Write(address, data + at, bytes);
  });
}

u64 BusMasterChannel::FromMemory(u8* data, u64 size) {
  return Move(size, false, [&](PhysAddr address, u64 at, u32 bytes) {
    return dma_.Read(address, data + at, bytes);
  });
}

void BusMasterChannel::EndOfTransfer() {
  // A table with regions left over stays active (section 3.1 of the interface: the interrupt with
  // the active bit set says so).
  if (last_region_ && left_ == 0) status_ &= static_cast<u8>(~kActive);
}

}  // namespace alibi::devices
