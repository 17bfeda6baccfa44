// SPDX-License-Identifier: Apache-2.0
#include "devices/net/tap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "devices/net/offload.h"

namespace alibi::net {
namespace {

// In front of each frame lies an OffloadHeader (IFF_VNET_HDR): the host's stack cuts what the guest
// sends only where it must, and leaves whole what it sends itself.
constexpr unsigned kOffloads = TUN_F_CSUM | TUN_F_TSO4;

class TapBackend final : public Backend {
 public:
  explicit TapBackend(int fd) : fd_(fd) {}
  ~TapBackend() override {
    Stop();
    close(fd_);
  }

  bool large_segments() const override { return true; }
  bool sums_large_segments() const override { return true; }
  void SetLargeReceive(bool large) override { large_receive_ = large; }

 private:
  void Fill(std::vector<pollfd>* fds, int*) override {
    if (GuestHasRoom()) fds->push_back({fd_, POLLIN, 0});
  }
  void Served(std::span<const pollfd> fds) override {
    if (fds.empty() || fds[0].revents == 0) return;
    // A few at once, so that frames from the guest do not wait for ever.
    for (int i = 0; i < 64; ++i) {
      OffloadHeader header;
      const std::array<iovec, 2> parts = {
          {{&header, sizeof(header)}, {buffer_.data(), buffer_.size()}}};
      const ssize_t size = readv(fd_, parts.data(), parts.size());
      if (size < static_cast<ssize_t>(sizeof(header))) return;
      Take(header, Frame(buffer_.begin(), buffer_.begin() + size - sizeof(header)));
    }
  }

  void Take(const OffloadHeader& header, Frame frame) {
    TcpSegment segment;
    if (header.segmentation != OffloadHeader::kWhole) {
      if (!FindTcp(frame, &segment)) return;  // the host has not kept to kOffloads
      if (IsLarge(frame)) {
        TakeLarge(std::move(frame), segment);
        return;
      }
    }
    const bool unfinished = header.flags & OffloadHeader::kNeedsChecksum;
    if (unfinished &&
        !FinishSum(frame, header.sum_start, std::size_t{header.sum_start} + header.sum_offset)) {
      return;
    }
    ToGuest(std::move(frame), unfinished || (header.flags & OffloadHeader::kDataValid));
  }
  // What the guest gets whole is described anew by its card.
  void TakeLarge(Frame frame, const TcpSegment& segment) {
    if (large_receive_) {
      ToGuest(std::move(frame), /*sums_hold=*/true);
      return;
    }
    for (Frame& piece : CutSegment(frame, segment, mtu())) ToGuest(std::move(piece), true);
  }

  void FromGuest(Frame& frame) override { SendNow(frame); }
  bool SendNow(const Frame& frame) override {
    OffloadHeader header;
    TcpSegment segment;
    const u8* const bytes = frame.data();
    if (!IsLarge(frame) || !FindTcp(frame, &segment)) {
      Write<2>({{{&header, sizeof(header)}, Part(bytes, 0, frame.size())}});
      return true;
    }
    header = DescribeSegment(segment, mtu());
    const std::size_t field = segment.tcp + kTcpChecksum;
    const u16 sum = PseudoHeaderSum(frame, segment);
    u8 big_endian[] = {static_cast<u8>(sum >> 8), static_cast<u8>(sum)};
    Write<4>({{{&header, sizeof(header)},
               Part(bytes, 0, field),
               {big_endian, sizeof(big_endian)},
               Part(bytes, field + sizeof(big_endian), segment.end)}});
    return true;
  }

  static iovec Part(const u8* bytes, std::size_t begin, std::size_t end) {
    return {const_cast<u8*>(bytes + begin), end - begin};
  }
  template <int kParts>
  void Write(const std::array<iovec, kParts>& parts) {
    // An interface that is down, or full, loses frames, as a wire does.
    [[maybe_unused]] const ssize_t written = writev(fd_, parts.data(), kParts);
  }

  const int fd_;
  std::atomic<bool> large_receive_ = false;
  std::array<u8, 65536 + kEthernetHeader> buffer_;
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
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
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
  // An interface that somebody has left with longer headers keeps them.
  int header = sizeof(OffloadHeader);
  if (ioctl(fd, TUNSETVNETHDRSZ, &header) < 0 || ioctl(fd, TUNSETOFFLOAD, kOffloads) < 0) {
    const int error = errno;
    close(fd);
    return Error{fmt::format("--net tap: '{}' leaves no segments whole: {}", interface,
                             std::strerror(error))};
  }
  return std::unique_ptr<Backend>(std::make_unique<TapBackend>(fd));
}

}  // namespace alibi::net
