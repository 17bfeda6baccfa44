// SPDX-License-Identifier: Apache-2.0
#include "inspect/gdb/server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/sandbox/denied_call.h"
#include "base/worker_thread.h"

namespace alibi::vmm::gdb {
namespace {

constexpr int kLastWordsMs = 500;

struct Listening {
  int fd = -1;
  std::string name;
  std::string path;
};

Error CannotListen(const std::string& address, const std::string& why) {
  return Error{fmt::format("cannot listen on {}: {}", address, why)};
}

Result<Listening> ListenOnPath(const std::string& address, const std::string& path) {
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(place.sun_path)) {
    return CannotListen(address, "the path is empty or too long for a socket; give a shorter one");
  }
  std::memcpy(place.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const mode_t before = umask(S_IRWXG | S_IRWXO);
  const bool bound = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&place), sizeof(place)) == 0;
  umask(before);
  if (!bound || listen(fd, 1) != 0) {
    const Error error = CannotListen(
        address, std::string(std::strerror(errno)) +
                     (errno == EADDRINUSE ? "; remove that file if nobody uses it" : ""));
    if (fd >= 0) close(fd);
    return error;
  }
  return Listening{fd, path, path};
}

Result<Listening> ListenOnPort(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return CannotListen(address, "no place to listen at; write :1234, HOST:1234 or unix:PATH");
  }
  std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) host = "127.0.0.1";
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return CannotListen(address, gai_strerror(error));
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool listens =
      fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int error = errno;
  freeaddrinfo(found);
  if (!listens) {
    if (fd >= 0) close(fd);
    return CannotListen(address, std::strerror(error));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  const u16 number =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return Listening{fd, fmt::format("{}:{}", host, number), {}};
}

}  // namespace

Result<std::unique_ptr<Server>> Server::Listen(const std::string& address,
                                               std::function<void()> poke) {
  static constexpr char kUnix[] = "unix:";
  auto listening = address.starts_with(kUnix)
                       ? ListenOnPath(address, address.substr(sizeof(kUnix) - 1))
                       : ListenOnPort(address);
  if (!listening.ok()) return listening.error();
  std::unique_ptr<Server> server(new Server);
  server->poke_ = std::move(poke);
  server->listen_fd_ = listening->fd;
  server->name_ = listening->name;
  server->path_ = listening->path;
  server->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (server->wake_fd_ < 0) return CannotListen(address, std::strerror(errno));
  auto worker = StartWorker([raw = server.get()] { raw->Serve(); });
  if (!worker.ok()) return CannotListen(address, "no thread: " + worker.error().message);
  server->thread_ = std::move(*worker);
  return server;
}

Server::~Server() {
  quit_.store(true);
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    eventfd_write(wake_fd_, 1);
    thread_.join();
  }
  for (int fd : {client_fd_, listen_fd_, wake_fd_}) {
    if (fd >= 0) close(fd);
  }
  if (!path_.empty()) unlink(path_.c_str());
}

std::vector<Server::Event> Server::TakeEvents() {
  if (!HasEvents()) return {};
  std::lock_guard lock(mutex_);
  has_events_.store(false, std::memory_order_relaxed);
  if (events_.size() >= kMaxEvents) eventfd_write(wake_fd_, 1);  // it may go on reading
  return std::exchange(events_, {});
}

void Server::Queue(u32 client, std::string frame, bool last) {
  {
    std::lock_guard lock(mutex_);
    if (client != client_) return;
    out_ += frame;
    last_sent_ = std::move(frame);
    closing_ = closing_ || last;
  }
  eventfd_write(wake_fd_, 1);
}

void Server::Push(Event::Kind kind, std::string payload) {
  {
    std::lock_guard lock(mutex_);
    events_.push_back({kind, client_, std::move(payload)});
    has_events_.store(true, std::memory_order_release);
  }
  poke_();
}

void Server::Serve() {
  sandbox::UnblockDeniedCalls();
  for (;;) {
    bool unsent, closing, full;
    {
      std::lock_guard lock(mutex_);
      unsent = !out_.empty();
      closing = closing_;
      full = events_.size() >= kMaxEvents;
    }
    const bool quit = quit_.load();
    if (client_fd_ < 0 || !unsent) {
      if (quit) return;
      if (closing) {
        Drop(false);
        continue;
      }
    }
    short wanted = 0;
    if (!full && !closing) wanted |= POLLIN;
    if (unsent) wanted |= POLLOUT;
    pollfd fds[] = {{wake_fd_, POLLIN, 0},
                    {client_fd_, wanted, 0},
                    {client_fd_ < 0 ? listen_fd_ : -1, POLLIN, 0}};
    const int ready = poll(fds, 3, quit || closing ? kLastWordsMs : -1);
    if (ready < 0) continue;  // every signal is blocked: only a debugger interrupts
    if (ready == 0) {         // last words that nobody takes
      Drop(false);
      continue;
    }
    if (fds[0].revents != 0) {
      eventfd_t count;
      eventfd_read(wake_fd_, &count);
    }
    if (fds[2].revents != 0) Accept();
    bool alive = true;
    if (fds[1].revents & POLLOUT) alive = SendSome();
    if (alive && (fds[1].revents & POLLIN)) {
      alive = Receive();
    } else if (fds[1].revents & (POLLERR | POLLHUP | POLLNVAL)) {
      alive = false;
    }
    if (!alive) Drop(!closing);
  }
}

void Server::Accept() {
  client_fd_ = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (client_fd_ < 0) return;
  if (const PeerCheck::Verdict peer = peer_.Judge(client_fd_); peer != PeerCheck::Verdict::kMine) {
    fmt::print(stderr, "alibi: gdb: refused a client {}; --gdb unix:PATH is for one user alone\n",
               peer == PeerCheck::Verdict::kForeign ? "of another user"
                                                    : "whose user the host does not tell");
    close(std::exchange(client_fd_, -1));
    return;
  }
  const int on = 1;
  setsockopt(client_fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  deframer_ = {};
  acknowledges_ = true;
  {
    std::lock_guard lock(mutex_);
    ++client_;
    out_.clear();
    last_sent_.clear();
    closing_ = false;
  }
  Push(Event::Kind::kConnected);
}

bool Server::Receive() {
  char bytes[4096];
  const ssize_t count = read(client_fd_, bytes, sizeof(bytes));
  if (count == 0) return false;
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  for (Deframer::Item& item : deframer_.Feed({bytes, static_cast<std::size_t>(count)})) {
    switch (item.kind) {
      case Deframer::Kind::kPacket: {
        // How packets are acknowledged is this thread's business alone.
        const bool no_more = item.payload == "QStartNoAckMode";
        if (acknowledges_) {
          std::lock_guard lock(mutex_);
          out_ += '+';
          if (no_more) out_ += Frame("OK");
        }
        if (no_more) {
          acknowledges_ = false;
        } else {
          Push(Event::Kind::kPacket, std::move(item.payload));
        }
        break;
      }
      case Deframer::Kind::kInterrupt:
        Push(Event::Kind::kInterrupt);
        break;
      case Deframer::Kind::kDamaged:
      case Deframer::Kind::kNak:
        if (acknowledges_) {
          std::lock_guard lock(mutex_);
          out_ += item.kind == Deframer::Kind::kNak ? last_sent_ : "-";
        }
        break;
      case Deframer::Kind::kAck:
        break;
    }
  }
  std::lock_guard lock(mutex_);
  return out_.size() <= kMaxUnsent;
}

bool Server::SendSome() {
  std::lock_guard lock(mutex_);
  const ssize_t count = send(client_fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  out_.erase(0, static_cast<std::size_t>(count));
  return true;
}

void Server::Drop(bool tell) {
  if (client_fd_ >= 0) close(client_fd_);
  client_fd_ = -1;
  {
    std::lock_guard lock(mutex_);
    out_.clear();
    closing_ = false;
  }
  if (tell) Push(Event::Kind::kLost);
}

}  // namespace alibi::vmm::gdb
