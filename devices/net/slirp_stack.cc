// SPDX-License-Identifier: Apache-2.0
#include "devices/net/slirp_stack.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <slirp/libslirp.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/host_clock.h"
#include "devices/net/offload.h"
#include "devices/net/ping_socket.h"

namespace alibi::net {
namespace {

constexpr u32 kNetwork = 0x0a000200, kMask = 0xffffff00, kHost = 0x0a000202, kDns = 0x0a000203,
              kGuest = 0x0a00020f;
constexpr char kPrefix6[] = "fec0::", kHost6[] = "fec0::2", kDns6[] = "fec0::3";
constexpr u8 kPrefixBits6 = 64;

// libslirp's connections have windows of 64 KB: four segments of this size.
constexpr u16 kLargeMss = 16344;
constexpr u16 kIpAndTcp = 40;

in_addr Address(u32 address) { return in_addr{htonl(address)}; }
in6_addr Address6(const char* text) {
  in6_addr address;
  inet_pton(AF_INET6, text, &address);
  return address;
}

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

}  // namespace

struct SlirpStack::Timer {
  SlirpTimerCb callback;
  void* argument;
  i64 due_ms = -1;  // by ClockNs(); -1: not set
};

// What libslirp calls.
struct SlirpStack::Callbacks {
  static SlirpStack& Self(void* opaque) { return *static_cast<SlirpStack*>(opaque); }
  static ssize_t SendPacket(const void* data, size_t size, void* opaque) {
    const u8* bytes = static_cast<const u8*>(data);
    Self(opaque).FromSlirp(Frame(bytes, bytes + size));
    return static_cast<ssize_t>(size);
  }
  static void GuestError(const char*, void*) {}
  static int64_t ClockNs(void*) { return static_cast<int64_t>(MonotonicNs()); }
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
  static void Opened(int fd, void* opaque) { HearOnlyAnswers(fd, Self(opaque).from_guest_); }
  static void NoDescriptor(int, void*) {}
  static void NoNotice(void*) {}
};

Result<std::unique_ptr<SlirpStack>> SlirpStack::Create(const SlirpConfig& config,
                                                       std::function<void(Frame)> to_guest) {
  std::unique_ptr<SlirpStack> stack(new SlirpStack(config, std::move(to_guest)));
  Status status = stack->Init(config);
  if (!status.ok()) return status.error();
  return stack;
}

SlirpStack::SlirpStack(const SlirpConfig& config, std::function<void(Frame)> to_guest)
    : mtu_(config.mtu), guarded_(!config.loopback), to_guest_(std::move(to_guest)) {}

SlirpStack::~SlirpStack() {
  if (slirp_ != nullptr) slirp_cleanup(slirp_);
}

void SlirpStack::FromGuest(Frame& frame) {
  if (guarded_) {
    const HostGuard::Verdict verdict = guard_.Judge(frame);
    if (verdict == HostGuard::Verdict::kRefuse) {
      if (auto refusal = HostGuard::Refusal(frame)) to_guest_(std::move(*refusal));
    }
    if (verdict != HostGuard::Verdict::kPass) return;
  }
  // What libslirp sends in one piece, the guest gets in one piece, as if its card had put the
  // segments together.
  if (large_receive_) RaiseMss(frame, kLargeMss);
  from_guest_ = frame;
  slirp_input(slirp_, frame.data(), static_cast<int>(frame.size()));
  from_guest_ = {};
}

// libslirp believes in a larger MTU than the guest's, and it may forget the segment size that the
// guest has announced (of a connection that the host does not accept at once).
void SlirpStack::FromSlirp(Frame frame) {
  if (guarded_) guard_.Note(frame);
  TcpSegment segment;
  const bool fits = frame.size() <= kEthernetHeader + mtu_;
  const bool tcp = !fits && FindTcp(frame, &segment);
  if (fits || (tcp && large_receive_)) {
    to_guest_(std::move(frame));
    return;
  }
  if (tcp) {
    for (Frame& piece : CutSegment(frame, segment, mtu_)) to_guest_(std::move(piece));
    return;
  }
  for (Frame& fragment : Fragment(frame, mtu_)) to_guest_(std::move(fragment));
}

Status SlirpStack::Init(const SlirpConfig& config) {
  static constexpr SlirpCb kCallbacks = {
      .send_packet = Callbacks::SendPacket,
      .guest_error = Callbacks::GuestError,
      .clock_get_ns = Callbacks::ClockNs,
      .timer_new = Callbacks::TimerNew,
      .timer_free = Callbacks::TimerFree,
      .timer_mod = Callbacks::TimerModify,
      .register_poll_fd = Callbacks::Opened,
      .unregister_poll_fd = Callbacks::NoDescriptor,
      .notify = Callbacks::NoNotice,
      .init_completed = nullptr,
      .timer_new_opaque = nullptr,
  };
  ::SlirpConfig slirp{};
  slirp.version = 1;
  slirp.in_enabled = true;
  slirp.vnetwork = Address(kNetwork);
  slirp.vnetmask = Address(kMask);
  slirp.vhost = Address(kHost);
  slirp.in6_enabled = true;
  slirp.vprefix_addr6 = Address6(kPrefix6);
  slirp.vprefix_len = kPrefixBits6;
  slirp.vhost6 = Address6(kHost6);
  slirp.vnameserver6 = Address6(kDns6);
  slirp.restricted = config.restricted;
  slirp.vdhcp_start = Address(kGuest);
  slirp.vnameserver = Address(kDns);
  if (!config.tftp.empty()) slirp.tftp_path = config.tftp.c_str();
  if (!config.boot_file.empty()) slirp.bootfile = config.boot_file.c_str();
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

void SlirpStack::Fill(std::vector<pollfd>* fds, int* timeout_ms) {
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
        return static_cast<int>(list.size()) - 1;
      },
      fds);
  const i64 now_ms = Callbacks::ClockNs(this) / 1'000'000;
  for (const auto& timer : timers_) {
    if (timer->due_ms < 0) continue;
    wait_ms = static_cast<u32>(std::min<i64>(wait_ms, std::max<i64>(timer->due_ms - now_ms, 0)));
  }
  if (wait_ms != ~u32{0}) *timeout_ms = static_cast<int>(std::min<u32>(wait_ms, 1'000'000));
}

void SlirpStack::Served(std::span<const pollfd> fds) {
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
  const i64 now_ms = Callbacks::ClockNs(this) / 1'000'000;
  for (std::size_t i = 0; i < timers_.size(); ++i) {
    Timer& timer = *timers_[i];
    if (timer.due_ms < 0 || timer.due_ms > now_ms) continue;
    timer.due_ms = -1;
    timer.callback(timer.argument);
  }
}

}  // namespace alibi::net
