// SPDX-License-Identifier: Apache-2.0
// Accesses that are served next to translated code, because they only read or change registers.
// Compiled for general registers only.
#include "devices/lance/bits.h"
#include "devices/lance/lance.h"

namespace alibi::devices::lance {
namespace {

constexpr u64 kFirstRegister = 0x10;
constexpr u32 kRapBits = Registers::kCsrs - 1;

}  // namespace

// Accesses of another width than the registers have are not defined: nobody answers.
Lance::Port Lance::PortAt(u64 offset, unsigned size) const {
  if (offset < kFirstRegister) {
    return offset + size <= kFirstRegister ? Port::kAprom : Port::kNone;
  }
  const unsigned width = registers_.dwio() ? 4 : 2;
  if (size != width || offset % width != 0) return Port::kNone;
  const u64 index = (offset - kFirstRegister) / width;
  return index < 4 ? static_cast<Port>(index) : Port::kNone;
}

bool Lance::ReadQuietly(Port port, u64 offset, unsigned size, u64* value) const {
  switch (port) {
    case Port::kData:
      *value = registers_.ReadCsr(registers_.rap);
      return true;
    case Port::kAddress:
      *value = registers_.rap;
      return true;
    case Port::kBusData:
      *value = registers_.ReadBcr(registers_.rap);
      return true;
    case Port::kAprom:
      *value = 0;
      for (unsigned i = 0; i < size; ++i) *value |= u64{aprom_[offset + i]} << 8 * i;
      return true;
    case Port::kNone:
      *value = ~u64{0};
      return true;
    case Port::kReset:
      return false;
  }
  return false;
}

bool Lance::Peek(u64 offset, unsigned size, u64* value) const {
  return optimize_.ports && ReadQuietly(PortAt(offset, size), offset, size, value);
}

// Choosing a register does nothing by itself.
PortLatch Lance::Latch(u64 offset, unsigned size) {
  if (!optimize_.latch || PortAt(offset, size) != Port::kAddress) return {};
  return {.cell = reinterpret_cast<u8*>(&registers_.rap), .kept = kRapBits};
}

bool Lance::asserted() const { return registers_.interrupt() && (registers_.csr(0) & kIena); }

bool Lance::Poke(u64 offset, unsigned size, u64 value) {
  if (!optimize_.ports) return false;
  switch (PortAt(offset, size)) {
    case Port::kAddress:
      registers_.rap = static_cast<u32>(value & kRapBits);
      return true;
    case Port::kData:
      return WriteCsrQuietly(static_cast<u16>(value));
    default:
      return false;
  }
}

// Masks and acknowledgements that leave the pin as it is, and wishes to transmit that wait with
// others.
bool Lance::WriteCsrQuietly(u16 value) {
  const unsigned number = registers_.rap;
  if (number != 0 && number != 3) return false;
  const bool before = asserted();
  const u16 kept = registers_.csr(number);
  bool hold = false;
  if (number == 3) {
    registers_.WriteCsr(3, value);
  } else {
    const u16 begun = static_cast<u16>(value & ~kept & (kInit | kStrt));
    hold = value & kTdmd;
    if ((value & kStop) || begun != 0 || waits_) return false;
    if (hold && (held_ == 0 || held_ + 1 >= net::kMostCombined || !running(kTxon))) return false;
    const u16 cleared = static_cast<u16>((value & kCsr0Events) | kIena);
    registers_.set_csr(0, static_cast<u16>((kept & ~cleared) | (value & kIena)));
  }
  if (asserted() != before) {
    registers_.set_csr(number, kept);
    return false;
  }
  if (hold) {
    ++held_;
    ++tallies_.lance_demands;
    ++tallies_.lance_held;
  }
  return true;
}

bool Lance::running(u16 receiver_or_transmitter) const {
  return (registers_.csr(0) & receiver_or_transmitter) && !registers_.suspended();
}

}  // namespace alibi::devices::lance
