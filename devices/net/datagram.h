// SPDX-License-Identifier: Apache-2.0
// The network between a machine and one peer, by UNIX datagrams: no rights are needed.
#ifndef ALIBI_DEVICES_NET_DATAGRAM_H_
#define ALIBI_DEVICES_NET_DATAGRAM_H_

#include <memory>
#include <string>

#include "base/result.h"
#include "devices/net/backend.h"

namespace alibi::net {

// Frames come to the socket `path`, and go to `peer`, which need not be there yet: until it is,
// frames are lost, as on a wire without a far end.
Result<std::unique_ptr<Backend>> CreateDatagram(const std::string& path, const std::string& peer);

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_DATAGRAM_H_
