// SPDX-License-Identifier: Apache-2.0
#include "devices/console/uart16550.h"

#include <utility>

namespace alibi::devices {
namespace {

enum Register : u64 {
  kData = 0,             // or divisor, low
  kInterruptEnable = 1,  // or divisor, high
  kInterruptIdentification = 2,
  kFifoControl = 2,
  kLineControl = 3,
  kModemControl = 4,
  kLineStatus = 5,
  kModemStatus = 6,
  kScratch = 7,
};

constexpr u8 kIerReceived = 0x01;
constexpr u8 kIerTransmitter = 0x02;
constexpr u8 kIerLineStatus = 0x04;
constexpr u8 kIerModemStatus = 0x08;

constexpr u8 kIirNone = 0x01;
constexpr u8 kIirModemStatus = 0x00;
constexpr u8 kIirTransmitter = 0x02;
constexpr u8 kIirReceived = 0x04;
constexpr u8 kIirLineStatus = 0x06;
constexpr u8 kIirTimeout = 0x0c;
constexpr u8 kIirFifos = 0xc0;

constexpr u8 kFcrEnable = 0x01;
constexpr u8 kFcrClearReceiver = 0x02;
constexpr u8 kFcrKept = 0xc9;

constexpr u8 kLcrDivisorLatch = 0x80;
constexpr u8 kLcrBreak = 0x40;

constexpr u8 kMcrDtr = 0x01;
constexpr u8 kMcrRts = 0x02;
constexpr u8 kMcrOut1 = 0x04;
constexpr u8 kMcrOut2 = 0x08;
constexpr u8 kMcrWritable = 0x1f;

constexpr u8 kLsrDataReady = 0x01;
constexpr u8 kLsrOverrun = 0x02;
constexpr u8 kLsrErrors = 0x1e;
constexpr u8 kLsrBreak = 0x10;
constexpr u8 kLsrTransmitterEmpty = 0x60;
constexpr u8 kLsrErrorInFifo = 0x80;

constexpr u8 kMsrCts = 0x10;
constexpr u8 kMsrDsr = 0x20;
constexpr u8 kMsrRi = 0x40;
constexpr u8 kMsrDcd = 0x80;

constexpr u64 kInputHz = 1'843'200;

}  // namespace

Uart16550::Uart16550(Clock& clock, TimerQueue& timers, IrqLine& irq, Sink sink)
    : clock_(clock),
      timers_(timers),
      irq_(irq),
      sink_(std::move(sink)),
      timeout_timer_(timers.Register([this](u64) {
        timeout_ = fifo_enabled() && fifo_count_ > 0;
        UpdateIrq();
      })),
      modem_inputs_(ModemInputs()) {}

void Uart16550::Reset() {
  divisor_ = 12;
  interrupt_enable_ = fifo_control_ = modem_control_ = line_errors_ = modem_delta_ = scratch_ = 0;
  line_control_ = 0x03;
  modem_inputs_ = ModemInputs();
  transmitter_interrupt_ = timeout_ = false;
  fifo_head_ = fifo_count_ = 0;
  timers_.Cancel(timeout_timer_);
  UpdateIrq();
}

unsigned Uart16550::trigger_level() const {
  static constexpr u8 kLevels[] = {1, 4, 8, 14};
  return fifo_enabled() ? kLevels[fifo_control_ >> 6] : 1;
}

u64 Uart16550::CharacterNs() const {
  const unsigned data_bits = 5 + (line_control_ & 3);
  const unsigned parity_bits = line_control_ >> 3 & 1;
  const unsigned stop_bits = 1 + (line_control_ >> 2 & 1);
  // A divisor of 0 stops the real baud generator; here it counts as the slowest one.
  const u64 divisor = divisor_ == 0 ? 65536 : divisor_;
  return (1 + data_bits + parity_bits + stop_bits) * divisor * 16 * 1'000'000'000 / kInputHz;
}

u8 Uart16550::IdentifyInterrupt() const {
  if ((interrupt_enable_ & kIerLineStatus) && line_errors_ != 0) return kIirLineStatus;
  if (interrupt_enable_ & kIerReceived) {
    if (fifo_count_ >= trigger_level()) return kIirReceived;
    if (timeout_) return kIirTimeout;
  }
  if ((interrupt_enable_ & kIerTransmitter) && transmitter_interrupt_) return kIirTransmitter;
  if ((interrupt_enable_ & kIerModemStatus) && modem_delta_ != 0) return kIirModemStatus;
  return kIirNone;
}

void Uart16550::UpdateIrq() {
  // On a PC the interrupt output reaches the bus through a gate that OUT2 opens.
  irq_.Set((modem_control_ & kMcrOut2) && IdentifyInterrupt() != kIirNone);
}

void Uart16550::RestartTimeout() {
  timeout_ = false;
  if (fifo_enabled() && fifo_count_ > 0) {
    timers_.Arm(timeout_timer_, clock_.NowNs() + 4 * CharacterNs());
  } else {
    timers_.Cancel(timeout_timer_);
  }
}

void Uart16550::Enqueue(Character character) {
  if (fifo_count_ == capacity()) {
    // With FIFOs the character in the shift register is lost, without them the one in the buffer.
    line_errors_ |= kLsrOverrun;
    if (!fifo_enabled()) fifo_[fifo_head_] = character;
  } else {
    fifo_[(fifo_head_ + fifo_count_) % kFifoSize] = character;
    ++fifo_count_;
    if (fifo_count_ == 1) line_errors_ |= character.errors;
  }
  RestartTimeout();
}

void Uart16550::TakeFromBacklog() {
  if (loopback() || backlog_.empty()) return;  // the wire is disconnected, or silent
  while (!backlog_.empty() && fifo_count_ < capacity()) {
    Enqueue({backlog_.front(), 0});
    backlog_.pop_front();
  }
  if (backlog_.empty() && drained_) drained_();
}

void Uart16550::Receive(u8 byte) {
  if (loopback()) return;
  Enqueue({byte, 0});
  UpdateIrq();
}

void Uart16550::Receive(std::string_view bytes) {
  backlog_.insert(backlog_.end(), bytes.begin(), bytes.end());
  TakeFromBacklog();
  UpdateIrq();
}

void Uart16550::ReceiveBreak() {
  if (loopback()) return;
  Enqueue({0, kLsrBreak});
  UpdateIrq();
}

void Uart16550::ClearReceiver() {
  fifo_count_ = 0;
  fifo_head_ = 0;
  RestartTimeout();
}

u8 Uart16550::ReadReceiveBuffer() {
  const u8 byte = fifo_[fifo_head_].byte;
  if (fifo_count_ > 0) {
    fifo_head_ = (fifo_head_ + 1) % kFifoSize;
    --fifo_count_;
    // Errors of a character show when it reaches the top of the FIFO.
    if (fifo_count_ > 0) line_errors_ |= fifo_[fifo_head_].errors;
    RestartTimeout();
    TakeFromBacklog();
  }
  return byte;
}

u8 Uart16550::LineStatus() const {
  u8 value = kLsrTransmitterEmpty | line_errors_;
  if (fifo_count_ > 0) value |= kLsrDataReady;
  if (fifo_enabled()) {
    for (unsigned i = 0; i < fifo_count_; ++i) {
      if (fifo_[(fifo_head_ + i) % kFifoSize].errors != 0) value |= kLsrErrorInFifo;
    }
  }
  return value;
}

u8 Uart16550::ReadLineStatus() {
  const u8 value = LineStatus();
  line_errors_ = 0;
  if (fifo_count_ > 0) fifo_[fifo_head_].errors = 0;  // reported now
  return value;
}

u8 Uart16550::ReadModemStatus() {
  const u8 value = modem_inputs_ | modem_delta_;
  modem_delta_ = 0;
  return value;
}

bool Uart16550::Peek(u64 offset, unsigned, u64* value) const {
  const bool divisor_latch = line_control_ & kLcrDivisorLatch;
  switch (offset) {
    case kData:
      *value = divisor_ & 0xff;
      return divisor_latch;
    case kInterruptEnable:
      *value = divisor_latch ? divisor_ >> 8 : interrupt_enable_;
      return true;
    case kLineControl:
      *value = line_control_;
      return true;
    case kModemControl:
      *value = modem_control_;
      return true;
    case kLineStatus:
      // Errors are gone when they have been read.
      *value = LineStatus();
      return (*value & ~u64{kLsrDataReady}) == kLsrTransmitterEmpty;
    case kInterruptIdentification:
    case kModemStatus:
      return false;
    default:
      *value = scratch_;
      return true;
  }
}

u64 Uart16550::Read(u64 offset, unsigned size) {
  u64 peeked;
  if (Peek(offset, size, &peeked)) return peeked;
  u8 value = 0;
  switch (offset) {
    case kData:
      value = ReadReceiveBuffer();
      break;
    case kInterruptIdentification:
      value = IdentifyInterrupt();
      if (value == kIirTransmitter) transmitter_interrupt_ = false;
      if (fifo_enabled()) value |= kIirFifos;
      break;
    case kLineStatus:
      value = ReadLineStatus();
      break;
    default:
      value = ReadModemStatus();
      break;
  }
  UpdateIrq();
  return value;
}

void Uart16550::Transmit(u8 byte) {
  if (loopback()) {
    Enqueue({byte, 0});
  } else if (sink_) {
    sink_(byte);
  }
  // Emptied again at once: the write withdrew the interrupt, the emptying raises it anew.
  transmitter_interrupt_ = true;
  irq_.Set(false);
}

void Uart16550::WriteFifoControl(u8 value) {
  const bool was_enabled = fifo_enabled();
  const bool enable = value & kFcrEnable;
  // Without the enable bit the other bits are not programmed.
  fifo_control_ = enable ? value & kFcrKept : 0;
  if (was_enabled != enable || (enable && (value & kFcrClearReceiver))) ClearReceiver();
  TakeFromBacklog();
}

u8 Uart16550::ModemInputs() const {
  if (!loopback()) return kMsrCts | kMsrDsr | kMsrDcd;
  u8 inputs = 0;
  if (modem_control_ & kMcrRts) inputs |= kMsrCts;
  if (modem_control_ & kMcrDtr) inputs |= kMsrDsr;
  if (modem_control_ & kMcrOut1) inputs |= kMsrRi;
  if (modem_control_ & kMcrOut2) inputs |= kMsrDcd;
  return inputs;
}

void Uart16550::UpdateModemStatus() {
  const u8 before = modem_inputs_;
  modem_inputs_ = ModemInputs();
  u8 changed = before ^ modem_inputs_;
  // The ring indicator reports only its trailing edge.
  if (modem_inputs_ & kMsrRi) changed &= static_cast<u8>(~kMsrRi);
  modem_delta_ |= static_cast<u8>(changed >> 4);
}

void Uart16550::WriteModemControl(u8 value) {
  modem_control_ = value & kMcrWritable;
  UpdateModemStatus();
  TakeFromBacklog();
}

void Uart16550::Write(u64 offset, unsigned, u64 value) {
  const u8 byte = static_cast<u8>(value);
  const bool divisor_latch = line_control_ & kLcrDivisorLatch;
  switch (offset) {
    case kData:
      if (divisor_latch) {
        divisor_ = static_cast<u16>((divisor_ & 0xff00) | byte);
      } else {
        Transmit(byte);
      }
      break;
    case kInterruptEnable:
      if (divisor_latch) {
        divisor_ = static_cast<u16>((divisor_ & 0x00ff) | byte << 8);
      } else {
        // Enabling the transmitter interrupt while the transmitter is empty raises it.
        if (!(interrupt_enable_ & kIerTransmitter) && (byte & kIerTransmitter)) {
          transmitter_interrupt_ = true;
        }
        interrupt_enable_ = byte & 0x0f;
      }
      break;
    case kFifoControl:
      WriteFifoControl(byte);
      break;
    case kLineControl: {
      const bool starts_break = (byte & kLcrBreak) && !(line_control_ & kLcrBreak);
      line_control_ = byte;
      if (starts_break && loopback()) Enqueue({0, kLsrBreak});
      break;
    }
    case kModemControl:
      WriteModemControl(byte);
      break;
    case kScratch:
      scratch_ = byte;
      break;
    default:  // line and modem status are read-only
      break;
  }
  UpdateIrq();
}

}  // namespace alibi::devices
