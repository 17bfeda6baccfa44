// SPDX-License-Identifier: Apache-2.0
// The receiver: from the host, or a loop, to the guest's ring.
#include <algorithm>
#include <utility>

#include "devices/lance/bits.h"
#include "devices/lance/lance.h"
#include "devices/lance/wire.h"

namespace alibi::devices::lance {
namespace {

// A descriptor's length field has 12 bits.
constexpr std::size_t kMostStored = 0xfff;
constexpr std::size_t kHeader = 14;
// Data of a frame of the least length.
constexpr std::size_t kLeastData = kLeastFrame - kHeader;
// Fields of a receive descriptor that the chip writes.
constexpr u32 kChipFlags =
    kOwn | kDescriptorErr | kFram | kOflo | kCrc | kBuff | kStp | kEnp | kPam | kLafm | kBam;

}  // namespace

void Lance::Noticed() {
  if (optimize_.combine) traffic_.Crossed(clock_.NowNs());
  backend_->Noticed();
  Deliver();
  if (unsent_ || held_ != 0) Transmit();
  ArmPoll();
}

void Lance::Deliver() {
  const bool hears = running(kRxon) && (registers_.csr(15) & (kLoop | kIntl)) != (kLoop | kIntl);
  for (;;) {
    if (!waits_ && !backend_->Receive(&waiting_)) break;
    // Frames pass by an interface that is switched off.
    if (!hears || DeliverFrame(waiting_)) {
      waits_ = false;
      continue;
    }
    if (!std::exchange(waits_, true)) retries_ = 0;
    if (retries_ < kPatience) break;
    do {
      Missed();
    } while (backend_->Receive(&waiting_));
    waits_ = false;
  }
  UpdateInterrupt();
}

bool Lance::DeliverFrame(net::Frame& frame) {
  // What a host sends without padding is padded on a wire.
  if (frame.size() < kLeastFrame) frame.resize(kLeastFrame);
  if (frame.size() + kFcsBytes > kMostStored) return true;
  const std::size_t size = frame.size();
  const u32 fcs = ~Crc(frame);
  for (std::size_t i = 0; i < kFcsBytes; ++i) frame.push_back(static_cast<u8>(fcs >> 8 * i));
  const bool received = ReceiveFrame(frame, /*check_sequence_holds=*/true);
  frame.resize(size);  // it may be tried again
  return received;
}

bool Lance::ReceiveFrame(const net::Frame& frame, bool check_sequence_holds) {
  const u32 match = MatchAddress(registers_, frame);
  if (match == 0) return true;
  // Runt frames are for tests only; those of the loop are not refused.
  if (frame.size() < kLeastFrame + kFcsBytes &&
      !((registers_.csr(124) & kRpa) || (registers_.csr(15) & kLoop))) {
    return true;
  }
  Descriptor descriptor;
  if (!receive_ring_.Load(&descriptor)) {
    MemoryError(kRxon);
    return true;
  }
  if (!(descriptor.flags & kOwn)) return false;
  u32 last_flags = kEnp;
  if (registers_.size32()) last_flags |= match & (kPam | kLafm | kBam);
  if (!check_sequence_holds) last_flags |= kDescriptorErr | kCrc;
  if (!ReceiveInto(descriptor, frame, last_flags)) MemoryError(kRxon);
  return true;
}

// Padding and the check sequence are stripped of frames that tell their length, if the driver
// wishes.
std::size_t Lance::StoredSize(const net::Frame& frame) const {
  if (!(registers_.csr(4) & kAstrpRcv) || frame.size() < kHeader) return frame.size();
  const std::size_t length = static_cast<std::size_t>(frame[12]) << 8 | frame[13];
  return length < kLeastData ? std::min(kHeader + length, frame.size()) : frame.size();
}

// False: a buffer or a descriptor is not in memory.
bool Lance::ReceiveInto(Descriptor descriptor, const net::Frame& frame, u32 last_flags) {
  const std::size_t total = StoredSize(frame);
  u32 flags = kStp;
  for (std::size_t done = 0;;) {
    const std::size_t size = std::min<std::size_t>(descriptor.size(), total - done);
    if (!dma_.Write(PhysAddr(descriptor.address), frame.data() + done, size)) return false;
    done += size;
    if (done == total) break;
    descriptor.flags = (descriptor.flags & ~kChipFlags) | flags;
    if (!receive_ring_.Store(descriptor)) return false;
    receive_ring_.Advance();
    flags = 0;
    Descriptor next;
    if (!receive_ring_.Load(&next)) return false;
    if (!(next.flags & kOwn)) {
      // The rest has no place: the frame ends in an error, in the buffer before.
      descriptor.flags |= kDescriptorErr | kBuff | kOflo;
      if (!receive_ring_.StorePrevious(descriptor)) return false;
      registers_.Raise(0, kRint);
      return true;
    }
    descriptor = next;
  }
  descriptor.flags = (descriptor.flags & ~kChipFlags) | flags | last_flags;
  descriptor.status = static_cast<u32>(total);  // no runts, no collisions
  if (!receive_ring_.Store(descriptor)) return false;
  receive_ring_.Advance();
  ++tallies_.lance_received;
  traffic_.Received(total);
  registers_.Raise(0, kRint);
  return true;
}

void Lance::Missed() {
  registers_.Raise(0, kMiss);
  ++tallies_.lance_missed;
  const u16 count = static_cast<u16>(registers_.csr(112) + 1);
  registers_.set_csr(112, count);
  if (count == 0) registers_.Raise(4, kMfco);
}

}  // namespace alibi::devices::lance
