// SPDX-License-Identifier: Apache-2.0
#include "devices/net/host_guard.h"

#include <algorithm>
#include <cstring>

#include "devices/net/offload.h"

namespace alibi::net {
namespace {

constexpr u16 kIpv4 = 0x0800, kIpv6 = 0x86dd;
constexpr u8 kTcp = 6, kUdp = 17;
constexpr u8 kSyn = 0x02, kRst = 0x04, kAck = 0x10;
constexpr u16 kDnsPort = 53, kDhcpPort = 67, kTftpPort = 69, kDhcpv6Port = 547;

u16 Get16(std::span<const u8> bytes, std::size_t at) {
  return static_cast<u16>(bytes[at] << 8 | bytes[at + 1]);
}
void Put16(Frame& frame, std::size_t at, u16 value) {
  frame[at] = static_cast<u8>(value >> 8);
  frame[at + 1] = static_cast<u8>(value);
}

enum class Place : u8 { kElsewhere, kLoopback, kRouter, kNameServer };

Place PlaceOf4(std::span<const u8> address) {
  if (address[0] == 127 || address[0] == 0) return Place::kLoopback;
  const bool all_ones = std::all_of(address.begin(), address.end(), [](u8 b) { return b == 255; });
  if (all_ones) return Place::kRouter;
  if (address[0] != 10 || address[1] != 0 || address[2] != 2) return Place::kElsewhere;
  return address[3] == 3 ? Place::kNameServer : Place::kRouter;
}

Place PlaceOf6(std::span<const u8> address) {
  const auto zeros = [&](std::size_t from, std::size_t to) {
    return std::all_of(address.begin() + static_cast<std::ptrdiff_t>(from),
                       address.begin() + static_cast<std::ptrdiff_t>(to),
                       [](u8 byte) { return byte == 0; });
  };
  // Unspecified, loopback, and the ways to write an IPv4 address.
  if (zeros(0, 8)) return Place::kLoopback;
  const bool link_local = address[0] == 0xfe && (address[1] & 0xc0) == 0x80;
  const bool site_local = address[0] == 0xfe && (address[1] & 0xc0) == 0xc0;
  if (!link_local && !site_local) return Place::kElsewhere;
  return site_local && zeros(2, 15) && address[15] == 3 ? Place::kNameServer : Place::kRouter;
}

struct Packet {
  u8 protocol = 0;
  Place place = Place::kElsewhere;
  bool router_itself = false;   // 10.0.2.2, not another name of the host's
  std::size_t transport = 0;    // offset in the frame
  bool fragment = false;        // any part of a packet that comes in several
  bool later_fragment = false;  // without the header of its protocol
};

// False: no packet of the Internet's that libslirp would take.
bool Parse(std::span<const u8> frame, Packet* packet) {
  if (frame.size() < kEthernetHeader) return false;
  const std::span<const u8> ip = frame.subspan(kEthernetHeader);
  switch (Get16(frame, 12)) {
    case kIpv4: {
      const std::size_t header = ip.empty() ? 0 : (ip[0] & 0xfu) * 4;
      if (header < 20 || ip.size() < header) return false;
      const u16 place = Get16(ip, 6);
      packet->protocol = ip[9];
      packet->place = PlaceOf4(ip.subspan(16, 4));
      packet->router_itself = packet->place == Place::kRouter && ip[16] == 10 && ip[19] == 2;
      packet->transport = kEthernetHeader + header;
      packet->fragment = (place & 0x3fff) != 0;
      packet->later_fragment = (place & 0x1fff) != 0;
      return true;
    }
    case kIpv6:
      if (ip.size() < 40) return false;
      packet->protocol = ip[6];  // libslirp takes no extension headers
      packet->place = PlaceOf6(ip.subspan(24, 16));
      packet->transport = kEthernetHeader + 40;
      return true;
  }
  return false;
}

}  // namespace

HostGuard::Verdict HostGuard::Judge(std::span<const u8> frame) const {
  Packet packet;
  if (!Parse(frame, &packet)) {
    const u16 type = frame.size() < kEthernetHeader ? u16{0} : Get16(frame, 12);
    return type == kIpv4 || type == kIpv6 ? Verdict::kDrop : Verdict::kPass;
  }
  if (packet.place == Place::kElsewhere) return Verdict::kPass;
  if (packet.place == Place::kLoopback) {
    return packet.protocol == kTcp && !packet.fragment ? Verdict::kRefuse : Verdict::kDrop;
  }
  if (packet.protocol != kTcp && packet.protocol != kUdp) return Verdict::kPass;
  // A later fragment is put behind the first 8 bytes, which hold UDP's ports, but not TCP's flags.
  if (packet.later_fragment) return packet.protocol == kUdp ? Verdict::kPass : Verdict::kDrop;
  if (frame.size() < packet.transport + 8) return Verdict::kDrop;
  const u16 from = Get16(frame, packet.transport), to = Get16(frame, packet.transport + 2);
  const bool dns = packet.place == Place::kNameServer && to == kDnsPort;
  if (packet.protocol == kUdp) {
    // libslirp's own servers.
    const bool dhcp = to == kDhcpPort || to == kDhcpv6Port;
    const bool tftp = packet.router_itself && to == kTftpPort;
    const bool answer = to != 0 && std::find(udp_flows_.begin(), udp_flows_.end(),
                                             UdpFlow{to, from}) != udp_flows_.end();
    return dns || dhcp || tftp || answer ? Verdict::kPass : Verdict::kDrop;
  }
  if (packet.fragment || frame.size() < packet.transport + 20) return Verdict::kDrop;
  const u8 flags = frame[packet.transport + 13];
  const bool opens = (flags & kSyn) != 0 && (flags & kAck) == 0;
  return opens && !dns ? Verdict::kRefuse : Verdict::kPass;
}

void HostGuard::Note(std::span<const u8> frame) {
  Packet packet;
  if (!Parse(frame, &packet) || packet.protocol != kUdp || packet.later_fragment) return;
  if (frame.size() < packet.transport + 8) return;
  const std::span<const u8> ip = frame.subspan(kEthernetHeader);
  const Place from =
      Get16(frame, 12) == kIpv6 ? PlaceOf6(ip.subspan(8, 16)) : PlaceOf4(ip.subspan(12, 4));
  if (from != Place::kRouter) return;
  const UdpFlow flow = {Get16(frame, packet.transport), Get16(frame, packet.transport + 2)};
  if (std::find(udp_flows_.begin(), udp_flows_.end(), flow) != udp_flows_.end()) return;
  udp_flows_[next_flow_] = flow;
  next_flow_ = (next_flow_ + 1) % udp_flows_.size();
}

std::optional<Frame> HostGuard::Refusal(std::span<const u8> frame) {
  Packet packet;
  if (!Parse(frame, &packet) || packet.protocol != kTcp || frame.size() < packet.transport + 20) {
    return std::nullopt;
  }
  const bool ipv6 = Get16(frame, 12) == kIpv6;
  const std::size_t header = ipv6 ? 40 : 20, tcp = kEthernetHeader + header;
  const std::size_t addresses = kEthernetHeader + (ipv6 ? 8 : 12), bytes = ipv6 ? 16 : 4;
  Frame answer(tcp + 20);
  std::copy_n(frame.begin() + 6, 6, answer.begin());
  std::copy_n(frame.begin(), 6, answer.begin() + 6);
  std::copy_n(frame.begin() + 12, 2, answer.begin() + 12);
  u8* ip = answer.data() + kEthernetHeader;
  if (ipv6) {
    ip[0] = 0x60;
    ip[5] = 20;  // the payload's length
    ip[6] = kTcp;
    ip[7] = 64;
  } else {
    ip[0] = 0x45;
    ip[3] = 40;  // the packet's length
    ip[8] = 64;
    ip[9] = kTcp;
  }
  std::memcpy(answer.data() + addresses, frame.data() + addresses + bytes, bytes);
  std::memcpy(answer.data() + addresses + bytes, frame.data() + addresses, bytes);
  if (!ipv6) Put16(answer, kEthernetHeader + 10, static_cast<u16>(~InternetSum({ip, 20})));
  std::memcpy(answer.data() + tcp, frame.data() + packet.transport + 2, 2);
  std::memcpy(answer.data() + tcp + 2, frame.data() + packet.transport, 2);
  u32 acknowledged = 0;
  for (std::size_t i = 4; i < 8; ++i) {
    acknowledged = acknowledged << 8 | frame[packet.transport + i];
  }
  ++acknowledged;  // its SYN
  for (std::size_t i = 0; i < 4; ++i) {
    answer[tcp + 8 + i] = static_cast<u8>(acknowledged >> (24 - 8 * i));
  }
  answer[tcp + 12] = 5 << 4;
  answer[tcp + 13] = kRst | kAck;
  Frame sum(answer.begin() + static_cast<std::ptrdiff_t>(addresses),
            answer.begin() + static_cast<std::ptrdiff_t>(addresses + 2 * bytes));
  sum.insert(sum.end(), {0, kTcp, 0, 20});
  sum.insert(sum.end(), answer.begin() + static_cast<std::ptrdiff_t>(tcp), answer.end());
  Put16(answer, tcp + 16, static_cast<u16>(~InternetSum(sum)));
  return answer;
}

}  // namespace alibi::net
