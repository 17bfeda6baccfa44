// SPDX-License-Identifier: Apache-2.0
#include "devices/lance/lance.h"

#include <algorithm>
#include <utility>

#include "devices/lance/bits.h"

namespace alibi::devices::lance {
namespace {

constexpr u64 kFirstRegister = 0x10;
constexpr unsigned kMostRingLog = 9;

}  // namespace

Lance::Lance(const net::MacAddress& address, std::shared_ptr<net::Backend> backend,
             const net::Optimize& optimize, const Wiring& wiring)
    : address_(address),
      backend_(std::move(backend)),
      dma_(wiring.dma),
      interrupt_(wiring.interrupt),
      clock_(wiring.clock),
      timers_(wiring.timers),
      poll_timer_(timers_.Register([this](u64) { Poll(); })),
      optimize_(optimize),
      transmit_ring_(Direction::kTransmit, registers_, dma_),
      receive_ring_(Direction::kReceive, registers_, dma_) {
  Reset();
}

Status Lance::Connect(Mailbox& mailbox) {
  backend_->set_quiet(optimize_.notify);
  return backend_->Start([this, &mailbox] { mailbox.Post([this] { Noticed(); }); });
}

void Lance::Reset() {
  registers_.Clear(Registers::Reset::kHReset);
  FillAprom();
  for (unsigned i = 0; i < 3; ++i) {
    registers_.set_csr(12 + i, static_cast<u16>(address_[2 * i] | address_[2 * i + 1] << 8));
  }
  demands_ = false;
  Stop();
}

// As the EEPROM of a card has it: the hardware is PCI (byte 9), and the checksum is of all bytes
// but its own.
void Lance::FillAprom() {
  aprom_.fill(0);
  std::copy(address_.begin(), address_.end(), aprom_.begin());
  aprom_[9] = 0x11;
  aprom_[14] = aprom_[15] = 'W';
  unsigned sum = 0;
  for (const u8 byte : aprom_) sum += byte;
  aprom_[12] = static_cast<u8>(sum);
  aprom_[13] = static_cast<u8>(sum >> 8);
}

void Lance::SoftReset() {
  registers_.Clear(Registers::Reset::kSReset);
  demands_ = false;
  Stop();
}

void Lance::Stop() {
  registers_.Clear(Registers::Reset::kStopBit);
  in_frame_ = unsent_ = unfinished_ = waits_ = false;
  held_ = 0;
  timers_.Cancel(poll_timer_);
  UpdateInterrupt();
}

// --- Registers ---

u64 Lance::Read(u64 offset, unsigned size) {
  u64 value;
  if (ReadQuietly(PortAt(offset, size), offset, size, &value)) return value;
  SoftReset();
  return 0;
}

void Lance::Write(u64 offset, unsigned size, u64 value) {
  if (optimize_.combine) traffic_.Crossed(clock_.NowNs());
  const unsigned held_before = held_;
  if (offset == kFirstRegister && size == 4) registers_.EnterDwio();
  switch (PortAt(offset, size)) {
    case Port::kData:
      WriteCsr(static_cast<u16>(value));
      break;
    case Port::kAddress:
      registers_.rap = static_cast<u32>(value & (Registers::kCsrs - 1));
      break;
    case Port::kBusData:
      registers_.WriteBcr(registers_.rap, static_cast<u16>(value));
      break;
    case Port::kAprom:
      if (!(registers_.bcr(2) & kApromWrite)) break;
      for (unsigned i = 0; i < size; ++i) aprom_[offset + i] = static_cast<u8>(value >> 8 * i);
      break;
    case Port::kReset:  // cards of the NE2100 kind want a write behind the read
    case Port::kNone:
      break;
  }
  // This was a crossing: what has waited for one goes along.
  if (held_ != 0 && held_ == held_before) Transmit();
}

void Lance::WriteCsr(u16 value) {
  switch (registers_.rap) {
    case 0:
      return WriteControl(value);
    case 4:
      return WriteFeatures(value);
    case 5:
      return WriteExtendedControl(value);
    default:
      registers_.WriteCsr(registers_.rap, value);
      if (registers_.rap == 3) UpdateInterrupt();
  }
}

void Lance::WriteControl(u16 value) {
  // STOP wins over everything else.
  if (value & kStop) return Stop();
  registers_.Lower(0, value & kCsr0Events);
  registers_.Lower(0, kIena);
  registers_.Raise(0, value & kIena);
  const u16 begun = static_cast<u16>(value & ~registers_.csr(0));
  if (begun & kInit) Initialize();
  if (begun & kStrt) Start();
  if ((value & kTdmd) && running(kTxon)) {
    demands_ = true;
    ++tallies_.lance_demands;
    if (MayHold()) {
      ++held_;
      ++tallies_.lance_held;
    } else {
      Transmit();
    }
  }
  // A driver that has emptied buffers tells of it here, if anywhere.
  if (waits_) Deliver();
  ArmPoll();
  UpdateInterrupt();
}

void Lance::WriteFeatures(u16 value) {
  registers_.Lower(4, value & kCsr4Events);
  registers_.WriteCsr(4, value);
  if (value & kUintcmd) registers_.Raise(4, kUint);
  ArmPoll();
  UpdateInterrupt();
}

void Lance::WriteExtendedControl(u16 value) {
  registers_.Lower(5, value & kCsr5Events);
  registers_.WriteCsr(5, value);
  ArmPoll();
  UpdateInterrupt();
}

void Lance::Initialize() {
  registers_.Lower(0, kStop);
  registers_.Raise(0, kInit);
  InitBlock block;
  if (!LoadInitBlock(registers_, dma_, &block)) return MemoryError(0);
  for (unsigned i = 0; i < 4; ++i) registers_.set_csr(8 + i, block.logical[i]);
  for (unsigned i = 0; i < 3; ++i) registers_.set_csr(12 + i, block.physical[i]);
  registers_.set_csr(15, block.mode);
  registers_.set_csr_pair(24, block.receive);
  registers_.set_csr_pair(30, block.transmit);
  const unsigned receive_log = std::min<unsigned>(block.receive_log_length, kMostRingLog);
  const unsigned transmit_log = std::min<unsigned>(block.transmit_log_length, kMostRingLog);
  registers_.set_csr(76, static_cast<u16>(0x10000u - (1u << receive_log)));
  registers_.set_csr(78, static_cast<u16>(0x10000u - (1u << transmit_log)));
  registers_.set_csr(
      6, static_cast<u16>(block.transmit_log_length << 12 | block.receive_log_length << 8));
  registers_.SetRingIndex(Direction::kReceive, 0);
  registers_.SetRingIndex(Direction::kTransmit, 0);
  registers_.Raise(0, kIdon);
}

void Lance::Start() {
  registers_.Lower(0, kStop);
  const u16 mode = registers_.csr(15);
  registers_.Raise(0,
                   static_cast<u16>(kStrt | (mode & kDrx ? 0 : kRxon) | (mode & kDtx ? 0 : kTxon)));
  registers_.SetRingIndex(Direction::kReceive, 0);
  registers_.SetRingIndex(Direction::kTransmit, 0);
  in_frame_ = unsent_ = unfinished_ = false;
  Transmit();
}

void Lance::MemoryError(u16 receiver_or_transmitter) {
  registers_.Lower(0, receiver_or_transmitter);
  registers_.Raise(0, kMerr);
  registers_.Raise(5, kSint);
  UpdateInterrupt();
}

void Lance::UpdateInterrupt() { interrupt_.Set(asserted()); }

// --- Polling, and waiting ---

bool Lance::MayHold() {
  return optimize_.combine && held_ + 1 < net::kMostCombined && !(registers_.csr(15) & kLoop) &&
         traffic_.may_combine(clock_.NowNs());
}

void Lance::Crossed() {
  if (!optimize_.combine) return;
  traffic_.Crossed(clock_.NowNs());
  if (held_ == 0) return;
  Transmit();
  ArmPoll();
}

void Lance::ArmPoll() {
  const u64 interval =
      std::max<u64>((0x10000u - registers_.csr(47)) * kClockNs, kShortestTimerPeriodNs);
  u64 after = TimerQueue::kNever;
  const bool polls_transmit = running(kTxon) && !(registers_.csr(4) & kTxdpoll) && !unsent_;
  if (polls_transmit) after = demands_ ? kSeldom * interval : interval;
  if (waits_ && running(kRxon)) after = std::min(after, kRetryNs);
  if (held_ != 0) after = std::min(after, net::kCombiningTickNs);
  if (unfinished_) after = kShortestTimerPeriodNs;
  if (after == TimerQueue::kNever) return timers_.Cancel(poll_timer_);
  const u64 deadline = clock_.NowNs() + after;
  // What is due earlier stays.
  if (!timers_.IsArmed(poll_timer_) || deadline < timers_.DeadlineOf(poll_timer_)) {
    timers_.Arm(poll_timer_, deadline);
  }
}

void Lance::Poll() {
  timers_.Cancel(poll_timer_);
  if (running(kTxon)) Transmit();
  if (waits_) {
    ++retries_;
    Deliver();
  }
  ArmPoll();
}

}  // namespace alibi::devices::lance
