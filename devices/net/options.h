// SPDX-License-Identifier: Apache-2.0
// What --net says.
#ifndef ALIBI_DEVICES_NET_OPTIONS_H_
#define ALIBI_DEVICES_NET_OPTIONS_H_

#include <array>
#include <memory>
#include <string>

#include "base/result.h"
#include "devices/net/backend.h"
#include "devices/net/slirp.h"

namespace alibi::net {

using MacAddress = std::array<u8, 6>;

// What the guest sees.
enum class Card : u8 { kVirtio, kLance };

// What makes hosted I/O cheaper (Sugerman, Venkitachalam and Lim, section 3.3), each by itself.
struct Optimize {
  bool ports = true;    // registers of the card are answered next to translated code
  bool latch = true;    // registers that only keep what they are told are memory to translated code
  bool combine = true;  // transmissions wait for a crossing that happens anyway
  bool notify = true;   // threads that are awake are not woken by a system call
};

struct Options {
  enum class Kind : u8 { kNone, kUser, kTap, kSocket };
  Kind kind = Kind::kNone;
  Card card = Card::kVirtio;
  MacAddress mac = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
  SlirpConfig user;
  std::string interface;
  std::string path, peer;   // of sockets
  std::string capture;      // a file for all frames; "": none
  std::string rom;          // a file with the card's expansion ROM; "": none
  u64 bits_per_second = 0;  // of the wire; 0: as fast as it may be
};

// Before the network there may be a card: "virtio,", "lance,".
// "none", "user[,hostfwd=tcp|udp:[ADDRESS]:PORT-[ADDRESS]:PORT]...[,restrict=on|off]
// [,loopback=on|off][,mtu=N][,tftp=FOLDER][,bootfile=NAME]", "tap,ifname=NAME",
// "socket,path=NAME,peer=NAME"; all but the first with ",mac=XX:XX:XX:XX:XX:XX", ",capture=FILE",
// ",rom=FILE" and ",rate=N" (bits per second; K, M, G are powers of 1000). A forwarded port without
// an address is the host's loopback's.
Result<Options> ParseOptions(const std::string& text);

// "all", "none", or a list of "ports", "latch", "combine" and "notify" with commas.
Result<Optimize> ParseOptimize(const std::string& text);

// Null for kNone.
Result<std::unique_ptr<Backend>> CreateBackend(const Options& options);

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_OPTIONS_H_
