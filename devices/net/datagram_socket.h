// SPDX-License-Identifier: Apache-2.0
// A UNIX socket whose datagrams are frames: between two machines, or a machine and a program
// (alibi net-sink, QEMU's -netdev dgram). It has a name in the file system for this user alone.
#ifndef ALIBI_DEVICES_NET_DATAGRAM_SOCKET_H_
#define ALIBI_DEVICES_NET_DATAGRAM_SOCKET_H_

#include <sys/un.h>

#include <array>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/types.h"

namespace alibi::net {

class DatagramSocket {
 public:
  // The largest frame, and a byte to notice one that is larger.
  static constexpr std::size_t kMaxFrame = 65536;

  // A socket that a program has left behind at `path` is replaced; one that somebody reads, or
  // another file, is an error.
  static Result<DatagramSocket> Bind(const std::string& path);
  DatagramSocket(DatagramSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  DatagramSocket& operator=(DatagramSocket&&) = delete;
  ~DatagramSocket();

  int fd() const { return fd_; }
  // False: nobody is there, or whoever is there has taken nothing for 10 ms.
  bool SendTo(const sockaddr_un& peer, std::span<const u8> frame);
  // The same without waiting; false: whoever is there has no room now.
  bool TrySendTo(const sockaddr_un& peer, std::span<const u8> frame);
  // The next frame, valid until the next call, and who sent it (a family of 0: somebody without a
  // name). Empty: there is none now.
  std::span<const u8> Receive(std::array<u8, kMaxFrame>* buffer, sockaddr_un* sender);

 private:
  explicit DatagramSocket(int fd) : fd_(fd) {}

  int fd_;
};

// False: the path is empty or too long.
bool MakeSocketAddress(const std::string& path, sockaddr_un* address);

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_DATAGRAM_SOCKET_H_
