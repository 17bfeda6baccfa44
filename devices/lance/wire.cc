// SPDX-License-Identifier: Apache-2.0
#include "devices/lance/wire.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "devices/lance/bits.h"

namespace alibi::devices::lance {
namespace {

constexpr u32 kPolynomial = 0xedb88320;  // bits reversed: the wire sends low bits first
constexpr std::size_t kSlices = 8, kAddressBytes = 6;

// kTables[n][b]: what byte b adds to the CRC if n zero bytes follow it.
constexpr auto kTables = [] {
  std::array<std::array<u32, 256>, kSlices> tables{};
  for (u32 byte = 0; byte < 256; ++byte) {
    u32 value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? kPolynomial : 0);
    tables[0][byte] = value;
  }
  for (std::size_t slice = 1; slice < kSlices; ++slice) {
    for (u32 byte = 0; byte < 256; ++byte) {
      const u32 before = tables[slice - 1][byte];
      tables[slice][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}();

}  // namespace

u32 Crc(std::span<const u8> bytes) {
  u32 crc = ~u32{0};
  for (; bytes.size() >= kSlices; bytes = bytes.subspan(kSlices)) {
    u64 eight;
    std::memcpy(&eight, bytes.data(), sizeof(eight));
    eight ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < kSlices; ++i) {
      crc ^= kTables[kSlices - 1 - i][eight >> (8 * i) & 0xff];
    }
  }
  for (const u8 byte : bytes) crc = crc >> 8 ^ kTables[0][(crc ^ byte) & 0xff];
  return crc;
}

u32 MatchAddress(const Registers& registers, std::span<const u8> frame) {
  if (frame.size() < kAddressBytes) return 0;
  const std::span<const u8> address = frame.first(kAddressBytes);
  const u16 mode = registers.csr(15);
  if (std::all_of(address.begin(), address.end(), [](u8 byte) { return byte == 0xff; }) &&
      !(mode & kDrcvbc)) {
    return kBam;
  }
  if (address[0] & 1) {
    // The upper six bits of the CRC choose a bit of the filter.
    const u32 hash = Crc(address) >> 26;
    if (registers.csr(8 + hash / 16) >> hash % 16 & 1) return kLafm;
  } else if (!(mode & kDrcvpa)) {
    bool ours = true;
    for (unsigned i = 0; i < kAddressBytes; ++i) {
      ours &= address[i] == static_cast<u8>(registers.csr(12 + i / 2) >> 8 * (i % 2));
    }
    if (ours) return kPam;
  }
  return mode & kProm ? kPromiscuous : 0;
}

}  // namespace alibi::devices::lance
