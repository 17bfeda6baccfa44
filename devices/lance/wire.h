// SPDX-License-Identifier: Apache-2.0
// What an Ethernet controller computes of a frame: its check sequence, and whom it is for.
#ifndef ALIBI_DEVICES_LANCE_WIRE_H_
#define ALIBI_DEVICES_LANCE_WIRE_H_

#include <span>

#include "base/types.h"
#include "devices/lance/registers.h"

namespace alibi::devices::lance {

// Lengths without and with the frame check sequence.
inline constexpr std::size_t kLeastFrame = 60, kFcsBytes = 4;
// The longest frame of the wire: with a VLAN tag. BABL shows one that is longer than without.
inline constexpr std::size_t kMostFrame = 1518, kBabbleBytes = 1519;

// The CRC-32 of IEEE 802.3, before its last inversion; a check sequence is ~Crc(), low byte first.
u32 Crc(std::span<const u8> bytes);

// Whether a frame is for this interface: 0 (no), or kPam, kLafm, kBam by what it was recognised,
// or kPromiscuous. CSR8 to 15 say what is wanted.
inline constexpr u32 kPromiscuous = 1;
u32 MatchAddress(const Registers& registers, std::span<const u8> frame);

}  // namespace alibi::devices::lance

#endif  // ALIBI_DEVICES_LANCE_WIRE_H_
