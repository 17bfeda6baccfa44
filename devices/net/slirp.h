// User-mode networking by libslirp: the guest is behind a router at 10.0.2.2 that ends its
// connections and opens the host's own sockets for them. No rights are needed.
//
//   10.0.2.0/24   10.0.2.2 the host (its loopback, too)   10.0.2.3 DNS   10.0.2.15 the guest, by
//   DHCP
#ifndef ALIBI_DEVICES_NET_SLIRP_H_
#define ALIBI_DEVICES_NET_SLIRP_H_

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "devices/net/backend.h"

namespace alibi::net {

// Connections to the host's port go to the guest's.
struct HostForward {
  bool udp = false;
  u32 host_address = 0;  // IPv4, host byte order; 0: every one of the host's
  u16 host_port = 0;
  u32 guest_address = 0;  // 0: the guest that DHCP serves
  u16 guest_port = 0;
};

struct SlirpConfig {
  std::vector<HostForward> forwards;
  u16 mtu = 1500;
};

Result<std::unique_ptr<Backend>> CreateSlirp(const SlirpConfig& config);

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_SLIRP_H_
