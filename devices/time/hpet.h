// SPDX-License-Identifier: Apache-2.0
// The high precision event timers (IA-PC HPET specification 1.0a): a counter of 64 bits at 100 MHz,
// and three comparators, each of which may be periodic. Interrupts go to inputs 20 to 23 of the I/O
// APIC, or, with legacy replacement routing, in the place of the 8254's and the RTC's.
//
// The counter is the machine's clock, computed when it is read; a timer of the host's runs only for
// comparators whose interrupt or status somebody wants.
#ifndef ALIBI_DEVICES_TIME_HPET_H_
#define ALIBI_DEVICES_TIME_HPET_H_

#include <array>
#include <functional>

#include "base/types.h"
#include "devices/device.h"
#include "devices/irq.h"
#include "devices/time/clock.h"
#include "devices/time/timer_queue.h"

namespace alibi::devices {

// An interrupt line that belongs to one of two, as a switch says.
class SwitchedLine {
 public:
  explicit SwitchedLine(IrqLine& line) : line_(line) {}
  // What is connected at first, and the other one.
  IrqLine& first() { return inputs_[0]; }
  IrqLine& second() { return inputs_[1]; }
  void Select(bool second);

 private:
  class Input : public IrqLine {
   public:
    explicit Input(SwitchedLine& owner) : owner_(owner) {}
    void Set(bool level) override {
      level_ = level;
      owner_.Drive();
    }
    bool level() const { return level_; }

   private:
    SwitchedLine& owner_;
    bool level_ = false;
  };
  void Drive() { line_.Set(inputs_[selected_].level()); }

  IrqLine& line_;
  unsigned selected_ = 0;
  std::array<Input, 2> inputs_{Input(*this), Input(*this)};
};

class Hpet : public Device {
 public:
  static constexpr PhysAddr kBase{0xfed00000};
  static constexpr u64 kSize = 0x400;
  static constexpr unsigned kTimers = 3;
  static constexpr u64 kTickNs = 10;
  static constexpr u32 kRoutes = 0x00f00000;  // the I/O APIC's inputs 20 to 23

  // `route` finds the wire to an input of the I/O APIC among kRoutes. Legacy replacement switches
  // `irq0` and `irq8` to their second inputs.
  Hpet(Clock& clock, TimerQueue& timers, SwitchedLine& irq0, SwitchedLine& irq8,
       std::function<IrqLine&(unsigned input)> route);

  u64 Read(u64 offset, unsigned size) override;
  void Write(u64 offset, unsigned size, u64 value) override;
  unsigned MaxAccessSize() const override { return 8; }
  void Reset() override;

  // The upper half of the event timer block ID is the counter's period; this is the lower one,
  // which ACPI repeats.
  static constexpr u32 kBlockId = 0x8086a201;

 private:
  struct Timer {
    u64 config = 0;
    u64 comparator = ~u64{0};
    u64 period = 0;
    u64 deadline = kNone;  // by the counter; kNone: nothing comes
    bool asserted = false;
    TimerQueue::TimerId id = 0;
  };
  static constexpr u64 kNone = ~u64{0};

  bool enabled() const { return config_ & 1; }
  bool legacy() const { return config_ & 2; }
  u64 Counter();
  u64 ReadRegister(u64 offset);
  void WriteRegister(u64 offset, u64 value, u64 mask);
  void WriteTimer(unsigned number, u64 offset, u64 value, u64 mask);
  void Configure(unsigned number, u64 value);
  // For when the counter reaches the comparator, which may be now.
  void Schedule(unsigned number);
  void SetDeadline(Timer& timer, u64 now, u64 ticks);
  void ScheduleAll();
  void Expire(unsigned number);
  IrqLine* LineOf(unsigned number);
  void UpdateLine(unsigned number);
  void SetConfig(u64 value);

  Clock& clock_;
  TimerQueue& timer_queue_;
  SwitchedLine& irq0_;
  SwitchedLine& irq8_;
  std::function<IrqLine&(unsigned)> route_;
  u64 config_ = 0;
  u64 status_ = 0;
  u64 counter_ = 0;  // halted: its value; else what to add to the clock's ticks
  std::array<Timer, kTimers> timers_;
};

}  // namespace alibi::devices

#endif  // ALIBI_DEVICES_TIME_HPET_H_
