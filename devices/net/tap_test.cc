// SPDX-License-Identifier: Apache-2.0
// The host's own TCP at the other end of a TAP interface, in a network namespace of this test's.
#include "devices/net/tap.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "devices/net/offload.h"

namespace alibi::net {
namespace {

constexpr std::size_t kIp = kEthernetHeader, kTcp = kIp + 20, kPayload = kTcp + 20;
constexpr u8 kFin = 0x01, kSyn = 0x02, kPsh = 0x08, kAck = 0x10;
constexpr u16 kPort = 7777;
constexpr std::array<u8, 6> kOurMac = {2, 0, 0, 0, 0, 2};

// Where TAP interfaces can be made without touching the host's. False: nobody lets us.
bool EnterOwnNetwork() {
  static const bool entered = [] {
    const bool root = unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    return root && std::system(
                       "ip tuntap add dev tap0 mode tap 2>/dev/null && "
                       "ip address add 10.0.2.2/24 dev tap0 && "
                       "ip link set tap0 address 02:00:00:00:00:01 up && "
                       "ip neighbour add 10.0.2.15 lladdr 02:00:00:00:00:02 dev tap0") == 0;
  }();
  return entered;
}

u32 Get32(const Frame& frame, std::size_t at) {
  return u32{frame[at]} << 24 | u32{frame[at + 1]} << 16 | u32{frame[at + 2]} << 8 | frame[at + 3];
}
void Put32(Frame* frame, std::size_t at, u32 value) {
  for (int i = 0; i < 4; ++i) (*frame)[at + i] = static_cast<u8>(value >> (24 - 8 * i));
}

bool SumHolds(const Frame& frame, const TcpSegment& segment) {
  const auto part = std::span<const u8>(frame).subspan(segment.tcp, segment.end - segment.tcp);
  return (u32{InternetSum(part)} + PseudoHeaderSum(frame, segment)) % 0xffff == 0;
}

// A guest's TCP, as far as it takes to talk to a socket of the host's.
class Guest {
 public:
  explicit Guest(Backend& backend) : backend_(backend) {}

  // The next frame of the connection.
  bool Receive(Frame* frame) {
    for (int i = 0; i < 5000; ++i) {
      while (backend_.Receive(frame, &sums_hold)) {
        if (FindTcp(*frame, &segment) && (*frame)[segment.tcp + 1] == (kPort & 0xff)) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  // `sum`: whether it has a checksum, as a card of a driver that leaves it to the card need not.
  void Send(u8 flags, std::size_t bytes, bool sum = true) {
    Frame frame(kPayload + bytes);
    std::copy(std::begin(kHeaders), std::end(kHeaders), frame.begin());
    const std::size_t total = frame.size() - kIp;
    frame[kIp + 2] = static_cast<u8>(total >> 8);
    frame[kIp + 3] = static_cast<u8>(total);
    Put32(&frame, kTcp + 4, sequence);
    Put32(&frame, kTcp + 8, acknowledged);
    frame[kTcp + 13] = flags;
    for (std::size_t i = 0; i < bytes; ++i) frame[kPayload + i] = static_cast<u8>(sequence + i);
    const u16 ip = static_cast<u16>(~InternetSum(std::span<const u8>(frame).subspan(kIp, 20)));
    frame[kIp + 10] = static_cast<u8>(ip >> 8);
    frame[kIp + 11] = static_cast<u8>(ip);
    if (sum) {
      SetPseudoHeaderSum(frame, {kTcp, kPayload, frame.size()});
      REQUIRE(FinishSum(frame, kTcp, kTcp + kTcpChecksum));
    }
    sequence += static_cast<u32>(bytes) + ((flags & (kSyn | kFin)) ? 1 : 0);
    REQUIRE(backend_.Send(frame));
  }

  TcpSegment segment;  // of the frame that came last
  bool sums_hold = false;
  u32 sequence = 1000, acknowledged = 0;

 private:
  // From 10.0.2.15, port 5000, to 10.0.2.2, with a window of 65,535.
  static constexpr u8 kHeaders[kPayload] = {2,         0,           0,          0,
                                            0,         1,           2,          0,
                                            0,         0,           0,          2,
                                            8,         0,  // Ethernet
                                            0x45,      0,           0,          0,
                                            0,         0,           0,          0,
                                            64,        6,           0,          0,
                                            10,        0,           2,          15,
                                            10,        0,           2,          2,  // IPv4
                                            5000 >> 8, 5000 & 0xff, kPort >> 8, kPort & 0xff,
                                            0,         0,           0,          0,
                                            0,         0,           0,          0,
                                            0x50,      0,           0xff,       0xff};
  Backend& backend_;
};

TEST_CASE(
    "TAP: segments of up to 64 KB pass whole, and checksums are made where they are missing") {
  if (!EnterOwnNetwork()) {
    std::puts("skipped: this host lets nobody here make a network namespace with a TAP interface");
    return;
  }
  constexpr std::size_t kBytes = 60'000;
  auto backend = CreateTap("tap0");
  INFO((backend.ok() ? "" : backend.error().message));
  REQUIRE(backend.ok());
  CHECK((*backend)->large_segments());
  REQUIRE((*backend)->Start([] {}).ok());

  const int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  const timeval patience = {10, 0};
  setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(listen(listener, 1) == 0);

  Guest guest(**backend);
  Frame frame;
  guest.Send(kSyn, 0);
  REQUIRE(guest.Receive(&frame));
  REQUIRE(frame[guest.segment.tcp + 13] == (kSyn | kAck));
  CHECK(guest.sums_hold);
  CHECK(SumHolds(frame, guest.segment));
  guest.acknowledged = Get32(frame, guest.segment.tcp + 4) + 1;
  guest.Send(kAck, 0);
  const int host = accept(listener, nullptr, nullptr);
  REQUIRE(host >= 0);
  setsockopt(host, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));

  // From the guest, in one frame without a checksum: the host's socket takes it only if it is
  // right.
  const u32 first = guest.sequence;
  guest.Send(kAck | kPsh, kBytes, /*sum=*/false);
  std::vector<u8> bytes(kBytes);
  REQUIRE(recv(host, bytes.data(), bytes.size(), MSG_WAITALL) == kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) REQUIRE(bytes[i] == static_cast<u8>(first + i));

  // To the guest: whole once it takes that, else in pieces; its windows are 64 KB each.
  for (const bool large : {false, true, false}) {
    INFO(large);
    (*backend)->SetLargeReceive(large);
    REQUIRE(send(host, bytes.data(), kBytes, 0) == kBytes);
    std::size_t longest = 0;
    for (std::size_t got = 0; got < kBytes;) {
      REQUIRE(guest.Receive(&frame));
      const std::size_t size = guest.segment.end - guest.segment.payload;
      CHECK(guest.sums_hold);
      if (frame.size() <= kEthernetHeader + 1500) CHECK(SumHolds(frame, guest.segment));
      if (size == 0 || Get32(frame, guest.segment.tcp + 4) != guest.acknowledged) continue;
      REQUIRE(std::equal(frame.begin() + static_cast<long>(guest.segment.payload), frame.end(),
                         bytes.begin() + static_cast<long>(got)));
      longest = std::max(longest, frame.size());
      got += size;
      guest.acknowledged += static_cast<u32>(size);
      guest.Send(kAck, 0);
    }
    CHECK((longest > kEthernetHeader + 1500) == large);
  }
  close(host);
  close(listener);
}

}  // namespace
}  // namespace alibi::net
