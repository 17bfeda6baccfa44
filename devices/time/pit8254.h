// SPDX-License-Identifier: Apache-2.0
// The Intel 8254 programmable interval timer (data sheet 231164) and the PC's port 0x61 around it.
//
// Nothing ticks: a channel remembers when its counter was loaded, and every question (count, OUT,
// next interrupt) is computed from the clock.
#ifndef ALIBI_DEVICES_TIME_PIT8254_H_
#define ALIBI_DEVICES_TIME_PIT8254_H_

#include <array>
#include <functional>

#include "base/types.h"
#include "devices/device.h"
#include "devices/irq.h"
#include "devices/time/clock.h"
#include "devices/time/timer_queue.h"

namespace alibi::devices {

// One counter. Time is in ticks of the counter's input clock (i64: a load lies one tick ahead).
class PitCounter {
 public:
  static constexpr i64 kNever = INT64_MAX;

  void WriteControl(u8 control, i64 now);
  void WriteData(u8 value, i64 now);
  u8 ReadData(i64 now);
  void LatchCount(i64 now);
  void LatchStatus(i64 now);
  void SetGate(bool gate, i64 now);

  bool gate() const { return gate_; }
  bool Out(i64 now);
  u16 Count(i64 now);
  u8 mode() const { return mode_; }

  // The first tick after `now` at which OUT rises by itself or a waiting count is loaded.
  i64 NextEvent(i64 now);
  // Whether OUT is the periodic output of mode 2 or 3.
  bool periodic() const { return mode_ == 2 || mode_ == 3; }
  // The tick of the latest rising edge that OUT made by counting (not by being programmed), at or
  // before `now`; negative if there was none.
  i64 LastRise(i64 now);
  // Of a counter that counts down once, in mode 0: the tick at which OUT will rise. Else kNever.
  i64 EndOfCountdown(i64 now);

 private:
  // Read/write format, as in the control word.
  enum Format : u8 { kLsb = 1, kMsb = 2, kLsbThenMsb = 3 };

  i64 Modulus() const { return bcd_ ? 10000 : 65536; }
  i64 DecodeCount(u16 raw) const;
  u16 EncodeCount(i64 count) const;
  void Load(i64 count, i64 at);
  void Settle(i64 now);
  i64 Elapsed(i64 now) const { return (paused_ ? pause_tick_ : now) - start_; }
  i64 Boundary(i64 now) const;
  i64 RiseOfElement(i64 now) const;
  void Stop(i64 now);
  u8 StatusByte(i64 now);

  u8 mode_ = 0;
  bool bcd_ = false;
  u8 format_ = kLsbThenMsb;
  bool gate_ = true;

  bool second_write_ = false;
  bool second_read_ = false;
  u8 first_byte_ = 0;
  u16 count_register_ = 0;

  // The counting element: loaded with `count_` at tick `start_`, if `running_`.
  bool running_ = false;
  i64 count_ = 65536;
  i64 start_ = 0;
  bool paused_ = false;  // gate low in a mode where that stops the count
  i64 pause_tick_ = 0;
  i64 earlier_rise_ = -1;  // of counting elements since replaced
  u16 idle_value_ = 0;     // what the counter holds while it is not running

  // A count written but not yet in the counting element. `load_tick_` is when it will be: kNever
  // if that takes a trigger.
  bool count_waiting_ = false;
  bool null_count_ = false;
  i64 waiting_count_ = 0;
  i64 load_tick_ = kNever;

  bool count_latched_ = false;
  u16 latched_count_ = 0;
  bool status_latched_ = false;
  u8 latched_status_ = 0;
};

// Ports 0x40-0x43 (offsets 0-3). Channel 0 drives `irq0`.
//
// The line to the interrupt controller differs from OUT0 in one unobservable way: the low part of
// a periodic output is collapsed to the moment before the rising edge, which saves a host timer
// event per period. Periods that nobody served in time are coalesced into one interrupt.
class Pit8254 : public Device {
 public:
  static constexpr u64 kFrequencyHz = 1'193'182;

  Pit8254(Clock& clock, TimerQueue& timers, IrqLine& irq0);

  u64 Read(u64 offset, unsigned size) override;
  void Write(u64 offset, unsigned size, u64 value) override;

  void Reset() override;

  // Channel 2, whose only use besides sound is to measure other clocks by it, began to count down
  // once; OUT will rise at `end_ns` of the clock.
  void OnCountdown(std::function<void(u64 end_ns)> call) { on_countdown_ = std::move(call); }

  void SetGate2(bool gate);
  bool gate2() const { return counters_[2].gate(); }
  bool out2();

  static i64 TicksAt(u64 ns);
  // The first nanosecond that belongs to `tick` or a later one.
  static u64 NsOfTick(i64 tick);

 private:
  i64 Now() { return TicksAt(clock_.NowNs()); }
  void ServeRises(u64 now_ns);
  void UpdateIrq();
  void OnTimer(u64 now_ns);
  void NoteCountdown();

  Clock& clock_;
  TimerQueue& timers_;
  IrqLine& irq0_;
  TimerQueue::TimerId timer_;
  std::array<PitCounter, 3> counters_;
  i64 served_until_ = 0;  // rising edges up to this tick have been passed on
  u64 last_irq_ns_ = 0;
  std::function<void(u64)> on_countdown_;
};

// Port 0x61, one byte: speaker gate and data, refresh toggle, OUT of channel 2.
class SystemControlPort : public Device {
 public:
  SystemControlPort(Clock& clock, Pit8254& pit) : clock_(clock), pit_(pit) {}
  u64 Read(u64 offset, unsigned size) override;
  void Write(u64 offset, unsigned size, u64 value) override;
  void Reset() override { Write(0, 1, 0); }

 private:
  Clock& clock_;
  Pit8254& pit_;
  u8 written_ = 0;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_TIME_PIT8254_H_
