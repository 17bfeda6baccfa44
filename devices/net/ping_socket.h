// SPDX-License-Identifier: Apache-2.0
// The sockets by which libslirp passes on the guest's pings.
#ifndef ALIBI_DEVICES_NET_PING_SOCKET_H_
#define ALIBI_DEVICES_NET_PING_SOCKET_H_

#include <span>

#include "base/types.h"

namespace alibi::net {

// libslirp opens a socket for each echo request, sends the request, and takes whatever arrives
// first for the reply. This makes `fd`, which it has just opened while it handled the guest's
// `frame`, hear only what answers that request: an ICMP error becomes an error of the socket, which
// libslirp reports to the guest. Sockets of other protocols are left as they are.
void HearOnlyAnswers(int fd, std::span<const u8> frame);

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_PING_SOCKET_H_
