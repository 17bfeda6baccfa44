// SPDX-License-Identifier: Apache-2.0
// Where a network device's frames go on the host: a thread of its own that waits for the host's
// sockets, and a bounded queue of frames each way.
#ifndef ALIBI_DEVICES_NET_BACKEND_H_
#define ALIBI_DEVICES_NET_BACKEND_H_

#include <poll.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "devices/net/capture.h"
#include "devices/net/wire_speed.h"

namespace alibi::net {

// An Ethernet frame without its check sequence.
using Frame = std::vector<u8>;
inline constexpr std::size_t kEthernetHeader = 14;

class Backend {
 public:
  // Bytes of frames that wait, each way.
  static constexpr std::size_t kMaxWaiting = std::size_t{4} << 20;
  static constexpr u64 kApartNs = 50'000;

  virtual ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Whether the thread, while it is awake, is told of frames by memory alone; else each frame that
  // finds the queue empty costs a system call. Before Start().
  void set_quiet(bool quiet) { quiet_ = quiet; }
  // All frames, both ways, go there as well. Before Start().
  void set_capture(std::unique_ptr<Capture> capture) { capture_ = std::move(capture); }
  // The wire is no faster, each way. A network that must be read at once loses nothing thereby:
  // what is not read yet waits with the host. Before Start().
  void set_speed(u64 bits_per_second) {
    out_ = in_ = WireSpeed(bits_per_second);
    if (out_.limited()) most_waiting_ = out_.Queue();
  }
  // Starts the thread. `notice` is called on it when Receive() has frames again, or Send() has room
  // again.
  Status Start(std::function<void()> notice);

  // --- On the VCPU's thread; never wait ---
  // False, and the frame is untouched: no room. While the thread sleeps, and frames come apart
  // (kApartNs), this one hands the frame to the host itself, if that need not wait: waking the
  // other would cost as much. Of many frames the other one relieves it.
  bool Send(Frame& frame);
  // The next frame for the guest, and whether its checksums are known to be right; false: there is
  // none.
  bool Receive(Frame* frame, bool* sums_hold = nullptr);
  // How often Send() has woken the thread by a system call.
  u64 wakes() const { return wakes_; }
  // ... and how often it has sent a frame itself instead.
  u64 direct() const { return direct_; }
  // What `notice` told is about to be looked at; the next change is told again.
  void Noticed() { noticed_.store(false); }

  // Whether the guest takes TCP segments larger than its MTU; at first, no.
  virtual void SetLargeReceive(bool) {}

  // --- Constants ---
  // TCP segments of up to 64 KB may be sent in one frame, and come if the guest agrees (above).
  virtual bool large_segments() const { return false; }
  // The checksum of such a segment from the guest does not matter, since nobody reads it.
  virtual bool sums_large_segments() const { return false; }
  // What the guest's interface may send and gets at most, without the Ethernet header and apart
  // from large segments.
  virtual u16 mtu() const { return 1500; }
  // Longer than what mtu() lets pass: a large segment, or nothing.
  bool IsLarge(const Frame& frame) const { return frame.size() > kEthernetHeader + mtu(); }

 protected:
  Backend() = default;

  // --- On the thread ---
  // What to wait for besides the queue, and at most for how long (ms, -1: for ever).
  virtual void Fill(std::vector<pollfd>* fds, int* timeout_ms) = 0;
  // After poll(): the descriptors that Fill() appended, in their order.
  virtual void Served(std::span<const pollfd> fds) = 0;
  virtual void FromGuest(Frame& frame) = 0;

  // --- On the VCPU's thread, while the other sleeps ---
  // As FromGuest(), without waiting; false: it would have to wait.
  virtual bool SendNow(const Frame&) { return false; }

  // Drops the frame if the guest leaves too many waiting. `sums_hold`: its checksums are right;
  // else they are for the guest to check.
  void ToGuest(Frame frame, bool sums_hold);
  // False: the guest has enough to take; a good time not to read more from the host.
  bool GuestHasRoom();
  // The derived class's destructor begins with this.
  void Stop();

 private:
  void Work();
  // Frames to the host that may pass now.
  void TakeFrames(std::deque<Frame>* frames, u64 now_ns);
  // How long to wait at most (ms, -1: for ever), if Fill() said `timeout_ms`.
  int TimeoutMs(int timeout_ms, bool frames_wait, u64 now_ns) const;
  void Wake();

  std::function<void()> notice_;
  int wake_fd_ = -1;
  std::thread thread_;
  std::atomic<bool> noticed_ = false;
  bool quiet_ = true;
  std::size_t most_waiting_ = kMaxWaiting;  // to the host
  WireSpeed out_, in_;                      // the thread's
  std::unique_ptr<Capture> capture_;        // the thread's; may be null
  u64 wakes_ = 0, direct_ = 0;              // the VCPU's thread's
  u64 last_send_ns_ = 0;                    // likewise

  struct ForGuest {
    Frame frame;
    bool sums_hold;
  };
  std::mutex mutex_;  // of what follows
  std::deque<Frame> to_host_;
  std::deque<ForGuest> to_guest_;
  std::size_t to_host_bytes_ = 0, to_guest_bytes_ = 0;
  bool asleep_ = false;   // the thread waits, or is about to, and looks at the queue only if woken
  bool refused_ = false;  // Send() had no room
  bool held_ = false;     // GuestHasRoom() said no
  bool ending_ = false;
};

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_BACKEND_H_
