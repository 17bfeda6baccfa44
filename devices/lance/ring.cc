// SPDX-License-Identifier: Apache-2.0
#include "devices/lance/ring.h"

#include <cstring>
#include <utility>

#include "devices/lance/bits.h"

namespace alibi::devices::lance {
namespace {

constexpr u8 kStatusFirst = 3;  // the style

}  // namespace

bool Ring::Load(Descriptor* descriptor) const {
  const PhysAddr at(registers_.DescriptorAddress(direction_, Index()));
  if (registers_.size32()) {
    u32 words[3];
    if (!dma_.Read(at, words, sizeof(words))) return false;
    if (registers_.software_style() == kStatusFirst) std::swap(words[0], words[2]);
    *descriptor = {words[0], words[1], words[2]};
    return true;
  }
  u16 words[4];
  if (!dma_.Read(at, words, sizeof(words))) return false;
  descriptor->address = registers_.Extend(words[0] | u32{words[1]} << 16);
  descriptor->flags = (words[1] & 0xff00u) << 16 | words[2];
  descriptor->status = direction_ == Direction::kTransmit ? u32{words[3]} << 16 : words[3];
  return true;
}

bool Ring::StoreAt(u32 index, const Descriptor& descriptor) {
  const u32 at = registers_.DescriptorAddress(direction_, index);
  if (registers_.size32()) {
    const bool status_first = registers_.software_style() == kStatusFirst;
    u32 words[2] = {descriptor.flags, descriptor.status};
    if (status_first) std::swap(words[0], words[1]);
    return dma_.Write(PhysAddr(at + (status_first ? 0 : 4)), words, sizeof(words));
  }
  const u32 status =
      direction_ == Direction::kTransmit ? descriptor.status >> 16 : descriptor.status & 0xfff;
  const u16 words[3] = {
      static_cast<u16>((descriptor.flags >> 16 & 0xff00) | (descriptor.address >> 16 & 0xff)),
      static_cast<u16>(descriptor.flags), static_cast<u16>(status)};
  return dma_.Write(PhysAddr(at + 2), words, sizeof(words));
}

bool Ring::StorePrevious(const Descriptor& descriptor) {
  const u32 index = Index();
  return StoreAt((index == 0 ? registers_.RingLength(direction_) : index) - 1, descriptor);
}

void Ring::Advance() {
  const u32 next = Index() + 1;
  registers_.SetRingIndex(direction_, next == registers_.RingLength(direction_) ? 0 : next);
}

bool LoadInitBlock(const Registers& registers, Dma& dma, InitBlock* block) {
  const u32 address = registers.csr_pair(1);
  u16 words[14];
  if (registers.size32()) {
    if (!dma.Read(PhysAddr(address & ~3u), words, 28)) return false;
    block->mode = words[0];
    block->receive_log_length = static_cast<u8>(words[1] >> 4 & 0xf);
    block->transmit_log_length = static_cast<u8>(words[1] >> 12);
    std::memcpy(block->physical.data(), words + 2, 6);
    std::memcpy(block->logical.data(), words + 6, 8);
    block->receive = words[10] | u32{words[11]} << 16;
    block->transmit = words[12] | u32{words[13]} << 16;
    return true;
  }
  if (!dma.Read(PhysAddr(address & ~1u), words, 24)) return false;
  block->mode = words[0];
  std::memcpy(block->physical.data(), words + 1, 6);
  std::memcpy(block->logical.data(), words + 4, 8);
  block->receive = words[8] | (words[9] & 0xffu) << 16;
  block->receive_log_length = static_cast<u8>(words[9] >> 13);
  block->transmit = words[10] | (words[11] & 0xffu) << 16;
  block->transmit_log_length = static_cast<u8>(words[11] >> 13);
  return true;
}

}  // namespace alibi::devices::lance
