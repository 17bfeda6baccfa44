// SPDX-License-Identifier: Apache-2.0
// The network device (virtio 1.2, section 5.1): one queue each way, mergeable buffers, checksums
// and large segments done by the host.
//
// Send combining (devices/net/combine.h): while crossings are frequent, the transmit queue's event
// index tells the driver to notify at the third frame only; a timer looks for fewer of them once a
// tick.
#ifndef ALIBI_DEVICES_VIRTIO_NET_H_
#define ALIBI_DEVICES_VIRTIO_NET_H_

#include <array>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "devices/mailbox.h"
#include "devices/net/backend.h"
#include "devices/net/combine.h"
#include "devices/net/options.h"
#include "devices/time/clock.h"
#include "devices/time/timer_queue.h"
#include "devices/virtio/virtio_device.h"

namespace alibi::devices::virtio {

// What happened, for those who measure.
struct NetTallies {
#define ALIBI_VIRTIO_NET_COUNTER(name, what) u64 name = 0;
#include "devices/virtio/net_counters.inc"
#undef ALIBI_VIRTIO_NET_COUNTER
};

class Net final : public VirtioDevice {
 public:
  static constexpr unsigned kReceive = 0, kTransmit = 1;
  // In front of each frame, both ways (5.1.6); the same with and without mergeable buffers.
  static constexpr u64 kHeaderBytes = 12;
  // The largest frame: 64 KB of IP behind Ethernet and VLAN headers.
  static constexpr u64 kMaxFrame = 65535 + 18;

  // What is referred to outlives the device.
  struct Wiring {
    Clock& clock;
    TimerQueue& timers;
  };
  Net(const net::MacAddress& mac, std::shared_ptr<net::Backend> backend,
      const net::Optimize& optimize, const Wiring& wiring);
  // Frames may come from here on; `mailbox` outlives the device.
  Status Connect(Mailbox& mailbox);

  // The guest's world was left for another reason: frames that have waited for that go out.
  void Crossed();
  const NetTallies& tallies() const { return tallies_; }

  const char* name() const override { return "virtio-net"; }
  u16 id() const override { return 1; }
  u32 pci_class() const override { return 0x020000; }
  unsigned queue_count() const override { return 2; }
  u64 features() const override;
  std::span<const u8> config() const override { return config_; }
  void Start(u64 features) override;
  void Process(unsigned queue) override;
  void Reset() override;
  void ResetQueue(unsigned queue) override;

 private:
  void Noticed();
  void Deliver();
  void DeliverFrames();
  // False: the guest has no room for it now.
  bool DeliverFrame(const net::Frame& frame);
  // Describes held_ in header_, and leaves what the driver is told to do itself.
  void Describe(bool sums_hold);
  // Frames leave as far as the queue has some, and the host takes them. `may_hold`: if crossings
  // are frequent, the next ones may wait for one.
  void Transmit(bool may_hold);
  // Frames that wait, if any do.
  void TransmitHeld();
  void Tick();
  void NoteCrossing();
  // What the driver left for us to do with the frame; false: it makes no sense.
  bool Finish(const std::array<u8, kHeaderBytes>& header, net::Frame& frame) const;

  std::shared_ptr<net::Backend> backend_;
  const net::Optimize optimize_;
  Clock& clock_;
  TimerQueue& timers_;
  TimerQueue::TimerId tick_;  // armed while frames may wait
  net::Traffic traffic_;
  NetTallies tallies_;
  std::array<u8, 12> config_{};
  u64 features_ = 0;
  bool has_held_ = false;  // held_ waits for room in the guest
  net::Frame held_;
  std::array<u8, kHeaderBytes> header_{};  // held_'s
  std::vector<Chain> merged_;              // scratch of DeliverFrame()
};

}  // namespace alibi::devices::virtio

#endif  // ALIBI_DEVICES_VIRTIO_NET_H_
