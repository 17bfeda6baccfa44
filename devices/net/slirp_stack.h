// SPDX-License-Identifier: Apache-2.0
// libslirp as it is used here: frames in, frames out, and the host's sockets that they need. One
// thread works with it.
#ifndef ALIBI_DEVICES_NET_SLIRP_STACK_H_
#define ALIBI_DEVICES_NET_SLIRP_STACK_H_

#include <poll.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "devices/net/host_guard.h"
#include "devices/net/slirp.h"

extern "C" {
struct Slirp;
}

namespace alibi::net {

class SlirpStack {
 public:
  // `to_guest` is called for each frame.
  static Result<std::unique_ptr<SlirpStack>> Create(const SlirpConfig& config,
                                                    std::function<void(Frame)> to_guest);
  ~SlirpStack();
  SlirpStack(const SlirpStack&) = delete;
  SlirpStack& operator=(const SlirpStack&) = delete;

  void FromGuest(Frame& frame);
  // Whether the guest takes TCP segments larger than its MTU; at first, no.
  void SetLargeReceive(bool large) { large_receive_ = large; }

  // What to wait for besides what is in `fds`, and at most for how long (ms; -1: for ever).
  void Fill(std::vector<pollfd>* fds, int* timeout_ms);
  // After poll(): `fds` as Fill() left it.
  void Served(std::span<const pollfd> fds);

 private:
  struct Callbacks;
  struct Timer;

  SlirpStack(const SlirpConfig& config, std::function<void(Frame)> to_guest);
  Status Init(const SlirpConfig& config);
  void FromSlirp(Frame frame);

  const u16 mtu_;
  const bool guarded_;
  const std::function<void(Frame)> to_guest_;
  bool large_receive_ = false;
  std::span<const u8> from_guest_;  // the frame that libslirp is at
  HostGuard guard_;
  ::Slirp* slirp_ = nullptr;
  std::vector<std::unique_ptr<Timer>> timers_;
};

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_SLIRP_STACK_H_
