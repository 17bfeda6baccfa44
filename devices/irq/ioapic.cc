// SPDX-License-Identifier: Apache-2.0
#include "devices/irq/ioapic.h"

#include <algorithm>

#include "base/check.h"

namespace alibi::devices {
namespace {

// Memory-mapped registers.
constexpr u64 kSelect = 0x00;
constexpr u64 kWindow = 0x10;
constexpr u64 kEoi = 0x40;

// Indexed registers.
constexpr u8 kId = 0x00;
constexpr u8 kVersion = 0x01;
constexpr u8 kArbitration = 0x02;
constexpr u8 kFirstEntry = 0x10;
constexpr u32 kVersionValue = (IoApic::kInputs - 1) << 16 | 0x20;
constexpr u32 kIdMask = 0x0f000000;

// Redirection entries.
constexpr u64 kLogical = u64{1} << 11;
constexpr u64 kRemoteIrr = u64{1} << 14;
constexpr u64 kLevel = u64{1} << 15;
constexpr u64 kMasked = u64{1} << 16;
constexpr u64 kWritable = 0xff0000000001afff;  // not delivery status, not remote IRR

}  // namespace

IoApic::IoApic(std::function<void(const ApicMessage&)> send) : send_(std::move(send)) {
  entries_.fill(kMasked);
  for (unsigned i = 0; i < kInputs; ++i) inputs_[i].Connect(this, i);
}

void IoApic::Reset() {
  entries_.fill(kMasked);
  id_ = 0;
  index_ = 0;
}

IrqLine& IoApic::Line(unsigned input) {
  ALIBI_CHECK(input < kInputs, "an I/O APIC has 24 inputs");
  return inputs_[input];
}

bool IoApic::SendsNmis() const {
  return std::any_of(entries_.begin(), entries_.end(), [](u64 entry) {
    return !(entry & kMasked) && static_cast<DeliveryMode>(entry >> 8 & 7) == DeliveryMode::kNmi;
  });
}

void IoApic::Send(unsigned input) {
  const u64 entry = entries_[input];
  ApicMessage message;
  message.destination = static_cast<u32>(entry >> 56);
  message.logical = entry & kLogical;
  message.level_triggered = entry & kLevel;
  message.mode = static_cast<DeliveryMode>(entry >> 8 & 7);
  message.vector = static_cast<u8>(entry);
  send_(message);
}

void IoApic::SendIfAsserted(unsigned input) {
  u64& entry = entries_[input];
  if (!(entry & kLevel) || (entry & (kMasked | kRemoteIrr)) || !(pins_ >> input & 1)) return;
  entry |= kRemoteIrr;
  Send(input);
}

void IoApic::SetInput(unsigned input, bool level) {
  const u32 bit = u32{1} << input;
  const bool rises = level && !(pins_ & bit);
  pins_ = level ? pins_ | bit : pins_ & ~bit;
  if (!rises) return;
  if (entries_[input] & kLevel) {
    SendIfAsserted(input);
  } else if (!(entries_[input] & kMasked)) {
    // The 82093AA forgets edges on masked inputs.
    Send(input);
  }
}

void IoApic::EndOfInterrupt(u8 vector) {
  for (unsigned input = 0; input < kInputs; ++input) {
    u64& entry = entries_[input];
    if (!(entry & kLevel) || !(entry & kRemoteIrr) || (entry & 0xff) != vector) continue;
    entry &= ~kRemoteIrr;
    SendIfAsserted(input);
  }
}

u32 IoApic::ReadIndexed() const {
  switch (index_) {
    case kId:
    case kArbitration:
      return id_;
    case kVersion:
      return kVersionValue;
    default:
      break;
  }
  const unsigned input = (index_ - unsigned{kFirstEntry}) / 2;
  if (index_ < kFirstEntry || input >= kInputs) return 0;
  return static_cast<u32>((index_ & 1) ? entries_[input] >> 32 : entries_[input]);
}

void IoApic::WriteIndexed(u32 value) {
  if (index_ == kId) {
    id_ = value & kIdMask;
    return;
  }
  const unsigned input = (index_ - unsigned{kFirstEntry}) / 2;
  if (index_ < kFirstEntry || input >= kInputs) return;
  u64& entry = entries_[input];
  u64 wanted = entry;
  if (index_ & 1) {
    wanted = (wanted & 0xffffffff) | u64{value} << 32;
  } else {
    wanted = (wanted & ~u64{0xffffffff}) | value;
  }
  entry = (wanted & kWritable) | (entry & ~kWritable);
  if (!(entry & kLevel)) entry &= ~kRemoteIrr;
  SendIfAsserted(input);
}

u64 IoApic::Read(u64 offset, unsigned size) {
  u64 value = 0;
  Peek(offset, size, &value);
  return value;
}

bool IoApic::Peek(u64 offset, unsigned size, u64* value) const {
  const u64 base = offset & ~u64{3};
  const unsigned byte = offset & 3;
  *value = 0;
  if (byte + size > 4) return true;
  if (base == kSelect) *value = u64{index_} >> (byte * 8);
  if (base == kWindow) *value = ReadIndexed() >> (byte * 8);
  return true;
}

void IoApic::Write(u64 offset, unsigned size, u64 value) {
  // Guests write IOREGSEL with bytes too; everything else takes whole registers only.
  if (offset == kSelect) {
    index_ = static_cast<u8>(value);
  } else if (size == 4 && offset == kWindow) {
    WriteIndexed(static_cast<u32>(value));
  } else if (size == 4 && offset == kEoi) {
    EndOfInterrupt(static_cast<u8>(value));
  }
}

}  // namespace alibi::devices
