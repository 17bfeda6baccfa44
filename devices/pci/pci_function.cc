// SPDX-License-Identifier: Apache-2.0
#include "devices/pci/pci_function.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "devices/pci/pci.h"

namespace alibi::devices {
namespace {

// Flags in the low bits of a BAR.
constexpr u32 kIoSpace = 1, kMemory64 = 4;
constexpr u32 kRomEnable = 1;

constexpr u16 kCommandWritable = 0x0147 | PciFunction::kIntxDisable;

}  // namespace

PciFunction::PciFunction(std::string name, const PciIds& ids) : name_(std::move(name)) {
  Set(kIds, u32{ids.device} << 16 | ids.vendor, 4);
  Set(kRevision, ids.class_code << 8 | ids.revision, 4);
  Set(kSubsystem, u32{ids.subsystem} << 16 | ids.subsystem_vendor, 4);
  SetWritable(kCommand, kCommandWritable, 2);
  SetWritable(kCacheLine, 0xff, 1);
  SetWritable(kLatency, 0xff, 1);
  SetWritable(kInterruptLine, 0xff, 1);
}

void PciFunction::AddBar(unsigned index, const Bar& bar, u32 flags) {
  ALIBI_CHECK(host_ == nullptr, "a function's BARs are there before it is on the bus");
  ALIBI_CHECK(bars_[index].device == nullptr, "each BAR is added once");
  ALIBI_CHECK(std::has_single_bit(bar.size), "a BAR's size is a power of two");
  bars_[index] = bar;
  const unsigned offset = BarOffset(index);
  Set(offset, flags, 4);
  SetWritable(offset, static_cast<u32>(~(bar.size - 1)) | (bar.rom ? kRomEnable : 0), 4);
  if (bar.bits64) SetWritable(offset + 4, ~u32{0}, 4);
}

void PciFunction::AddIoBar(unsigned index, u32 size, Device& device) {
  ALIBI_CHECK(index < kRomBar && size >= 4 && size <= 256, "I/O BARs have 4 to 256 ports");
  Bar bar;
  bar.device = &device;
  bar.size = size;
  bar.io = true;
  AddBar(index, bar, kIoSpace);
}

void PciFunction::AddMemoryBar(unsigned index, u64 size, Device& device, bool bits64) {
  ALIBI_CHECK(index < kRomBar && size >= 16 && size <= u64{1} << 31,
              "memory BARs have 16 bytes to 2 GB");
  ALIBI_CHECK(!bits64 || index + 1 < kRomBar, "a 64-bit BAR takes two registers");
  Bar bar;
  bar.device = &device;
  bar.size = size;
  bar.bits64 = bits64;
  AddBar(index, bar, bits64 ? kMemory64 : 0);
}

void PciFunction::AddRom(std::vector<u8> bytes) {
  if (bytes.empty()) return;
  ALIBI_CHECK(bytes.size() <= kLargestRom, "expansion ROMs have up to 16 MB");
  constexpr u64 kLeastRom = 2048;  // the register's lower bits have other meanings
  rom_ = std::make_unique<RomImage>(std::move(bytes));
  Bar bar;
  bar.device = rom_.get();
  bar.size = std::bit_ceil(std::max(rom_->size(), kLeastRom));
  bar.rom = true;
  AddBar(kRomBar, bar, 0);
}

Msix& PciFunction::AddMsix(unsigned bar, unsigned vectors) {
  ALIBI_CHECK(msix_ == nullptr, "a function has one MSI-X table");
  msix_ = std::make_unique<Msix>(vectors, [this](const ApicMessage& message) {
    if (host_ != nullptr && bus_master()) host_->Send(message);
  });
  AddMemoryBar(bar, msix_->BarSize(), *msix_);
  u8 body[10] = {};
  const u32 table = bar, pba = msix_->PbaOffset() | bar;
  body[0] = static_cast<u8>(vectors - 1);
  body[1] = static_cast<u8>((vectors - 1) >> 8);
  for (unsigned i = 0; i < 4; ++i) {
    body[2 + i] = static_cast<u8>(table >> (8 * i));
    body[6 + i] = static_cast<u8>(pba >> (8 * i));
  }
  msix_control_ = AddCapability(Msix::kCapability, body) + 2;
  SetWritable(msix_control_, Msix::kEnable | Msix::kFunctionMask, 2);
  return *msix_;
}

void PciFunction::SetInterruptPin(unsigned pin) {
  ALIBI_CHECK(pin >= 1 && pin <= 4, "a function has one of four interrupt pins");
  Set(kInterruptPin, pin, 1);
}

unsigned PciFunction::AddCapability(u8 id, std::span<const u8> body) {
  const unsigned offset = capability_end_;
  ALIBI_CHECK(offset + 2 + body.size() <= bytes_.size(),
              "capabilities fit into configuration space");
  Set(last_capability_ == 0 ? unsigned{kCapabilities} : last_capability_, offset, 1);
  bytes_[kStatus] |= kHasCapabilities;
  last_capability_ = offset + 1;
  Set(offset, id, 1);
  for (std::size_t i = 0; i < body.size(); ++i) bytes_[offset + 2 + i] = body[i];
  capability_end_ = (offset + 2 + static_cast<unsigned>(body.size()) + 3) & ~3u;
  return offset;
}

void PciFunction::Set(unsigned offset, u32 value, unsigned size) {
  for (unsigned i = 0; i < size; ++i) bytes_[offset + i] = static_cast<u8>(value >> (8 * i));
}

void PciFunction::SetWritable(unsigned offset, u32 mask, unsigned size) {
  for (unsigned i = 0; i < size; ++i) writable_[offset + i] = static_cast<u8>(mask >> (8 * i));
}

u32 PciFunction::Get(unsigned offset, unsigned size) const {
  u32 value = 0;
  for (unsigned i = 0; i < size; ++i) value |= u32{bytes_[offset + i]} << (8 * i);
  return value;
}

u32 PciFunction::ConfigRead(unsigned offset, unsigned size) {
  ALIBI_CHECK(offset + size <= bytes_.size(), "configuration space has 256 bytes");
  ConfigReading(offset, size);
  return Get(offset, size);
}

void PciFunction::ConfigWrite(unsigned offset, unsigned size, u32 value) {
  ALIBI_CHECK(offset + size <= bytes_.size(), "configuration space has 256 bytes");
  for (unsigned i = 0; i < size; ++i) {
    u8& byte = bytes_[offset + i];
    const u8 mask = writable_[offset + i];
    byte = static_cast<u8>((byte & ~mask) | (static_cast<u8>(value >> (8 * i)) & mask));
  }
  const auto touches = [offset, size](unsigned first, unsigned count) {
    return offset < first + count && first < offset + size;
  };
  if (host_ != nullptr && (touches(kCommand, 2) || touches(kFirstBar, 24) || touches(kRom, 4))) {
    host_->UpdateMappings(*this);
  }
  if (msix_ != nullptr && touches(msix_control_, 2)) {
    msix_->SetControl(static_cast<u16>(Get(msix_control_, 2)));
  }
  UpdateIntx();
  ConfigWritten(offset, size);
}

void PciFunction::Reset() {
  for (unsigned offset = 0; offset < after_reset_.size(); offset += 4) {
    u32 value = 0;
    for (unsigned i = 0; i < 4; ++i) value |= u32{after_reset_[offset + i]} << (8 * i);
    ConfigWrite(offset, 4, value);
  }
  for (const Bar& bar : bars_) {
    if (bar.device != nullptr) bar.device->Reset();
  }
}

bool PciFunction::WantedAddress(unsigned index, u64* address) const {
  const Bar& bar = bars_[index];
  if (bar.device == nullptr) return false;
  const unsigned offset = BarOffset(index);
  const u32 low = Get(offset, 4);
  if (!(Get(kCommand, 2) & (bar.io ? kIoEnable : kMemoryEnable))) return false;
  if (bar.rom && !(low & kRomEnable)) return false;
  *address = low & ~(bar.size - 1);
  if (bar.bits64) *address |= u64{Get(offset + 4, 4)} << 32;
  // At 0 it is where it was before anybody placed it; all ones are a question for the size.
  if (*address == 0) return false;
  if (bar.io) return *address + bar.size <= 0x10000;
  return *address + bar.size != (bar.bits64 ? 0 : u64{1} << 32);
}

void PciFunction::SetBarAddress(unsigned index, u64 address) {
  const unsigned offset = BarOffset(index);
  const u32 flags = Get(offset, 4) & static_cast<u32>(bars_[index].size - 1) & 0xf;
  Set(offset, static_cast<u32>(address) | flags, 4);
  if (bars_[index].bits64) Set(offset + 4, static_cast<u32>(address >> 32), 4);
}

void PciFunction::IntxLine::Set(bool level) {
  function_.intx_level_ = level;
  function_.UpdateIntx();
}

void PciFunction::UpdateIntx() {
  bytes_[kStatus] =
      static_cast<u8>((bytes_[kStatus] & ~kInterruptStatus) | (intx_level_ ? kInterruptStatus : 0));
  const bool drive =
      intx_level_ && !(Get(kCommand, 2) & kIntxDisable) && !(msix_ != nullptr && msix_->enabled());
  if (drive == intx_driven_ || host_ == nullptr || bytes_[kInterruptPin] == 0) return;
  intx_driven_ = drive;
  host_->DrivePin(slot_, bytes_[kInterruptPin], drive);
}

}  // namespace alibi::devices
