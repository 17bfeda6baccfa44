// SPDX-License-Identifier: Apache-2.0
// How the CPU reaches the VGA's four planes: window, odd/even, chain 4, write and read modes.
#include "devices/console/vga.h"

namespace alibi::devices {
namespace {

constexpr u8 kMapMaskAll = 0x0f;
// Sequencer 4.
constexpr u8 kChain4 = 0x08;
// Graphics 5.
constexpr u8 kOddEven = 0x10, kReadCompare = 0x08;

enum Graphics : unsigned {
  kSetReset = 0,
  kEnableSetReset = 1,
  kColourCompare = 2,
  kRotate = 3,
  kReadPlane = 4,
  kMode = 5,
  kMisc = 6,
  kColourDontCare = 7,
  kBitMask = 8,
};

}  // namespace

u64 Vga::Window::Read(u64 offset, unsigned size) {
  u64 value = 0;
  for (unsigned i = 0; i < size; ++i) value |= u64{vga_.ReadByte(offset + i)} << (8 * i);
  return value;
}

void Vga::Window::Write(u64 offset, unsigned size, u64 value) {
  for (unsigned i = 0; i < size; ++i) vga_.WriteByte(offset + i, static_cast<u8>(value >> (8 * i)));
}

u64 Vga::Linear::Read(u64 offset, unsigned size) {
  u64 value = 0;
  for (unsigned i = 0; i < size; ++i) {
    value |= u64{vga_.memory_[(offset + i) % kMemoryBytes]} << (8 * i);
  }
  return value;
}

void Vga::Linear::Write(u64 offset, unsigned size, u64 value) {
  for (unsigned i = 0; i < size; ++i) {
    vga_.Store((offset + i) % kMemoryBytes, static_cast<u8>(value >> (8 * i)));
  }
}

void Vga::Store(u64 index, u8 value) {
  if (memory_[index] == value) return;
  memory_[index] = value;
  // Fonts and the fourth plane do not show as text.
  if ((index & 2) == 0) Changed();
}

// From an offset in the window to one in the memory that the map select field opens.
bool Vga::PlaneAddress(u64 offset, u64* address) const {
  switch (graphics_[kMisc] >> 2 & 3) {
    case 0:
      *address = offset;
      return true;
    case 1:
      *address = offset;
      return offset < 0x10000;
    case 2:
      *address = offset - 0x10000;
      return offset >= 0x10000 && offset < 0x18000;
    default:
      *address = offset - 0x18000;
      return offset >= 0x18000;
  }
}

u8 Vga::ReadByte(u64 offset) {
  u64 address;
  if (!PlaneAddress(offset, &address)) return 0xff;
  if (sequencer_[4] & kChain4) return memory_[address & 0xffff];
  if (graphics_[kMode] & kOddEven) {
    // Odd addresses are planes 1 and 3.
    const u64 plane = (graphics_[kReadPlane] & 2u) | (address & 1);
    return memory_[((address & 0xfffe) << 1 | plane) & (kMemoryBytes - 1)];
  }
  address &= 0xffff;
  for (unsigned plane = 0; plane < 4; ++plane) latches_[plane] = memory_[4 * address + plane];
  if (!(graphics_[kMode] & kReadCompare)) return latches_[graphics_[kReadPlane] & 3];
  u8 match = 0xff;
  for (unsigned plane = 0; plane < 4; ++plane) {
    if (!(graphics_[kColourDontCare] >> plane & 1)) continue;
    const u8 wanted = graphics_[kColourCompare] >> plane & 1 ? 0xff : 0;
    match &= static_cast<u8>(~(latches_[plane] ^ wanted));
  }
  return match;
}

void Vga::WriteByte(u64 offset, u8 value) {
  u64 address;
  if (!PlaneAddress(offset, &address)) return;
  const u8 map_mask = sequencer_[2] & kMapMaskAll;
  if (sequencer_[4] & kChain4) {
    if (map_mask >> (address & 3) & 1) Store(address & 0xffff, value);
    return;
  }
  if (graphics_[kMode] & kOddEven) {
    const u64 plane = (graphics_[kReadPlane] & 2u) | (address & 1);
    if (map_mask >> plane & 1) Store((address & 0xfffe) << 1 | plane, value);
    return;
  }
  WritePlanes(address & 0xffff, value);
}

void Vga::WritePlanes(u64 address, u8 value) {
  const unsigned count = graphics_[kRotate] & 7;
  const u8 rotated = static_cast<u8>(value >> count | value << ((8 - count) & 7));
  const unsigned mode = graphics_[kMode] & 3;
  for (unsigned plane = 0; plane < 4; ++plane) {
    if (!(sequencer_[2] >> plane & 1)) continue;
    const u8 latch = latches_[plane];
    const u8 set = graphics_[kSetReset] >> plane & 1 ? 0xff : 0;
    u8 bits = graphics_[kBitMask];
    u8 source;
    switch (mode) {
      case 0:
        source = graphics_[kEnableSetReset] >> plane & 1 ? set : rotated;
        break;
      case 1:  // the latches as they are
        Store(4 * address + plane, latch);
        continue;
      case 2:
        source = value >> plane & 1 ? 0xff : 0;
        break;
      default:
        source = set;
        bits &= rotated;
        break;
    }
    switch (graphics_[kRotate] >> 3 & 3) {
      case 1:
        source &= latch;
        break;
      case 2:
        source |= latch;
        break;
      case 3:
        source ^= latch;
        break;
      default:
        break;
    }
    Store(4 * address + plane, static_cast<u8>((source & bits) | (latch & ~bits)));
  }
}

}  // namespace alibi::devices
