// SPDX-License-Identifier: Apache-2.0
#include "devices/net/slirp.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <span>
#include <utility>

#include "base/file_descriptor.h"
#include "devices/net/slirp_process.h"

namespace alibi::net {
namespace {

// A router that hangs loses frames, as a wire does.
constexpr timeval kPatience = {1, 0};

class SlirpBackend final : public Backend {
 public:
  SlirpBackend(u16 mtu, SlirpProcess process) : mtu_(mtu), process_(process) {}
  ~SlirpBackend() override {
    Stop();
    close(process_.channel);  // the process ends
    while (waitpid(process_.id, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  // Its own TCP and UDP make every frame.
  bool large_segments() const override { return true; }
  void SetLargeReceive(bool large) override {
    const u8 message[] = {kLargeReceive, large};
    send(process_.channel, message, sizeof(message), MSG_NOSIGNAL);
  }
  u16 mtu() const override { return mtu_; }

 private:
  void Fill(std::vector<pollfd>* fds, int*) override {
    // A guest that takes nothing more is not given more: in the end the peers' windows close.
    if (!ended_ && GuestHasRoom()) fds->push_back({process_.channel, POLLIN, 0});
  }
  void Served(std::span<const pollfd> fds) override {
    if (fds.empty() || fds[0].revents == 0) return;
    // A few at once, so that frames from the guest do not wait for ever.
    for (int i = 0; i < 64; ++i) {
      const ssize_t size = recv(process_.channel, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      if (size < 0) return;
      if (size == 0) {
        ended_ = true;
        fmt::print(stderr, "alibi: --net user: its process has ended; the guest has no network\n");
        return;
      }
      if (buffer_[0] == kFrame) ToGuest(Frame(buffer_.begin() + 1, buffer_.begin() + size), true);
    }
  }
  void FromGuest(Frame& frame) override { SendToProcess(frame, 0); }
  bool SendNow(const Frame& frame) override { return SendToProcess(frame, MSG_DONTWAIT); }

  // False: it would have to wait.
  bool SendToProcess(const Frame& frame, int flags) {
    u8 tag = kFrame;
    iovec parts[] = {{&tag, 1}, {const_cast<u8*>(frame.data()), frame.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    return sendmsg(process_.channel, &message, flags | MSG_NOSIGNAL) >= 0 || errno != EAGAIN;
  }

  const u16 mtu_;
  const SlirpProcess process_;
  bool ended_ = false;
  std::array<u8, kMaxMessage> buffer_;
};

}  // namespace

Result<std::unique_ptr<Backend>> CreateSlirp(const SlirpConfig& config) {
  if (!config.tftp.empty()) {
    const FileDescriptor folder(open(config.tftp.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0) {
      return Error{fmt::format("--net user: tftp={}: {}", config.tftp, std::strerror(errno))};
    }
  }
  auto process = StartSlirp(config);
  if (!process.ok()) return process.error();
  setsockopt(process->channel, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
  return std::unique_ptr<Backend>(std::make_unique<SlirpBackend>(config.mtu, *process));
}

}  // namespace alibi::net
