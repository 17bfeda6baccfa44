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

namespace alibi::net {

// An Ethernet frame without its check sequence.
using Frame = std::vector<u8>;

class Backend {
 public:
  // Bytes of frames that wait, each way.
  static constexpr std::size_t kMaxWaiting = std::size_t{4} << 20;

  virtual ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Whether the thread, while it is awake, is told of frames by memory alone; else each frame that
  // finds the queue empty costs a system call. Before Start().
  void set_quiet(bool quiet) { quiet_ = quiet; }
  // All frames, both ways, go there as well. Before Start().
  void set_capture(std::unique_ptr<Capture> capture) { capture_ = std::move(capture); }
  // Starts the thread. `notice` is called on it when Receive() has frames again, or Send() has room
  // again.
  Status Start(std::function<void()> notice);

  // --- On the VCPU's thread; never wait ---
  // False, and the frame is untouched: no room.
  bool Send(Frame& frame);
  // The next frame for the guest; false: there is none.
  bool Receive(Frame* frame);
  // How often Send() has woken the thread by a system call.
  u64 wakes() const { return wakes_; }
  // What `notice` told is about to be looked at; the next change is told again.
  void Noticed() { noticed_.store(false); }

  // Whether the guest takes TCP segments larger than its MTU; at first, no.
  virtual void SetLargeReceive(bool) {}

  // --- Constants ---
  // Frames to the guest have right checksums, by construction.
  virtual bool checksums_hold() const { return false; }
  // TCP segments of up to 64 KB may be sent in one frame, and come if the guest agrees (below).
  virtual bool large_segments() const { return false; }
  // What the guest's interface may send and gets at most, without the Ethernet header and apart
  // from large segments.
  virtual u16 mtu() const { return 1500; }

 protected:
  Backend() = default;

  // --- On the thread ---
  // What to wait for besides the queue, and at most for how long (ms, -1: for ever).
  virtual void Fill(std::vector<pollfd>* fds, int* timeout_ms) = 0;
  // After poll(): the descriptors that Fill() appended, in their order.
  virtual void Served(std::span<const pollfd> fds) = 0;
  virtual void FromGuest(Frame& frame) = 0;

  // Drops the frame if the guest leaves too many waiting.
  void ToGuest(Frame frame);
  // False: the guest has enough to take; a good time not to read more from the host.
  bool GuestHasRoom();
  // The derived class's destructor begins with this.
  void Stop();

 private:
  void Work();
  void Wake();

  std::function<void()> notice_;
  int wake_fd_ = -1;
  std::thread thread_;
  std::atomic<bool> noticed_ = false;
  bool quiet_ = true;
  std::unique_ptr<Capture> capture_;  // the thread's; may be null
  u64 wakes_ = 0;                     // the VCPU's thread's

  std::mutex mutex_;  // of what follows
  std::deque<Frame> to_host_, to_guest_;
  std::size_t to_host_bytes_ = 0, to_guest_bytes_ = 0;
  bool asleep_ = false;   // the thread waits, or is about to, and looks at the queue only if woken
  bool refused_ = false;  // Send() had no room
  bool held_ = false;     // GuestHasRoom() said no
  bool ending_ = false;
};

}  // namespace alibi::net

#endif  // ALIBI_DEVICES_NET_BACKEND_H_
