// SPDX-License-Identifier: Apache-2.0
// User-mode networking by libslirp: the guest is behind a router at 10.0.2.2 that ends its
// connections and opens the host's own sockets for them. No rights are needed.
//
//   10.0.2.0/24   10.0.2.2 the router   10.0.2.3 DNS   10.0.2.15 the guest, by DHCP
//   fec0::/64     fec0::2 the router    fec0::3 DNS    the guest by router advertisements
//   TFTP          the router, if it has a folder to offer; read-only
//
// The router is a process of its own, which sees the guest's frames and nothing else of it, and
// makes those system calls that sockets need.
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
  u32 host_address = 0x7f000001;  // IPv4, host byte order; 0: every one of the host's
  u16 host_port = 0;
  u32 guest_address = 0;  // 0: the guest that DHCP serves
  u16 guest_port = 0;
};

struct SlirpConfig {
  std::vector<HostForward> forwards;
  u16 mtu = 1500;
  bool restricted = false;  // the guest reaches nothing but who comes through `forwards`
  bool loopback = false;    // the router's addresses lead to the host's loopback
  bool confined = true;     // the process is kept to what it needs
  std::string tftp;         // a folder whose files the router offers by TFTP; "": none
  std::string boot_file;    // what DHCP tells the guest to boot; "": nothing
};

Result<std::unique_ptr<Backend>> CreateSlirp(const SlirpConfig& config);

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_SLIRP_H_
