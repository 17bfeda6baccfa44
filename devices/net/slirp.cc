#include "devices/net/slirp.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <slirp/libslirp.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "devices/net/offload.h"

namespace alibi::net {
namespace {

constexpr u32 kNetwork = 0x0a000200, kMask = 0xffffff00, kHost = 0x0a000202, kDns = 0x0a000203,
              kGuest = 0x0a00020f;

// libslirp's connections have windows of 64 KB: four segments of this size.
constexpr u16 kLargeMss = 16344;
constexpr u16 kIpAndTcp = 40;

in_addr Address(u32 address) { return in_addr{htonl(address)}; }

// libslirp's events and poll()'s.
struct EventRow {
  int slirp;
  short poll;
};
constexpr EventRow kEvents[] = {{SLIRP_POLL_IN, POLLIN},
                                {SLIRP_POLL_OUT, POLLOUT},
                                {SLIRP_POLL_PRI, POLLPRI},
                                {SLIRP_POLL_ERR, POLLERR},
                                {SLIRP_POLL_HUP, POLLHUP}};

class SlirpBackend final : public Backend {
 public:
  explicit SlirpBackend(u16 mtu) : mtu_(mtu) {}
  ~SlirpBackend() override {
    Stop();
    if (slirp_ != nullptr) slirp_cleanup(slirp_);
  }

  Status Init(const SlirpConfig& config);

  // Its own TCP and UDP make every frame.
  bool checksums_hold() const override { return true; }
  bool large_segments() const override { return true; }
  void SetLargeReceive(bool large) override { large_receive_ = large; }
  u16 mtu() const override { return mtu_; }

 private:
  void Fill(std::vector<pollfd>* fds, int* timeout_ms) override;
  void Served(std::span<const pollfd> fds) override;
  void FromGuest(Frame& frame) override {
    // What libslirp sends in one piece, the guest gets in one piece, as if its card had put the
    // segments together.
    if (large_receive_) RaiseMss(frame, kLargeMss);
    slirp_input(slirp_, frame.data(), static_cast<int>(frame.size()));
  }
  // libslirp believes in a larger MTU than the guest's.
  void FromSlirp(Frame frame) {
    TcpSegment segment;
    if (frame.size() <= kEthernetHeader + mtu_ || FindTcp(frame, &segment)) {
      ToGuest(std::move(frame));
      return;
    }
    for (Frame& fragment : Fragment(frame, mtu_)) ToGuest(std::move(fragment));
  }

  // --- What libslirp calls; always on the thread, but for its creation ---
  static SlirpBackend& Self(void* opaque) { return *static_cast<SlirpBackend*>(opaque); }
  static ssize_t SendPacket(const void* data, size_t size, void* opaque) {
    const u8* bytes = static_cast<const u8*>(data);
    Self(opaque).FromSlirp(Frame(bytes, bytes + size));
    return static_cast<ssize_t>(size);
  }
  static void GuestError(const char*, void*) {}
  static int64_t ClockNs(void*) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return i64{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
  struct Timer {
    SlirpTimerCb callback;
    void* argument;
    i64 due_ms = -1;  // by ClockNs(); -1: not set
  };
  static void* TimerNew(SlirpTimerCb callback, void* argument, void* opaque) {
    Self(opaque).timers_.push_back(std::make_unique<Timer>(Timer{callback, argument}));
    return Self(opaque).timers_.back().get();
  }
  static void TimerFree(void* timer, void* opaque) {
    std::erase_if(Self(opaque).timers_, [timer](const auto& t) { return t.get() == timer; });
  }
  static void TimerModify(void* timer, int64_t due_ms, void*) {
    static_cast<Timer*>(timer)->due_ms = due_ms;
  }
  static void NoDescriptor(int, void*) {}
  static void NoNotice(void*) {}

  const u16 mtu_;
  std::atomic<bool> large_receive_ = false;
  Slirp* slirp_ = nullptr;
  bool reading_ = true;  // the last Fill() asked libslirp
  std::vector<std::unique_ptr<Timer>> timers_;
};

Status SlirpBackend::Init(const SlirpConfig& config) {
  static constexpr SlirpCb kCallbacks = {
      .send_packet = SendPacket,
      .guest_error = GuestError,
      .clock_get_ns = ClockNs,
      .timer_new = TimerNew,
      .timer_free = TimerFree,
      .timer_mod = TimerModify,
      .register_poll_fd = NoDescriptor,
      .unregister_poll_fd = NoDescriptor,
      .notify = NoNotice,
      .init_completed = nullptr,
      .timer_new_opaque = nullptr,
  };
  ::SlirpConfig slirp{};
  slirp.version = 1;
  slirp.in_enabled = true;
  slirp.vnetwork = Address(kNetwork);
  slirp.vnetmask = Address(kMask);
  slirp.vhost = Address(kHost);
  slirp.vdhcp_start = Address(kGuest);
  slirp.vnameserver = Address(kDns);
  slirp.if_mtu = slirp.if_mru = std::max<u16>(mtu_, kLargeMss + kIpAndTcp);
  slirp_ = slirp_new(&slirp, &kCallbacks, this);
  if (slirp_ == nullptr) return Error{"--net user: libslirp does not start"};
  for (const HostForward& forward : config.forwards) {
    const u32 guest = forward.guest_address == 0 ? kGuest : forward.guest_address;
    errno = 0;
    if (slirp_add_hostfwd(slirp_, forward.udp, Address(forward.host_address), forward.host_port,
                          Address(guest), forward.guest_port) != 0) {
      return Error{
          fmt::format("--net user: port {} of the host cannot be forwarded: {}; give "
                      "another one to hostfwd",
                      forward.host_port, errno == 0 ? "it is in use" : std::strerror(errno))};
    }
  }
  return Ok{};
}

void SlirpBackend::Fill(std::vector<pollfd>* fds, int* timeout_ms) {
  // A guest that takes nothing more is not given more: the peers' windows close.
  reading_ = GuestHasRoom();
  if (!reading_) return;
  u32 wait_ms = ~u32{0};
  slirp_pollfds_fill(
      slirp_, &wait_ms,
      [](int fd, int events, void* opaque) {
        std::vector<pollfd>& list = *static_cast<std::vector<pollfd>*>(opaque);
        short wanted = 0;
        for (const EventRow& row : kEvents) {
          if (events & row.slirp) wanted = static_cast<short>(wanted | row.poll);
        }
        list.push_back({fd, wanted, 0});
        return static_cast<int>(list.size()) - 2;  // the first one is not libslirp's
      },
      fds);
  const i64 now_ms = ClockNs(this) / 1'000'000;
  for (const auto& timer : timers_) {
    if (timer->due_ms < 0) continue;
    wait_ms = static_cast<u32>(std::min<i64>(wait_ms, std::max<i64>(timer->due_ms - now_ms, 0)));
  }
  if (wait_ms != ~u32{0}) *timeout_ms = static_cast<int>(std::min<u32>(wait_ms, 1'000'000));
}

void SlirpBackend::Served(std::span<const pollfd> fds) {
  if (!reading_) return;
  slirp_pollfds_poll(
      slirp_, 0,
      [](int index, void* opaque) {
        const auto& list = *static_cast<std::span<const pollfd>*>(opaque);
        if (index < 0 || static_cast<std::size_t>(index) >= list.size()) return 0;
        int events = 0;
        for (const EventRow& row : kEvents) {
          if (list[static_cast<std::size_t>(index)].revents & row.poll) events |= row.slirp;
        }
        return events;
      },
      &fds);
  const i64 now_ms = ClockNs(this) / 1'000'000;
  for (std::size_t i = 0; i < timers_.size(); ++i) {
    Timer& timer = *timers_[i];
    if (timer.due_ms < 0 || timer.due_ms > now_ms) continue;
    timer.due_ms = -1;
    timer.callback(timer.argument);
  }
}

}  // namespace

Result<std::unique_ptr<Backend>> CreateSlirp(const SlirpConfig& config) {
  auto backend = std::make_unique<SlirpBackend>(config.mtu);
  Status status = backend->Init(config);
  if (!status.ok()) return status.error();
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace alibi::net
