// SPDX-License-Identifier: Apache-2.0
#include "devices/time/pit8254.h"

#include <algorithm>

namespace alibi::devices {
namespace {

// Port 0x61.
constexpr u8 kGate2 = 0x01;
constexpr u8 kWritableBits = 0x0f;
constexpr u8 kRefreshToggle = 0x10;
constexpr u8 kOut2 = 0x20;
// DRAM refresh requests: channel 1 of the original PC, 18 ticks apart.
constexpr u64 kRefreshPeriodNs = 15'085;

constexpr u8 kStatusOut = 0x80;
constexpr u8 kStatusNullCount = 0x40;

}  // namespace

i64 PitCounter::DecodeCount(u16 raw) const {
  if (!bcd_) return raw == 0 ? 65536 : raw;
  // A digit above 9 is undefined in the data sheet; it counts with its weight here.
  const i64 count = (raw >> 12) * 1000 + (raw >> 8 & 15) * 100 + (raw >> 4 & 15) * 10 + (raw & 15);
  return count == 0 ? 10000 : count;
}

u16 PitCounter::EncodeCount(i64 count) const {
  count %= Modulus();
  if (count < 0) count += Modulus();
  if (!bcd_) return static_cast<u16>(count);
  return static_cast<u16>((count / 1000) << 12 | (count / 100 % 10) << 8 | (count / 10 % 10) << 4 |
                          count % 10);
}

void PitCounter::Stop(i64 now) {
  earlier_rise_ = std::max(earlier_rise_, RiseOfElement(now));
  idle_value_ = Count(now);
  running_ = false;
  count_waiting_ = false;
  load_tick_ = kNever;
}

void PitCounter::Load(i64 count, i64 at) {
  earlier_rise_ = std::max(earlier_rise_, RiseOfElement(at));
  running_ = true;
  count_ = count;
  start_ = at;
  paused_ = false;
}

// The tick at which the current period (mode 2) or half period (mode 3) ends, after `now`.
i64 PitCounter::Boundary(i64 now) const {
  const i64 elapsed = std::max<i64>(now - start_, 0);
  const i64 period_start = start_ + elapsed / count_ * count_;
  const i64 high = (count_ + 1) / 2;
  if (mode_ == 3 && now - period_start < high) return period_start + high;
  return period_start + count_;
}

// Brings a waiting count into the counting element if its time has come.
void PitCounter::Settle(i64 now) {
  if (!count_waiting_ || load_tick_ > now) return;
  const i64 at = load_tick_;
  count_waiting_ = false;
  load_tick_ = kNever;
  null_count_ = false;
  if (mode_ == 3 && running_) {
    // Loaded at the end of a half: if that was the high one, the low half follows.
    const bool enters_low = (at - start_) % count_ != 0;
    Load(waiting_count_, enters_low ? at - (waiting_count_ + 1) / 2 : at);
    return;
  }
  Load(waiting_count_, at);
  if (!gate_ && (mode_ == 0 || mode_ == 4)) {
    paused_ = true;
    pause_tick_ = at;
  }
}

void PitCounter::WriteControl(u8 control, i64 now) {
  Settle(now);
  Stop(now);
  mode_ = control >> 1 & 7;
  if (mode_ > 5) mode_ &= 3;  // 6 and 7 are 2 and 3 with a don't-care bit
  bcd_ = control & 1;
  format_ = control >> 4 & 3;
  second_write_ = false;
  second_read_ = false;
  paused_ = false;
  null_count_ = true;
  count_latched_ = false;
  status_latched_ = false;
}

void PitCounter::WriteData(u8 value, i64 now) {
  Settle(now);
  if (format_ == kLsbThenMsb && !second_write_) {
    first_byte_ = value;
    second_write_ = true;
    if (mode_ == 0) {
      Stop(now);  // the first byte stops the count and pulls OUT low at once
    }
    return;
  }
  second_write_ = false;
  count_register_ = format_ == kLsb   ? value
                    : format_ == kMsb ? static_cast<u16>(value << 8)
                                      : static_cast<u16>(value << 8 | first_byte_);
  if (mode_ == 0) Stop(now);
  waiting_count_ = DecodeCount(count_register_);
  count_waiting_ = true;
  null_count_ = true;
  switch (mode_) {
    case 0:
    case 4:
      load_tick_ = now + 1;
      break;
    case 2:
    case 3:
      // A running period (or half) is finished with the old count. With the gate low the count
      // is loaded, but stands still until the trigger loads it again.
      if (!gate_) {
        load_tick_ = kNever;
        idle_value_ = EncodeCount(waiting_count_);
        null_count_ = false;
      } else {
        load_tick_ = running_ ? Boundary(now) : now + 1;
      }
      break;
    default:  // 1 and 5: the trigger loads
      load_tick_ = kNever;
      break;
  }
}

void PitCounter::SetGate(bool gate, i64 now) {
  Settle(now);
  if (gate == gate_) return;
  gate_ = gate;
  switch (mode_) {
    case 0:
    case 4:
      if (!running_) break;
      if (!gate) {
        paused_ = true;
        pause_tick_ = now;
      } else if (paused_) {
        start_ += now - pause_tick_;
        paused_ = false;
      }
      break;
    case 2:
    case 3: {
      if (!gate) {
        const bool reload = running_ || count_waiting_;
        const i64 count = count_waiting_ ? waiting_count_ : count_;
        if (running_) Stop(now);
        count_waiting_ = reload;
        waiting_count_ = count;
        load_tick_ = kNever;
      } else if (count_waiting_) {
        load_tick_ = now + 1;
      }
      break;
    }
    default:  // 1 and 5: a rising gate (re)triggers with the newest count
      if (!gate) break;
      if (!count_waiting_) {
        if (!running_) break;  // no count was ever written
        waiting_count_ = count_;
        count_waiting_ = true;
      }
      load_tick_ = now + 1;
      break;
  }
}

bool PitCounter::Out(i64 now) {
  Settle(now);
  // Before the load, and whenever not counting, OUT is low in mode 0 and high otherwise.
  if (!running_) return mode_ != 0;
  const i64 elapsed = Elapsed(now);
  switch (mode_) {
    case 0:
    case 1:
      return elapsed >= count_;
    case 2:
      return elapsed < 0 || elapsed % count_ != count_ - 1;
    case 3:
      return elapsed < 0 || elapsed % count_ < (count_ + 1) / 2;
    default:
      return elapsed != count_;
  }
}

u16 PitCounter::Count(i64 now) {
  Settle(now);
  if (!running_) return idle_value_;
  const i64 elapsed = std::max<i64>(Elapsed(now), 0);
  if (mode_ == 2) return EncodeCount(count_ - elapsed % count_);
  if (mode_ == 3) {
    const i64 high = (count_ + 1) / 2;
    const i64 phase = elapsed % count_;
    const i64 in_half = phase < high ? phase : phase - high;
    return EncodeCount((count_ & ~i64{1}) - 2 * in_half);
  }
  return EncodeCount(count_ - elapsed);
}

void PitCounter::LatchCount(i64 now) {
  if (count_latched_) return;
  latched_count_ = Count(now);
  count_latched_ = true;
  second_read_ = false;
}

u8 PitCounter::StatusByte(i64 now) {
  const u8 out = Out(now) ? kStatusOut : 0;
  const u8 null_count = null_count_ ? kStatusNullCount : 0;
  return static_cast<u8>(out | null_count | format_ << 4 | mode_ << 1 | (bcd_ ? 1 : 0));
}

void PitCounter::LatchStatus(i64 now) {
  if (status_latched_) return;
  latched_status_ = StatusByte(now);
  status_latched_ = true;
}

u8 PitCounter::ReadData(i64 now) {
  if (status_latched_) {
    status_latched_ = false;
    return latched_status_;
  }
  const u16 count = count_latched_ ? latched_count_ : Count(now);
  const bool high_byte = format_ == kMsb || (format_ == kLsbThenMsb && second_read_);
  if (format_ == kLsbThenMsb) {
    second_read_ = !second_read_;
    if (!second_read_) count_latched_ = false;
  } else {
    count_latched_ = false;
  }
  return static_cast<u8>(high_byte ? count >> 8 : count);
}

i64 PitCounter::NextEvent(i64 now) {
  Settle(now);
  i64 next = count_waiting_ ? load_tick_ : kNever;
  if (!running_ || paused_) return next;
  const i64 elapsed = now - start_;
  switch (mode_) {
    case 0:
    case 1:
      if (elapsed < count_) next = std::min(next, start_ + count_);
      break;
    case 2:
    case 3: {
      const i64 periods = elapsed < 0 ? 0 : elapsed / count_;
      next = std::min(next, start_ + (periods + 1) * count_);
      break;
    }
    default:
      if (elapsed < count_ + 1) next = std::min(next, start_ + count_ + 1);
      break;
  }
  return next;
}

i64 PitCounter::RiseOfElement(i64 now) const {
  if (!running_) return -1;
  const i64 elapsed = Elapsed(now);
  switch (mode_) {
    case 0:
    case 1:
      return elapsed >= count_ ? start_ + count_ : -1;
    case 2:
    case 3:
      return elapsed >= count_ ? start_ + elapsed / count_ * count_ : -1;
    default:
      return elapsed > count_ ? start_ + count_ + 1 : -1;
  }
}

i64 PitCounter::LastRise(i64 now) {
  Settle(now);
  return std::max(earlier_rise_, RiseOfElement(now));
}

i64 PitCounter::EndOfCountdown(i64 now) {
  Settle(now);
  if (mode_ != 0 || !gate_) return kNever;
  if (count_waiting_) return load_tick_ + waiting_count_;
  return running_ && Elapsed(now) < count_ ? start_ + count_ : kNever;
}

Pit8254::Pit8254(Clock& clock, TimerQueue& timers, IrqLine& irq0)
    : clock_(clock),
      timers_(timers),
      irq0_(irq0),
      timer_(timers.Register([this](u64 now_ns) { OnTimer(now_ns); })) {
  counters_[2].SetGate(false, 0);
}

void Pit8254::Reset() {
  counters_.fill({});
  counters_[2].SetGate(false, 0);
  served_until_ = Now();
  UpdateIrq();
}

i64 Pit8254::TicksAt(u64 ns) {
  return static_cast<i64>(static_cast<unsigned __int128>(ns) * kFrequencyHz / 1'000'000'000);
}

u64 Pit8254::NsOfTick(i64 tick) {
  if (tick <= 0) return 0;
  return static_cast<u64>(
      (static_cast<unsigned __int128>(tick) * 1'000'000'000 + (kFrequencyHz - 1)) / kFrequencyHz);
}

void Pit8254::SetGate2(bool gate) {
  if (gate == gate2()) return;
  counters_[2].SetGate(gate, Now());
  NoteCountdown();
}

void Pit8254::NoteCountdown() {
  if (!on_countdown_) return;
  const i64 end = counters_[2].EndOfCountdown(Now());
  if (end != PitCounter::kNever) on_countdown_(NsOfTick(end));
}

bool Pit8254::out2() { return counters_[2].Out(Now()); }

u64 Pit8254::Read(u64 offset, unsigned) {
  // The control register cannot be read: the data lines float.
  return offset < 3 ? counters_[offset].ReadData(Now()) : 0xff;
}

void Pit8254::Write(u64 offset, unsigned, u64 value) {
  const i64 now = Now();
  const u8 byte = static_cast<u8>(value);
  ServeRises(clock_.NowNs());
  if (offset < 3) {
    counters_[offset].WriteData(byte, now);
    if (offset == 0) UpdateIrq();
    if (offset == 2) NoteCountdown();
    return;
  }
  const unsigned select = byte >> 6;
  if (select == 3) {  // read-back; both latch bits are active low
    for (unsigned i = 0; i < counters_.size(); ++i) {
      if (!(byte & 2u << i)) continue;
      if (!(byte & 0x20)) counters_[i].LatchCount(now);
      if (!(byte & 0x10)) counters_[i].LatchStatus(now);
    }
  } else if ((byte & 0x30) == 0) {
    counters_[select].LatchCount(now);
  } else {
    counters_[select].WriteControl(byte, now);
    if (select == 0) UpdateIrq();
  }
}

void Pit8254::ServeRises(u64 now_ns) {
  const i64 now = TicksAt(now_ns);
  if (counters_[0].LastRise(now) > served_until_) {
    irq0_.Set(false);
    irq0_.Set(true);
    last_irq_ns_ = now_ns;
  }
  served_until_ = now;
}

// After channel 0 was programmed: drives the line to OUT and arms the next event.
void Pit8254::UpdateIrq() {
  const i64 now = Now();
  PitCounter& counter = counters_[0];
  irq0_.Set(counter.periodic() || counter.Out(now));
  const i64 next = counter.NextEvent(now);
  timers_.Arm(timer_, next == PitCounter::kNever ? TimerQueue::kNever : NsOfTick(next));
}

void Pit8254::OnTimer(u64 now_ns) {
  ServeRises(now_ns);
  const i64 next = counters_[0].NextEvent(TicksAt(now_ns));
  if (next == PitCounter::kNever) return;
  u64 deadline = NsOfTick(next);
  if (counters_[0].periodic()) {
    deadline = std::max(deadline, last_irq_ns_ + kShortestTimerPeriodNs);
  }
  timers_.Arm(timer_, deadline);
}

u64 SystemControlPort::Read(u64, unsigned) {
  u8 value = written_;
  if (clock_.NowNs() / kRefreshPeriodNs & 1) value |= kRefreshToggle;
  if (pit_.out2()) value |= kOut2;
  return value;
}

void SystemControlPort::Write(u64, unsigned, u64 value) {
  written_ = value & kWritableBits;
  pit_.SetGate2(value & kGate2);
}

}  // namespace alibi::devices
