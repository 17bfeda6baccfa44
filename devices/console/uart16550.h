// SPDX-License-Identifier: Apache-2.0
// A 16550A serial port as a PC wires it (National PC16550D data sheet), with a terminal that is
// always there at the other end: DSR, CTS and DCD asserted.
//
// Transmission takes no time: a byte written reaches the sink at once and THRE is always set.
// Reception is as fast as the guest reads, but the receive timeout interrupt keeps its four
// character times, because drivers tell "more to come" from "the end" by it.
#ifndef ALIBI_DEVICES_CONSOLE_UART16550_H_
#define ALIBI_DEVICES_CONSOLE_UART16550_H_

#include <array>
#include <deque>
#include <functional>
#include <string_view>
#include <utility>

#include "base/types.h"
#include "devices/device.h"
#include "devices/irq.h"
#include "devices/time/clock.h"
#include "devices/time/timer_queue.h"

namespace alibi::devices {

class Uart16550 : public Device {
 public:
  using Sink = std::function<void(u8)>;

  Uart16550(Clock& clock, TimerQueue& timers, IrqLine& irq, Sink sink);

  u64 Read(u64 offset, unsigned size) override;
  bool Peek(u64 offset, unsigned size, u64* value) const override;
  void Write(u64 offset, unsigned size, u64 value) override;

  // What has not yet been received waits on.
  void Reset() override;

  // A byte arrives on the wire now; if there is no room it is lost and LSR.OE is set.
  void Receive(u8 byte);
  // A patient sender (flow control): bytes wait outside until the guest makes room.
  void Receive(std::string_view bytes);
  // A break condition on the wire.
  void ReceiveBreak();

  // Bytes that wait outside.
  std::size_t backlog() const { return backlog_.size(); }
  // Called when the guest has taken the last byte that waited outside.
  void OnDrained(std::function<void()> drained) { drained_ = std::move(drained); }

 private:
  static constexpr unsigned kFifoSize = 16;

  struct Character {
    u8 byte;
    u8 errors;  // LSR bits that belong to it
  };

  u8 ReadReceiveBuffer();
  u8 LineStatus() const;
  u8 ReadLineStatus();
  u8 ReadModemStatus();
  u8 IdentifyInterrupt() const;
  void Transmit(u8 byte);
  void WriteFifoControl(u8 value);
  void WriteModemControl(u8 value);
  u8 ModemInputs() const;
  void UpdateModemStatus();
  void Enqueue(Character character);
  void TakeFromBacklog();
  void ClearReceiver();
  void RestartTimeout();
  void UpdateIrq();

  bool fifo_enabled() const { return fifo_control_ & 1; }
  bool loopback() const { return modem_control_ & 0x10; }
  unsigned capacity() const { return fifo_enabled() ? kFifoSize : 1; }
  unsigned trigger_level() const;
  u64 CharacterNs() const;

  Clock& clock_;
  TimerQueue& timers_;
  IrqLine& irq_;
  Sink sink_;
  std::function<void()> drained_;
  TimerQueue::TimerId timeout_timer_;

  u16 divisor_ = 12;  // 9600 baud, as a PC BIOS leaves it
  u8 interrupt_enable_ = 0;
  u8 fifo_control_ = 0;
  u8 line_control_ = 0x03;
  u8 modem_control_ = 0;
  u8 line_errors_ = 0;  // OE, PE, FE, BI as LSR shows them
  u8 modem_delta_ = 0;
  u8 modem_inputs_ = 0;
  u8 scratch_ = 0;
  bool transmitter_interrupt_ = false;
  bool timeout_ = false;

  std::array<Character, kFifoSize> fifo_{};
  unsigned fifo_head_ = 0;
  unsigned fifo_count_ = 0;
  std::deque<u8> backlog_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_CONSOLE_UART16550_H_
