// SPDX-License-Identifier: Apache-2.0
#include "devices/net/datagram_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace alibi::net {
namespace {

// Two that send to each other and do not read meanwhile must not wait for ever.
constexpr timeval kPatience = {0, 10'000};

const sockaddr* General(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

int NewSocket() { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

// A socket that nobody reads any more.
bool IsStale(const sockaddr_un& address) {
  struct stat info;
  if (lstat(address.sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  const int probe = NewSocket();
  if (probe < 0) return false;
  const bool stale = connect(probe, General(address), sizeof(address)) < 0 && errno == ECONNREFUSED;
  close(probe);
  return stale;
}

}  // namespace

bool MakeSocketAddress(const std::string& path, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address->sun_path)) return false;
  std::memcpy(address->sun_path, path.data(), path.size());
  return true;
}

Result<DatagramSocket> DatagramSocket::Bind(const std::string& path) {
  sockaddr_un address;
  if (!MakeSocketAddress(path, &address)) {
    return Error{fmt::format("'{}' is no name of a socket; give 1 to {} characters", path,
                             sizeof(address.sun_path) - 1)};
  }
  DatagramSocket socket(NewSocket());
  if (socket.fd_ < 0) return Error{std::string("a socket: ") + std::strerror(errno)};
  fchmod(socket.fd_, 0600);  // what bind() makes is so from the beginning
  if (bind(socket.fd_, General(address), sizeof(address)) != 0) {
    if (errno == EADDRINUSE && IsStale(address)) {
      unlink(path.c_str());
      errno = bind(socket.fd_, General(address), sizeof(address)) == 0 ? 0 : errno;
    }
    if (errno == EADDRINUSE) {
      return Error{fmt::format("'{}' is in use; give another name, or remove it", path)};
    }
    if (errno != 0) return Error{fmt::format("'{}': {}", path, std::strerror(errno))};
  }
  setsockopt(socket.fd_, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
  return socket;
}

DatagramSocket::~DatagramSocket() {
  if (fd_ >= 0) close(fd_);
}

bool DatagramSocket::SendTo(const sockaddr_un& peer, std::span<const u8> frame) {
  return sendto(fd_, frame.data(), frame.size(), MSG_NOSIGNAL, General(peer), sizeof(peer)) >= 0;
}

bool DatagramSocket::TrySendTo(const sockaddr_un& peer, std::span<const u8> frame) {
  return sendto(fd_, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT, General(peer),
                sizeof(peer)) >= 0 ||
         errno != EAGAIN;
}

std::span<const u8> DatagramSocket::Receive(std::array<u8, kMaxFrame>* buffer,
                                            sockaddr_un* sender) {
  for (;;) {
    *sender = {};
    socklen_t size = sizeof(*sender);
    const ssize_t got = recvfrom(fd_, buffer->data(), buffer->size(), MSG_DONTWAIT | MSG_TRUNC,
                                 reinterpret_cast<sockaddr*>(sender), &size);
    if (got < 0) return {};
    if (size <= offsetof(sockaddr_un, sun_path)) sender->sun_family = 0;
    // One that is too long is no frame.
    if (got > 0 && static_cast<std::size_t>(got) < buffer->size()) {
      return std::span<const u8>(*buffer).first(static_cast<std::size_t>(got));
    }
  }
}

}  // namespace alibi::net
