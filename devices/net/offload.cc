// SPDX-License-Identifier: Apache-2.0
#include "devices/net/offload.h"

#include <algorithm>
#include <cstring>

namespace alibi::net {
namespace {

constexpr u8 kTcpProtocol = 6;
constexpr u8 kFin = 0x01, kSyn = 0x02, kPsh = 0x08, kAck = 0x10;
// Of TCP's header, and of IPv4's.
constexpr std::size_t kSequence = 4, kAcknowledgement = 8, kFlags = 13;
constexpr std::size_t kTotalLength = 2, kIdentification = 4, kFragment = 6, kIpChecksum = 10,
                      kAddresses = 12;
constexpr u16 kDontFragment = 0x4000, kMoreFragments = 0x2000, kOffsetMask = 0x1fff;
constexpr u8 kEndOfOptions = 0, kNoOperation = 1, kMaximumSegmentSize = 2;
constexpr std::size_t kLeastIpHeader = 20, kLeastTcpHeader = 20;

u16 Get16(std::span<const u8> bytes, std::size_t at) {
  return static_cast<u16>(bytes[at] << 8 | bytes[at + 1]);
}
u32 Get32(std::span<const u8> bytes, std::size_t at) {
  return u32{Get16(bytes, at)} << 16 | Get16(bytes, at + 2);
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
  // The sum of wider words in the host's order is the same, with its bytes swapped (RFC 1071, 2).
  u64 sum = 0;
  std::size_t i = 0;
  for (; i + sizeof(u32) <= bytes.size(); i += sizeof(u32)) {
    u32 word;
    std::memcpy(&word, &bytes[i], sizeof(word));
    sum += word;
  }
  u32 rest = 0;
  if (i < bytes.size()) std::memcpy(&rest, &bytes[i], bytes.size() - i);
  return __builtin_bswap16(Fold(sum + rest));
}

namespace {

// A packet's length, and the sum of its header, of `header` bytes.
void PutLength(Frame& frame, std::size_t length, std::size_t header) {
  Put16(frame, kEthernetHeader + kTotalLength, static_cast<u16>(length));
  Put16(frame, kEthernetHeader + kIpChecksum, 0);
  const u16 sum = InternetSum(std::span<const u8>(frame).subspan(kEthernetHeader, header));
  Put16(frame, kEthernetHeader + kIpChecksum, static_cast<u16>(~sum));
}

}  // namespace

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

u16 PseudoHeaderSum(std::span<const u8> frame, const TcpSegment& segment) {
  const std::span<const u8> addresses = frame.subspan(kEthernetHeader + kAddresses, 8);
  return Fold(u64{InternetSum(addresses)} + kTcpProtocol + (segment.end - segment.tcp));
}

void SetPseudoHeaderSum(Frame& frame, const TcpSegment& segment) {
  Put16(frame, segment.tcp + kTcpChecksum, PseudoHeaderSum(frame, segment));
}

OffloadHeader DescribeSegment(const TcpSegment& segment, u16 mtu) {
  OffloadHeader header;
  header.flags = OffloadHeader::kNeedsChecksum;
  header.segmentation = OffloadHeader::kTcp4;
  header.header_length = static_cast<u16>(segment.payload);
  header.segment_size = static_cast<u16>(kEthernetHeader + mtu - segment.payload);
  header.sum_start = static_cast<u16>(segment.tcp);
  header.sum_offset = kTcpChecksum;
  return header;
}

bool FinishSum(Frame& frame, std::size_t start, std::size_t field) {
  if (start >= frame.size() || field + 2 > frame.size()) return false;
  const u16 sum = static_cast<u16>(~InternetSum(std::span<const u8>(frame).subspan(start)));
  Put16(frame, field, sum == 0 ? 0xffff : sum);
  return true;
}

bool JoinSegments(Frame* whole, std::span<const u8> next) {
  TcpSegment one, other;
  if (!FindTcp(*whole, &one) || !FindTcp(next, &other)) return false;
  const std::size_t bytes = other.end - other.payload, before = one.end - one.payload;
  if (one.tcp != other.tcp || one.payload != other.payload || one.end != whole->size() ||
      bytes == 0 || before == 0 || one.end + bytes - kEthernetHeader > 0xffff) {
    return false;
  }
  // All of the headers but what says where in the stream they are.
  const auto same = [&](std::size_t begin, std::size_t end) {
    return std::equal(whole->begin() + static_cast<long>(begin),
                      whole->begin() + static_cast<long>(end),
                      next.begin() + static_cast<long>(begin));
  };
  const std::size_t ip = kEthernetHeader, tcp = one.tcp;
  const u8 flags = next[tcp + kFlags];
  if (!same(0, ip + kTotalLength) || !same(ip + kFragment, ip + kIpChecksum) ||
      !same(ip + kAddresses, tcp + kSequence) || !same(tcp + kAcknowledgement, tcp + kFlags) ||
      !same(tcp + kFlags + 1, tcp + kTcpChecksum) || !same(tcp + kTcpChecksum + 2, one.payload) ||
      (*whole)[tcp + kFlags] != kAck || (flags & ~kPsh) != kAck ||
      static_cast<u32>(Get32(*whole, tcp + kSequence) + before) != Get32(next, tcp + kSequence)) {
    return false;
  }
  whole->insert(whole->end(), next.begin() + static_cast<long>(other.payload),
                next.begin() + static_cast<long>(other.end));
  (*whole)[tcp + kFlags] = flags;
  PutLength(*whole, whole->size() - ip, tcp - ip);
  return true;
}

std::vector<Frame> CutSegment(const Frame& frame, const TcpSegment& segment, u16 mtu) {
  std::vector<Frame> pieces;
  const std::size_t headers = segment.payload - kEthernetHeader;
  if (mtu <= headers) return pieces;
  const std::size_t room = mtu - headers;
  const std::size_t tcp = segment.tcp;
  u32 sequence = Get32(frame, tcp + kSequence);
  u16 identification = Get16(frame, kEthernetHeader + kIdentification);
  for (std::size_t at = segment.payload; at < segment.end; at += room) {
    const std::size_t bytes = std::min(room, segment.end - at);
    Frame piece(frame.begin(), frame.begin() + static_cast<long>(segment.payload));
    piece.insert(piece.end(), frame.begin() + static_cast<long>(at),
                 frame.begin() + static_cast<long>(at + bytes));
    // The stream's end, and the wish to hear of it, come with the last bytes.
    if (at + bytes != segment.end) piece[tcp + kFlags] &= static_cast<u8>(~(kFin | kPsh));
    Put16(piece, kEthernetHeader + kIdentification, identification++);
    PutLength(piece, headers + bytes, tcp - kEthernetHeader);
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
