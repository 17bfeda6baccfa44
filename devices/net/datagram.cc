// SPDX-License-Identifier: Apache-2.0
#include "devices/net/datagram.h"

#include <fmt/format.h>
#include <time.h>

#include <array>
#include <atomic>
#include <utility>

#include "base/host_clock.h"
#include "devices/net/datagram_socket.h"
#include "devices/net/offload.h"

namespace alibi::net {
namespace {

// A peer that takes nothing for so long loses frames.
constexpr u64 kPatienceNs = 10'000'000;
// Hosts keep as few as 10 datagrams for one who reads (net.unix.max_dgram_qlen). A sender who
// blocks is woken for each one that is read and blocks again, two wakings for a frame; one who
// sleeps this long finds room for several.
constexpr timespec kPause = {0, 20'000};

class DatagramBackend final : public Backend {
 public:
  DatagramBackend(DatagramSocket socket, const sockaddr_un& peer)
      : socket_(std::move(socket)), peer_(peer) {}
  ~DatagramBackend() override { Stop(); }

  // The peer may be anybody and gets no frame that is longer than the MTU: this thread cuts the
  // guest's segments, and puts those for the guest together, which the guest's kernel does slower.
  bool large_segments() const override { return true; }
  bool sums_large_segments() const override { return true; }
  void SetLargeReceive(bool large) override { large_receive_ = large; }

 private:
  void Fill(std::vector<pollfd>* fds, int*) override {
    if (GuestHasRoom()) fds->push_back({socket_.fd(), POLLIN, 0});
  }
  void Served(std::span<const pollfd> fds) override {
    if (!fds.empty() && fds[0].revents != 0) TakeFrames();
  }
  void FromGuest(Frame& frame) override {
    TcpSegment segment;
    if (!IsLarge(frame) || !FindTcp(frame, &segment)) {
      Send(frame);
      return;
    }
    for (const Frame& piece : CutSegment(frame, segment, mtu())) Send(piece);
  }
  bool SendNow(const Frame& frame) override {
    return !IsLarge(frame) && socket_.TrySendTo(peer_, frame);
  }

  // Waits for room. Meanwhile frames are taken: the peer may wait for us to do so.
  void Send(const Frame& frame) {
    const u64 begin = MonotonicNs();
    while (!socket_.TrySendTo(peer_, frame) && MonotonicNs() - begin < kPatienceNs) {
      if (GuestHasRoom()) TakeFrames();
      nanosleep(&kPause, nullptr);
    }
  }

  // A few at once, so that frames from the guest do not wait for ever.
  void TakeFrames() {
    Frame whole;
    const bool join = large_receive_;
    for (int i = 0; i < 64; ++i) {
      sockaddr_un sender;
      const std::span<const u8> frame = socket_.Receive(&buffer_, &sender);
      if (frame.empty()) break;
      if (join && JoinSegments(&whole, frame)) continue;
      if (!whole.empty()) Pass(std::move(whole));
      whole.assign(frame.begin(), frame.end());
    }
    if (!whole.empty()) Pass(std::move(whole));
  }

  // The peer makes checksums, and nothing damages a datagram on its way within a host.
  void Pass(Frame frame) { ToGuest(std::move(frame), /*sums_hold=*/true); }

  DatagramSocket socket_;
  const sockaddr_un peer_;
  std::atomic<bool> large_receive_ = false;
  std::array<u8, DatagramSocket::kMaxFrame> buffer_;
};

}  // namespace

Result<std::unique_ptr<Backend>> CreateDatagram(const std::string& path, const std::string& peer) {
  sockaddr_un address;
  if (!MakeSocketAddress(peer, &address)) {
    return Error{fmt::format("--net socket: peer={}: give 1 to {} characters", peer,
                             sizeof(address.sun_path) - 1)};
  }
  auto socket = DatagramSocket::Bind(path);
  if (!socket.ok()) return Error{"--net socket: " + socket.error().message};
  return std::unique_ptr<Backend>(std::make_unique<DatagramBackend>(std::move(*socket), address));
}

}  // namespace alibi::net
