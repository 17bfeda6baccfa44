// SPDX-License-Identifier: Apache-2.0
#include "devices/irq/msix.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace alibi::devices {
namespace {

constexpr unsigned kEntryBytes = 16;

// Message address and data (SDM vol. 3A 11.11). False: no message to a local APIC.
bool Decode(const u32* words, ApicMessage* message) {
  if (words[1] != 0 || words[0] >> 20 != 0xfee) return false;
  message->destination = words[0] >> 12 & 0xff;
  message->logical = words[0] >> 2 & 1;
  message->vector = static_cast<u8>(words[2]);
  message->mode = static_cast<DeliveryMode>(words[2] >> 8 & 7);
  message->level_triggered = words[2] >> 15 & 1;
  return true;
}

}  // namespace

Msix::Msix(unsigned vectors, std::function<void(const ApicMessage&)> send)
    : entries_(vectors), send_(std::move(send)) {
  ALIBI_CHECK(vectors >= 1 && vectors <= kMaxVectors, "MSI-X has 1 to 2048 vectors");
}

void Msix::Reset() {
  control_ = 0;
  for (Entry& entry : entries_) entry = {};
}

u32 Msix::PbaOffset() const {
  const u32 table = vectors() * kEntryBytes;
  return table <= 0x800 ? 0x800 : static_cast<u32>(std::bit_ceil(table));
}

u64 Msix::BarSize() const {
  return std::max(kPageSize, std::bit_ceil(u64{PbaOffset()} + (vectors() + 63) / 64 * 8));
}

void Msix::SetControl(u16 control) {
  control_ = control;
  if (!enabled() || (control_ & kFunctionMask)) return;
  for (Entry& entry : entries_) SendPending(entry);
}

void Msix::Notify(unsigned vector) {
  if (!enabled() || vector >= entries_.size()) return;
  Entry& entry = entries_[vector];
  entry.pending = true;
  if (!(control_ & kFunctionMask)) SendPending(entry);
}

void Msix::SendPending(Entry& entry) {
  if (!entry.pending || entry.masked()) return;
  entry.pending = false;
  ApicMessage message;
  if (Decode(entry.words, &message)) send_(message);
}

u32 Msix::ReadWord(u64 offset) const {
  const u64 vector = offset / kEntryBytes;
  if (vector < entries_.size()) return entries_[vector].words[offset / 4 % 4];
  if (offset < PbaOffset()) return 0;
  const u64 first = (offset - PbaOffset()) * 8;
  u32 bits = 0;
  for (u64 i = 0; i < 32 && first + i < entries_.size(); ++i) {
    bits |= u32{entries_[first + i].pending} << i;
  }
  return bits;
}

u64 Msix::Read(u64 offset, unsigned size) {
  u64 value = 0;
  for (unsigned i = 0; i < size; ++i) {
    const u64 at = offset + i;
    value |= u64{ReadWord(at & ~u64{3}) >> (8 * (at & 3)) & 0xff} << (8 * i);
  }
  return value;
}

void Msix::Write(u64 offset, unsigned size, u64 value) {
  // Software uses aligned words or double words of 32 bits, and nothing else works (6.8.2).
  if (size < 4 || offset % size != 0) return;
  for (unsigned i = 0; i < size; i += 4) {
    const u64 at = offset + i;
    const u64 vector = at / kEntryBytes;
    if (vector >= entries_.size()) return;
    Entry& entry = entries_[vector];
    entry.words[at / 4 % 4] = static_cast<u32>(value >> (8 * i));
    if (enabled() && !(control_ & kFunctionMask)) SendPending(entry);
  }
}

}  // namespace alibi::devices
