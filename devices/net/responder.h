// SPDX-License-Identifier: Apache-2.0
// The least that a far end must say so that a guest sends to it: who has an address (ARP, RFC 826),
// and that it is there (ICMP echo, RFC 792).
#ifndef ALIBI_DEVICES_NET_RESPONDER_H_
#define ALIBI_DEVICES_NET_RESPONDER_H_

#include <optional>
#include <span>

#include "base/types.h"
#include "devices/net/backend.h"
#include "devices/net/options.h"

namespace alibi::net {

inline constexpr MacAddress kResponderAddress = {0x52, 0x54, 0x00, 0x12, 0x34, 0x02};

// The answer to a frame, if it has one. Every IPv4 address is the far end's, but that of whoever
// asks: a host that looks whether its own is free must find that it is.
std::optional<Frame> Answer(std::span<const u8> frame);

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_RESPONDER_H_
