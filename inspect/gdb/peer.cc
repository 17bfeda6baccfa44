// SPDX-License-Identifier: Apache-2.0
#include "inspect/gdb/peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <sstream>
#include <string>

namespace alibi::vmm::gdb {
namespace {

bool IsMine(uid_t user) { return user == 0 || user == geteuid(); }

// An address and a port of this host's loopback as /proc/net/tcp and tcp6 have them: words of 32
// bits as they lie in memory (proc_pid_net(5)); nothing for another host's.
struct Place {
  std::string in_tcp, in_tcp6;
};
std::optional<Place> PlaceOf(const sockaddr_storage& address) {
  constexpr u32 kLoopbackNet = 127;
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    if ((ntohl(v4.sin_addr.s_addr) >> 24) != kLoopbackNet) return std::nullopt;
    const std::string end = fmt::format("{:08X}:{:04X}", v4.sin_addr.s_addr, ntohs(v4.sin_port));
    return Place{end, "0000000000000000FFFF0000" + end};
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  u32 words[4];
  std::memcpy(words, &v6.sin6_addr, sizeof(words));
  const std::string port = fmt::format(":{:04X}", ntohs(v6.sin6_port));
  std::string text;
  for (const u32 word : words) text += fmt::format("{:08X}", word);
  if (IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr)) return Place{"", text + port};
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && (ntohl(words[3]) >> 24) == kLoopbackNet) {
    return Place{text.substr(24) + port, text + port};
  }
  return std::nullopt;
}

// The user of the connection from `local` to `remote` in one of the tables.
std::optional<uid_t> UserOf(int table, const std::string& local, const std::string& remote) {
  if (table < 0 || local.empty()) return std::nullopt;
  std::string text;
  char piece[16384];
  lseek(table, 0, SEEK_SET);
  for (ssize_t size; (size = read(table, piece, sizeof(piece))) > 0;) {
    text.append(piece, static_cast<std::size_t>(size));
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, from, to, skipped;
    uid_t user;
    if (words >> number >> from >> to >> skipped >> skipped >> skipped >> skipped >> user &&
        from == local && to == remote) {
      return user;
    }
  }
  return std::nullopt;
}

}  // namespace

PeerCheck::PeerCheck()
    : tcp_(open("/proc/net/tcp", O_RDONLY | O_CLOEXEC)),
      tcp6_(open("/proc/net/tcp6", O_RDONLY | O_CLOEXEC)) {}

PeerCheck::Verdict PeerCheck::Judge(int client_fd) const {
  sockaddr_storage ours{}, theirs{};
  socklen_t size = sizeof(ours);
  if (getsockname(client_fd, reinterpret_cast<sockaddr*>(&ours), &size) != 0) {
    return Verdict::kUnknown;
  }
  if (ours.ss_family == AF_UNIX) {
    ucred peer{};
    size = sizeof(peer);
    if (getsockopt(client_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
      return Verdict::kUnknown;
    }
    return IsMine(peer.uid) ? Verdict::kMine : Verdict::kForeign;
  }
  size = sizeof(theirs);
  if (getpeername(client_fd, reinterpret_cast<sockaddr*>(&theirs), &size) != 0) {
    return Verdict::kUnknown;
  }
  const auto from = PlaceOf(theirs), to = PlaceOf(ours);
  if (!from.has_value() || !to.has_value()) return Verdict::kMine;
  auto user = UserOf(tcp_.get(), from->in_tcp, to->in_tcp);
  if (!user.has_value()) user = UserOf(tcp6_.get(), from->in_tcp6, to->in_tcp6);
  if (!user.has_value()) return Verdict::kUnknown;
  return IsMine(*user) ? Verdict::kMine : Verdict::kForeign;
}

}  // namespace alibi::vmm::gdb
