// SPDX-License-Identifier: Apache-2.0
// Keeps a guest of the user network away from the host's loopback: services that listen at
// 127.0.0.1 or ::1 trust whoever reaches them (gdb stubs, databases, printers).
//
// libslirp leads to the loopback what is sent to its router's addresses, and opens sockets of the
// host for every other destination, 127.0.0.1 among them. Here frames are judged before it sees
// them. Connections that came through `hostfwd` go on.
#ifndef ALIBI_DEVICES_NET_HOST_GUARD_H_
#define ALIBI_DEVICES_NET_HOST_GUARD_H_

#include <array>
#include <optional>
#include <span>
#include <utility>

#include "base/types.h"
#include "devices/net/backend.h"

namespace alibi::net {

class HostGuard {
 public:
  enum class Verdict : u8 { kPass, kDrop, kRefuse };
  // Of a frame that the guest sends. kRefuse: a connection that gets Refusal() for an answer.
  Verdict Judge(std::span<const u8> frame) const;
  // A frame on its way to the guest: what a forwarded UDP port brings may be answered.
  void Note(std::span<const u8> frame);

  // "No such port", for a TCP segment that Judge() refused; none: it was damaged.
  static std::optional<Frame> Refusal(std::span<const u8> frame);

 private:
  // The ports of the router and of the guest.
  using UdpFlow = std::pair<u16, u16>;
  std::array<UdpFlow, 256> udp_flows_ = {};
  std::size_t next_flow_ = 0;
};

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_HOST_GUARD_H_
