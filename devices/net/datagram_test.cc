// SPDX-License-Identifier: Apache-2.0
// Frames by UNIX datagrams, what answers them, and captures.
#include "devices/net/datagram.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "devices/net/capture.h"
#include "devices/net/datagram_socket.h"
#include "devices/net/offload.h"
#include "devices/net/responder.h"

namespace alibi::net {
namespace {

// A folder that goes with all that is in it. Names of sockets are short: not Bazel's folder.
struct Folder {
  Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Folder() {
    for (const char* name : {"a", "b", "file", "c.pcap"}) unlink((path + "/" + name).c_str());
    rmdir(path.c_str());
  }
  std::string operator/(const char* name) const { return path + "/" + name; }
  std::string path = "/tmp/alibi_dgXXXXXX";
};

Frame Numbered(std::size_t size, u8 first) {
  Frame frame(size);
  for (std::size_t i = 0; i < size; ++i) frame[i] = static_cast<u8>(first + i);
  return frame;
}

bool Wait(Backend& backend, Frame* frame) {
  for (int i = 0; i < 20'000; ++i) {
    if (backend.Receive(frame)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST_CASE("Datagrams: between two machines, with a capture of them") {
  constexpr unsigned kRounds = 200;
  Folder folder;
  {
    auto a = CreateDatagram(folder / "a", folder / "b");
    auto b = CreateDatagram(folder / "b", folder / "a");
    REQUIRE((a.ok() && b.ok()));
    auto capture = Capture::Create(folder / "c.pcap");
    REQUIRE(capture.ok());
    (*a)->set_capture(std::move(*capture));
    REQUIRE((*a)->Start([] {}).ok());
    REQUIRE((*b)->Start([] {}).ok());
    for (unsigned i = 0; i < kRounds; ++i) {
      Frame to_b = Numbered(60 + i * 7, static_cast<u8>(i)), to_a = Numbered(1514, 1);
      const Frame expected_b = to_b, expected_a = to_a;
      REQUIRE((*a)->Send(to_b));
      REQUIRE((*b)->Send(to_a));
      Frame got;
      REQUIRE(Wait(**b, &got));
      REQUIRE(got == expected_b);
      REQUIRE(Wait(**a, &got));
      REQUIRE(got == expected_a);
    }
  }
  std::ifstream file(folder / "c.pcap", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto word = [&](std::size_t at) {
    u32 value;
    REQUIRE(at + 4 <= bytes.size());
    std::memcpy(&value, bytes.data() + at, 4);
    return value;
  };
  CHECK(word(0) == 0xa1b23c4d);
  CHECK(word(20) == 1);
  std::size_t frames = 0, at = 24;
  for (; at < bytes.size(); at += 16 + word(at + 8), ++frames) {
    CHECK(word(at + 4) < 1'000'000'000);
    CHECK(word(at + 8) == word(at + 12));
  }
  CHECK(at == bytes.size());
  CHECK(frames == 2 * kRounds);
}

// A TCP segment of zeros with an IPv4 header, whose sums do not matter here.
Frame Segment(std::size_t payload) {
  Frame frame(kEthernetHeader + 40 + payload);
  const std::size_t total = frame.size() - kEthernetHeader;
  const u8 headers[] = {8, 0, 0x45, 0, static_cast<u8>(total >> 8), static_cast<u8>(total)};
  std::copy(std::begin(headers), std::end(headers), frame.begin() + 12);
  frame[kEthernetHeader + 9] = 6;
  frame[kEthernetHeader + 32] = 0x50;
  frame[kEthernetHeader + 33] = 0x10;
  return frame;
}

TEST_CASE("Datagrams: large segments are cut for the peer and joined for a guest that takes them") {
  constexpr std::size_t kPayload = 60'000;
  Folder folder;
  auto a = CreateDatagram(folder / "a", folder / "b");
  auto b = CreateDatagram(folder / "b", folder / "a");
  REQUIRE((a.ok() && b.ok()));
  REQUIRE((*a)->Start([] {}).ok());
  REQUIRE((*b)->Start([] {}).ok());
  for (const bool large : {false, true}) {
    (*b)->SetLargeReceive(large);
    for (int round = 0; round < 20; ++round) {
      Frame sent = Segment(kPayload);
      REQUIRE((*a)->Send(sent));
      std::size_t bytes = 0;
      while (bytes < kPayload) {
        Frame got;
        REQUIRE(Wait(**b, &got));
        TcpSegment part;
        REQUIRE(FindTcp(got, &part));
        CHECK(part.end == got.size());
        CHECK((large || got.size() <= kEthernetHeader + 1500));
        // Where in the stream it is.
        const std::size_t sequence = std::size_t{got[part.tcp + 6]} << 8 | got[part.tcp + 7];
        CHECK(sequence == bytes);
        bytes += part.end - part.payload;
      }
      CHECK(bytes == kPayload);
    }
  }
}

TEST_CASE("Datagrams: two that send to each other at once lose nothing") {
  // Far more than the host keeps for either: each finds the other without room.
  constexpr unsigned kFrames = 400;
  Folder folder;
  auto a = CreateDatagram(folder / "a", folder / "b");
  auto b = CreateDatagram(folder / "b", folder / "a");
  REQUIRE((a.ok() && b.ok()));
  for (unsigned i = 0; i < kFrames; ++i) {
    for (Backend* backend : {a->get(), b->get()}) {
      Frame frame = Numbered(1514, static_cast<u8>(i));
      REQUIRE(backend->Send(frame));
    }
  }
  REQUIRE((*a)->Start([] {}).ok());
  REQUIRE((*b)->Start([] {}).ok());
  for (unsigned i = 0; i < kFrames; ++i) {
    for (Backend* backend : {a->get(), b->get()}) {
      Frame got;
      REQUIRE(Wait(*backend, &got));
      REQUIRE(got == Numbered(1514, static_cast<u8>(i)));
    }
  }
}

TEST_CASE("Datagrams: who sends to a thread that sleeps sends itself, and in order") {
  constexpr unsigned kFrames = 3000;
  Folder folder;
  auto a = CreateDatagram(folder / "a", folder / "b");
  auto b = CreateDatagram(folder / "b", folder / "a");
  REQUIRE((a.ok() && b.ok()));
  REQUIRE((*a)->Start([] {}).ok());
  REQUIRE((*b)->Start([] {}).ok());
  std::atomic<unsigned> came = 0;
  std::thread reader([&] {
    for (u32 i = 0; i < kFrames; ++i) {
      Frame got;
      u32 number;
      if (!Wait(**b, &got)) return;
      std::memcpy(&number, got.data(), 4);
      if (number != i) return;
      ++came;
    }
  });
  for (u32 i = 0; i < kFrames; ++i) {
    Frame frame(60);
    std::memcpy(frame.data(), &i, 4);
    // No more than the host keeps for the far end: beyond that, and some patience, it is lost.
    for (unsigned ms = 0; i - came.load() >= 8 && ms < 20'000; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    while (!(*a)->Send(frame)) std::this_thread::yield();
  }
  reader.join();
  CHECK(came.load() == kFrames);
  CHECK((*a)->direct() > 0);
  CHECK((*a)->direct() + (*a)->wakes() <= kFrames);
}

TEST_CASE("A wire's speed: what it lets pass, and what it saves while it is idle") {
  constexpr u64 kMs = 1'000'000;
  WireSpeed wire(8'000'000);  // a byte each microsecond
  CHECK(wire.WaitNs(0) == 0);
  u64 now = 10 * kMs, passed = 0;
  for (unsigned i = 0; i < 1000; ++i) {
    now += wire.WaitNs(now);
    wire.Take(1000 - WireSpeed::kAroundFrame, now);
    passed += 1000;
  }
  // The burst came for nothing, and so did the last frame's time.
  CHECK(passed == 1'000'000);
  CHECK(now == 10 * kMs + (passed - 1000) * 1000 - WireSpeed::kBurstNs);
  CHECK_FALSE(WireSpeed().limited());
}

TEST_CASE("Datagrams: a wire of limited speed") {
  constexpr u64 kRate = 8'000'000;  // 1 MB/s
  constexpr unsigned kFrames = 200;
  constexpr std::size_t kBytes = 1000;
  const double least = kFrames * (kBytes + WireSpeed::kAroundFrame) * 8.0 / kRate;
  Folder folder;
  auto a = CreateDatagram(folder / "a", folder / "b");
  auto b = CreateDatagram(folder / "b", folder / "a");
  REQUIRE((a.ok() && b.ok()));
  (*a)->set_speed(kRate);
  std::atomic<unsigned> notices = 0;
  const auto notice = [&] {
    ++notices;
    (*a)->Noticed();
  };
  REQUIRE((*a)->Start(notice).ok());
  REQUIRE((*b)->Start([&] { (*b)->Noticed(); }).ok());
  const auto begin = std::chrono::steady_clock::now();
  // Whoever has no room is told when there is some.
  unsigned sent = 0, told = 0, refused = 0;
  while (sent < kFrames && std::chrono::steady_clock::now() - begin < std::chrono::seconds(60)) {
    Frame frame = Numbered(kBytes, static_cast<u8>(sent));
    if ((*a)->Send(frame)) {
      ++sent;
      continue;
    }
    ++refused;
    for (unsigned ms = 0; notices.load() == told && ms < 20'000; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    told = notices.load();
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(sent == kFrames);
  CHECK(refused > 0);
  // What is left in the queue has not passed yet.
  CHECK(seconds > (least - 16'384 * 8.0 / kRate) * 0.9);
}

TEST_CASE("Datagrams: a far end that comes later") {
  Folder folder;
  auto a = CreateDatagram(folder / "a", folder / "b");
  REQUIRE(a.ok());
  REQUIRE((*a)->Start([] {}).ok());
  Frame frame = Numbered(60, 1);
  REQUIRE((*a)->Send(frame));  // to nobody
  auto b = CreateDatagram(folder / "b", folder / "a");
  REQUIRE(b.ok());
  REQUIRE((*b)->Start([] {}).ok());
  Frame got;
  for (int i = 0; i < 2000 && got.empty(); ++i) {
    frame = Numbered(60, 2);
    REQUIRE((*a)->Send(frame));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    (*b)->Receive(&got);
  }
  CHECK(got.size() == 60);
}

TEST_CASE("Datagrams: names") {
  Folder folder;
  const auto message = [](const std::string& path) {
    auto socket = DatagramSocket::Bind(path);
    return socket.ok() ? std::string() : socket.error().message;
  };
  CHECK(message("").find("no name") != std::string::npos);
  CHECK(message(std::string(200, 'x')).find("no name") != std::string::npos);
  CHECK(message(folder / "none/a").find("No such file") != std::string::npos);
  CHECK_FALSE(CreateDatagram(folder / "a", std::string(200, 'x')).ok());
  std::ofstream(folder / "file") << "text";
  CHECK(message(folder / "file").find("in use") != std::string::npos);
  {
    auto first = DatagramSocket::Bind(folder / "a");
    REQUIRE(first.ok());
    CHECK(message(folder / "a").find("in use") != std::string::npos);
    struct stat info;
    REQUIRE(stat((folder / "a").c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
  }
  CHECK(message(folder / "a").empty());  // nobody's any more
}

TEST_CASE("Datagrams: what is no frame") {
  Folder folder;
  auto a = DatagramSocket::Bind(folder / "a");
  auto b = DatagramSocket::Bind(folder / "b");
  REQUIRE((a.ok() && b.ok()));
  sockaddr_un to_b, sender;
  REQUIRE(MakeSocketAddress(folder / "b", &to_b));
  CHECK(a->SendTo(to_b, Frame(DatagramSocket::kMaxFrame + 10)));
  CHECK(a->SendTo(to_b, {}));
  CHECK(a->SendTo(to_b, Numbered(60, 1)));
  std::array<u8, DatagramSocket::kMaxFrame> buffer;
  const auto got = b->Receive(&buffer, &sender);
  CHECK(Frame(got.begin(), got.end()) == Numbered(60, 1));
  CHECK(std::string(sender.sun_path) == folder / "a");
  CHECK(b->Receive(&buffer, &sender).empty());
}

TEST_CASE("Captures: where they cannot be written") {
  auto capture = Capture::Create("/nonexistent/x");
  REQUIRE_FALSE(capture.ok());
  CHECK(capture.error().message.find("/nonexistent/x") != std::string::npos);
}

Frame ArpRequest(const std::array<u8, 4>& sender, const std::array<u8, 4>& target) {
  Frame frame(60);
  std::fill_n(frame.begin(), 6, u8{0xff});
  const u8 rest[] = {0x52, 0x54, 0, 1, 2, 3, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 0x52, 0x54, 0, 1, 2, 3};
  std::copy(std::begin(rest), std::end(rest), frame.begin() + 6);
  std::copy(sender.begin(), sender.end(), frame.begin() + 28);
  std::copy(target.begin(), target.end(), frame.begin() + 38);
  return frame;
}

TEST_CASE("Responder: ARP") {
  const auto answer = Answer(ArpRequest({10, 9, 0, 2}, {10, 9, 0, 1}));
  REQUIRE(answer.has_value());
  const Frame expected = {0x52, 0x54, 0, 1, 2, 3, 0x52, 0x54, 0, 0x12, 0x34, 0x02, 8,  6, 0, 1,
                          8,    0,    6, 4, 0, 2, 0x52, 0x54, 0, 0x12, 0x34, 0x02, 10, 9, 0, 1,
                          0x52, 0x54, 0, 1, 2, 3, 10,   9,    0, 2};
  CHECK(*answer == expected);
  // Whether an address is free, and that it is taken.
  CHECK_FALSE(Answer(ArpRequest({0, 0, 0, 0}, {10, 9, 0, 2})).has_value());
  CHECK_FALSE(Answer(ArpRequest({10, 9, 0, 2}, {10, 9, 0, 2})).has_value());
}

TEST_CASE("Responder: echo") {
  Frame frame(98);
  const u8 start[] = {0x52, 0x54, 0, 0x12, 0x34, 2, 0x52, 0x54, 0,  1, 2, 3, 8,  0, 0x45, 0, 0, 84,
                      0,    1,    0, 0,    64,   1, 0,    0,    10, 9, 0, 2, 10, 9, 0,    1, 8, 0};
  std::copy(std::begin(start), std::end(start), frame.begin());
  for (std::size_t i = 40; i < frame.size(); ++i) frame[i] = static_cast<u8>(i * 5);
  const u16 sum = static_cast<u16>(~InternetSum(std::span<const u8>(frame).subspan(34)));
  frame[36] = static_cast<u8>(sum >> 8);
  frame[37] = static_cast<u8>(sum);
  const auto answer = Answer(frame);
  REQUIRE(answer.has_value());
  CHECK((*answer)[34] == 0);
  CHECK((*answer)[29] == 1);
  CHECK((*answer)[33] == 2);
  CHECK(InternetSum(std::span<const u8>(*answer).subspan(34)) == 0xffff);
  CHECK(std::equal(frame.begin() + 38, frame.end(), answer->begin() + 38));
  frame[0] = 0x53;  // to a group
  CHECK_FALSE(Answer(frame).has_value());
  for (std::size_t size = 0; size < 42; ++size) CHECK_FALSE(Answer(Frame(size)).has_value());
}

}  // namespace
}  // namespace alibi::net
