// SPDX-License-Identifier: Apache-2.0
// The transmitter: from the guest's ring to the host, or back by a loop.
#include <x86intrin.h>

#include <algorithm>

#include "devices/lance/bits.h"
#include "devices/lance/lance.h"
#include "devices/lance/wire.h"

namespace alibi::devices::lance {

void Lance::Transmit() {
  unfinished_ = false;
  held_ = 0;
  unsigned left = kMostAtOnce;
  while (running(kTxon) && TransmitNext()) {
    if (--left != 0) continue;
    unfinished_ = true;
    break;
  }
  UpdateInterrupt();
}

bool Lance::TransmitNext() {
  Descriptor descriptor;
  if (!transmit_ring_.Load(&descriptor)) {
    MemoryError(kTxon);
    return false;
  }
  if (!(descriptor.flags & kOwn)) return false;
  if (unsent_) return TransmitLast(descriptor);
  if (!in_frame_) {
    frame_.clear();
    frame_bytes_ = 0;
    if (!(descriptor.flags & kStp)) {
      descriptor.flags &= ~kOwn;
      if (!transmit_ring_.Store(descriptor)) {
        MemoryError(kTxon);
        return false;
      }
      transmit_ring_.Advance();
      return true;
    }
  }
  if (!CopyFromGuest(descriptor)) {
    MemoryError(kTxon);
    return false;
  }
  if (descriptor.flags & kEnp) return TransmitLast(descriptor);

  // The frame goes on in the next one, which must be there already.
  descriptor.flags &= ~kOwn;
  if (!transmit_ring_.Store(descriptor)) {
    MemoryError(kTxon);
    return false;
  }
  transmit_ring_.Advance();
  Descriptor next;
  if (!transmit_ring_.Load(&next)) {
    MemoryError(kTxon);
    return false;
  }
  in_frame_ = next.flags & kOwn;
  if (!in_frame_) Underflow(descriptor);
  return true;
}

// Of a frame that is too long for the wire only the length is of interest.
bool Lance::CopyFromGuest(const Descriptor& descriptor) {
  constexpr std::size_t kMostKept = kMostFrame + kFcsBytes;
  const std::size_t before = frame_.size();
  const std::size_t kept = std::min<std::size_t>(descriptor.size(), kMostKept - before);
  frame_.resize(before + kept);
  frame_bytes_ += descriptor.size();
  return dma_.Read(PhysAddr(descriptor.address), frame_.data() + before, kept);
}

void Lance::Underflow(Descriptor& descriptor) {
  descriptor.flags |= kDescriptorErr;
  descriptor.status |= kTransmitBuff | kTransmitUflo;
  if (!transmit_ring_.StorePrevious(descriptor)) return MemoryError(kTxon);
  if (!(registers_.csr(3) & kDxsuflo)) registers_.Lower(0, kTxon);
  registers_.Raise(0, kTint);
}

bool Lance::TransmitLast(Descriptor& descriptor) {
  if (SendFrame(descriptor) == Sent::kNoRoom) {
    unsent_ = true;  // the backend tells when it has room
    return false;
  }
  in_frame_ = unsent_ = false;
  descriptor.flags &= ~(kOwn | kDescriptorErr);
  descriptor.status = 0;
  if (!transmit_ring_.Store(descriptor)) {
    MemoryError(kTxon);
    return false;
  }
  transmit_ring_.Advance();
  registers_.Raise(4, kTxstrt);
  // With LTINTEN the driver says which frames it wants to hear of.
  if (!(registers_.csr(5) & kLtinten) || (descriptor.flags & kLtint)) registers_.Raise(0, kTint);
  return true;
}

// The host's network has check sequences of its own, and who else would look at this one?
Lance::Sent Lance::SendBare() {
  const u64 begin = __rdtsc();
  const std::size_t bytes = frame_.size();
  const bool sent = backend_->Send(frame_);
  tallies_.lance_send_cycles += __rdtsc() - begin;
  if (!sent) return Sent::kNoRoom;
  ++tallies_.lance_transmitted;
  traffic_.Sent(bytes);
  return Sent::kDone;
}

Lance::Sent Lance::SendFrame(const Descriptor& descriptor) {
  const u16 mode = registers_.csr(15);
  const bool add_fcs = !(mode & kDxmtfcs) || (descriptor.flags & kAddFcs);
  if (unsent_ && bare_) return SendBare();
  if (!unsent_) {
    if (add_fcs && (registers_.csr(4) & kApadXmt) && frame_.size() < kLeastFrame) {
      frame_bytes_ = kLeastFrame;
      frame_.resize(kLeastFrame);
    }
    if (frame_bytes_ + (add_fcs ? kFcsBytes : 0) >= kBabbleBytes) registers_.Raise(0, kBabl);
    if (frame_bytes_ > kMostFrame + (add_fcs ? 0 : kFcsBytes)) return Sent::kDone;  // lost
    bare_ = add_fcs && !(mode & kLoop);
    if (bare_) return SendBare();
    if (add_fcs) {
      const u32 fcs = ~Crc(frame_);
      for (std::size_t i = 0; i < kFcsBytes; ++i) {
        frame_.push_back(static_cast<u8>(fcs >> 8 * i));
      }
    }
  }
  if ((mode & kLoop) && (mode & kIntl)) {
    LoopBack();
    return Sent::kDone;
  }
  // The frame of a driver that computes check sequences itself arrives only if it is right.
  const std::size_t size = frame_.size() < kFcsBytes ? 0 : frame_.size() - kFcsBytes;
  u32 fcs = 0;
  for (std::size_t i = 0; i < kFcsBytes && size != 0; ++i) fcs |= u32{frame_[size + i]} << 8 * i;
  if (size != 0 && fcs == ~Crc(std::span<const u8>(frame_).first(size))) {
    net::Frame outgoing(frame_.begin(), frame_.begin() + static_cast<std::ptrdiff_t>(size));
    if (!backend_->Send(outgoing)) return Sent::kNoRoom;
    ++tallies_.lance_transmitted;
    traffic_.Sent(size);
  }
  if (mode & kLoop) LoopBack();
  return Sent::kDone;
}

void Lance::LoopBack() {
  if (frame_.size() < kFcsBytes || !running(kRxon)) return;
  const std::size_t size = frame_.size() - kFcsBytes;
  u32 fcs = 0;
  for (std::size_t i = 0; i < kFcsBytes; ++i) fcs |= u32{frame_[size + i]} << 8 * i;
  if (!ReceiveFrame(frame_, fcs == ~Crc(std::span<const u8>(frame_).first(size)))) Missed();
}

}  // namespace alibi::devices::lance
