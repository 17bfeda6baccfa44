// SPDX-License-Identifier: Apache-2.0
#include "devices/net/offload.h"

#include <algorithm>

namespace alibi::net {
namespace {

constexpr u8 kTcpProtocol = 6;
constexpr u8 kSyn = 0x02;
constexpr u16 kDontFragment = 0x4000, kMoreFragments = 0x2000, kOffsetMask = 0x1fff;
constexpr u8 kEndOfOptions = 0, kNoOperation = 1, kMaximumSegmentSize = 2;
constexpr std::size_t kLeastIpHeader = 20, kLeastTcpHeader = 20;

u16 Get16(std::span<const u8> bytes, std::size_t at) {
  return static_cast<u16>(bytes[at] << 8 | bytes[at + 1]);
}
void Put16(Frame& frame, std::size_t at, u16 value) {
  frame[at] = static_cast<u8>(value >> 8);
  frame[at + 1] = static_cast<u8>(value);
}

u16 Fold(u64 sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<u16>(sum);
}

// The IPv4 header's length and the packet's; false: no IPv4, or the lengths lie.
bool FindIp(std::span<const u8> frame, std::size_t* header, std::size_t* total) {
  if (frame.size() < kEthernetHeader + kLeastIpHeader || Get16(frame, 12) != 0x0800) return false;
  *header = (frame[kEthernetHeader] & 0xfu) * 4;
  *total = Get16(frame, kEthernetHeader + 2);
  return frame[kEthernetHeader] >> 4 == 4 && *header >= kLeastIpHeader && *header <= *total &&
         *total <= frame.size() - kEthernetHeader;
}

}  // namespace

u16 InternetSum(std::span<const u8> bytes) {
  u64 sum = 0;
  std::size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) sum += Get16(bytes, i);
  if (i < bytes.size()) sum += static_cast<u64>(bytes[i]) << 8;
  return Fold(sum);
}

bool FindTcp(std::span<const u8> frame, TcpSegment* segment) {
  std::size_t header, total;
  if (!FindIp(frame, &header, &total) || frame[kEthernetHeader + 9] != kTcpProtocol) return false;
  if (Get16(frame, kEthernetHeader + 6) & (kMoreFragments | kOffsetMask)) return false;
  segment->tcp = kEthernetHeader + header;
  segment->end = kEthernetHeader + total;
  if (segment->end < segment->tcp + kLeastTcpHeader) return false;
  const std::size_t tcp_header = (frame[segment->tcp + 12] >> 4) * 4u;
  segment->payload = segment->tcp + tcp_header;
  return tcp_header >= kLeastTcpHeader && segment->payload <= segment->end;
}

void RaiseMss(Frame& frame, u16 mss) {
  TcpSegment segment;
  if (!FindTcp(frame, &segment) || !(frame[segment.tcp + 13] & kSyn)) return;
  for (std::size_t at = segment.tcp + kLeastTcpHeader; at < segment.payload;) {
    const u8 kind = frame[at];
    if (kind == kEndOfOptions) return;
    if (kind == kNoOperation) {
      ++at;
      continue;
    }
    if (at + 1 >= segment.payload || frame[at + 1] < 2) return;
    const std::size_t length = frame[at + 1];
    if (kind == kMaximumSegmentSize && length == 4 && at + 4 <= segment.payload) {
      const u16 before = Get16(frame, at + 2);
      if (before >= mss) return;
      Put16(frame, at + 2, mss);
      // The change of one word (RFC 1624, equation 3); at an odd place it counts byte-swapped.
      const std::size_t field = segment.tcp + kTcpChecksum;
      const bool odd = (at + 2 - segment.tcp) & 1;
      const auto word = [odd](u16 value) { return odd ? __builtin_bswap16(value) : value; };
      const u64 sum =
          u64{static_cast<u16>(~Get16(frame, field))} + static_cast<u16>(~word(before)) + word(mss);
      Put16(frame, field, static_cast<u16>(~Fold(sum)));
      return;
    }
    at += length;
  }
}

void SetPseudoHeaderSum(Frame& frame, const TcpSegment& segment) {
  const std::span<const u8> addresses = std::span<const u8>(frame).subspan(kEthernetHeader + 12, 8);
  Put16(frame, segment.tcp + kTcpChecksum,
        Fold(u64{InternetSum(addresses)} + kTcpProtocol + (segment.end - segment.tcp)));
}

std::vector<Frame> CutSegment(const Frame& frame, const TcpSegment& segment, u16 mtu) {
  constexpr u8 kFin = 0x01, kPsh = 0x08;
  constexpr std::size_t kIdentification = 4, kSequence = 4, kFlags = 13;
  std::vector<Frame> pieces;
  const std::size_t headers = segment.payload - kEthernetHeader;
  if (mtu <= headers) return pieces;
  const std::size_t room = mtu - headers;
  const std::size_t tcp = segment.tcp;
  u32 sequence = u32{Get16(frame, tcp + kSequence)} << 16 | Get16(frame, tcp + kSequence + 2);
  u16 identification = Get16(frame, kEthernetHeader + kIdentification);
  for (std::size_t at = segment.payload; at < segment.end; at += room) {
    const std::size_t bytes = std::min(room, segment.end - at);
    Frame piece(frame.begin(), frame.begin() + static_cast<long>(segment.payload));
    piece.insert(piece.end(), frame.begin() + static_cast<long>(at),
                 frame.begin() + static_cast<long>(at + bytes));
    // The stream's end, and the wish to hear of it, come with the last bytes.
    if (at + bytes != segment.end) piece[tcp + kFlags] &= static_cast<u8>(~(kFin | kPsh));
    Put16(piece, kEthernetHeader + 2, static_cast<u16>(headers + bytes));
    Put16(piece, kEthernetHeader + kIdentification, identification++);
    Put16(piece, kEthernetHeader + 10, 0);
    const std::size_t ip_header = tcp - kEthernetHeader;
    Put16(piece, kEthernetHeader + 10,
          static_cast<u16>(
              ~InternetSum(std::span<const u8>(piece).subspan(kEthernetHeader, ip_header))));
    Put16(piece, tcp + kSequence, static_cast<u16>(sequence >> 16));
    Put16(piece, tcp + kSequence + 2, static_cast<u16>(sequence));
    sequence += static_cast<u32>(bytes);
    SetPseudoHeaderSum(piece, {tcp, segment.payload, piece.size()});
    Put16(piece, tcp + kTcpChecksum,
          static_cast<u16>(~InternetSum(std::span<const u8>(piece).subspan(tcp))));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<Frame> Fragment(const Frame& frame, u16 mtu) {
  std::vector<Frame> fragments;
  std::size_t header, total;
  if (!FindIp(frame, &header, &total) || mtu < header + 8) return fragments;
  const u16 place = Get16(frame, kEthernetHeader + 6);
  if (place & kDontFragment) return fragments;
  const std::size_t room = (mtu - header) & ~std::size_t{7};
  const std::size_t first = kEthernetHeader + header;
  for (std::size_t at = 0; at < total - header; at += room) {
    const std::size_t bytes = std::min(room, total - header - at);
    const bool last = at + bytes == total - header;
    Frame piece(frame.begin(), frame.begin() + static_cast<long>(first));
    piece.insert(piece.end(), frame.begin() + static_cast<long>(first + at),
                 frame.begin() + static_cast<long>(first + at + bytes));
    Put16(piece, kEthernetHeader + 2, static_cast<u16>(header + bytes));
    const u16 more = last ? place & kMoreFragments : kMoreFragments;
    Put16(piece, kEthernetHeader + 6,
          static_cast<u16>(more | (((place & kOffsetMask) + at / 8) & kOffsetMask)));
    Put16(piece, kEthernetHeader + 10, 0);
    const u16 sum = InternetSum(std::span<const u8>(piece).subspan(kEthernetHeader, header));
    Put16(piece, kEthernetHeader + 10, static_cast<u16>(~sum));
    fragments.push_back(std::move(piece));
  }
  return fragments;
}

}  // namespace alibi::net
