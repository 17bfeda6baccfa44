// SPDX-License-Identifier: Apache-2.0
#include "devices/qemu/fw_cfg.h"

#include <algorithm>
#include <utility>

namespace alibi::devices {
namespace {

constexpr std::size_t kNameBytes = 56;

void AppendBigEndian(std::vector<u8>& to, u64 value, unsigned size) {
  while (size-- != 0) to.push_back(static_cast<u8>(value >> (8 * size)));
}

u32 FromBigEndian(const u8* bytes) {
  u32 value = 0;
  for (unsigned i = 0; i < 4; ++i) value = value << 8 | bytes[i];
  return value;
}

// Of the DMA descriptor's control word, whose upper half is an item's number.
constexpr u32 kDmaError = 1, kDmaRead = 2, kDmaSkip = 4, kDmaSelect = 8, kDmaWrite = 16;
constexpr u64 kDescriptorBytes = 16;
constexpr u8 kDmaSignature[] = {'Q', 'E', 'M', 'U', ' ', 'C', 'F', 'G'};

}  // namespace

FwCfg::FwCfg() {
  Add(kSignature, {'Q', 'E', 'M', 'U'});
  AddInteger(kInterfaceId, 1, 4);  // the traditional interface alone
  Add(kFileDirectory, {0, 0, 0, 0});
}

void FwCfg::AddInteger(u16 item, u64 value, unsigned size) {
  std::vector<u8> bytes;
  for (unsigned i = 0; i < size; ++i) bytes.push_back(static_cast<u8>(value >> (8 * i)));
  Add(item, std::move(bytes));
}

void FwCfg::AddFile(const std::string& name, std::vector<u8> bytes) {
  const u16 item = static_cast<u16>(kFirstFile + files_++);
  // The directory: a count, then size, selector, two bytes reserved, name; all big-endian.
  std::vector<u8>& directory = items_[kFileDirectory];
  directory[2] = static_cast<u8>(files_ >> 8);
  directory[3] = static_cast<u8>(files_);
  AppendBigEndian(directory, bytes.size(), 4);
  AppendBigEndian(directory, item, 2);
  AppendBigEndian(directory, 0, 2);
  std::string padded = name.substr(0, kNameBytes - 1);
  padded.resize(kNameBytes);
  directory.insert(directory.end(), padded.begin(), padded.end());
  Add(item, std::move(bytes));
}

u64 FwCfg::Read(u64 offset, unsigned) {
  if (offset == 0) return 0;  // the selector is write-only
  const auto item = items_.find(selected_);
  if (item == items_.end() || position_ >= item->second.size()) return 0;
  return item->second[position_++];
}

void FwCfg::Write(u64 offset, unsigned size, u64 value) {
  if (offset != 0) return;  // items are read-only
  selected_ = static_cast<u16>(size == 1 ? (selected_ & 0xff00) | value : value);
  position_ = 0;
}

void FwCfg::ConnectDma(Dma& dma) {
  dma_ = &dma;
  AddInteger(kInterfaceId, 3, 4);  // the traditional interface, and DMA
}

u64 FwCfg::DmaPorts::Read(u64 offset, unsigned size) {
  u64 value = 0;
  for (unsigned i = 0; i < size && owner_.dma_ != nullptr && offset + i < 8; ++i) {
    value |= u64{kDmaSignature[offset + i]} << (8 * i);
  }
  return value;
}

void FwCfg::DmaPorts::Write(u64 offset, unsigned size, u64 value) {
  if (size != 4 || owner_.dma_ == nullptr) return;
  const u64 half = __builtin_bswap32(static_cast<u32>(value));
  if (offset == 0) owner_.descriptor_ = half << 32;
  if (offset == 4) owner_.Transfer(PhysAddr(std::exchange(owner_.descriptor_, 0) | half));
}

void FwCfg::Transfer(PhysAddr descriptor) {
  u8 bytes[kDescriptorBytes];
  if (!dma_->Read(descriptor, bytes, sizeof(bytes))) return;  // nowhere to tell it
  const u32 control = FromBigEndian(bytes), length = FromBigEndian(bytes + 4);
  const u64 address = u64{FromBigEndian(bytes + 8)} << 32 | FromBigEndian(bytes + 12);
  if (control & kDmaSelect) {
    selected_ = static_cast<u16>(control >> 16);
    position_ = 0;
  }
  bool ok = true;
  if (control & kDmaRead) {
    ok = ReadInto(address, length);
  } else if (control & kDmaWrite) {
    ok = false;  // items are read-only
  } else if (control & kDmaSkip) {
    position_ += length;
  }
  const u8 done[] = {0, 0, 0, static_cast<u8>(ok ? 0 : kDmaError)};
  dma_->Write(descriptor, done, sizeof(done));
}

bool FwCfg::ReadInto(u64 address, u64 size) {
  static constexpr u8 kZeros[4096] = {};
  const auto item = items_.find(selected_);
  const u64 item_size = item == items_.end() ? 0 : item->second.size();
  const u64 rest = position_ < item_size ? item_size - position_ : 0;
  const u64 copied = std::min(size, rest);
  if (copied != 0 && !dma_->Write(PhysAddr(address), &item->second[position_], copied))
    return false;
  position_ += copied;
  // Behind an item's end there are zeros.
  for (u64 done = copied; done < size;) {
    const u64 piece = std::min<u64>(size - done, sizeof(kZeros));
    if (!dma_->Write(PhysAddr(address + done), kZeros, piece)) return false;
    done += piece;
  }
  return true;
}

}  // namespace alibi::devices
