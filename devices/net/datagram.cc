// SPDX-License-Identifier: Apache-2.0
#include "devices/net/datagram.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "devices/net/datagram_socket.h"

namespace alibi::net {
namespace {

class DatagramBackend final : public Backend {
 public:
  DatagramBackend(DatagramSocket socket, const sockaddr_un& peer)
      : socket_(std::move(socket)), peer_(peer) {}
  ~DatagramBackend() override { Stop(); }

 private:
  void Fill(std::vector<pollfd>* fds, int*) override {
    if (GuestHasRoom()) fds->push_back({socket_.fd(), POLLIN, 0});
  }
  void Served(std::span<const pollfd> fds) override {
    if (fds.empty() || fds[0].revents == 0) return;
    // A few at once, so that frames from the guest do not wait for ever.
    for (int i = 0; i < 64; ++i) {
      sockaddr_un sender;
      const std::span<const u8> frame = socket_.Receive(&buffer_, &sender);
      if (frame.empty()) return;
      ToGuest(Frame(frame.begin(), frame.end()));
    }
  }
  void FromGuest(Frame& frame) override { socket_.SendTo(peer_, frame); }
  bool SendNow(const Frame& frame) override { return socket_.TrySendTo(peer_, frame); }

  DatagramSocket socket_;
  const sockaddr_un peer_;
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
