// SPDX-License-Identifier: Apache-2.0
#include "devices/net/tap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

namespace alibi::net {
namespace {

class TapBackend final : public Backend {
 public:
  explicit TapBackend(int fd) : fd_(fd) {}
  ~TapBackend() override {
    Stop();
    close(fd_);
  }

 private:
  void Fill(std::vector<pollfd>* fds, int*) override {
    if (GuestHasRoom()) fds->push_back({fd_, POLLIN, 0});
  }
  void Served(std::span<const pollfd> fds) override {
    if (fds.empty() || fds[0].revents == 0) return;
    // A few at once, so that frames from the guest do not wait for ever.
    for (int i = 0; i < 64; ++i) {
      const ssize_t size = read(fd_, buffer_.data(), buffer_.size());
      if (size <= 0) return;
      ToGuest(Frame(buffer_.begin(), buffer_.begin() + size));
    }
  }
  void FromGuest(Frame& frame) override { SendNow(frame); }
  bool SendNow(const Frame& frame) override {
    // An interface that is down, or full, loses frames, as a wire does.
    [[maybe_unused]] const ssize_t written = write(fd_, frame.data(), frame.size());
    return true;
  }

  const int fd_;
  std::array<u8, 65536> buffer_;
};

}  // namespace

Result<std::unique_ptr<Backend>> CreateTap(const std::string& interface) {
  if (interface.empty() || interface.size() >= IFNAMSIZ) {
    return Error{
        fmt::format("--net tap: '{}' is no interface's name; give ifname=NAME with 1 to {} "
                    "characters",
                    interface, IFNAMSIZ - 1)};
  }
  const int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return Error{fmt::format("--net tap: /dev/net/tun: {}; use --net user, which needs no rights",
                             std::strerror(errno))};
  }
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::memcpy(request.ifr_name, interface.data(), interface.size());
  if (ioctl(fd, TUNSETIFF, &request) < 0) {
    const int error = errno;
    close(fd);
    if (error == EPERM) {
      return Error{
          fmt::format("--net tap: '{}' is not this user's; let root run: ip tuntap add dev "
                      "{} mode tap user NAME",
                      interface, interface)};
    }
    return Error{fmt::format("--net tap: '{}': {}", interface, std::strerror(error))};
  }
  return std::unique_ptr<Backend>(std::make_unique<TapBackend>(fd));
}

}  // namespace alibi::net
