// SPDX-License-Identifier: Apache-2.0
// Options, frame work, and the backends as far as they need no rights.
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "devices/net/backend.h"
#include "devices/net/host_guard.h"
#include "devices/net/offload.h"
#include "devices/net/options.h"
#include "devices/net/tap.h"

namespace alibi::net {
namespace {

TEST_CASE("Network options: what is understood") {
  CHECK(ParseOptions("none")->kind == Options::Kind::kNone);
  const Options user = *ParseOptions(
      "user,hostfwd=tcp::2222-:22,hostfwd=udp:127.0.0.1:5353-10.0.2.16:53,mtu=9000,"
      "mac=52:54:00:AB:cd:01");
  CHECK(user.kind == Options::Kind::kUser);
  REQUIRE(user.user.forwards.size() == 2);
  CHECK_FALSE(user.user.forwards[0].udp);
  CHECK(user.user.forwards[0].host_port == 2222);
  CHECK(user.user.forwards[0].guest_port == 22);
  CHECK(user.user.forwards[1].udp);
  CHECK(user.user.forwards[1].host_address == 0x7f000001);
  CHECK(user.user.forwards[1].guest_address == 0x0a000210);
  CHECK(user.user.forwards[0].host_address == 0x7f000001);  // without an address
  CHECK(ParseOptions("user,hostfwd=tcp:0.0.0.0:80-:80")->user.forwards[0].host_address == 0);
  CHECK(user.user.mtu == 9000);
  CHECK_FALSE(user.user.restricted);
  CHECK_FALSE(user.user.loopback);
  CHECK(ParseOptions("user,restrict=on")->user.restricted);
  CHECK(ParseOptions("user,loopback=on,restrict=off")->user.loopback);
  CHECK(user.mac == MacAddress{0x52, 0x54, 0x00, 0xab, 0xcd, 0x01});
  const Options tap = *ParseOptions("tap,ifname=tap7");
  CHECK(tap.kind == Options::Kind::kTap);
  CHECK(tap.interface == "tap7");
  CHECK(tap.card == Card::kVirtio);
  const Options lance = *ParseOptions("lance,user,restrict=on");
  CHECK(lance.kind == Options::Kind::kUser);
  CHECK(lance.card == Card::kLance);
  CHECK(lance.user.restricted);
  CHECK(ParseOptions("lance,tap,ifname=tap7")->card == Card::kLance);
  CHECK(tap.bits_per_second == 0);
  CHECK(ParseOptions("lance,user,rate=100M")->bits_per_second == 100'000'000);
  CHECK(ParseOptions("tap,ifname=t,rate=1G")->bits_per_second == 1'000'000'000);
  CHECK(ParseOptions("user,rate=1500000")->bits_per_second == 1'500'000);
  CHECK(ParseOptions("virtio,user")->card == Card::kVirtio);
  const Options boot = *ParseOptions("lance,user,tftp=/srv/boot,bootfile=pxe.0,rom=pcnet.rom");
  CHECK(boot.user.tftp == "/srv/boot");
  CHECK(boot.user.boot_file == "pxe.0");
  CHECK(boot.rom == "pcnet.rom");
  const Options socket = *ParseOptions("lance,socket,path=/tmp/a,peer=/tmp/b,capture=x.pcap");
  CHECK(socket.kind == Options::Kind::kSocket);
  CHECK(socket.path == "/tmp/a");
  CHECK(socket.peer == "/tmp/b");
  CHECK(socket.capture == "x.pcap");
}

TEST_CASE("Network options: optimizations") {
  CHECK(ParseOptimize("all")->ports);
  CHECK(ParseOptimize("all")->notify);
  CHECK_FALSE(ParseOptimize("none")->combine);
  CHECK_FALSE(ParseOptimize("none")->latch);
  CHECK(ParseOptimize("latch")->latch);
  const Optimize some = *ParseOptimize("notify,ports");
  CHECK(some.ports);
  CHECK(some.notify);
  CHECK_FALSE(some.combine);
  for (const char* text : {"", "ports,", "All", "none,ports"}) {
    REQUIRE_FALSE(ParseOptimize(text).ok());
    CHECK(ParseOptimize(text).error().message.find("give all, none") != std::string::npos);
  }
}

TEST_CASE("Network options: what is wrong is named") {
  const struct {
    const char* text;
    const char* message;
  } rows[] = {
      {"", "give user, tap, socket or none"},
      {"bridge", "give user, tap, socket or none"},
      {"lance", "lance,user or lance,tap"},
      {"lance,none", "give user, tap or socket"},
      {"lance,lance,user", "give user, tap or socket"},
      {"user,lance", "no option"},
      {"lance,user,mtu=9000", "576 to 1500"},
      {"socket", "path=NAME"},
      {"socket,path=a", "peer=NAME"},
      {"socket,path=a,peer=b,mtu=1500", "no option"},
      {"user,capture=", "no option"},
      {"user,rate=", "100M or 1G"},
      {"user,rate=fast", "100M or 1G"},
      {"user,rate=1K", "100M or 1G"},
      {"user,rate=101G", "100M or 1G"},
      {"none,rate=1G", "no option"},
      {"none,capture=x", "no option"},
      {"none,mac=52:54:00:12:34:56", "no option"},
      {"user,ifname=x", "no option"},
      {"user,mac=53:54:00:12:34:56", "no address"},
      {"user,mac=52:54:00:12:34", "no address"},
      {"user,mac=52:54:00:12:34:100", "no address"},
      {"user,mac=", "no address"},
      {"user,mtu=100", "576"},
      {"user,mtu=65535", "576"},
      {"user,mtu=x", "576"},
      {"user,hostfwd", "write tcp"},
      {"user,hostfwd=sctp::1-:2", "write tcp"},
      {"user,hostfwd=tcp::0-:2", "write tcp"},
      {"user,hostfwd=tcp::1-:65536", "write tcp"},
      {"user,hostfwd=tcp:host:1-:2", "write tcp"},
      {"user,hostfwd=tcp-:1", "write tcp"},
      {"user,tftp=", "no option"},
      {"tap,ifname=x,tftp=/srv", "no option"},
      {"none,rom=x", "no option"},
      {"user,bootfile=12345678901234567890123456789012345678901234567890123456789012345678901234"
       "567890123456789012345678901234567890123456789012345678",
       "127 bytes"},
      {"user,restrict=yes", "on or off"},
      {"user,loopback", "on or off"},
      {"user,restrict=on,loopback=on", "give one"},
      {"tap", "ifname"},
      {"tap,hostfwd=tcp::1-:2", "no option"},
  };
  for (const auto& row : rows) {
    INFO(row.text);
    const auto parsed = ParseOptions(row.text);
    REQUIRE_FALSE(parsed.ok());
    CHECK_THAT(parsed.error().message, Catch::Contains(row.message));
  }
}

TEST_CASE("TAP: a name that cannot be") {
  CHECK_FALSE(CreateTap("").ok());
  CHECK_FALSE(CreateTap("a_name_that_is_too_long").ok());
}

// Ethernet, IPv4 and TCP or UDP headers, with right checksums.
Frame MakeFrame(u8 protocol, const Frame& transport, u16 place = 0) {
  Frame frame(kEthernetHeader + 20);
  frame[12] = 8;
  u8* ip = frame.data() + kEthernetHeader;
  const std::size_t total = 20 + transport.size();
  ip[0] = 0x45;
  ip[2] = static_cast<u8>(total >> 8);
  ip[3] = static_cast<u8>(total);
  ip[6] = static_cast<u8>(place >> 8);
  ip[7] = static_cast<u8>(place);
  ip[8] = 64;
  ip[9] = protocol;
  const u8 addresses[] = {10, 0, 2, 15, 10, 0, 2, 2};
  std::memcpy(ip + 12, addresses, 8);
  const u16 sum = static_cast<u16>(~InternetSum({ip, 20}));
  ip[10] = static_cast<u8>(sum >> 8);
  ip[11] = static_cast<u8>(sum);
  frame.insert(frame.end(), transport.begin(), transport.end());
  return frame;
}
// Zero if the segment's checksum is right.
u16 TcpError(const Frame& frame) {
  TcpSegment segment;
  REQUIRE(FindTcp(frame, &segment));
  Frame sum(frame.begin() + 26, frame.begin() + 34);
  const std::size_t length = segment.end - segment.tcp;
  for (const std::size_t byte : {std::size_t{0}, std::size_t{6}, length >> 8, length & 0xff}) {
    sum.push_back(static_cast<u8>(byte));
  }
  sum.insert(sum.end(), frame.begin() + static_cast<long>(segment.tcp),
             frame.begin() + static_cast<long>(segment.end));
  return static_cast<u16>(~InternetSum(sum));
}
Frame MakeTcp(u8 flags, const Frame& options, std::size_t payload) {
  Frame tcp(20);
  tcp[12] = static_cast<u8>((20 + options.size()) / 4 << 4);
  tcp[13] = flags;
  tcp.insert(tcp.end(), options.begin(), options.end());
  for (std::size_t i = 0; i < payload; ++i) tcp.push_back(static_cast<u8>(i * 7));
  Frame frame = MakeFrame(6, tcp);
  const u16 sum = TcpError(frame);
  frame[kEthernetHeader + 20 + 16] = static_cast<u8>(sum >> 8);
  frame[kEthernetHeader + 20 + 17] = static_cast<u8>(sum);
  REQUIRE(TcpError(frame) == 0);
  return frame;
}

TEST_CASE("Offload: a SYN's segment size is raised, at any place, with its checksum") {
  for (const Frame& options :
       {Frame{2, 4, 5, 0xb4}, Frame{1, 2, 4, 5, 0xb4, 1, 1, 0}, Frame{3, 3, 7, 2, 4, 5, 0xb4, 0}}) {
    Frame frame = MakeTcp(2, options, 0);
    RaiseMss(frame, 16344);
    CHECK(TcpError(frame) == 0);
    CHECK(frame != MakeTcp(2, options, 0));
    const Frame raised = frame;
    RaiseMss(frame, 1000);
    CHECK(frame == raised);
  }
  for (const Frame& frame :
       {MakeTcp(0x10, {2, 4, 5, 0xb4}, 0), MakeTcp(2, {2, 3, 5, 0xb4}, 0), MakeTcp(2, {}, 5),
        MakeTcp(2, {0, 2, 4, 5}, 0), MakeTcp(2, {3, 0, 2, 4}, 0), MakeTcp(2, {1, 1, 1, 2}, 0)}) {
    Frame same = frame;
    RaiseMss(same, 16344);
    CHECK(same == frame);
  }
}

TEST_CASE("Offload: the pseudo header's sum completes to the checksum") {
  Frame frame = MakeTcp(0x18, {}, 5001);
  const Frame before = frame;
  TcpSegment segment;
  REQUIRE(FindTcp(frame, &segment));
  SetPseudoHeaderSum(frame, segment);
  CHECK(frame != before);
  const u16 sum = static_cast<u16>(~InternetSum(std::span<const u8>(frame).subspan(segment.tcp)));
  frame[segment.tcp + 16] = static_cast<u8>(sum >> 8);
  frame[segment.tcp + 17] = static_cast<u8>(sum);
  CHECK(frame == before);
}

TEST_CASE("Offload: a segment in pieces is the same stream") {
  constexpr std::size_t kPayload = 4000;
  constexpr u8 kFinPshAck = 0x19;
  Frame frame = MakeTcp(kFinPshAck, {}, kPayload);
  TcpSegment segment;
  REQUIRE(FindTcp(frame, &segment));
  frame[segment.tcp + 4] = frame[segment.tcp + 5] = 0xff;  // the sequence number wraps
  const std::vector<Frame> pieces = CutSegment(frame, segment, 1500);
  REQUIRE(pieces.size() == 3);
  Frame all;
  for (const Frame& piece : pieces) {
    TcpSegment part;
    REQUIRE(FindTcp(piece, &part));
    CHECK(piece.size() <= kEthernetHeader + 1500);
    CHECK(part.end == piece.size());
    CHECK(InternetSum(std::span<const u8>(piece).subspan(kEthernetHeader, 20)) == 0xffff);
    Frame checked = piece;
    SetPseudoHeaderSum(checked, part);
    const u16 sum = static_cast<u16>(~InternetSum(std::span<const u8>(checked).subspan(part.tcp)));
    CHECK((piece[part.tcp + 16] << 8 | piece[part.tcp + 17]) == sum);
    const auto sequence = [](const Frame& of, std::size_t tcp) {
      return u32{of[tcp + 4]} << 24 | u32{of[tcp + 5]} << 16 | u32{of[tcp + 6]} << 8 | of[tcp + 7];
    };
    CHECK(sequence(piece, part.tcp) - sequence(frame, segment.tcp) == all.size());
    CHECK(piece[part.tcp + 13] == (&piece == &pieces.back() ? kFinPshAck : 0x10));
    all.insert(all.end(), piece.begin() + static_cast<long>(part.payload), piece.end());
  }
  CHECK(all == Frame(frame.begin() + static_cast<long>(segment.payload), frame.end()));
  CHECK(CutSegment(frame, segment, 40).empty());
}

TEST_CASE("Offload: the Internet checksum, at any length and alignment") {
  std::mt19937_64 random(3);
  Frame bytes(100);
  for (int i = 0; i < 2000; ++i) {
    for (u8& byte : bytes) byte = random() % 4 == 0 ? 0xff : static_cast<u8>(random());
    const std::size_t at = random() % 8, size = random() % 90;
    // Words of 16 bits, high bytes first, with end-around carries (RFC 1071).
    u32 sum = 0;
    for (std::size_t k = 0; k < size; ++k) {
      sum += k % 2 == 0 ? bytes[at + k] << 8 : bytes[at + k];
      sum = (sum & 0xffff) + (sum >> 16);
    }
    CHECK(InternetSum(std::span<const u8>(bytes).subspan(at, size)) == sum);
  }
}

TEST_CASE("Offload: the pieces of a segment join to what it was, and nothing else does") {
  constexpr u8 kAck = 0x10, kPshAck = 0x18;
  const Frame timestamps = {1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2};
  Frame frame = MakeTcp(kPshAck, timestamps, 10'000);
  TcpSegment segment;
  REQUIRE(FindTcp(frame, &segment));
  frame[segment.tcp + 4] = frame[segment.tcp + 5] = frame[segment.tcp + 6] = 0xff;
  std::vector<Frame> pieces = CutSegment(frame, segment, 1500);
  REQUIRE(pieces.size() == 7);
  pieces[3].resize(pieces[3].size() + 6);  // Ethernet's padding is no payload
  Frame whole = pieces[0];
  for (std::size_t i = 1; i < pieces.size(); ++i) REQUIRE(JoinSegments(&whole, pieces[i]));
  CHECK(InternetSum(std::span<const u8>(whole).subspan(kEthernetHeader, 20)) == 0xffff);
  TcpSegment joined;
  REQUIRE(FindTcp(whole, &joined));
  SetPseudoHeaderSum(whole, joined);
  SetPseudoHeaderSum(frame, segment);
  CHECK(whole == frame);
  // Behind a PSH nothing waits for more.
  CHECK_FALSE(JoinSegments(&whole, pieces[1]));

  pieces[3].resize(pieces[3].size() - 6);
  const auto joins = [](Frame one, const Frame& other) {
    const Frame before = one;
    const bool done = JoinSegments(&one, other);
    CHECK(done == (one != before));
    return done;
  };
  CHECK(joins(pieces[1], pieces[2]));
  CHECK_FALSE(joins(pieces[1], pieces[3]));
  CHECK_FALSE(joins(pieces[2], pieces[1]));
  CHECK_FALSE(joins({}, pieces[1]));
  CHECK_FALSE(joins(pieces[1], Frame(60)));
  // One byte of the headers that differs: all but the lengths, the identification, sums and PSH.
  for (std::size_t at = 0; at < segment.payload; ++at) {
    const std::size_t ip = kEthernetHeader;
    if ((at >= ip + 2 && at < ip + 6) || at == ip + 10 || at == ip + 11) continue;
    if (at == segment.tcp + 16 || at == segment.tcp + 17) continue;
    Frame other = pieces[2];
    other[at] ^= 1;
    INFO(at);
    CHECK_FALSE(joins(pieces[1], other));
  }
  // Without payload, or with other flags, and beyond what a packet's length can say.
  CHECK_FALSE(joins(MakeTcp(kAck, {}, 100), MakeTcp(kAck, {}, 0)));
  CHECK_FALSE(joins(MakeTcp(kAck, {}, 0), MakeTcp(kAck, {}, 100)));
  for (const u8 flags : {0x11, 0x12, 0x14, 0x30, 0x50, 0x90, 0x08}) {
    Frame other = pieces[2];
    other[segment.tcp + 13] = flags;
    CHECK_FALSE(joins(pieces[1], other));
  }
  const auto numbered = [&](std::size_t payload, u32 sequence) {
    Frame made = MakeTcp(kAck, {}, payload);
    made[kEthernetHeader + 20 + 6] = static_cast<u8>(sequence >> 8);
    made[kEthernetHeader + 20 + 7] = static_cast<u8>(sequence);
    return made;
  };
  CHECK(joins(numbered(60'000, 0), numbered(5'495, 60'000)));
  CHECK_FALSE(joins(numbered(60'000, 0), numbered(5'496, 60'000)));
}

TEST_CASE("Offload: fragments put together are the packet") {
  Frame payload(4000);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<u8>(i / 3);
  const std::vector<Frame> pieces = Fragment(MakeFrame(17, payload), 1500);
  REQUIRE(pieces.size() == 3);
  Frame all;
  for (const Frame& piece : pieces) {
    CHECK(piece.size() <= kEthernetHeader + 1500);
    CHECK(InternetSum(std::span<const u8>(piece).subspan(kEthernetHeader, 20)) == 0xffff);
    const unsigned place = piece[20] << 8u | piece[21];
    CHECK((place & 0x1fff) * 8 == all.size());
    CHECK(((place & 0x2000) != 0) == (&piece != &pieces.back()));
    all.insert(all.end(), piece.begin() + kEthernetHeader + 20, piece.end());
  }
  CHECK(all == payload);
  CHECK(Fragment(MakeFrame(17, payload, 0x4000), 1500).empty());
  CHECK(Fragment(Frame(2000), 1500).empty());
}

TEST_CASE("Offload: frames of random bytes") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    Frame frame = MakeTcp(2, {2, 4, 5, 0xb4}, random() % 64);
    for (int change = 0; change < 3; ++change) {
      frame[12 + random() % (frame.size() - 12)] = static_cast<u8>(random());
    }
    frame.resize(random() % (frame.size() + 1));
    RaiseMss(frame, 16344);
    static_cast<void>(Fragment(frame, 68));
    TcpSegment segment;
    if (!FindTcp(frame, &segment)) continue;
    static_cast<void>(CutSegment(frame, segment, 68));
    Frame whole = frame;
    static_cast<void>(JoinSegments(&whole, frame));
    SetPseudoHeaderSum(frame, segment);
  }
}

// What waits for notices of a backend.
class Listener {
 public:
  std::function<void()> Notice() {
    return [this] {
      std::lock_guard lock(mutex_);
      noticed_ = true;
      changed_.notify_all();
    };
  }
  // The next frame that `wanted` accepts.
  template <class Wanted>
  bool WaitFrame(Backend& backend, Frame* frame, Wanted wanted, int seconds = 20) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    for (;;) {
      while (backend.Receive(frame)) {
        if (wanted(*frame)) return true;
      }
      std::unique_lock lock(mutex_);
      if (!changed_.wait_until(lock, end, [this] { return noticed_; })) return false;
      noticed_ = false;
      backend.Noticed();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool noticed_ = false;
};

TEST_CASE("User network: answers for the host's address") {
  auto backend = CreateBackend(*ParseOptions("user"));
  REQUIRE(backend.ok());
  Listener listener;
  REQUIRE((*backend)->Start(listener.Notice()).ok());
  // An ARP request for 10.0.2.2.
  Frame request(42);
  std::memset(request.data(), 0xff, 6);
  const u8 rest[] = {0x52, 0x54, 0,    0x12, 0x34, 0x56, 8, 6,  0, 1, 8, 0, 6, 4, 0,  1, 0x52, 0x54,
                     0,    0x12, 0x34, 0x56, 10,   0,    2, 15, 0, 0, 0, 0, 0, 0, 10, 0, 2,    2};
  std::memcpy(request.data() + 6, rest, sizeof(rest));
  REQUIRE((*backend)->Send(request));
  Frame answer;
  REQUIRE(listener.WaitFrame(**backend, &answer,
                             [](const Frame& frame) { return frame.size() >= 42; }));
  CHECK(answer[12] == 8);
  CHECK(answer[13] == 6);
  CHECK(answer[21] == 2);  // a reply
  CHECK(answer[31] == 2);  // ... of 10.0.2.2
}

TEST_CASE("User network: a host port is forwarded, and is not when it is taken") {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(listen(fd, 1) == 0);
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  const std::string options =
      "user,hostfwd=tcp:127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "-:22";
  const auto taken = CreateBackend(*ParseOptions(options));
  REQUIRE_FALSE(taken.ok());
  CHECK_THAT(taken.error().message, Catch::Contains("cannot be forwarded"));
  close(fd);
  auto backend = CreateBackend(*ParseOptions(options));
  REQUIRE(backend.ok());
  Listener listener;
  REQUIRE((*backend)->Start(listener.Notice()).ok());
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  static_cast<void>(connect(client, reinterpret_cast<sockaddr*>(&address), length));
  // The router looks for the guest.
  Frame frame;
  CHECK(listener.WaitFrame(**backend, &frame, [](const Frame& f) {
    return f.size() >= 42 && f[12] == 8 && f[13] == 6 && f[41] == 15;
  }));
  close(client);
}

// --- What a guest reaches of its host ---

using Address = std::vector<u8>;  // 4 or 16 bytes
const Address kGuest4 = {10, 0, 2, 15}, kRouter4 = {10, 0, 2, 2}, kDns4 = {10, 0, 2, 3},
              kLoopback4 = {127, 0, 0, 1}, kOutside4 = {192, 0, 2, 1};

Address Ipv6(const char* text) {
  Address address(16);
  REQUIRE(inet_pton(AF_INET6, text, address.data()) == 1);
  return address;
}

constexpr u8 kIcmp = 1;

// A packet from `from` to `to` behind an Ethernet header, with right checksums.
Frame Packet(u8 protocol, const Address& from, const Address& to, Frame transport,
             std::size_t sum_at, u16 fragment = 0) {
  Frame sum;
  if (protocol != kIcmp) {
    sum = from;
    sum.insert(sum.end(), to.begin(), to.end());
    sum.insert(sum.end(), {0, protocol, static_cast<u8>(transport.size() >> 8),
                           static_cast<u8>(transport.size())});
  }
  sum.insert(sum.end(), transport.begin(), transport.end());
  const u16 checksum = static_cast<u16>(~InternetSum(sum));
  transport[sum_at] = static_cast<u8>(checksum >> 8);
  transport[sum_at + 1] = static_cast<u8>(checksum);
  Frame frame = {0x52, 0x55, 10, 0, 2, 2, 0x52, 0x54, 0, 0x12, 0x34, 0x56};
  const auto add = [&frame](const Frame& bytes) {
    frame.insert(frame.end(), bytes.begin(), bytes.end());
  };
  if (from.size() == 4) {
    const std::size_t total = 20 + transport.size();
    Frame ip = {0x45,
                0,
                static_cast<u8>(total >> 8),
                static_cast<u8>(total),
                0,
                1,
                static_cast<u8>(fragment >> 8),
                static_cast<u8>(fragment),
                64,
                protocol,
                0,
                0};
    ip.insert(ip.end(), from.begin(), from.end());
    ip.insert(ip.end(), to.begin(), to.end());
    const u16 header = static_cast<u16>(~InternetSum(ip));
    ip[10] = static_cast<u8>(header >> 8);
    ip[11] = static_cast<u8>(header);
    add({8, 0});
    add(ip);
  } else {
    add({0x86, 0xdd, 0x60, 0, 0, 0, static_cast<u8>(transport.size() >> 8),
         static_cast<u8>(transport.size()), protocol, 255});
    add(from);
    add(to);
  }
  add(transport);
  return frame;
}
Frame Tcp(const Address& from, const Address& to, u16 port, u8 flags, u16 fragment = 0) {
  return Packet(6, from, to,
                {0x9c,
                 0x40,
                 static_cast<u8>(port >> 8),
                 static_cast<u8>(port),
                 0,
                 0,
                 0,
                 9,
                 0,
                 0,
                 0,
                 0,
                 5 << 4,
                 flags,
                 0xff,
                 0xff,
                 0,
                 0,
                 0,
                 0},
                16, fragment);
}
Frame Udp(const Address& from, const Address& to, u16 source, u16 port, u16 fragment = 0) {
  return Packet(17, from, to,
                {static_cast<u8>(source >> 8), static_cast<u8>(source), static_cast<u8>(port >> 8),
                 static_cast<u8>(port), 0, 12, 0, 0, 'p', 'i', 'n', 'g'},
                6, fragment);
}
constexpr u8 kSyn = 2, kAck = 16, kRst = 4;

TEST_CASE("Host guard: what may pass") {
  using Verdict = HostGuard::Verdict;
  HostGuard guard;
  const Address guest6 = Ipv6("fec0::15");
  const struct {
    const char* what;
    Frame frame;
    Verdict verdict;
  } rows[] = {
      {"outside", Tcp(kGuest4, kOutside4, 22, kSyn), Verdict::kPass},
      {"outside, UDP", Udp(kGuest4, kOutside4, 5000, 22), Verdict::kPass},
      {"router", Tcp(kGuest4, kRouter4, 22, kSyn), Verdict::kRefuse},
      {"an alias", Tcp(kGuest4, {10, 0, 2, 99}, 22, kSyn), Verdict::kRefuse},
      {"loopback", Tcp(kGuest4, kLoopback4, 22, kSyn), Verdict::kRefuse},
      {"all of its net", Tcp(kGuest4, {127, 9, 9, 9}, 22, kSyn), Verdict::kRefuse},
      {"this host", Tcp(kGuest4, {0, 0, 0, 0}, 22, kSyn), Verdict::kRefuse},
      {"loopback, UDP", Udp(kGuest4, kLoopback4, 5000, 53), Verdict::kDrop},
      {"all ones, UDP", Udp(kGuest4, {255, 255, 255, 255}, 5000, 9), Verdict::kDrop},
      {"DHCP", Udp({0, 0, 0, 0}, {255, 255, 255, 255}, 68, 67), Verdict::kPass},
      {"router, UDP", Udp(kGuest4, kRouter4, 5000, 53), Verdict::kDrop},
      {"files", Udp(kGuest4, kRouter4, 5000, 69), Verdict::kPass},
      {"files of an alias", Udp(kGuest4, {10, 0, 2, 99}, 5000, 69), Verdict::kDrop},
      {"files of the name server", Udp(kGuest4, kDns4, 5000, 69), Verdict::kDrop},
      {"files of the loopback", Udp(kGuest4, kLoopback4, 5000, 69), Verdict::kDrop},
      {"names", Udp(kGuest4, kDns4, 5000, 53), Verdict::kPass},
      {"names, TCP", Tcp(kGuest4, kDns4, 53, kSyn), Verdict::kPass},
      {"name server's other ports", Tcp(kGuest4, kDns4, 22, kSyn), Verdict::kRefuse},
      {"a forwarded connection goes on", Tcp(kGuest4, kRouter4, 22, kSyn | kAck), Verdict::kPass},
      {"its end", Tcp(kGuest4, kRouter4, 22, kRst), Verdict::kPass},
      {"flags in another fragment", Tcp(kGuest4, kRouter4, 22, kAck, 0x2000), Verdict::kDrop},
      {"the fragment with flags", Tcp(kGuest4, kRouter4, 22, kAck, 1), Verdict::kDrop},
      {"UDP's first fragment", Udp(kGuest4, kRouter4, 5000, 9, 0x2000), Verdict::kDrop},
      {"6: outside", Tcp(guest6, Ipv6("2001:db8::1"), 22, kSyn), Verdict::kPass},
      {"6: router", Tcp(guest6, Ipv6("fec0::2"), 22, kSyn), Verdict::kRefuse},
      {"6: link", Tcp(guest6, Ipv6("fe80::2"), 22, kSyn), Verdict::kRefuse},
      {"6: loopback", Tcp(guest6, Ipv6("::1"), 22, kSyn), Verdict::kRefuse},
      {"6: mapped", Tcp(guest6, Ipv6("::ffff:127.0.0.1"), 22, kSyn), Verdict::kRefuse},
      {"6: names", Udp(guest6, Ipv6("fec0::3"), 5000, 53), Verdict::kPass},
      {"6: name server's other ports", Udp(guest6, Ipv6("fec0::3"), 5000, 54), Verdict::kDrop},
  };
  for (const auto& row : rows) {
    INFO(row.what);
    CHECK(guard.Judge(row.frame) == row.verdict);
  }
  // No header whose end is missing gets past.
  for (const auto& row : rows) {
    for (std::size_t size = 14; size < row.frame.size(); ++size) {
      const Frame cut(row.frame.begin(), row.frame.begin() + static_cast<long>(size));
      if (row.verdict != Verdict::kPass) CHECK(guard.Judge(cut) != Verdict::kPass);
    }
  }
  // Who came through a forwarded port is answered, there and from there only.
  CHECK(guard.Judge(Udp(kGuest4, kRouter4, 7, 40000)) == Verdict::kDrop);
  guard.Note(Udp(kRouter4, kGuest4, 40000, 7));
  CHECK(guard.Judge(Udp(kGuest4, kRouter4, 7, 40000)) == Verdict::kPass);
  CHECK(guard.Judge(Udp(kGuest4, kRouter4, 8, 40000)) == Verdict::kDrop);
  CHECK(guard.Judge(Udp(kGuest4, kRouter4, 7, 40001)) == Verdict::kDrop);
  guard.Note(Udp(kOutside4, kGuest4, 40002, 7));
  CHECK(guard.Judge(Udp(kGuest4, kRouter4, 7, 40002)) == Verdict::kDrop);
}

// A request for the router's address, by which libslirp learns the guest's.
const Frame kArp = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0x54, 0, 0x12, 0x34,
                    0x56, 8,    6,    0,    1,    8,    0,    6,    4, 0,    1,
                    0x52, 0x54, 0,    0x12, 0x34, 0x56, 10,   0,    2, 15,   0,
                    0,    0,    0,    0,    0,    10,   0,    2,    2};

// The answer to a SYN at a port of the host's loopback: its TCP flags; 0: none came.
u8 FlagsOfAnswer(const std::string& options, const Address& from, const Address& to, u16 port,
                 int seconds = 20) {
  auto backend = CreateBackend(*ParseOptions(options));
  REQUIRE(backend.ok());
  Listener listener;
  REQUIRE((*backend)->Start(listener.Notice()).ok());
  Frame arp = kArp;
  REQUIRE((*backend)->Send(arp));
  Frame syn = Tcp(from, to, port, kSyn);
  REQUIRE((*backend)->Send(syn));
  Frame answer;
  const std::size_t protocol = from.size() == 4 ? 23 : 20, tcp = from.size() == 4 ? 34 : 54;
  const u8 version = from.size() == 4 ? 8 : 0x86;
  if (!listener.WaitFrame(
          **backend, &answer,
          [&](const Frame& f) {
            return f.size() >= tcp + 20 && f[12] == version && f[protocol] == 6;
          },
          seconds)) {
    return 0;
  }
  CHECK(answer[tcp] == port >> 8);
  CHECK(answer[tcp + 11] == 10);  // it acknowledges the SYN
  return answer[tcp + 13];
}

TEST_CASE("User network: the host's loopback is out of reach unless it is asked for") {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(listen(fd, 8) == 0);
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  const u16 port = ntohs(address.sin_port);
  CHECK(FlagsOfAnswer("user", kGuest4, kRouter4, port) == (kRst | kAck));
  CHECK(FlagsOfAnswer("user", kGuest4, kLoopback4, port) == (kRst | kAck));
  CHECK(FlagsOfAnswer("user", Ipv6("fec0::15"), Ipv6("fec0::2"), port) == (kRst | kAck));
  CHECK(FlagsOfAnswer("user,loopback=on", kGuest4, kRouter4, port) == (kSyn | kAck));
  CHECK(FlagsOfAnswer("user,restrict=on", kGuest4, kRouter4, port, 1) != (kSyn | kAck));
  CHECK(FlagsOfAnswer("user,restrict=on", kGuest4, kLoopback4, port, 1) != (kSyn | kAck));
  close(fd);
}

constexpr u8 kEcho = 8, kEchoReply = 0, kUnreachable = 3, kHostUnreachable = 1;

// A network of this process alone, where 192.0.2.1 is the host's and answers no pings.
bool EnterQuietNetwork() {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  std::memcpy(&address.sin_addr, kOutside4.data(), 4);
  std::memcpy(&loopback.ifr_addr, &address, sizeof(address));
  bool done = ioctl(fd, SIOCSIFADDR, &loopback) == 0;
  loopback.ifr_flags = IFF_UP;
  done = done && ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
  close(fd);
  const int quiet = open("/proc/sys/net/ipv4/icmp_echo_ignore_all", O_WRONLY | O_CLOEXEC);
  done = done && write(quiet, "1", 1) == 1;
  close(quiet);
  return done;
}

// The host's side of pings: sees the requests, and answers as a test wants.
class Pinged {
 public:
  ~Pinged() { close(fd_); }
  // The IP packet of the next request.
  Frame Request() {
    for (;;) {
      Frame packet(1500);
      const ssize_t size = recv(fd_, packet.data(), packet.size(), 0);
      if (size < 28) return {};
      packet.resize(static_cast<std::size_t>(size));
      if (packet[20] == kEcho) return packet;
    }
  }
  void Answer(u8 type, u8 code, Frame rest) {
    Frame message = {type, code, 0, 0};
    message.insert(message.end(), rest.begin(), rest.end());
    const u16 sum = static_cast<u16>(~InternetSum(message));
    message[2] = static_cast<u8>(sum >> 8);
    message[3] = static_cast<u8>(sum);
    sockaddr_in peer{};
    peer.sin_family = AF_INET;
    std::memcpy(&peer.sin_addr, kOutside4.data(), 4);
    sendto(fd_, message.data(), message.size(), 0, reinterpret_cast<const sockaddr*>(&peer),
           sizeof(peer));
  }

 private:
  const int fd_ = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
};

// Type, code and all that follows the checksum of each ICMP message that the guest gets, for one
// ping that fails and one that is answered; both times an answer to somebody else's came before.
std::vector<Frame> PingTwice() {
  auto backend = CreateBackend(*ParseOptions("user"));
  if (!backend.ok()) return {};
  Listener listener;
  if (!(*backend)->Start(listener.Notice()).ok()) return {};
  Frame arp = kArp;
  (*backend)->Send(arp);
  Pinged host;
  std::vector<Frame> heard;
  for (const u8 sequence : {1, 2}) {
    Frame ping = Packet(kIcmp, kGuest4, kOutside4,
                        {kEcho, 0, 0, 0, 'i', 'd', 0, sequence, 'm', 'i', 'n', 'e'}, 2);
    (*backend)->Send(ping);
    Frame request = host.Request();
    if (request.empty()) return heard;
    host.Answer(kEchoReply, 0, {'n', 'o', 0, sequence, 'h', 'e', 'r', 's'});
    if (sequence == 1) {
      request.insert(request.begin(), 4, 0);
      host.Answer(kUnreachable, kHostUnreachable, request);
    } else {
      host.Answer(kEchoReply, 0, Frame(request.begin() + 24, request.end()));
    }
    Frame frame;
    const bool came = listener.WaitFrame(**backend, &frame, [](const Frame& f) {
      return f.size() >= 42 && f[12] == 8 && f[13] == 0 && f[23] == kIcmp;
    });
    if (!came) return heard;
    frame.erase(frame.begin() + 36, frame.begin() + 38);
    heard.emplace_back(frame.begin() + 34, frame.end());
  }
  return heard;
}

// Where there are no ping sockets, libslirp takes a raw one, which hears all ICMP of the host: as
// in a fresh network namespace, whose ping_group_range is empty.
TEST_CASE("User network: a ping hears its own answer or error, and nobody else's") {
  enum : int { kRight, kWrong, kNoNamespace };
  const pid_t child = fork();
  if (child == 0) {
    if (!EnterQuietNetwork()) _exit(kNoNamespace);
    const std::vector<Frame> heard = PingTwice();
    const bool right = heard.size() == 2 && heard[0][0] == kUnreachable &&
                       heard[0][1] == kHostUnreachable &&
                       heard[1] == Frame{kEchoReply, 0, 'i', 'd', 0, 2, 'm', 'i', 'n', 'e'};
    for (const Frame& message : heard) {
      for (const u8 byte : message) std::fprintf(stderr, " %02x", byte);
      std::fprintf(stderr, "\n");
    }
    _exit(right ? kRight : kWrong);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespace) {
    WARN("SKIP: this host gives no namespaces to users");
    return;
  }
  CHECK(status == 0);
}

TEST_CASE("User network: a router solicitation is answered") {
  auto backend = CreateBackend(*ParseOptions("user"));
  REQUIRE(backend.ok());
  Listener listener;
  REQUIRE((*backend)->Start(listener.Notice()).ok());
  Frame solicitation = Packet(58, Ipv6("fe80::5054:ff:fe12:3456"), Ipv6("ff02::2"),
                              {133, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0x52, 0x54, 0, 0x12, 0x34, 0x56}, 2);
  REQUIRE((*backend)->Send(solicitation));
  Frame answer;
  REQUIRE(listener.WaitFrame(**backend, &answer, [](const Frame& f) {
    return f.size() > 54 && f[12] == 0x86 && f[20] == 58 && f[54] == 134;
  }));
}

// The router's answer to a request to read a file by TFTP, from its operation code on.
std::string TftpAnswer(const std::string& options, const std::string& file) {
  auto backend = CreateBackend(*ParseOptions(options));
  REQUIRE(backend.ok());
  Listener listener;
  REQUIRE((*backend)->Start(listener.Notice()).ok());
  Frame arp = kArp;
  REQUIRE((*backend)->Send(arp));
  Frame request = {0x9c, 0x40, 0, 69, 0, static_cast<u8>(8 + 2 + file.size() + 7), 0, 0, 0, 1};
  request.insert(request.end(), file.begin(), file.end());
  request.insert(request.end(), {0, 'o', 'c', 't', 'e', 't', 0});
  Frame frame = Packet(17, kGuest4, kRouter4, request, 6);
  REQUIRE((*backend)->Send(frame));
  Frame answer;
  if (!listener.WaitFrame(**backend, &answer, [](const Frame& f) {
        return f.size() >= 46 && f[12] == 8 && f[23] == 17 && f[34] == 0 && f[35] == 69;
      })) {
    return "";
  }
  return std::string(answer.begin() + 42, answer.end());
}

TEST_CASE("User network: TFTP offers a folder's files, and no others") {
  std::string folder = "/tmp/alibi-tftp-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const std::string offered = folder + "/offered", file = offered + "/kernel",
                    secret = folder + "/secret";
  REQUIRE(mkdir(offered.c_str(), 0700) == 0);
  for (const std::string& path : {file, secret}) {
    std::FILE* out = std::fopen(path.c_str(), "w");
    REQUIRE(out != nullptr);
    std::fputs("a kernel", out);
    std::fclose(out);
  }
  const std::string options = "user,tftp=" + offered;
  CHECK(TftpAnswer(options, "kernel") == std::string("\0\3\0\1a kernel", 12));
  constexpr char kError = 5;
  CHECK(TftpAnswer(options, "../secret").substr(1, 1) == std::string(1, kError));
  CHECK(TftpAnswer("user", "kernel").substr(1, 1) == std::string(1, kError));
  CHECK_FALSE(CreateBackend(*ParseOptions("user,tftp=" + file)).ok());
  unlink(file.c_str());
  unlink(secret.c_str());
  rmdir(offered.c_str());
  rmdir(folder.c_str());
}

}  // namespace
}  // namespace alibi::net
