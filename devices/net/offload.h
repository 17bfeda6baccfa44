// SPDX-License-Identifier: Apache-2.0
// Work on frames that a network card does for its driver: checksums, segmentation. IPv4 behind a
// plain Ethernet header; everything else is left alone.
#ifndef ALIBI_DEVICES_NET_OFFLOAD_H_
#define ALIBI_DEVICES_NET_OFFLOAD_H_

#include <span>
#include <vector>

#include "base/types.h"
#include "devices/net/backend.h"

namespace alibi::net {

inline constexpr std::size_t kTcpChecksum = 16;  // offset of the field in its header

// The Internet checksum of bytes (RFC 1071), not inverted: a big-endian value below 2^16.
u16 InternetSum(std::span<const u8> bytes);

// Offsets of the parts of a TCP segment in one piece.
struct TcpSegment {
  std::size_t tcp = 0;      // the TCP header
  std::size_t payload = 0;  // what follows it
  std::size_t end = 0;      // of the segment; padding may follow
};
// False: the frame is none, or its lengths lie.
bool FindTcp(std::span<const u8> frame, TcpSegment* segment);

// Makes a SYN announce that segments of `mss` bytes are welcome. Other frames stay as they are.
void RaiseMss(Frame& frame, u16 mss);

// The sum of a segment's pseudo header, of which SetPseudoHeaderSum() tells.
u16 PseudoHeaderSum(std::span<const u8> frame, const TcpSegment& segment);

// Replaces the TCP checksum by the sum of the pseudo header, which is what a driver expects of a
// segment whose checksum was not computed (virtio 1.2, 5.1.6.4.1).
void SetPseudoHeaderSum(Frame& frame, const TcpSegment& segment);

// What virtio has in front of a frame, without the number of buffers (virtio 1.2, 5.1.6.1), in
// little-endian order, which is the host's: checksums and segments that are left to whoever gets
// it.
struct OffloadHeader {
  u8 flags = 0, segmentation = kWhole;
  u16 header_length = 0, segment_size = 0, sum_start = 0, sum_offset = 0;

  static constexpr u8 kNeedsChecksum = 1, kDataValid = 2;  // flags
  static constexpr u8 kWhole = 0, kTcp4 = 1, kEcn = 0x80;  // segmentation
};
static_assert(sizeof(OffloadHeader) == 10);
// Of a segment that is to be cut into packets of `mtu` bytes, and summed up.
OffloadHeader DescribeSegment(const TcpSegment& segment, u16 mtu);

// Puts into the 16 bits at `field` the checksum of what begins at `start` and has, in that field,
// the sum of its pseudo header. False: that lies outside the frame.
bool FinishSum(Frame& frame, std::size_t start, std::size_t field);

// A segment whose packet is longer than `mtu` as several that are not, with right checksums, as a
// card does it for its driver.
std::vector<Frame> CutSegment(const Frame& frame, const TcpSegment& segment, u16 mtu);

// Puts the segment `next` behind `whole`, as a card does for its driver, if it follows in the same
// stream, differs in nothing else and is not behind one that wants to be heard of at once (PSH),
// and the whole remains an IPv4 packet. Its TCP checksum is that of the first one then:
// SetPseudoHeaderSum(). False: nothing is changed.
bool JoinSegments(Frame* whole, std::span<const u8> next);

// An IPv4 packet that is longer than `mtu` as fragments (RFC 791, section 3.2). Empty: it is none,
// or must not be cut.
std::vector<Frame> Fragment(const Frame& frame, u16 mtu);

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_OFFLOAD_H_
