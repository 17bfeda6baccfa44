// SPDX-License-Identifier: Apache-2.0
#include "devices/virtio/net.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "devices/net/offload.h"

namespace alibi::devices::virtio {
namespace {

// Feature bits (5.1.3).
constexpr u64 kChecksum = u64{1} << 0, kGuestChecksum = u64{1} << 1, kMtu = u64{1} << 3,
              kMac = u64{1} << 5, kGuestTso4 = u64{1} << 7, kHostTso4 = u64{1} << 11,
              kMergeable = u64{1} << 15, kStatus = u64{1} << 16;
// Configuration: the address, status, the number of queue pairs, the MTU.
constexpr unsigned kConfigStatus = 6, kConfigPairs = 8, kConfigMtu = 10;
constexpr u8 kLinkUp = 1;
// In the header, behind what frames have everywhere.
constexpr unsigned kBuffers = sizeof(net::OffloadHeader);
// A driver with less room would often wait for room instead of notifying of the third frame.
constexpr u16 kLeastCombinedQueue = 4 * net::kMostCombined;

void Put16(u8* at, u64 value) {
  at[0] = static_cast<u8>(value);
  at[1] = static_cast<u8>(value >> 8);
}

}  // namespace

Net::Net(const net::MacAddress& mac, std::shared_ptr<net::Backend> backend,
         const net::Optimize& optimize, const Wiring& wiring)
    : backend_(std::move(backend)),
      optimize_(optimize),
      clock_(wiring.clock),
      timers_(wiring.timers),
      tick_(timers_.Register([this](u64) { Tick(); })) {
  std::copy(mac.begin(), mac.end(), config_.begin());
  config_[kConfigStatus] = kLinkUp;
  config_[kConfigPairs] = 1;
  Put16(&config_[kConfigMtu], backend_->mtu());
}

Status Net::Connect(Mailbox& mailbox) {
  backend_->set_quiet(optimize_.notify);
  return backend_->Start([this, &mailbox] { mailbox.Post([this] { Noticed(); }); });
}

u64 Net::features() const {
  u64 features = kMac | kStatus | kMtu | kMergeable | kChecksum | kGuestChecksum;
  if (backend_->large_segments()) features |= kHostTso4 | kGuestTso4;
  return features;
}

void Net::Start(u64 features) {
  features_ = features;
  // One without the other makes no sense (5.1.3.1).
  backend_->SetLargeReceive((features & kGuestTso4) && (features & kGuestChecksum));
}

void Net::Reset() {
  features_ = 0;
  has_held_ = false;
  timers_.Cancel(tick_);
  backend_->SetLargeReceive(false);
}

void Net::ResetQueue(unsigned queue) {
  if (queue == kReceive) has_held_ = false;
}

void Net::Process(unsigned queue) {
  NoteCrossing();
  if (queue == kTransmit) {
    ++tallies_.virtio_net_notified;
    Transmit(/*may_hold=*/true);
  } else {
    Deliver();
    TransmitHeld();
  }
}

void Net::Noticed() {
  NoteCrossing();
  backend_->Noticed();
  if (transport().running()) {
    Deliver();
    Transmit(/*may_hold=*/true);  // there may have been no room before
    return;
  }
  // Nobody is there to take them.
  for (net::Frame frame; backend_->Receive(&frame);) {
  }
}

void Net::Deliver() {
  Virtqueue& queue = transport().queue(kReceive);
  if (!queue.enabled()) return;
  DeliverFrames();
  // While nothing waits for room, new room is no news.
  queue.WantNotifications(has_held_);
  // There may be room that came before the driver knew so.
  if (has_held_ && queue.HasChains()) {
    DeliverFrames();
    queue.WantNotifications(has_held_);
  }
  transport().Interrupt(kReceive);
}

// As many as there are, or have room.
void Net::DeliverFrames() {
  for (;;) {
    if (!has_held_) {
      bool sums_hold;
      if (!backend_->Receive(&held_, &sums_hold)) return;
      Describe(sums_hold);
    }
    has_held_ = !DeliverFrame(held_);
    if (has_held_ || !transport().queue(kReceive).ok()) return;
  }
}

void Net::Describe(bool sums_hold) {
  header_.fill(0);
  if (!sums_hold || !(features_ & kGuestChecksum)) return;
  net::OffloadHeader offload;
  offload.flags = net::OffloadHeader::kDataValid;
  net::TcpSegment segment;
  if (backend_->IsLarge(held_) && (features_ & kGuestTso4) && net::FindTcp(held_, &segment)) {
    net::SetPseudoHeaderSum(held_, segment);
    offload = net::DescribeSegment(segment, backend_->mtu());
  }
  std::memcpy(header_.data(), &offload, sizeof(offload));
}

bool Net::DeliverFrame(const net::Frame& frame) {
  Virtqueue& queue = transport().queue(kReceive);
  const u64 total = kHeaderBytes + frame.size();
  const bool mergeable = features_ & kMergeable;
  u64 room = 0;
  std::size_t count = 0;
  while (room < total) {
    if (merged_.size() == count) merged_.emplace_back();
    if (!queue.Pop(&merged_[count])) {
      for (; count != 0; --count) queue.Unpop();
      return false;
    }
    room += merged_[count++].writable_bytes;
    if (room < total && (!mergeable || count == queue.size())) {
      // It never fits: lost.
      for (; count != 0; --count) queue.Unpop();
      return true;
    }
  }
  Put16(&header_[kBuffers], count);
  u64 done = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Chain& chain = merged_[i];
    const u64 size = std::min(chain.writable_bytes, total - done);
    u64 at = 0;
    // The header lies in the first buffer, or in the first ones if they are that small.
    if (done < kHeaderBytes) {
      at = std::min(size, kHeaderBytes - done);
      if (!queue.CopyTo(chain, 0, header_.data() + done, at)) return true;
    }
    if (!queue.CopyTo(chain, at, frame.data() + (done + at - kHeaderBytes), size - at)) return true;
    queue.Push(chain, static_cast<u32>(size));
    done += size;
  }
  ++tallies_.virtio_net_received;
  traffic_.Received(total);
  return true;
}

void Net::NoteCrossing() {
  if (optimize_.combine) traffic_.Crossed(clock_.NowNs());
}

void Net::Crossed() {
  NoteCrossing();
  TransmitHeld();
}

void Net::TransmitHeld() {
  if (timers_.IsArmed(tick_) && transport().running() && transport().queue(kTransmit).HasChains()) {
    Transmit(/*may_hold=*/true);
  }
}

// Without a frame in a whole tick there is no stream: the next one tells of itself again.
void Net::Tick() {
  if (transport().running()) Transmit(transport().queue(kTransmit).HasChains());
}

void Net::Transmit(bool may_hold) {
  Virtqueue& queue = transport().queue(kTransmit);
  if (optimize_.combine) {
    const u64 now = clock_.NowNs();
    const bool hold = may_hold && queue.has_event_index() && queue.size() >= kLeastCombinedQueue &&
                      traffic_.may_combine(now);
    queue.NotifyAfter(hold ? net::kMostCombined : 1);
    if (!hold) {
      timers_.Cancel(tick_);
    } else if (!timers_.IsArmed(tick_)) {
      timers_.Arm(tick_, now + net::kCombiningTickNs);
    }
  }
  Chain chain;
  while (queue.Pop(&chain)) {
    std::array<u8, kHeaderBytes> header;
    const u64 bytes = chain.readable_bytes;
    if (bytes > kHeaderBytes && bytes <= kHeaderBytes + kMaxFrame) {
      net::Frame frame(bytes - kHeaderBytes);
      if (!queue.CopyFrom(chain, 0, header.data(), kHeaderBytes) ||
          !queue.CopyFrom(chain, kHeaderBytes, frame.data(), frame.size())) {
        break;
      }
      if (Finish(header, frame)) {
        if (!backend_->Send(frame)) {
          // The backend tells when it has room.
          queue.Unpop();
          break;
        }
        ++tallies_.virtio_net_transmitted;
        traffic_.Sent(bytes);
      }
    }
    queue.Push(chain, 0);
  }
  transport().Interrupt(kTransmit);
}

bool Net::Finish(const std::array<u8, kHeaderBytes>& header, net::Frame& frame) const {
  net::OffloadHeader offload;
  std::memcpy(&offload, header.data(), sizeof(offload));
  if (!(offload.flags & offload.kNeedsChecksum)) return true;
  const bool large =
      backend_->IsLarge(frame) && (offload.segmentation & ~offload.kEcn) == offload.kTcp4;
  if (large && backend_->sums_large_segments()) return true;
  // The field holds the pseudo header's sum already (5.1.6.2).
  return net::FinishSum(frame, offload.sum_start,
                        std::size_t{offload.sum_start} + offload.sum_offset);
}

}  // namespace alibi::devices::virtio
