// SPDX-License-Identifier: Apache-2.0
#include "devices/net/ping_socket.h"

#include <linux/filter.h>
#include <linux/icmp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "devices/net/offload.h"

namespace alibi::net {
namespace {

int Option(int fd, int name) {
  int value = 0;
  socklen_t size = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

template <class T>
void Set(int fd, int level, int name, const T& value) {
  [[maybe_unused]] const int done = setsockopt(fd, level, name, &value, sizeof(value));
}

// Of a raw socket's packets, which begin with their IP header, those of one identifier and sequence
// number.
void HearOnly(int fd, u32 identifier_and_sequence) {
  sock_filter code[] = {
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),  // X = the IP header's length
      BPF_STMT(BPF_LD | BPF_W | BPF_IND, 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, identifier_and_sequence, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, ~u32{0}),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  Set(fd, SOL_SOCKET, SO_ATTACH_FILTER, sock_fprog{std::size(code), code});
}

}  // namespace

void HearOnlyAnswers(int fd, std::span<const u8> frame) {
  if (Option(fd, SO_PROTOCOL) != IPPROTO_ICMP) return;
  Set(fd, IPPROTO_IP, IP_RECVERR, 1);
  // The kernel itself sorts what is for a ping socket. Where there are none (ping_group_range), and
  // the user may, libslirp takes a raw socket: that one hears all ICMP that the host gets.
  if (Option(fd, SO_TYPE) != SOCK_RAW || frame.size() < kEthernetHeader + 20) return;
  Set(fd, SOL_RAW, ICMP_FILTER, icmp_filter{~(1u << ICMP_ECHOREPLY)});
  const std::span<const u8> ip = frame.subspan(kEthernetHeader);
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  std::memcpy(&peer.sin_addr, ip.data() + 16, 4);
  [[maybe_unused]] const int connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer));
  // A request that came in fragments is done with at its last one, which does not hold the header.
  const std::size_t header = (ip[0] & 0xfu) * 4;
  const bool later_fragment = (ip[6] & 0x1f) != 0 || ip[7] != 0;
  if (later_fragment || ip.size() < header + 8) return;
  u32 identifier_and_sequence;
  std::memcpy(&identifier_and_sequence, ip.data() + header + 4, 4);
  HearOnly(fd, ntohl(identifier_and_sequence));
}

}  // namespace alibi::net
