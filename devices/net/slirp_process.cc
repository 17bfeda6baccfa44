// SPDX-License-Identifier: Apache-2.0
#include "devices/net/slirp_process.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "base/sandbox/call_filter.h"
#include "base/sandbox/denied_call.h"
#include "base/sandbox/file_rules.h"
#include "devices/net/slirp_stack.h"

namespace alibi::net {
namespace {

// What libslirp and the C library's part of it call.
constexpr int kCalls[] = {
    // Sockets.
    SYS_poll, SYS_ppoll, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_read, SYS_write,
    SYS_readv, SYS_writev, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_shutdown,
    SYS_close, SYS_setsockopt, SYS_getsockopt, SYS_getsockname, SYS_getpeername, SYS_ioctl,
    SYS_fcntl,
    // Names of name servers.
    SYS_openat, SYS_fstat, SYS_newfstatat, SYS_stat, SYS_lseek,
    // Memory and time.
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_futex, SYS_clock_gettime,
    SYS_gettimeofday, SYS_time, SYS_getrandom, SYS_getpid, SYS_getuid, SYS_rt_sigreturn,
    SYS_restart_syscall, SYS_exit_group};

std::vector<sock_filter> Filter() {
  std::vector<sandbox::CallRule> rules;
  for (const int call : kCalls) rules.push_back({call, sandbox::kAllow});
  // Not every host has IPv6.
  for (const u32 family : {AF_INET, AF_INET6}) {
    rules.push_back({SYS_socket, sandbox::kAllow, 0, ~u32{0}, family});
  }
  rules.push_back({SYS_socket, sandbox::FailWith(EAFNOSUPPORT)});
  return sandbox::CompileFilter(rules, sandbox::kTrap);
}

bool Confine(const std::string& tftp) {
  sandbox::NameDeniedCalls("alibi: --net user");
  sandbox::FileRules rules({.tcp = false, .signals = true});
  // libslirp reads this again whenever it changes. Where it is a link to a folder that a program
  // manages, that program replaces it.
  static constexpr char kNames[] = "/etc/resolv.conf";
  rules.Allow(kNames, sandbox::FileAccess::kRead);
  char real[PATH_MAX];
  if (realpath(kNames, real) != nullptr && std::strncmp(real, "/run/", 5) == 0) {
    *std::strrchr(real, '/') = '\0';
    rules.Allow(real, sandbox::FileAccess::kRead);
  }
  if (!tftp.empty()) rules.Allow(tftp, sandbox::FileAccess::kRead);
  return rules.Enter() && sandbox::EnterFilter(Filter(), /*all_threads=*/false) == 0;
}

// Frames that go to the guest, as fast as it takes them.
class Outbox {
 public:
  explicit Outbox(int channel) : channel_(channel) {}
  bool waits() const { return !frames_.empty(); }
  void Put(Frame frame) {
    frames_.push_back(std::move(frame));
    Send();
  }
  void Send() {
    while (!frames_.empty()) {
      u8 tag = kFrame;
      iovec parts[] = {{&tag, 1}, {frames_.front().data(), frames_.front().size()}};
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = 2;
      if (sendmsg(channel_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EAGAIN) return;
      frames_.pop_front();
    }
  }

 private:
  const int channel_;
  std::deque<Frame> frames_;
};

void Say(int channel, u8 tag, const std::string& text) {
  const std::string message = std::string(1, static_cast<char>(tag)) + text;
  [[maybe_unused]] const ssize_t sent = send(channel, message.data(), message.size(), MSG_NOSIGNAL);
}

// False: the channel is closed.
bool TakeMessages(int channel, SlirpStack& stack, std::vector<u8>& buffer) {
  for (int i = 0; i < 64; ++i) {
    const ssize_t size = recv(channel, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size == 0) return false;
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (buffer[0] == kFrame) {
      Frame frame(buffer.begin() + 1, buffer.begin() + size);
      stack.FromGuest(frame);
    } else if (buffer[0] == kLargeReceive && size == 2) {
      stack.SetLargeReceive(buffer[1] != 0);
    }
  }
  return true;
}

void Route(int channel, const SlirpConfig& config) {
  Outbox outbox(channel);
  auto stack = SlirpStack::Create(config, [&outbox](Frame frame) { outbox.Put(std::move(frame)); });
  if (!stack.ok()) return Say(channel, kFailed, stack.error().message);
  if (config.confined && !Confine(config.tftp)) {
    return Say(channel, kFailed,
               "--net user: the kernel refuses its sandbox; --sandbox off does without");
  }
  Say(channel, kReady, "");
  std::vector<u8> buffer(kMaxMessage);
  std::vector<pollfd> fds;
  for (;;) {
    const bool full = outbox.waits();
    fds.assign(1, {channel, static_cast<short>(full ? POLLIN | POLLOUT : POLLIN), 0});
    int timeout_ms = -1;
    if (!full) (*stack)->Fill(&fds, &timeout_ms);
    if (poll(fds.data(), fds.size(), timeout_ms) < 0) {
      for (pollfd& fd : fds) fd.revents = 0;
    }
    // First, since it sets libslirp's clock: what libslirp opened for a frame at the time of its
    // last poll(), minutes ago, it would close again as too old.
    if (!full) (*stack)->Served(fds);
    if (fds[0].revents != 0) {
      outbox.Send();
      if (!TakeMessages(channel, **stack, buffer)) return;
    }
  }
}

[[noreturn]] void Child(int channel, const SlirpConfig& config) {
  // Signals of the terminal are for the parent, and this ends with it.
  setsid();
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1}) signal(number, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  constexpr int kChannel = 3;
  dup2(channel, kChannel);
  syscall(SYS_close_range, kChannel + 1, ~0U, 0);
  Route(kChannel, config);
  _exit(0);
}

}  // namespace

Result<SlirpProcess> StartSlirp(const SlirpConfig& config) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Error{std::string("--net user: ") + std::strerror(errno) +
                 "; raise the limit on open files (ulimit -n)"};
  }
  constexpr int kBytes = 1 << 20;
  for (const int end : ends) setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kBytes, sizeof(kBytes));
  const pid_t id = fork();
  if (id == 0) Child(ends[1], config);
  const int error = errno;
  close(ends[1]);
  if (id < 0) {
    close(ends[0]);
    return Error{std::string("--net user: no process for it: ") + std::strerror(error) +
                 "; raise the limit on processes (ulimit -u)"};
  }
  char answer[512];
  const ssize_t size = recv(ends[0], answer, sizeof(answer), 0);
  if (size >= 1 && answer[0] == static_cast<char>(kReady)) return SlirpProcess{id, ends[0]};
  close(ends[0]);
  waitpid(id, nullptr, 0);
  if (size < 1) return Error{"--net user: its process has ended before it began"};
  return Error{std::string(answer + 1, static_cast<std::size_t>(size - 1))};
}

}  // namespace alibi::net
