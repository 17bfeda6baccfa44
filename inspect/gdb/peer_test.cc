// SPDX-License-Identifier: Apache-2.0
// Whose a connection is: of this user, of another one, on TCP and on a UNIX socket.
#include "inspect/gdb/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <string>

namespace alibi::vmm::gdb {
namespace {

using Verdict = PeerCheck::Verdict;
constexpr uid_t kNobody = 65534;

// What is said of a client that this process, or one of nobody's, makes. -1: it cannot be made.
int VerdictOf(int family, bool of_nobody) {
  const FileDescriptor listening(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage place{};
  socklen_t size = 0;
  if (family == AF_INET) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(place);
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size = sizeof(v4);
  } else if (family == AF_INET6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(place);
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = in6addr_loopback;
    size = sizeof(v6);
  } else {
    // A name without a file: everybody may connect to it.
    auto& local = reinterpret_cast<sockaddr_un&>(place);
    local.sun_family = AF_UNIX;
    const std::string name = "alibi-peer-test-" + std::to_string(getpid());
    std::memcpy(local.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  if (bind(listening.get(), reinterpret_cast<sockaddr*>(&place), size) != 0 ||
      listen(listening.get(), 1) != 0) {
    return -1;
  }
  getsockname(listening.get(), reinterpret_cast<sockaddr*>(&place), &size);
  int stop[2];
  REQUIRE(pipe(stop) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(stop[1]);
    if (of_nobody && setresuid(kNobody, kNobody, kNobody) != 0) _exit(1);
    const int client = socket(family, SOCK_STREAM, 0);
    if (connect(client, reinterpret_cast<sockaddr*>(&place), size) != 0) _exit(1);
    char byte;
    _exit(read(stop[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(stop[0]);
  // Either the client comes, or the child ends first.
  int verdict = -1, status = 0;
  while (verdict < 0) {
    const FileDescriptor client(accept4(listening.get(), nullptr, nullptr, SOCK_NONBLOCK));
    if (client.get() >= 0) {
      verdict = static_cast<int>(PeerCheck().Judge(client.get()));
      break;
    }
    if (waitpid(child, &status, WNOHANG) == child) {
      close(stop[1]);
      return -1;
    }
    usleep(1000);
  }
  close(stop[1]);
  waitpid(child, &status, 0);
  return verdict;
}

TEST_CASE("Debugger's peer: this user's") {
  for (const int family : {AF_INET, AF_INET6, AF_UNIX}) {
    INFO(family);
    const int verdict = VerdictOf(family, false);
    if (family == AF_INET6 && verdict == -1) continue;  // a host without IPv6
    CHECK(verdict == static_cast<int>(Verdict::kMine));
  }
}

TEST_CASE("Debugger's peer: another user's") {
  if (geteuid() != 0) {
    WARN("SKIP: only root can be another user");
    return;
  }
  for (const int family : {AF_INET, AF_INET6, AF_UNIX}) {
    INFO(family);
    const int verdict = VerdictOf(family, true);
    if (verdict == -1) {
      WARN("SKIP: no process of another user can connect here");
      continue;
    }
    CHECK(verdict == static_cast<int>(Verdict::kForeign));
  }
}

}  // namespace
}  // namespace alibi::vmm::gdb
