// SPDX-License-Identifier: Apache-2.0
#include "devices/net/options.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "devices/net/capture.h"
#include "devices/net/datagram.h"
#include "devices/net/tap.h"

namespace alibi::net {
namespace {

constexpr u16 kLeastMtu = 576, kMaxMtu = 65500, kMaxLanceMtu = 1500;
// The field of a DHCP message has 128 bytes, with a NUL.
constexpr std::size_t kMostBootFile = 127;

struct CardName {
  const char* name;
  Card card;
};
struct KindName {
  const char* name;
  Options::Kind kind;
};
constexpr KindName kKinds[] = {{"user", Options::Kind::kUser},
                               {"tap", Options::Kind::kTap},
                               {"socket", Options::Kind::kSocket}};
constexpr CardName kCards[] = {{"virtio", Card::kVirtio}, {"lance", Card::kLance}};

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

bool ParseNumber(std::string_view text, unsigned most, int base, unsigned* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out, base);
  return error == std::errc() && end == text.data() + text.size() && *out <= most;
}

bool ParseMac(const std::string& text, MacAddress* mac) {
  const std::vector<std::string> bytes = Split(text, ':');
  if (bytes.size() != mac->size()) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    unsigned value;
    if (!ParseNumber(bytes[i], 0xff, 16, &value)) return false;
    (*mac)[i] = static_cast<u8>(value);
  }
  return !((*mac)[0] & 1);  // an interface's own address is nobody else's
}

// "ADDRESS:PORT"; the address may be empty.
bool ParseEndpoint(const std::string& text, u32* address, u16* port) {
  const std::size_t colon = text.find(':');
  unsigned number;
  if (colon == std::string::npos ||
      !ParseNumber(std::string_view(text).substr(colon + 1), 0xffff, 10, &number) || number == 0) {
    return false;
  }
  *port = static_cast<u16>(number);
  if (colon == 0) return true;
  in_addr parsed;
  if (inet_pton(AF_INET, text.substr(0, colon).c_str(), &parsed) != 1) return false;
  *address = ntohl(parsed.s_addr);
  return true;
}

bool ParseForward(const std::string& text, HostForward* forward) {
  const std::size_t colon = text.find(':'), dash = text.find('-');
  if (colon == std::string::npos || dash == std::string::npos || dash < colon) return false;
  const std::string protocol = text.substr(0, colon);
  if (protocol != "tcp" && protocol != "udp") return false;
  forward->udp = protocol == "udp";
  return ParseEndpoint(text.substr(colon + 1, dash - colon - 1), &forward->host_address,
                       &forward->host_port) &&
         ParseEndpoint(text.substr(dash + 1), &forward->guest_address, &forward->guest_port);
}

// "100M".
bool ParseRate(const std::string& text, u64* bits_per_second) {
  static constexpr struct {
    char letter;
    u64 factor;
  } kUnits[] = {{'K', 1'000}, {'M', 1'000'000}, {'G', 1'000'000'000}};
  u64 factor = 1;
  std::string digits = text;
  for (const auto& unit : kUnits) {
    if (text.empty() || text.back() != unit.letter) continue;
    factor = unit.factor;
    digits.pop_back();
  }
  unsigned number;
  if (!ParseNumber(digits, ~0u, 10, &number)) return false;
  *bits_per_second = number * factor;
  return *bits_per_second >= WireSpeed::kLeast && *bits_per_second <= WireSpeed::kMost;
}

}  // namespace

Result<Options> ParseOptions(const std::string& text) {
  std::vector<std::string> parts = Split(text, ',');
  Options options;
  const auto* card = std::find_if(std::begin(kCards), std::end(kCards),
                                  [&](const CardName& row) { return parts[0] == row.name; });
  const bool named = card != std::end(kCards);
  if (named) {
    options.card = card->card;
    parts.erase(parts.begin());
    if (parts.empty()) {
      return Error{fmt::format("'{}' is a card; say what it is connected to: {},user or {},tap",
                               text, text, text)};
    }
  }
  const auto* network = std::find_if(std::begin(kKinds), std::end(kKinds),
                                     [&](const KindName& row) { return parts[0] == row.name; });
  if (network != std::end(kKinds)) {
    options.kind = network->kind;
  } else if (parts[0] != "none" || named) {
    return Error{
        named
            ? fmt::format("'{}' is no network; give user, tap or socket behind the card", parts[0])
            : fmt::format("'{}' is no network; give user, tap, socket or none, or a card (virtio, "
                          "lance) before it",
                          parts[0])};
  }
  const bool user = options.kind == Options::Kind::kUser;
  const bool tap = options.kind == Options::Kind::kTap;
  const bool socket = options.kind == Options::Kind::kSocket;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    const std::string key = parts[i].substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : parts[i].substr(equals + 1);
    unsigned number;
    if (key == "mac" && (user || tap || socket)) {
      if (!ParseMac(value, &options.mac)) {
        return Error{
            fmt::format("'{}' is no address of an interface; write 52:54:00:12:34:56", value)};
      }
    } else if (key == "hostfwd" && user) {
      HostForward forward;
      if (!ParseForward(value, &forward)) {
        return Error{
            fmt::format("hostfwd={}: write tcp::2222-:22, or "
                        "udp:127.0.0.1:5353-10.0.2.15:53",
                        value)};
      }
      options.user.forwards.push_back(forward);
    } else if ((key == "restrict" || key == "loopback") && user) {
      if (value != "on" && value != "off") {
        return Error{fmt::format("{}={}: on or off is wanted", key, value)};
      }
      (key == "restrict" ? options.user.restricted : options.user.loopback) = value == "on";
    } else if (key == "mtu" && user) {
      const unsigned most = options.card == Card::kLance ? kMaxLanceMtu : kMaxMtu;
      if (!ParseNumber(value, most, 10, &number) || number < kLeastMtu) {
        return Error{fmt::format("mtu={}: give {} to {}", value, kLeastMtu, most)};
      }
      options.user.mtu = static_cast<u16>(number);
    } else if (key == "tftp" && user && !value.empty()) {
      options.user.tftp = value;
    } else if (key == "bootfile" && user && !value.empty()) {
      if (value.size() > kMostBootFile) {
        return Error{fmt::format("bootfile={}: DHCP has room for {} bytes", value, kMostBootFile)};
      }
      options.user.boot_file = value;
    } else if (key == "ifname" && tap) {
      options.interface = value;
    } else if ((key == "path" || key == "peer") && socket) {
      (key == "path" ? options.path : options.peer) = value;
    } else if (key == "capture" && (user || tap || socket) && !value.empty()) {
      options.capture = value;
    } else if (key == "rom" && (user || tap || socket) && !value.empty()) {
      options.rom = value;
    } else if (key == "rate" && (user || tap || socket)) {
      if (!ParseRate(value, &options.bits_per_second)) {
        return Error{
            fmt::format("rate={}: write bits per second as 100M or 1G, 1M to 100G", value)};
      }
    } else {
      return Error{
          fmt::format("'{}' is no option of '{}'; user has hostfwd, restrict, loopback, mtu, "
                      "tftp and bootfile, tap has ifname, socket has path and peer; all have mac, "
                      "capture=FILE, rom=FILE and rate=N",
                      key, parts[0])};
    }
  }
  if (options.user.restricted && options.user.loopback) {
    return Error{"restrict=on keeps the guest from the host, loopback=on does not: give one"};
  }
  if (tap && options.interface.empty()) return Error{"tap needs ifname=NAME"};
  if (socket && (options.path.empty() || options.peer.empty())) {
    return Error{"socket needs path=NAME, its own, and peer=NAME, the far end's"};
  }
  return options;
}

Result<Optimize> ParseOptimize(const std::string& text) {
  struct Row {
    const char* name;
    bool Optimize::*member;
  };
  static constexpr Row kRows[] = {
      {"ports", &Optimize::ports},
      {"latch", &Optimize::latch},
      {"combine", &Optimize::combine},
      {"notify", &Optimize::notify},
  };
  if (text == "all") return Optimize{};
  Optimize optimize{.ports = false, .latch = false, .combine = false, .notify = false};
  if (text == "none") return optimize;
  for (const std::string& part : Split(text, ',')) {
    const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                   [&](const Row& each) { return part == each.name; });
    if (row == std::end(kRows)) {
      return Error{
          fmt::format("'{}' is no optimization; give all, none, or some of ports, latch, "
                      "combine, notify",
                      part)};
    }
    optimize.*row->member = true;
  }
  return optimize;
}

namespace {

Result<std::unique_ptr<Backend>> CreateUncaptured(const Options& options) {
  switch (options.kind) {
    case Options::Kind::kUser:
      return CreateSlirp(options.user);
    case Options::Kind::kTap:
      return CreateTap(options.interface);
    case Options::Kind::kSocket:
      return CreateDatagram(options.path, options.peer);
    case Options::Kind::kNone:
      break;
  }
  return std::unique_ptr<Backend>();
}

}  // namespace

Result<std::unique_ptr<Backend>> CreateBackend(const Options& options) {
  auto backend = CreateUncaptured(options);
  if (!backend.ok()) return backend;
  if (*backend != nullptr) (*backend)->set_speed(options.bits_per_second);
  if (options.capture.empty()) return backend;
  auto capture = Capture::Create(options.capture);
  if (!capture.ok()) return Error{"--net " + capture.error().message};
  (*backend)->set_capture(std::move(*capture));
  return backend;
}

}  // namespace alibi::net
